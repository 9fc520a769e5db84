//! One step as text: a line, and the lines below it.

use std::fmt;

use serde_json::Value;

use super::fields::{Fields, sorted};
use crate::printable;

/// Words on a line, and further lines indented below it. All text is escaped and kept in its lines,
/// so that no text can look like another step.
#[derive(Debug, Default)]
pub(super) struct ScriptLine {
    head: String,
    /// The lines of a text or a diff that belongs to the line itself.
    text: Vec<String>,
    /// The lines of its parts, which come after that text.
    under: Vec<String>,
    text_bytes: usize,
}

impl ScriptLine {
    pub(super) fn new(text_bytes: usize) -> Self {
        ScriptLine { text_bytes, ..ScriptLine::default() }
    }

    /// Adds a fixed word.
    pub(super) fn add(&mut self, text: impl fmt::Display) -> &mut Self {
        if !self.head.is_empty() {
            self.head.push(' ');
        }
        self.head.push_str(&text.to_string());
        self
    }

    /// Adds a name or an id: bare if it is one word, otherwise in quotes.
    pub(super) fn word(&mut self, text: &str) -> &mut Self {
        let bare = |char: char| !char.is_whitespace() && !char.is_control() && char != '"';
        if text.is_empty() || !text.chars().all(bare) {
            return self.quoted(text);
        }
        let short = self.short(text);
        self.add(printable(&short))
    }

    /// Adds text in quotes.
    pub(super) fn quoted(&mut self, text: &str) -> &mut Self {
        let mut quoted = String::with_capacity(text.len() + 2);
        quoted.push('"');
        for char in self.short(text).chars() {
            match char {
                '"' => quoted.push_str("\\\""),
                '\\' => quoted.push_str("\\\\"),
                '\n' => quoted.push_str("\\n"),
                '\t' => quoted.push_str("\\t"),
                char => quoted.push(char),
            }
        }
        quoted.push('"');
        self.add(printable(&quoted))
    }

    /// Adds a text: in quotes if it is one line, otherwise as lines below.
    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        if !text.trim_end_matches('\n').contains('\n') {
            return self.quoted(text);
        }
        let short = self.short(text);
        self.text.extend(short.split('\n').map(|line| gutter("|", line)));
        self
    }

    /// Adds a line of a program's output without quotes.
    pub(super) fn output(&mut self, text: &str) -> &mut Self {
        let text = text.replace('\n', "\\n");
        let short = self.short(&text);
        self.add(gutter("|", &short))
    }

    /// Adds base64, or its size if it is long.
    pub(super) fn data(&mut self, data: &str) -> &mut Self {
        if data.len() <= 64 {
            return self.word(data);
        }
        self.sized(data)
    }

    /// Adds the size of a text that is not shown.
    pub(super) fn sized(&mut self, text: &str) -> &mut Self {
        self.add(format_args!("[{}]", size(text)))
    }

    /// Adds JSON.
    pub(super) fn json(&mut self, mut value: Value) -> &mut Self {
        shortened(&mut value, self.text_bytes);
        let text = sorted(value).to_string();
        let short = self.short(&text);
        self.add(printable(&short))
    }

    /// Adds the remaining fields as JSON.
    pub(super) fn rest(&mut self, fields: Fields) -> &mut Self {
        match fields.into_map() {
            map if map.is_empty() => self,
            map => self.json(Value::Object(map)),
        }
    }

    /// Adds a value of any type: a string as a word.
    pub(super) fn word_or_json(&mut self, value: Value) -> &mut Self {
        match value {
            Value::String(word) => self.word(&word),
            value => self.json(value),
        }
    }

    /// Adds a value of any type: a string as a text.
    pub(super) fn text_or_json(&mut self, value: Value) -> &mut Self {
        match value {
            Value::String(text) => self.text(&text),
            value => self.json(value),
        }
    }

    /// Puts a line below this one and below those that were put there before.
    pub(super) fn under(&mut self, write: impl FnOnce(&mut ScriptLine)) {
        let mut line = ScriptLine::new(self.text_bytes);
        write(&mut line);
        let indent = if line.head.is_empty() { "" } else { "  " };
        if !line.head.is_empty() {
            self.under.push(std::mem::take(&mut line.head));
        }
        self.under.extend(line.below().map(|below| format!("{indent}{below}")));
    }

    /// Returns the lines below this one.
    pub(super) fn below(&self) -> impl Iterator<Item = &String> {
        self.text.iter().chain(&self.under)
    }

    /// Puts the change from one text to another below.
    pub(super) fn change(&mut self, old: &str, new: &str) -> &mut Self {
        if !super::describe::diff_is_cheap(old, new) {
            return self.add(format_args!("[{}] -> [{}]", size(old), size(new)));
        }
        let diff = similar::TextDiff::from_lines(old, new);
        let mut unified = diff.unified_diff();
        let hunks: Vec<_> = unified.missing_newline_hint(false).iter_hunks().collect();
        for (index, hunk) in hunks.iter().enumerate() {
            if index > 0 {
                self.text.push("…".into());
            }
            for change in hunk.iter_changes() {
                let text = change.value();
                self.text.push(gutter(&change.tag().to_string(), text.strip_suffix('\n').unwrap_or(text)));
            }
        }
        // Lines far from a change are not shown, so the digest has to differ for them.
        let shown =
            hunks.iter().flat_map(|hunk| hunk.iter_changes()).filter(|change| change.new_index().is_some());
        if shown.count() < diff.new_slices().len() {
            self.add(format_args!("[{}]", size(new)));
        }
        if !new.is_empty() && !old.is_empty() && old.ends_with('\n') != new.ends_with('\n') {
            self.add(if new.ends_with('\n') {
                "(ends its last line)"
            } else {
                "(does not end its last line)"
            });
        }
        self
    }

    fn short<'a>(&self, text: &'a str) -> std::borrow::Cow<'a, str> {
        short(text, self.text_bytes)
    }
}

