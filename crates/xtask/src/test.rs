//! `cargo xtask test CRATE [FILTER]`: the tests of a crate, and those of `tests/` that exercise it together with others.

use crate::interop::Result;

/// A crate without its `duologue-` prefix, and the modules of `tests/it` that exercise it.
const CRATES: [(&str, &[&str]); 9] = [
    ("schema", &["hostile_lines::", "order_rules::"]),
    ("rpc", &["hostile_lines::", "order_rules::", "simulation::"]),
    ("agent", &["hostile_lines::", "order_rules::", "processes::", "simulation::"]),
    ("client", &["hostile_lines::", "order_rules::", "processes::", "simulation::"]),
    ("exchange", &["envelopes::", "exchange_dialogue::"]),
    ("transcript", &["processes::replays::"]),
    ("testkit", &[]),
    ("conformance", &[]),
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
    let Some((_, modules)) = CRATES.iter().find(|(known, _)| *known == name) else {
        let all: Vec<&str> = CRATES.iter().map(|(name, _)| *name).collect();
        return Err(format!("no crate `{name}`; there are {}", all.join(", ")).into());
    };
    let mut own = crate::target::cargo();
    own.args(["test", "-p", &format!("duologue-{name}")]).args(filter);
    crate::ci::passes(&mut own)?;
    if modules.is_empty() {
        return Ok(());
    }
    let mut shared = crate::target::cargo();
    shared.args(["test", "-p", "duologue-tests", "--test", "it", "--"]);
    match filter {
        Some(filter) => shared.arg(filter),
        None => shared.args(*modules),
    };
    crate::ci::passes(&mut shared)
}
