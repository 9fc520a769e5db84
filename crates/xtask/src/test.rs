//! `cargo xtask test CRATE [FILTER]`: the tests of a crate, and those of `tests/` that exercise it together with others.

use crate::interop::Result;

/// The modules of another package's test program that exercise a crate.
struct SharedTests {
    package: &'static str,
    program: &'static str,
    /// All tests of the program if empty.
    modules: &'static [&'static str],
}

/// Returns tests of several crates, in `tests/it`.
const fn it(modules: &'static [&'static str]) -> SharedTests {
    SharedTests { package: "duologue-tests", program: "it", modules }
}

/// Returns tests of the command.
const fn command(modules: &'static [&'static str]) -> SharedTests {
    SharedTests { package: "duologue-cli", program: "it", modules }
}

/// A crate without its `duologue-` prefix, and the tests of other packages that exercise it.
const CRATES: [(&str, &[SharedTests]); 11] = [
    ("schema", &[it(&["hostile_lines::", "order_rules::"])]),
    ("rpc", &[it(&["hostile_lines::", "order_rules::", "simulation::"])]),
    ("agent", &[it(&["hostile_lines::", "order_rules::", "simulation::"])]),
    ("client", &[it(&["hostile_lines::", "order_rules::", "simulation::"])]),
    ("exchange", &[it(&["envelopes::", "exchange_dialogue::"])]),
    ("transcript", &[command(&["record::", "replay::"])]),
    ("store", &[]),
    ("proxy", &[command(&["proxy::", "record::"])]),
    ("testkit", &[command(&["faults::", "mock::"])]),
    ("conformance", &[command(&["check::", "validate::"])]),
    ("cli", &[]),
];

/// Runs the tests of one crate; with a filter only those whose names contain it.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let (name, filter) = match args {
        [name] => (name, None),
        [name, filter] => (name, Some(filter)),
        _ => return Err("cargo xtask test CRATE [FILTER]".into()),
    };
    let name = name.strip_prefix("duologue-").unwrap_or(name);
    let Some((_, shared)) = CRATES.iter().find(|(known, _)| *known == name) else {
        let all: Vec<&str> = CRATES.iter().map(|(name, _)| *name).collect();
        return Err(format!("no crate `{name}`; there are {}", all.join(", ")).into());
    };
    let mut own = crate::target::cargo();
    own.args(["test", "-p", &format!("duologue-{name}"), "--all-features"]).args(filter);
    crate::target::passes(&mut own)?;
    for tests in *shared {
        let mut cargo = crate::target::cargo();
        cargo.args(["test", "-p", tests.package, "--test", tests.program, "--"]);
        match filter {
            Some(filter) => cargo.arg(filter),
            None => cargo.args(tests.modules),
        };
        crate::target::passes(&mut cargo)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn each_named_module_exists() {
        for tests in CRATES.iter().flat_map(|(_, shared)| *shared) {
            let folder = match tests.package {
                "duologue-cli" => "crates/cli/tests",
                _ => "tests",
            };
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder).join(tests.program);
            assert!(folder.is_dir(), "{}", folder.display());
            for module in tests.modules {
                let file = format!("{}.rs", module.trim_end_matches("::"));
                assert!(folder.join(&file).is_file(), "{file}");
            }
        }
    }
}
