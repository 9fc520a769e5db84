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
            scheme => {
                let scheme = scheme.strip_prefix("schema/duologue/").unwrap();
                assert_eq!(duologue(&["schema", scheme]), text);
            }
        }
    }
}

#[test]
fn completes_every_command() {
    for (shell, sign) in
        [("bash", "complete -F"), ("zsh", "#compdef duologue"), ("fish", "complete -c duologue")]
    {
        let script = duologue(&["completions", shell]);
        assert!(script.contains(sign), "{shell}");
        for command in ["run", "record", "show", "replay", "diff", "validate", "check", "mock", "schema"] {
            assert!(script.contains(command), "{command} in {shell}");
        }
    }
}

#[test]
fn helps() {
    insta::assert_snapshot!(duologue(&["-h"]), @"
    Talk to Agent Client Protocol agents: run, record, show, replay, compare and check them

    Usage: duologue <COMMAND>

    Commands:
      run          Talk to an agent, once or interactively
      record       Sit between a client and an agent and write down what they say
      show         Show a transcript: as text, as JSON, or as a page for a browser
      replay       Be the agent of a transcript, or its client
      diff         Compare two transcripts, ids, times, paths and chunk boundaries aside
      validate     Check every frame of a transcript or log against the protocol
      check        Check whether an agent keeps to the protocol
      ping         Ask an agent whether it is there, and how busy it is
      query        Ask an agent a question, as another agent would
      delegate     Give an agent a task, as another agent would
      discover     Ask an agent what it can do for other agents
      mock         A deterministic agent that shows everything an agent can do
      schema       Print the JSON Schema of the protocol, or of what agents say to each other
      completions  Print completions for a shell
      help         Print this message or the help of the given subcommand(s)

    Options:
      -h, --help     Print help (see more with '--help')
      -V, --version  Print version
    ");
    insta::assert_snapshot!(duologue(&["run", "-h"]), @"
    Talk to an agent, once or interactively

    Usage: duologue run [OPTIONS] [PROMPT] [-- <AGENT>...]

    Arguments:
      [PROMPT]    What to ask; `-` reads it from stdin
      [AGENT]...  The agent's program and its arguments

    Options:
          --json                 Print every update as JSON, one a line, and how each turn ended
          --yes                  Allow whatever the agent asks permission for
          --allow <KIND>         Allow tools of these kinds without asking [possible values: read, edit,
                                 delete, move, search, execute, think, fetch, switch_mode, other]
          --read-only            Write no files and run no programs for the agent
          --no-tools             Read no files for the agent either
          --list                 List the agent's sessions
          --load <ID>            Go on with a session and show what was said in it
          --resume <ID>          Go on with a session
          --mode <MODE>          Switch to a mode first
          --option <NAME=VALUE>  Set an option of the session first
          --cwd <DIR>            The folder of the session, if not this one
          --login <METHOD>       Log in first, by one of the agent's methods
          --timeout <SECONDS>    How many seconds the agent may take to start, and again to begin a
                                 session [default: 30]
          --record <FILE>        Record the conversation into a new file
          --force                Replace the file of --record if it exists
      -v, --stderr               Show what the agent writes to stderr, and on stdout beside the protocol
      -h, --help                 Print help (see more with '--help')
    ");
    insta::assert_snapshot!(duologue(&["mock", "-h"]), @"
    A deterministic agent that shows everything an agent can do

    Usage: duologue mock [OPTIONS] [SCENARIO]

    Arguments:
      [SCENARIO]  What to do in every turn; else the first word of each prompt says it

    Options:
          --list           Print the scenarios
          --pace <MS>      How many milliseconds to wait between two words; 0 is as fast as it goes
                           [default: 20]
          --faults <SPEC>  What goes wrong: faults with a comma between them; `list` explains them. May
                           be given more than once
          --seed <N>       Makes the random choices of --faults the same every time; the seed of a run
                           is on its stderr
      -h, --help           Print help (see more with '--help')
    ");
}
