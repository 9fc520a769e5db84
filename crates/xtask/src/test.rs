//! `cargo xtask test CRATE [FILTER]`: the tests that protect a crate, its own and those of `tests/` that exercise it.

use crate::interop::Result;

/// A crate without its `duologue-` prefix, and the modules of `tests/it` that exercise it.
const CRATES: [(&str, &[&str]); 9] = [
    ("schema", &["hostile_lines::", "order_rules::"]),
    (
        "rpc",
        &[
            "frames::",
            "hostile_lines::",
            "json_decisions::",
            "order_rules::",
            "regressions::",
            "simulation::",
        ],
    ),
    (
        "agent",
        &["envelopes::", "hostile_lines::", "order_rules::", "processes::", "regressions::", "simulation::"],
    ),
    (
        "client",
        &[
            "envelopes::",
            "hostile_lines::",
            "local_host::",
            "order_rules::",
            "processes::",
            "regressions::",
            "simulation::",
        ],
    ),
    ("exchange", &["dialogue_verification::", "envelopes::", "exchange_dialogue::", "work_orders::"]),
    ("transcript", &["recorder::", "replays::"]),
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
