//! Checks that this machine cannot run.
//!
//! Each is a line on stderr, also if the test passes, and a line of the file that `.ci/run` reads at its end.

use std::fmt;
use std::fs::OpenOptions;
use std::io::Write as _;

/// The variable with the path of the file that collects the lines.
const SKIPS_FILE: &str = "DUOLOGUE_SKIPS_FILE";

/// Reports a check that this machine cannot run. The test returns after it.
pub fn skipped(check: &str, reason: impl fmt::Display) {
    let line = format!("SKIPPED {check}: {reason}").replace('\n', " ") + "\n";
    // libtest captures the macros that print, not this handle.
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
    if let Some(path) = std::env::var_os(SKIPS_FILE) {
        // One write, so that lines of several processes do not mix.
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        assert!(written.is_ok(), "{}: {written:?}", path.display());
    }
}
