//! `cargo xtask campaign [--strict] [NAME..]`: the long checks, which CI leaves out.
//!
//! A campaign measures, floods, kills or needs a quiet machine or other programs. Without a name it lists all of them. A wrong
//! result fails; a figure that misses its target is printed, and fails with `--strict` only.

use std::process::Command;
use std::time::Instant;

use crate::interop::Result;
use crate::target::{cargo, passes, root};
use crate::tools::{self, Tool};

/// The variable that makes targets binding.
const STRICT: &str = "DUOLOGUE_STRICT";

struct Campaign {
    name: &'static str,
    /// The crates that it belongs to, without `duologue-`. A change of one of them is a reason to run it.
    crates: &'static str,
    /// The length on two cores with a warm build, in minutes.
    minutes: u32,
    effect: &'static str,
    tools: &'static [Tool],
    work: Work,
}

enum Work {
    /// A test program that `cargo test --workspace` leaves out: its package and its name.
    Tests(&'static str, &'static str),
    /// Tests of the gate with more runs: their package, the arguments of cargo and the number.
    Larger(&'static str, &'static str, &'static str),
    /// Arguments of this program, separated by spaces.
    Xtask(&'static str),
    /// Arguments of cargo, separated by spaces.
    Cargo(&'static str),
    Function(fn() -> Result<()>),
}

const ALL: &[Campaign] = &[
    Campaign {
        name: "reliability",
        crates: "rpc, agent, client",
        minutes: 6,
        effect: "the reliability scenarios, small, with a minute of soak",
        tools: &[],
        work: Work::Tests("duologue-tests", "reliability"),
    },
    Campaign {
        name: "processes",
        crates: "agent, client",
        minutes: 2,
        effect: "processes that are killed, stuck, flooded and abandoned, on both sides",
        tools: &[],
        work: Work::Tests("duologue-tests", "campaign"),
    },
    Campaign {
        name: "check-faults",
        crates: "conformance, cli",
        minutes: 3,
        effect: "each check of `duologue check` against an agent with its fault",
        tools: &[],
        work: Work::Tests("duologue-cli", "check_faults"),
    },
    Campaign {
        name: "cli",
        crates: "cli, hub, http",
        minutes: 4,
        effect: "servers that are killed, connections that are cut, a soak of both, keys typed at any time",
        tools: &[],
        work: Work::Tests("duologue-cli", "campaign"),
    },
    Campaign {
        name: "client",
        crates: "client",
        minutes: 1,
        effect: "agents that request more than a host can do at once",
        tools: &[],
        work: Work::Tests("duologue-client", "campaign"),
    },
    Campaign {
        name: "transcript",
        crates: "transcript",
        minutes: 1,
        effect: "the cost of a recording",
        tools: &[],
        work: Work::Tests("duologue-transcript", "campaign"),
    },
    Campaign {
        name: "recordings",
        crates: "transcript",
        minutes: 3,
        effect: "random recordings: secrets in pieces, replays and drawings of any conversation",
        tools: &[],
        work: Work::Larger(
            "duologue-transcript",
            "--test it -- nothing_is any_conversation each_others_script",
            "300",
        ),
    },
    Campaign {
        name: "schema",
        crates: "schema",
        minutes: 1,
        effect: "1,000 random values of every definition of the schemas",
        tools: &[],
        work: Work::Larger("duologue-schema", "--test it random_values", "1000"),
    },
    Campaign {
        name: "store",
        crates: "store",
        minutes: 2,
        effect: "processes that are killed while they write",
        tools: &[],
        work: Work::Larger("duologue-store", "--test it kills", "100"),
    },
    Campaign {
        name: "hub",
        crates: "hub",
        minutes: 2,
        effect: "10,000 schedules of a session's owner",
        tools: &[],
        work: Work::Larger("duologue-hub", "--test it any_schedule", "10000"),
    },
    Campaign {
        name: "chaos",
        crates: "hub",
        minutes: 3,
        effect: "150 gateways whose store dies or is full at random writes",
        tools: &[],
        work: Work::Larger("duologue-hub", "--test it any_faults", "150"),
    },
    Campaign {
        name: "http",
        crates: "http",
        minutes: 4,
        effect: "6,000 schedules of remote connections over each transport",
        tools: &[],
        work: Work::Larger("duologue-http", "--lib simulation", "6000"),
    },
    Campaign {
        name: "cuts",
        crates: "http",
        minutes: 1,
        effect: "200 cuts of real connections over each transport, plain and encrypted",
        tools: &[],
        work: Work::Larger("duologue-http", "--test it cuts", "200"),
    },
    Campaign {
        name: "browser",
        crates: "hub, transcript",
        minutes: 3,
        effect: "the page of a hub and `show --html` in Chromium",
        tools: &[Tool::CHROMIUM, Tool::NPM],
        work: Work::Xtask("browser"),
    },
    Campaign {
        name: "rest",
        crates: "hub",
        minutes: 1,
        effect: "the REST interface: a generated client, and schemathesis",
        tools: &[Tool::NPM, Tool::PYTHON],
        work: Work::Xtask("rest"),
    },
    Campaign {
        name: "interop",
        crates: "schema, rpc, agent, client, http, hub",
        minutes: 8,
        effect: "the official SDKs on the other side, over pipes and networks",
        tools: &[Tool::NPM, Tool::PYTHON],
        work: Work::Xtask("interop"),
    },
    Campaign {
        name: "instructions",
        crates: "rpc, agent, client, hub, transcript",
        minutes: 5,
        effect: "instructions and allocations of the hot paths, compared with a baseline",
        tools: &[Tool::VALGRIND],
        work: Work::Xtask("instructions"),
    },
    Campaign {
        name: "loom",
        crates: "rpc",
        minutes: 3,
        effect: "all interleavings of shared tables",
        tools: &[],
        work: Work::Xtask("loom"),
    },
    Campaign {
        name: "fuzz",
        crates: "schema, rpc, http, transcript, exchange",
        minutes: 5,
        effect: "each fuzz target for five seconds",
        tools: &[],
        work: Work::Xtask("fuzz --seconds 5 --sanitizer none"),
    },
    Campaign {
        name: "benchmark",
        crates: "rpc, agent, client",
        minutes: 4,
        effect: "each workload of BENCHMARKS.md once, small",
        tools: &[],
        work: Work::Xtask("bench --quick"),
    },
    Campaign {
        name: "mutants",
        crates: "http, hub, store",
        minutes: 20,
        effect: "the changes of tests/MUTANTS.md, each of which a test has to find",
        tools: &[],
        work: Work::Xtask("mutants"),
    },
    Campaign {
        name: "outside-crate",
        crates: "schema, agent, client, testkit",
        minutes: 1,
        effect: "a crate that uses the published interface alone",
        tools: &[],
        work: Work::Cargo("test --quiet --manifest-path tests/outside-crate/Cargo.toml"),
    },
    Campaign {
        name: "licences",
        crates: "all",
        minutes: 3,
        effect: "licences and sources of the dependencies; advisories with a network",
        tools: &[Tool::CARGO_DENY],
        work: Work::Function(licences),
    },
    Campaign {
        name: "systems",
        crates: "all",
        minutes: 4,
        effect: "the compilers of Windows and macOS, as far as one alone can tell",
        tools: &[],
        work: Work::Function(other_systems),
    },
];

/// Runs the campaigns of these names, or lists all.
#[expect(clippy::print_stdout, reason = "this is the program's output")]
pub(crate) fn run(args: &[String]) -> Result<()> {
    let (flags, names): (Vec<&String>, Vec<&String>) = args.iter().partition(|arg| arg.starts_with('-'));
    let is_strict = match flags.as_slice() {
        [] => false,
        [flag] if *flag == "--strict" => true,
        _ => return Err("cargo xtask campaign [--strict] [NAME..]".into()),
    };
    if names.is_empty() {
        for Campaign { name, crates, minutes, effect, .. } in ALL {
            println!("{name:<14}{minutes:>3} min  {crates:<40}  {effect}");
        }
        return Ok(());
    }
    let find = |name: &&String| ALL.iter().find(|campaign| campaign.name == **name);
    if let Some(unknown) = names.iter().find(|name| find(name).is_none()) {
        return Err(format!("no campaign `{unknown}`; `cargo xtask campaign` lists them").into());
    }
    let mut failed = Vec::new();
    for campaign in names.iter().filter_map(find) {
        println!("== {}", campaign.name);
        let start = Instant::now();
        let result = campaign.run(is_strict);
        println!("== {}: {:.0} s", campaign.name, start.elapsed().as_secs_f64());
        if let Err(error) = result {
            println!("{error}");
            failed.push(campaign.name);
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", ")).into()) }
}

impl Campaign {
    fn run(&self, is_strict: bool) -> Result<()> {
        for tool in self.tools {
            tools::ensure(tool)?;
        }
        let mut command = match self.work {
            Work::Tests(package, program) => {
                let mut cargo = cargo();
                cargo.args(["test", "-p", package, "--all-features", "--test", program]);
                cargo
            }
            Work::Larger(package, args, runs) => {
                let mut cargo = cargo();
                cargo.args(["test", "-p", package, "--all-features"]).args(args.split(' '));
                cargo.env("DUOLOGUE_RUNS", runs);
                cargo
            }
            Work::Cargo(args) => {
                let mut cargo = cargo();
                cargo.args(args.split(' '));
                cargo
            }
            Work::Xtask(args) => {
                let mut this = Command::new(std::env::current_exe()?);
                this.args(args.split(' '));
                this
            }
            Work::Function(function) => return function(),
        };
        if is_strict {
            command.env(STRICT, "1");
        }
        passes(command.current_dir(root()))
    }
}

/// Checks the licences and sources, and the advisories if their database can be fetched.
#[expect(clippy::print_stdout, reason = "this is the program's output")]
fn licences() -> Result<()> {
    let deny = |args: &[&str]| passes(cargo().arg("deny").args(args).current_dir(root()));
    deny(&["check", "bans", "licenses", "sources"])?;
    if deny(&["fetch", "db"]).is_err() {
        println!("the advisories were not checked: their database cannot be fetched");
        return Ok(());
    }
    deny(&["check", "advisories"])
}

/// Checks the published crates for systems that this machine is not.
#[expect(clippy::print_stdout, reason = "this is the program's output")]
fn other_systems() -> Result<()> {
    const WHOLE: [&str; 10] = [
        "duologue-schema-derive",
        "duologue-schema",
        "duologue-rpc",
        "duologue-exchange",
        "duologue-agent",
        "duologue-client",
        "duologue-transcript",
        "duologue-proxy",
        "duologue-testkit",
        "duologue-conformance",
    ];
    // SQLite and TLS need a C compiler for the system. The hub and `duologue serve` are not built without SQLite.
    let groups: [(&[&str], &str); 3] = [
        (&WHOLE, "--all-features"),
        (&["duologue-http"], "--features=client,server"),
        (&["duologue-store", "duologue-cli"], "--no-default-features"),
    ];
    for target in ["x86_64-pc-windows-gnu", "aarch64-apple-darwin"] {
        if passes(Command::new("rustup").args(["target", "add", target]).current_dir(root())).is_err() {
            println!("SKIPPED {target}: rustup cannot add it");
            continue;
        }
        for (names, features) in groups {
            let mut cargo = cargo();
            cargo.args(["check", "--quiet", features, "--target", target]);
            passes(cargo.args(names.iter().flat_map(|name| ["-p", name])).current_dir(root()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_for_contributors_has_each_campaign_with_its_crates() {
        let page = std::fs::read_to_string(root().join("CONTRIBUTING.md")).expect("the page");
        for Campaign { name, crates, minutes, effect, .. } in ALL {
            let row = format!("| `{name}` | {crates} | {minutes} min | {effect} |");
            assert!(page.contains(&row), "CONTRIBUTING.md lacks the row\n{row}");
        }
    }

    #[test]
    fn a_wrong_name_is_an_error() {
        let error = run(&["nope".to_owned()]).unwrap_err().to_string();
        assert!(error.starts_with("no campaign `nope`"), "{error}");
    }
}
