//! The commands by their names.

use crate::{
    bench, browser, campaign, fuzz, instructions, interop, loom, mutants, prose, reliability, rest, schema,
    test,
};

const USAGE: &str = "cargo xtask schema [--check] | interop [--peers | --real | --recorded | --exchange | --schema | --unstable | --v2] | browser | campaign [--strict] [NAME..] \
    | bench [remote | hub] [--quick | --rust] [--rounds N] [WORKLOAD..] | fuzz [--seconds N | --runs N] [TARGET..] \
    | instructions [--write | PATH..] | loom [loom | miri] | mutants [NUMBER..] \
    | prose [--counts] [PATH..] | reliability [--quick] [--ours] [--keep] [REQUIREMENT..] | rest [--seconds N] [--seed N] | soak --quick | --minutes M [--seed N] [--remote] \
    | test CRATE [FILTER]";

/// Runs the command of this name.
#[expect(clippy::print_stdout, reason = "this is the program's output")]
pub(crate) fn run(name: &str, args: &[String]) -> interop::Result<()> {
    match name {
        "--help" | "-h" => {
            println!("{USAGE}");
            Ok(())
        }
        "bench" => bench::run(args),
        "browser" => browser::run(),
        "campaign" => campaign::run(args),
        "fuzz" => fuzz::run(args),
        "instructions" => instructions::run(args),
        "interop" => interop::run(args),
        "loom" => loom::run(args),
        "mutants" => mutants::run(args),
        "prose" => prose::run(args),
        "reliability" => reliability::run(args),
        "rest" => rest::run(args),
        "schema" => schema::run(args),
        "soak" => reliability::soak(args),
        "test" => test::run(args),
        name => interop::part(name, args).unwrap_or(Err(USAGE.into())),
    }
}
