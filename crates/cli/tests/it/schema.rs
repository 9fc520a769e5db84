//! `duologue schema`, `completions` and `--help`.

use std::process::Command;

fn duologue(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_duologue")).args(args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// They are the files of the repository.
#[test]
fn prints_the_schemas() {
    for (path, text) in duologue_schema::export::files() {
        match path.strip_suffix(".json").unwrap() {
            "schema/v1/schema" => assert_eq!(duologue(&["schema"]), text),
            "schema/v1/meta" => assert_eq!(duologue(&["schema", "--meta"]), text),
            "schema/duologue/meta" => {
                let all: serde_json::Value = serde_json::from_str(&text).unwrap();
                for (scheme, methods) in all.as_object().unwrap() {
                    assert_eq!(duologue(&["schema", scheme, "--meta"]), format!("{methods:#}\n"));
                }
            }
            // The command prints the stable protocol.
            draft if draft.starts_with("schema/v") => {}
            scheme => {
                let scheme = scheme.strip_prefix("schema/duologue/").unwrap();
                assert_eq!(duologue(&["schema", scheme]), text);
            }
        }
    }
}

#[test]
fn completes_every_command() {
    for (shell, begin, end) in [("bash", "duologue,", ")"), ("zsh", "'", ":"), ("fish", "-f -a \"", "\"")] {
        let script = duologue(&["completions", shell]);
        for command in
            ["run", "record", "show", "replay", "diff", "validate", "check", "peer", "mock", "schema"]
        {
            assert!(script.contains(&format!("{begin}{command}{end}")), "{command} in {shell}");
        }
    }
}

/// Scenarios and other known values are completed, and files are not.
#[test]
fn completes_the_values_of_arguments() {
    let script = |shell| duologue(&["completions", shell]);
    let fish = script("fish");
    for (condition, values) in [
        ("using_subcommand mock", ["hello\\t'", "\ntools\\t'", "\nmax-turn-requests\\t'"]),
        ("using_subcommand schema", ["acp\\t'", "\nenvelope\\t'", "\nwork\\t'"]),
        ("using_subcommand completions", ["bash\\t'", "\nfish\\t'", "\nzsh\\t'"]),
        (
            "using_subcommand peer; and __fish_seen_subcommand_from dialogue",
            ["request\\t'", "\nquery\\t'", "\ninform\\t'"],
        ),
    ] {
        let begins = format!("complete -c duologue -n \"__fish_duologue_{condition}\" -f -a \"");
        let (_, rest) = fish.split_once(&begins).unwrap_or_else(|| panic!("{condition} in {fish}"));
        let (list, _) = rest.split_once("\"\n").unwrap();
        for value in values {
            assert!(list.contains(value), "{value} in {list}");
        }
        assert!(!list.contains("\nhelp\\t"), "{list}");
    }
    let bash = script("bash");
    let (_, mock) = bash.split_once("duologue__subcmd__mock)\n").unwrap();
    assert!(mock.lines().next().unwrap().contains(" tools "), "{mock}");
    assert!(script("zsh").contains("((hello\\:"));
}

#[test]
fn helps() {
    insta::assert_snapshot!(duologue(&["-h"]), @"
    Talk to Agent Client Protocol agents: run, record, show, replay, compare and check them

    Usage: duologue <COMMAND>

    Commands:
      run           Prompt an agent, once or interactively
      record        Record the conversation between a client and an agent
      proxy         Run an agent behind stages that record, redact, decide or change messages
      serve         Serve an agent over the network, with sessions that outlive connections and restarts
      attach        Serve an agent to a hub that it dials, from behind a firewall
      connect       Connect a client on stdio, such as an editor, to an agent behind `duologue serve`
      agents        Find the agents of a hub, and register others
      tasks         Give the agents of a hub tasks: create, follow, answer and cancel them
      inbox         Send messages to the agents of a hub, and take them as an agent [alias: messages]
      dead-letters  Show the messages that a hub could not deliver, and send them again
      show          Show a recording: as text, as JSON, or as a page for a browser
      replay        Play the agent of a recording, or its client
      diff          Compare two recordings, ignoring ids, times, paths and chunk boundaries
      validate      Check every frame of a recording or log against the protocol
      check         Check whether an agent, or a server of agents, keeps to the protocol
      peer          Send messages to an agent, as another agent would
      mock          Run a deterministic agent that shows every feature of the protocol
      schema        Print the JSON Schema of the protocol, or of the messages between agents
      completions   Print completions for a shell
      help          Print this message or the help of the given subcommand(s)

    Options:
      -h, --help     Print help (see more with '--help')
      -V, --version  Print version
    ");
    insta::assert_snapshot!(duologue(&["run", "-h"]), @r#"
    Prompt an agent, once or interactively

    Usage: duologue run [OPTIONS] [PROMPT] [-- <AGENT>...]

    Arguments:
      [PROMPT]    The prompt; `-` reads it from stdin
      [AGENT]...  The agent's program and its arguments

    Options:
          --json                 Print every update and the outcome of each turn as JSON, one a line
          --yes                  Grant every permission request
          --allow <KIND>         Grant permission requests for tools of these kinds [possible values:
                                 read, edit, delete, move, search, execute, think, fetch, switch_mode,
                                 other]
          --read-only            Write no files and run no programs for the agent
          --no-tools             Read no files for the agent either
          --list                 List the agent's sessions
          --settings             List the session's modes and options: their ids, names and values, with
                                 a star at the current one
          --load <ID>            Load a session, and show its conversation on a terminal or with --json
          --resume <ID>          Resume a session without its conversation
          --mode <MODE>          Switch to a mode first
          --fresh                Continue a session whose conversation the agent has lost without the
                                 conversation, after the error `context_lost` of `duologue serve`
          --protocol <VERSION>   Offer this version of the protocol; the agent may choose an older one.
                                 Version 2 is a draft [default: 1]
          --verbose              Show the states of the session, which version 2 has
          --option <NAME=VALUE>  Set an option of the session first
          --cwd <DIR>            The folder of the session, if not this one
          --login <METHOD>       Log in first, by one of the agent's methods. A login in the terminal
                                 runs a program, after a question
          --timeout <SECONDS>    Wait so many seconds for the agent to start, and again for each of its
                                 answers before the first turn [default: 30]
          --record <FILE>        Record the conversation into a new file
          --force                Replace the file of --record if it exists
      -v, --stderr               Show the agent's stderr, the lines of its stdout that are no messages,
                                 and the detail of its errors
      -h, --help                 Print help (see more with '--help')

    Examples:
      duologue run hello                       one turn with the built-in agent
      duologue run -- my-agent --acp           talk to an agent
      duologue run --json --allow read "Summarise README.md" -- my-agent
      duologue run --settings -- my-agent      list its modes and options
      duologue run --mode plan --option model=large hello -- my-agent
      duologue run --protocol 2 hello          the draft of the next version
    "#);
    insta::assert_snapshot!(duologue(&["mock", "-h"]), @"
    Run a deterministic agent that shows every feature of the protocol

    Usage: duologue mock [OPTIONS] [SCENARIO]

    Arguments:
      [SCENARIO]  The scenario of every turn; without it the first word of each prompt selects one

    Options:
          --list           List the scenarios
          --pace <MS>      Wait so many milliseconds between two words [default: 20]
          --faults <SPEC>  Apply these faults, separated by commas; `list` describes them. May be given
                           more than once
          --seed <N>       Seed the random choices of --faults; the seed of a run is on its stderr
      -h, --help           Print help (see more with '--help')

    Examples:
      duologue run tools -- duologue mock
      duologue run hello -- duologue mock --faults noise,fragment=7 --seed 1
    ");
}
