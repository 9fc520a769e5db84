//! The list of steps.

use std::path::Path;
use std::process::{Command, Stdio};

use duologue_test_support::skipped;

use super::Tier;
use super::tools::{self, Tool};
use crate::interop::Result;

/// One check.
pub(super) struct Step {
    pub(super) name: &'static str,
    pub(super) tiers: &'static [Tier],
    /// Programs beyond cargo, rustfmt and clippy.
    tools: &'static [Tool],
    /// Environment of the step's commands, which keeps one set by the caller.
    env: &'static [(&'static str, &'static str)],
    work: Work,
}

enum Work {
    /// Arguments of cargo, separated by spaces, one text for each run.
    Cargo(&'static [&'static str]),
    /// The tests of the workspace.
    Tests,
    /// Arguments of this program.
    Xtask(&'static str),
    Function(fn() -> Result<()>),
}

const FAST: &[Tier] = &[Tier::Fast];
const FULL: &[Tier] = &[Tier::Full];
const BOTH: &[Tier] = &[Tier::Fast, Tier::Full];

/// A release build of programs that are only exercised, not measured, takes half the time without all optimizations.
const EXERCISED: &[(&str, &str)] = &[("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")];
/// Seeds of the random tests, so that a run of CI depends on the change alone. Runs by hand and campaigns choose
/// their own.
const SEEDS: &[(&str, &str)] = &[("PROPTEST_RNG_SEED", "1"), ("DUOLOGUE_FIRST_SEED", "1")];
const WARNINGS: &[(&str, &str)] = &[("RUSTDOCFLAGS", "-D warnings")];

/// On other systems the packages that size pipes, pin threads and send signals are left out, and of the tests those of
/// the wire types are run.
const LINUX: bool = cfg!(target_os = "linux");

/// All steps, in the order in which they run: the quickest to fail first.
pub(super) const STEPS: &[Step] = &[
    Step {
        name: "format",
        tiers: BOTH,
        tools: &[],
        env: &[],
        work: Work::Cargo(&[
            "fmt --all --check",
            "fmt --manifest-path fuzz/Cargo.toml --check",
            "fmt --manifest-path tests/outside-crate/Cargo.toml --check",
        ]),
    },
    Step { name: "prose", tiers: BOTH, tools: &[], env: &[], work: Work::Xtask("prose") },
    Step { name: "schema", tiers: BOTH, tools: &[], env: &[], work: Work::Xtask("schema --check") },
    Step {
        name: "clippy",
        tiers: BOTH,
        tools: &[],
        env: &[],
        work: Work::Cargo(if LINUX {
            &["clippy --workspace --all-targets --all-features -- -D warnings"]
        } else {
            &["clippy --workspace --all-features --exclude duologue-bench --exclude duologue-tests"]
        }),
    },
    Step {
        name: "unit tests",
        tiers: FAST,
        tools: &[],
        env: &[],
        work: Work::Cargo(if LINUX {
            &["test --quiet --workspace --lib", "test --quiet -p xtask"]
        } else {
            &["test --quiet -p duologue-schema --lib"]
        }),
    },
    Step {
        name: "memory tests",
        tiers: FAST,
        tools: &[],
        env: &[],
        work: Work::Cargo(if LINUX {
            &[
                "test --quiet -p duologue-schema -p duologue-agent -p duologue-proxy --test it",
                "test --quiet -p duologue-schema --all-features --test it",
                "test --quiet -p duologue-rpc -p duologue-client -p duologue-exchange -p duologue-transcript --test it -- --skip over_pipes --skip frames:: --skip local_host:: --skip taps:: --skip replays:: --skip load::",
                "test --quiet -p duologue-store --test it -- contract:: damage:: index::",
                "test --quiet -p duologue-tests --test it -- in_memory simulation:: layering:: type_names:: links:: fault_map:: security_page::",
            ]
        } else {
            &["test --quiet -p duologue-schema --test it"]
        }),
    },
    // With the reliability scenarios and the soak, which are tests like all others.
    Step { name: "tests", tiers: FULL, tools: &[], env: &[], work: Work::Tests },
    Step {
        name: "all features",
        tiers: FULL,
        tools: &[],
        env: &[],
        work: Work::Cargo(&["test --quiet -p duologue-schema --all-features --test it"]),
    },
    Step {
        name: "outside crate",
        tiers: FULL,
        tools: &[],
        env: &[],
        work: Work::Cargo(&["test --quiet --manifest-path tests/outside-crate/Cargo.toml"]),
    },
    Step {
        name: "documentation",
        tiers: FULL,
        tools: &[],
        env: WARNINGS,
        work: Work::Cargo(&["doc --workspace --no-deps --all-features --document-private-items"]),
    },
    Step { name: "examples", tiers: FULL, tools: &[], env: &[], work: Work::Function(super::examples::run) },
    Step {
        name: "browser",
        tiers: FULL,
        tools: &[Tool::CHROMIUM, Tool::NPM],
        env: &[],
        work: Work::Xtask("browser"),
    },
    Step {
        name: "licences",
        tiers: FULL,
        tools: &[Tool::CARGO_DENY],
        env: &[],
        work: Work::Cargo(&["deny check bans licenses sources"]),
    },
    Step {
        name: "advisories",
        tiers: FULL,
        tools: &[Tool::CARGO_DENY],
        env: &[],
        work: Work::Function(advisories),
    },
    Step { name: "other systems", tiers: FULL, tools: &[], env: &[], work: Work::Function(other_systems) },
    Step {
        name: "instructions",
        tiers: FULL,
        tools: &[Tool::VALGRIND],
        env: &[],
        work: Work::Xtask("instructions"),
    },
    Step {
        name: "interop",
        tiers: FULL,
        tools: &[Tool::NPM, Tool::PYTHON],
        env: &[],
        work: Work::Xtask("interop"),
    },
    Step {
        name: "rest",
        tiers: FULL,
        tools: &[Tool::NPM, Tool::PYTHON],
        env: &[],
        work: Work::Xtask("rest"),
    },
    Step { name: "loom", tiers: FULL, tools: &[], env: EXERCISED, work: Work::Xtask("loom loom") },
    Step {
        name: "shuttle",
        tiers: FULL,
        tools: &[],
        env: EXERCISED,
        work: Work::Xtask("loom shuttle --runs 2000"),
    },
    Step {
        name: "fuzz",
        tiers: FULL,
        tools: &[],
        env: EXERCISED,
        work: Work::Xtask("fuzz --seconds 5 --seed 1 --sanitizer none"),
    },
    Step { name: "benchmark", tiers: FULL, tools: &[], env: &[], work: Work::Xtask("bench --quick") },
];

