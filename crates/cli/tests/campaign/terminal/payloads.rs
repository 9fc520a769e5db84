//! The payloads of a hostile agent: everything that a terminal obeys, reorders or hides.

/// Stands in each sequence, where none of our own has it.
const MARK: &str = "31337";

/// The payloads, each behind its number: `p7:…`.
pub(crate) fn payloads() -> Vec<String> {
    let controls = ('\0'..='\u{9f}').filter(|char| char.is_control() && !matches!(char, '\n' | '\t'));
    let marks =
        "\u{61c}\u{200e}\u{200f}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2066}\u{2067}\u{2068}\u{2069}";
    let unseen =
        "\u{2028}\u{2029}\u{200b}\u{2060}\u{2062}\u{2064}\u{206a}\u{206f}\u{feff}\u{e0001}\u{e0041}\u{e007f}";
    let single = controls.chain(marks.chars()).chain(unseen.chars()).map(|char| format!("a{char}b"));
    let finals = ('@'..='~').map(|last| format!("\u{1b}[{MARK}{last}"));
    let short = "ABCDHJKmnr".chars().map(|last| format!("\u{9b}{MARK}{last}"));
    let modes =
        ["?1049h", "?25l", "?1000h", "?2004h", "?1;1h", ">1u", "!p", "=0;1u", "6n", "0c", ">c", "5i", " q"];
    let modes = modes.map(|mode| format!("\u{1b}[{mode}"));
    let commands =
        ["0", "1", "2", "4", "7", "8;;http://x", "9", "10", "11", "52;c", "104", "133;A", "777", "1337"];
    let commands = commands
        .iter()
        .flat_map(|number| ["\u{7}", "\u{1b}\\"].map(|end| format!("\u{1b}]{number};{MARK}{end}")));
    let strings =
        ["\u{1b}P", "\u{1b}_", "\u{1b}^", "\u{1b}X", "\u{90}", "\u{9f}", "\u{9e}", "\u{98}", "\u{9d}"];
    let strings = strings.map(|begin| format!("{begin}{MARK}\u{9c}"));
    let escapes = "cDEHMNOZ78=>".chars().map(|last| format!("\u{1b}{last}"));
    let others = [
        "\u{1b}#8",
        "\u{1b}(0lqk\u{1b}(B",
        "\u{1b}%G",
        "\u{1b}\u{1b}[31337m",
        "\u{1b}[31337\u{1b}[2J",
        "\u{1b}[31337\n1A",
        "\u{1b}\t[31337A",
        "safe\rSAFE",
        "rm -rf\u{8}\u{8}\u{8}\u{8}\u{8}\u{8}ls",
        "y\r\n\u{1b}[31337A",
        "\r\r\n\r",
        "\u{202e}txt.exe\u{202c}",
        "\u{2066}\u{202e}\u{2069}\u{2066}",
        "\u{1b}]0;never ended",
        "\u{1b}[38;5;31337",
        "\u{1b}",
    ];
    let all = single.chain(finals).chain(short).chain(modes).chain(commands).chain(strings).chain(escapes);
    let all = all.chain(others.map(String::from));
    all.enumerate().map(|(number, payload)| format!("p{number}:{payload}")).collect()
}

/// Finds the first character that a terminal obeys, reorders or hides, except in sequences that we draw with.
/// Returns it with the text around it, or `None` if the output is safe.
pub(crate) fn obeyed(output: &str) -> Option<String> {
    // The program turns the marks of pasted text on at its start, and off once.
    let output = output.strip_prefix("\u{1b}[?2004h").unwrap_or(output).replacen("\u{1b}[?2004l", "", 1);
    let mut rest = output.as_str();
    let mut last = "";
    while let Some(at) = rest.find(is_raw) {
        let (before, found) = rest.split_at(at);
        let length = match found.strip_prefix('\u{1b}') {
            Some(sequence) => ours(sequence).map(|length| 1 + length),
            // Back to the first column: before we draw, or at the end of a line.
            None if found.starts_with('\r') => {
                let row = before.is_empty() && last == "\u{1b}[?7l";
                let next = found.chars().nth(1);
                (row || next.is_some_and(|next| matches!(next, '\r' | '\n' | '\u{1b}'))).then_some(1)
            }
            None => None,
        };
        let Some(length) = length else {
            let around: String = before.chars().rev().take(40).collect();
            let around: String = around.chars().rev().chain(found.chars().take(40)).collect();
            return Some(around.escape_debug().to_string());
        };
        (last, rest) = found.split_at(length);
    }
    None
}

fn is_raw(char: char) -> bool {
    let control = char.is_control() && !matches!(char, '\n' | '\t');
    control
        || matches!(
            char,
            '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{feff}'
        )
        || matches!(char, '\u{2060}'..='\u{206f}' | '\u{e0000}'..='\u{e007f}')
}

/// Returns the length of a sequence that sets a style or draws the screen, or `None` for any other.
fn ours(sequence: &str) -> Option<usize> {
    let length = sequence.find(|char: char| char.is_ascii_alphabetic())? + 1;
    let (sequence, _) = sequence.split_at(length);
    let params = sequence.strip_prefix('[')?;
    let drawn = ["K", "J", "?7l", "?7h"].contains(&params);
    let number = |params: &str| params.bytes().all(|byte| byte.is_ascii_digit() || byte == b';');
    let moved = params.strip_suffix(['A', 'B', 'C', 'm']).is_some_and(number) && !params.contains(MARK);
    (drawn || moved).then_some(length)
}

/// Each of them would be noticed.
#[test]
fn every_payload_as_it_is_would_be_obeyed() {
    for payload in payloads() {
        assert!(obeyed(&payload).is_some(), "{payload:?}");
    }
    assert_eq!(obeyed("\u{1b}[?7l\rx\u{1b}[K\u{1b}[1;31m\ty\u{1b}[0m\r\n\r\u{1b}[2A"), None);
}
