//! Checks that did not run as they should: skipped on this machine, or repeated after a failure.
//!
//! Each is a line on stderr, also if the test passes, and a line of the file that `cargo xtask ci` counts at its end.

use std::fmt;
use std::fs::OpenOptions;
use std::io::Write as _;

/// The variable with the path of the file that collects the lines.
pub const SKIPS_FILE: &str = "DUOLOGUE_SKIPS_FILE";

/// Reports a check that this machine cannot run. The test returns after it.
pub fn skipped(check: &str, reason: impl fmt::Display) {
    report(format!("SKIPPED {check}: {reason}"));
}

/// Reports a check that failed with `first_failure` and is repeated.
pub fn repeated(check: &str, first_failure: impl fmt::Display) {
    report(format!("REPEATED {check}: {first_failure}"));
}

fn report(line: String) {
    let line = line.replace('\n', " ") + "\n";
    // libtest captures the macros that print, not this handle.
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
    if let Some(path) = std::env::var_os(SKIPS_FILE) {
        // One write, so that lines of several processes do not mix.
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        assert!(written.is_ok(), "{}: {written:?}", path.display());
    }
}
