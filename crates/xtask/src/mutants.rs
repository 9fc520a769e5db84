//! `cargo xtask mutants [NUMBER..]`: changes a line of the code at a time, as a row of `tests/MUTANTS.md` says, and runs the
//! schedules, kill tests and some others of its crate. They have to fail. Without numbers it does so for all rows.

use std::path::Path;

use crate::interop::Result;

const TABLE: &str = "tests/MUTANTS.md";
/// The time in which a test program has to end, in seconds. A change can make it run for ever.
const LIMIT: &str = "300";

/// The tests of a crate that have to fail: arguments of `cargo test` and of the test program, and the number of schedules if it
/// is another one than in the gate.
type Tests = (&'static str, &'static [&'static str], &'static [&'static str], Option<&'static str>);
const TESTS: [Tests; 3] = [
    (
        "hub",
        &["--test", "it"],
        &[
            "nothing_is_lost_or_doubled_in_any_schedule",
            "lost_agents::opened_again::",
            "an_agent_that_answers_with_null_has_restored_the_session",
        ],
        Some("3500"),
    ),
    ("http", &["--all-features", "--lib", "--test", "it"], &["simulation::", "refusals::"], Some("6000")),
    ("store", &["--test", "it"], &["kills::", "damage::", "power_cut::"], None),
];

/// A changed line.
struct Mutant {
    number: String,
    file: String,
    function: String,
    line: String,
    changed: String,
}

impl Mutant {
    /// Reads a row of the table.
    fn of_row(row: &str) -> Option<Self> {
        let cells: Vec<String> = row
            .strip_prefix("| ")?
            .split(" | ")
            .map(|cell| cell.trim_end_matches(" |").trim_matches('`').replace("\\|", "|"))
            .collect();
        let [number, file, function, line, changed, ..] = cells.as_slice() else { return None };
        number.parse::<u32>().ok()?;
        let [number, file, function, line, changed] =
            [number, file, function, line, changed].map(String::clone);
        Some(Mutant { number, file, function, line, changed })
    }

    /// Returns the text of the file with the change.
    fn apply(&self, text: &str) -> Result<String> {
        let missing = || format!("{}: no `{}` in `{}`", self.file, self.line, self.function);
        let function = text.find(&format!("fn {}(", self.function)).ok_or_else(missing)?;
        let (before, rest) = text.split_at(function);
        if !rest.contains(&self.line) {
            return Err(missing().into());
        }
        Ok(before.to_owned() + &rest.replacen(&self.line, &self.changed, 1))
    }

    /// Returns true if the tests fail with the change.
    fn is_caught(&self, root: &Path) -> Result<bool> {
        let path = root.join(&self.file);
        let text = std::fs::read_to_string(&path)?;
        let changed = self.apply(&text)?;
        let name = self.file.split('/').nth(1).unwrap_or_default();
        let Some((_, arguments, filters, schedules)) = TESTS.iter().find(|(known, ..)| *known == name) else {
            return Err(format!("{}: no tests of this crate are known", self.file).into());
        };
        let cargo = |more: &[&str]| {
            // A change can make a test wait for ever.
            let cargo = crate::target::cargo();
            let mut limited = std::process::Command::new("timeout");
            limited.args(["--kill-after=10", LIMIT]).arg(cargo.get_program());
            limited.envs(cargo.get_envs().filter_map(|(name, value)| Some((name, value?))));
            limited.args(["test", "--quiet", "-p", &format!("duologue-{name}")]).args(*arguments).args(more);
            limited.envs(schedules.map(|schedules| ("DUOLOGUE_RUNS", schedules)));
            limited.env("DUOLOGUE_FIRST_SEED", "1").output()
        };
        std::fs::write(&path, changed)?;
        let built = cargo(&["--no-run"]);
        let tested = cargo(&[["--"].as_slice(), *filters].concat());
        std::fs::write(&path, text)?;
        let built = built?;
        if !built.status.success() {
            return Err(String::from_utf8_lossy(&built.stderr).into());
        }
        Ok(!tested?.status.success())
    }
}

#[expect(clippy::print_stdout, reason = "this is the program's output")]
pub(crate) fn run(args: &[String]) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut survivors = Vec::new();
    for mutant in mutants(&root)?.into_iter().filter(|it| args.is_empty() || args.contains(&it.number)) {
        let is_caught = mutant.is_caught(&root)?;
        let Mutant { number, function, changed, .. } = &mutant;
        println!("{} {number} {function}: {changed}", if is_caught { "caught" } else { "SURVIVES" });
        survivors.extend((!is_caught).then_some(mutant.number));
    }
    if survivors.is_empty() { Ok(()) } else { Err(format!("no test fails for {survivors:?}").into()) }
}

fn mutants(root: &Path) -> Result<Vec<Mutant>> {
    Ok(std::fs::read_to_string(root.join(TABLE))?.lines().filter_map(Mutant::of_row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_changes_the_code() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mutants = mutants(&root).expect("the table");
        assert_eq!(mutants.len(), 38);
        for mutant in mutants {
            let text = std::fs::read_to_string(root.join(&mutant.file)).expect("a file");
            assert_ne!(mutant.apply(&text).expect("the line"), text);
        }
    }
}
