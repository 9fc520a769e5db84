//! The checks that a run skipped or repeated, which are counted at its end.

use std::path::PathBuf;
use std::process::Command;

use duologue_test_support::SKIPS_FILE;

use crate::interop::Result;

/// The checks that may be skipped, each for a reason outside of the repository. All others fail the run.
const MAY_BE_SKIPPED: [&str; 7] = [
    // No network.
    "advisories",
    "other systems",
    // Another compiler or C library than the baseline's.
    "instructions",
    // A system that gives us no mounts of our own.
    "taps::full_disk",
    "store::full_disk",
    // A user who is not root.
    "a_file_of_another_user_is_not_updated",
    "an_update_keeps_the_group",
];

/// Returns the file of the skips of this run, unless the caller collects them.
fn file() -> Option<PathBuf> {
    std::env::var_os(SKIPS_FILE).is_none().then(|| crate::target::folder().join("skips.txt"))
}

/// Runs `work`. The process that collects the skips starts this command again instead, and prints them after it.
pub(super) fn collected(args: &[String], work: impl FnOnce() -> Result<()>) -> Result<()> {
    let Some(file) = file() else { return work() };
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(&file, "")?;
    let mut command = Command::new(std::env::current_exe()?);
    let success = command.arg("ci").args(args).env(SKIPS_FILE, &file).status()?.success();
    let summary = Summary::read(&std::fs::read_to_string(&file)?);
    super::print(&summary.text);
    match (success, summary.forbidden.as_slice()) {
        (false, _) => Err("a step failed".into()),
        (true, []) => Ok(()),
        (true, forbidden) => Err(format!(
            "{} checks were skipped that must run: {}; provide what they need, or add them to {}",
            forbidden.len(),
            forbidden.join(", "),
            file!()
        )
        .into()),
    }
}

#[derive(Debug, PartialEq)]
struct Summary {
    text: String,
    /// The skipped checks that must not be skipped.
    forbidden: Vec<String>,
}

impl Summary {
    fn read(lines: &str) -> Self {
        let mut checks: Vec<&str> = lines.lines().collect();
        checks.sort_unstable();
        checks.dedup();
        let skipped: Vec<&str> = checks.iter().filter_map(|line| line.strip_prefix("SKIPPED ")).collect();
        let repeated = checks.len() - skipped.len();
        let mut text = format!("\n== {} checks skipped, {repeated} repeated", skipped.len());
        checks.iter().for_each(|line| text += &format!("\n{line}"));
        let names = skipped.iter().map(|line| line.split(": ").next().unwrap_or_default());
        let forbidden = names.filter(|name| !MAY_BE_SKIPPED.contains(name)).map(str::to_owned).collect();
        Summary { text, forbidden }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skips_are_counted_and_only_known_ones_are_allowed() {
        let summary = Summary::read(
            "SKIPPED advisories: no network\nREPEATED r9: short\nSKIPPED new: why\nSKIPPED new: why\n",
        );
        assert_eq!(
            summary.text,
            "\n== 2 checks skipped, 1 repeated\nREPEATED r9: short\nSKIPPED advisories: no network\nSKIPPED new: why"
        );
        assert_eq!(summary.forbidden, ["new"]);
        assert_eq!(Summary::read("").text, "\n== 0 checks skipped, 0 repeated");
    }
}
