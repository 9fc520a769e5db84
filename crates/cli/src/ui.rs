//! Printing: colours only for a terminal, and nothing an agent says reaches it unescaped.

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

/// Where results go. Styles are left out when it is no terminal or `NO_COLOR` is set.
pub(crate) fn stdout() -> AutoStream<std::io::Stdout> {
    AutoStream::auto(std::io::stdout())
}

/// Where everything else goes.
pub(crate) fn stderr() -> AutoStream<std::io::Stderr> {
    AutoStream::auto(std::io::stderr())
}

/// Says what went wrong.
pub(crate) fn complain(error: &dyn Display) {
    let text = error.to_string();
    // Nobody is left to tell when this fails.
    let _ = writeln!(stderr(), "{BAD}error{BAD:#}: {}", printable(&text));
}