impl Step {
    pub(super) fn run(&self) -> Result<()> {
        for tool in self.tools {
            tools::ensure(tool)?;
        }
        match self.work {
            Work::Cargo(runs) => {
                runs.iter().try_for_each(|args| self.finish(crate::target::cargo().args(args.split(' '))))
            }
            Work::Tests => super::repeats::run(|| {
                let mut cargo = crate::target::cargo();
                self.prepare(&mut cargo);
                cargo
            }),
            Work::Xtask(args) => self.finish(Command::new(std::env::current_exe()?).args(args.split(' '))),
            Work::Function(function) => function(),
        }
    }

    fn finish(&self, command: &mut Command) -> Result<()> {
        self.prepare(command);
        passes(command)
    }

    /// Sets the environment and the folder of a command.
    fn prepare(&self, command: &mut Command) {
        for (name, value) in self.env.iter().chain(SEEDS).filter(|(name, _)| std::env::var_os(name).is_none())
        {
            command.env(name, value);
        }
        command.current_dir(root());
    }
}

/// Returns the root of the workspace.
pub(crate) fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Runs a command, which has to succeed.
pub(crate) fn passes(command: &mut Command) -> Result<()> {
    let status = command.status().map_err(|error| format!("{command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?}: {status}").into()) }
}

/// Compares the dependencies with the advisory database, which is a git repository elsewhere.
fn advisories() -> Result<()> {
    let mut reach = Command::new("git");
    reach.args(["-c", "http.lowSpeedLimit=1", "-c", "http.lowSpeedTime=20", "ls-remote", "--quiet"]);
    reach.args(["https://github.com/rustsec/advisory-db", "HEAD"]);
    reach.env("GIT_TERMINAL_PROMPT", "0").stdout(Stdio::null()).stderr(Stdio::null());
    if !reach.status().is_ok_and(|status| status.success()) {
        skipped("advisories", "the advisory database cannot be reached");
        return Ok(());
    }
    passes(crate::target::cargo().args(["deny", "check", "advisories"]).current_dir(root()))
}

/// The crates that are published, for a check by the compilers of other systems.
const PUBLISHED: [&str; 14] = [
    "duologue-schema-derive",
    "duologue-schema",
    "duologue-rpc",
    "duologue-exchange",
    "duologue-agent",
    "duologue-client",
    "duologue-transcript",
    "duologue-proxy",
    "duologue-http",
    "duologue-store",
    "duologue-hub",
    "duologue-testkit",
    "duologue-conformance",
    "duologue-cli",
];

/// Checks the published crates for systems that this machine is not.
fn other_systems() -> Result<()> {
    for target in ["x86_64-pc-windows-gnu", "aarch64-apple-darwin"] {
        let mut add = Command::new("rustup");
        add.args(["target", "add", target]).stdout(Stdio::null()).stderr(Stdio::null());
        if !add.current_dir(root()).status().is_ok_and(|status| status.success()) {
            skipped("other systems", format_args!("rustup cannot add {target}"));
            continue;
        }
        // SQLite and TLS need a C compiler for the system. The hub and `duologue serve` are not built without SQLite.
        let partly = ["duologue-http", "duologue-store", "duologue-cli"];
        let whole = PUBLISHED.into_iter().filter(|name| !partly.contains(name) && *name != "duologue-hub");
        let groups = [
            (whole.collect::<Vec<_>>(), "--all-features"),
            (partly[..1].to_vec(), "--features=client,server"),
            (partly[1..].to_vec(), "--no-default-features"),
        ];
        for (names, features) in groups {
            let mut cargo = crate::target::cargo();
            cargo.args(["check", "--quiet", features, "--target", target]);
            passes(cargo.args(names.into_iter().flat_map(|name| ["-p", name])).current_dir(root()))?;
        }
    }
    Ok(())
}
