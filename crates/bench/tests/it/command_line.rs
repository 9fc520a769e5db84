//! Valid command lines, and the errors of wrong ones.

use duologue_bench::command_line::{CommandLine, usage};
use duologue_bench::workloads::WORKLOADS;

fn read(line: &str) -> Result<CommandLine, String> {
    CommandLine::read(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
}

#[test]
fn errors_name_the_wrong_word() {
    for (line, wrong) in [
        ("nope", "no workload `nope`; there are a40, a1k,"),
        ("a40 --quik", "no option `--quik`; there are --quick,"),
        ("--rounds 0", "at least 1"),
        ("--rounds x", "at least 1"),
        ("--rounds", "at least 1"),
        ("hub a40", "`a40`: for a hub there are"),
        ("hub --rust", "`--rust`: for a hub there are"),
        ("remote a40", "`a40`: over a network there are no workloads"),
    ] {
        let error = read(line).expect_err(line);
        assert!(error.contains(wrong), "{error}");
    }
}

#[test]
fn repeated_workloads_play_once() {
    let options = read("b a40 b --rounds 3").expect("right");
    let names: Vec<_> = options.workloads.iter().map(|workload| workload.name).collect();
    assert_eq!((names, options.rounds), (vec!["b", "a40"], Some(3)));
}

#[test]
fn only_a_whole_run_writes() {
    for (line, whole) in [
        ("", true),
        ("remote", true),
        ("remote --quick", false),
        ("hub", false),
        ("--rounds 3", true),
        ("--quick", false),
        ("--rust", false),
        ("a40", false),
    ] {
        assert_eq!(read(line).expect("right").whole(), whole, "{line}");
    }
}

#[test]
fn the_usage_names_every_workload() {
    let usage = usage();
    assert!(WORKLOADS.iter().all(|workload| usage.contains(workload.title)), "{usage}");
}
