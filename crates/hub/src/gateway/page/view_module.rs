//! The module with the functions that make elements: the script of the view, and the escapes of hidden characters.

use std::fmt::Write as _;
use std::sync::LazyLock;

use duologue_schema::INVISIBLE;
use duologue_transcript::view::VIEW_SCRIPT;

/// The exports. `make` and `printable` escape what [`duologue_schema::printable`] escapes.
const EXPORTS: &str = r"
/** Returns a text whose hidden and reordering characters are visible. */
function printable(text) {
  const escape = (char) => (char === '\r' ? '\\r' : `\\u{${char.codePointAt(0).toString(16)}}`);
  return String(text).replace(HIDDEN, escape);
}

/** Returns an element with a text, in which nothing is hidden. */
function makePrintable(tag, className, text) {
  return make(tag, className, text === undefined ? undefined : printable(text));
}

export { count, indented, itemView, makePrintable as make, printable };
";

/// Returns the module.
pub(crate) fn view_module() -> &'static str {
    static MODULE: LazyLock<String> = LazyLock::new(|| {
        let mut ranges = String::new();
        for range in INVISIBLE {
            let (first, last) = (u32::from(*range.start()), u32::from(*range.end()));
            // Writing to a string does not fail.
            let _ = write!(ranges, "\\u{{{first:x}}}-\\u{{{last:x}}}");
        }
        format!(
            "{VIEW_SCRIPT}\nconst HIDDEN = /(?![\\u200c\\u200d\\ufe0e\\ufe0f])[\\0-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u2028\\u2029{ranges}]/gu;\n{EXPORTS}"
        )
    });
    &MODULE
}
