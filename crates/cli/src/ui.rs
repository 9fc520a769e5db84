//! Printing: colours only on a terminal, and text from agents only escaped.

use std::fmt::Display;
use std::io::Write as _;

use anstream::AutoStream;
use anstyle::{AnsiColor, Style};
pub(crate) use duologue_transcript::printable;

pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
pub(crate) const MARK: Style = AnsiColor::Cyan.on_default();

/// Returns standard output, for results. Colours are removed if it is no terminal or `NO_COLOR` is set.
pub(crate) fn stdout() -> AutoStream<std::io::Stdout> {
    AutoStream::auto(std::io::stdout())
}

/// Returns standard error, for everything else.
pub(crate) fn stderr() -> AutoStream<std::io::Stderr> {
    AutoStream::auto(std::io::stderr())
}

/// Prints an error.
pub(crate) fn print_error(error: &dyn Display) {
    // A failure cannot be reported anywhere.
    let _ = writeln!(stderr(), "{BAD}error{BAD:#}: {}", indented(&error.to_string()));
}

/// The beginning of the lines that `duologue connect` writes to stderr.
pub(crate) const CONNECT_LOG: &str = "duologue connect: ";

/// Escapes a text of a peer, and indents its later lines, which must not look like lines of ours.
pub(crate) fn indented(text: &str) -> String {
    printable(&text.replace('\n', "\n  ")).into_owned()
}

/// Writes a value as one line of JSON. Characters that [`printable`] escapes are escaped in JSON's syntax, so that
/// the value stays the same.
pub(crate) fn json_line(out: &mut impl std::io::Write, value: &impl serde::Serialize) -> std::io::Result<()> {
    let text = serde_json::to_string(value)?;
    writeln!(out, "{}", printable_json(&text))
}

/// Escapes the characters of a JSON text that [`printable`] escapes. They occur only inside strings.
pub(crate) fn printable_json(text: &str) -> std::borrow::Cow<'_, str> {
    use std::fmt::Write as _;
    if matches!(printable(text), std::borrow::Cow::Borrowed(_)) {
        return text.into();
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for char in text.chars() {
        if matches!(printable(char.encode_utf8(&mut [0; 4])), std::borrow::Cow::Borrowed(_)) {
            safe.push(char);
        } else {
            for unit in char.encode_utf16(&mut [0; 2]) {
                let _ = write!(safe, "\\u{unit:04x}");
            }
        }
    }
    safe.into()
}

/// Returns a count with its noun: `1 frame`, `2 frames`.
pub(crate) fn plural(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