impl fmt::Display for ScriptLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.head)?;
        self.below().try_for_each(|line| writeln!(f, "  {line}"))
    }
}

/// Returns a line of text behind a mark. The last of the white space at its end is escaped, so that editors
/// do not remove it.
fn gutter(mark: &str, text: &str) -> String {
    let (shown, last) = match (text.strip_suffix(' '), text.strip_suffix('\t')) {
        (Some(shown), _) => (shown, "\\u{20}"),
        (_, Some(shown)) => (shown, "\\t"),
        _ => (text, ""),
    };
    if text.is_empty() { mark.trim_end().to_owned() } else { format!("{mark} {}{last}", printable(shown)) }
}

fn short(text: &str, bytes: usize) -> std::borrow::Cow<'_, str> {
    if text.len() <= bytes {
        return text.into();
    }
    let start = (0..=bytes / 2).rev().find_map(|end| text.get(..end)).unwrap_or_default();
    format!("{start}… [{}]", size(text)).into()
}

/// Shortens the long strings in a value.
fn shortened(value: &mut Value, bytes: usize) {
    match value {
        Value::String(text) if text.len() > bytes => *text = short(text, bytes).into_owned(),
        Value::Array(items) => items.iter_mut().for_each(|item| shortened(item, bytes)),
        Value::Object(map) => map.values_mut().for_each(|value| shortened(value, bytes)),
        _ => {}
    }
}

/// Returns the length and the digest of a text.
fn size(text: &str) -> String {
    format!("{} bytes, {:08x}", text.len(), digest(text.as_bytes()))
}

/// Returns the FNV-1a hash, folded to 32 bits. It never changes, so it can be part of a snapshot. It
/// detects changes and is no protection against forgery.
fn digest(bytes: &[u8]) -> u32 {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash ^ (hash >> 32)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(with: impl FnOnce(&mut ScriptLine)) -> String {
        let mut line = ScriptLine::new(40);
        with(&mut line);
        line.to_string()
    }

    #[test]
    fn text_is_quoted_or_put_below() {
        assert_eq!(shown(|line| _ = line.text("a \"b\" \\ c\n")), "\"a \\\"b\\\" \\\\ c\\n\"\n");
        assert_eq!(shown(|line| _ = line.add("x").text("a\n\n  b \t")), "x\n  | a\n  |\n  |   b \\t\n");
        let spaces = " ".repeat(20);
        assert_eq!(shown(|line| _ = line.output(&format!("a{spaces} "))), format!("| a{spaces}\\u{{20}}\n"));
        assert_eq!(shown(|line| _ = line.output("\t ")), "| \t\\u{20}\n");
        assert_eq!(
            shown(|line| _ = line.text("a\n← session/prompt\u{1b}[2J")),
            "\n  | a\n  | ← session/prompt\\u{1b}[2J\n"
        );
        assert_eq!(shown(|line| _ = line.word("a b").word("").word("c")), "\"a b\" \"\" c\n");
    }

    #[test]
    fn long_text_is_shortened_and_its_changes_are_seen() {
        let (a, b) = ("é".repeat(30), format!("{}x", "é".repeat(29)));
        let (a, b) = (shown(|line| _ = line.text(&a)), shown(|line| _ = line.text(&b)));
        assert_eq!(a, "\"éééééééééé… [60 bytes, 9083167e]\"\n");
        assert_ne!(a, b);
    }

    #[test]
    fn a_change_shows_its_surroundings() {
        let old: String = (1..12).map(|line| format!("line {line}\n")).collect();
        let new = old.replace("line 6", "six");
        insta::assert_snapshot!(shown(|line| _ = line.add("diff").change(&old, &new)), @r"
        diff [76 bytes, 510b36e4]
            line 3
            line 4
            line 5
          - line 6
          + six
            line 7
            line 8
            line 9
        ");
        insta::assert_snapshot!(shown(|line| _ = line.add("new").change("", "a\nb")), @r"
        new
          + a
          + b
        ");
    }
}
