//! `duologue run` in a real pseudo terminal: what the user sees, by a terminal emulator.
#![cfg(target_os = "linux")]

mod consent;
#[allow(dead_code, reason = "the campaign uses the rest")]
mod emulator;
mod refusals;

use emulator::Terminal;
use serde_json::json;

use crate::scripted;

const MOCK: [&str; 4] = ["--", env!("CARGO_BIN_EXE_duologue"), "mock", "--pace"];

fn start(rows: u16, columns: u16, args: &[&str], pace: &str) -> Terminal {
    let args: Vec<&str> = ["run"].into_iter().chain(args.iter().copied()).chain(MOCK).chain([pace]).collect();
    Terminal::start(rows, columns, &args, &[])
}

#[test]
fn a_draft_is_seen_and_disappears() {
    let mut terminal = start(20, 50, &["hello"], "20");
    terminal.wait_for("This is a draft. It comes word by word, and");
    terminal.wait_for("Hello! I am the mock agent");
    assert_eq!(terminal.end(), 0);
    insta::assert_snapshot!(terminal.screen(), @"
    thinking: Somebody is there. What do they want
    to hear?

    Hello! I am the mock agent: no model, the same
    words every time. Prompt me with `tools`,
    `plan` or `permission`, or with `help` for all
    I can do.
    ");
}

/// The draft is longer than the window. Lines that have scrolled away stay and are marked as retracted. Lines
/// that are still on the screen disappear.
#[test]
fn a_draft_that_scrolled_away_is_marked_as_cleared() {
    let mut terminal = start(8, 40, &["long"], "1");
    assert_eq!(terminal.end(), 0);
    insta::assert_snapshot!(terminal.screen(), @"
    ↑ the text above was retracted
    Three hundred lines were said and
    taken back.
    ");
}

#[test]
fn every_way_to_clear_is_followed() {
    let mut terminal = start(30, 60, &["clear"], "0");
    assert_eq!(terminal.end(), 0);
    insta::assert_snapshot!(terminal.screen(), @"
    thinking: A better thought.

    The first message, after.

    The second message.

    No id, and right.

    ✓ Something in between  other
    ");
}

#[test]
fn wide_characters_do_not_break_rows() {
    for columns in [20, 23, 31] {
        let mut terminal = start(40, columns, &["unicode"], "0");
        assert_eq!(terminal.end(), 0);
        let shown: String = terminal.screen().split_whitespace().collect();
        assert!(shown.contains("終端機の幅は二つ分です"), "{shown}");
        assert!(shown.contains("Zero:[\\u{0}]."), "{shown}");
        // A row that the terminal broke would have no margin.
        for row in terminal.everything().lines().filter(|row| !row.is_empty()) {
            assert!(row.starts_with("  "), "{row:?} in {columns} columns");
        }
    }
}

#[test]
fn tools_plans_and_the_rest_are_shown() {
    let mut terminal = start(60, 70, &["tools"], "2");
    assert_eq!(terminal.end(), 0);
    insta::assert_snapshot!(terminal.screen(), @"
    ✓ Read src/main.rs  read
      /src/main.rs:3
      fn main() {
          plan()
      }
    ✓ Search for TODO: 1 match  search
    ✓ Edit src/main.rs  edit
      /src/main.rs
      @@ -1,3 +1,5 @@
       fn main() {
      -    plan()
      +    run();
       }
      +
      +fn run() {}
      /NEW.md (new)
      @@ -0,0 +1 @@
      +# New
    ✗ Run the tests  execute
      1 of 2 tests failed
    ✓ Delete old.rs  delete
    ✓ Move a.rs to b.rs  move
    ✓ Think it over  think
    ✓ Fetch https://example.com  fetch
    ✓ Switch to the mode code  switch_mode
    ✓ Do something else  other
    ✓ call-first-heard-of-by-an-update  other

    Those were all tools.
    ");
    for scenario in
        ["plan", "thoughts", "content", "unknown", "notices", "compaction", "usage", "options", "info"]
    {
        let mut terminal = start(40, 70, &[scenario], "1");
        assert_eq!(terminal.end(), 0, "{scenario}");
        insta::assert_snapshot!(scenario, terminal.screen());
    }
}

#[test]
fn asks_for_permission() {
    let mut terminal = start(20, 60, &["permission"], "0");
    terminal.wait_for("[1-4, y, n]");
    insta::assert_snapshot!(terminal.screen(), @r#"
      ○ Change notes.txt  edit
    ? May it do this?
    │ edit  Change notes.txt
    │ path: "notes.txt"
    │ change: /notes.txt
    │ @@ -1 +1,2 @@
    │  milk
    │ +bread
      1  allow once     Yes
      2  allow always   Yes, always
      3  reject once    No
      4  reject always  No, never
    [1-4, y, n]
    "#);
    terminal.type_line("9");
    terminal.wait_for("there is no answer 9");
    terminal.type_line("1");
    assert_eq!(terminal.end(), 0);
    insta::assert_snapshot!(terminal.screen(), @r#"
      ✓ Change notes.txt  edit
        /notes.txt
        @@ -1 +1,2 @@
         milk
        +bread

    ✓ allowed by you (allow once, "Yes"): Change notes.txt

      You allowed it. (I only pretended to change anything.)
    "#);

    let mut terminal = start(20, 60, &["permission"], "0");
    terminal.wait_for("[1-4, y, n]");
    terminal.type_line("n");
    assert_eq!(terminal.end(), 6);
    assert!(terminal.screen().contains("I left it as it was."));
}

#[test]
fn fills_in_forms_and_shows_links() {
    let mut terminal = start(30, 70, &["elicitation"], "0");
    terminal.wait_for("declines] ");
    insta::assert_snapshot!(terminal.screen(), @"
    ? The agent asks you:
    │ Tell me about your project.
      Name (required): text
    [Enter for none or the default, ! declines]
    ");
    for (field, answer) in [
        ("Name (required)", ""),
        ("it needs a value", "Duologue"),
        ("Mail", "me@example.com"),
        ("Licence", ""),
        ("language: text", "1"),
        ("Members", "100"),
        ("expected a number from 1 to 99", "7"),
        ("Budget: a number", "much"),
        ("not a number", "12.5"),
        ("Public?", "n"),
        ("Systems", "1, windows"),
        ("https://example.com/login", "y"),
    ] {
        terminal.wait_for(field);
        terminal.type_line(answer);
    }
    assert_eq!(terminal.end(), 0);
    insta::assert_snapshot!(terminal.screen(), @r#"
    ✓ accepted by you: Tell me about your project.

      You filled in
      {"budget":12.5,"language":"rust","licence":"mit","mail":"me@example
      .com","members":7,"name":"Duologue","public":false,"systems":["linu
      x","windows"]}.

    ✓ accepted by you: Log in over there.

      The link is done with.
    "#);
}

#[test]
fn talks_until_the_user_leaves() {
    let mut terminal = start(40, 60, &[], "0");
    terminal.wait_for("/crash\n> ");
    terminal.type_line("thoughts");
    terminal.wait_for("And speak again.\n> ");
    terminal.type_line("refusal");
    terminal.wait_for("stopped: refusal\n> ");
    terminal.type_line("/exit");
    assert_eq!(terminal.end(), 0);
    let screen = terminal.screen();
    assert!(screen.starts_with("· connected to duologue-mock 0.1.0 · session-1 · /exit or"), "{screen}");
    shows_both_turns(&screen);

    let mut terminal = start(40, 60, &[], "0");
    terminal.wait_for("/crash\n> ");
    terminal.type_keys("\u{4}");
    assert_eq!(terminal.end(), 0);
}

/// Input that is typed during a turn does not appear in the text of the agent, and becomes the next prompt.
#[test]
fn prompts_can_be_typed_ahead() {
    let mut terminal = start(40, 60, &[], "30");
    terminal.wait_for("/crash\n> ");
    terminal.type_line("thoughts");
    terminal.wait_for("First");
    terminal.type_line("refusal");
    terminal.type_line("/exit");
    assert_eq!(terminal.end(), 0);
    shows_both_turns(&terminal.screen());
}

fn shows_both_turns(screen: &str) {
    let (_, turns) = screen.split_once("/crash\n").unwrap();
    insta::allow_duplicates! {
        insta::assert_snapshot!(turns, @"
        > thoughts

          thinking: First I think.

          Then I speak.

          thinking: I think again,
          in two lines.

          And speak again.
        > refusal

          I would rather not.

        · stopped: refusal
        > /exit
        ");
    }
}

/// The first cancels the turn, and the second leaves.
#[test]
fn ctrl_c_cancels_and_then_leaves() {
    let mut terminal = start(30, 60, &[], "0");
    terminal.wait_for("/crash\n> ");
    terminal.type_line("cancel");
    terminal.wait_for("Cancel me.");
    terminal.type_keys("\u{3}");
    terminal.wait_for("stopped: cancelled\n> ");
    terminal.type_keys("\u{3}");
    assert_eq!(terminal.end(), 130);
    insta::assert_snapshot!(terminal.screen(), @"
    · connected to duologue-mock 0.1.0 · session-1 · /exit or
      Ctrl-D leaves
      · commands: /hello /clear /thoughts /plan /plans /tools
      /permission /files /terminal /elicitation /modes /options
      /commands /usage /info /compaction /notices /content
      /unknown /extension /colleague /subagents /markdown
      /unicode /hostile /slow /long /sessions /login /cancel
      /refusal /max-tokens /max-turn-requests /error /stderr
      /crash
    > cancel

      ✗ Work until cancelled  think
        It was cancelled.

      Cancel me.

    · cancelling; Ctrl-C again leaves
    · stopped: cancelled
    >
    ");

    // A single turn that was cancelled is no success.
    let mut terminal = start(20, 60, &["cancel"], "0");
    terminal.wait_for("Cancel me.");
    terminal.type_keys("\u{3}");
    assert_eq!(terminal.end(), 130);
    assert!(terminal.screen().contains("It was cancelled."));
}

/// An agent that ignores the cancellation does not hold the user up.
#[test]
fn a_second_ctrl_c_leaves_a_deaf_agent() {
    let agent = r#"read a; echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1}}'
        read a; echo '{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s"}}'
        read a; echo '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"I am deaf."}}}}'
        trap '' TERM; sleep 60 & while :; do wait; done"#;
    let mut terminal = Terminal::start(20, 60, &["run", "hello", "--", "sh", "-c", agent], &[]);
    terminal.wait_for("I am deaf.");
    terminal.type_keys("\u{3}");
    terminal.wait_for("Ctrl-C again leaves");
    terminal.type_keys("\u{3}");
    assert_eq!(terminal.end(), 130);
}

#[test]
fn ctrl_c_cancels_the_turn_of_another_client() {
    let chunk = |text: &str| {
        let content = json!({"type": "text", "text": text});
        scripted::update(json!({"sessionUpdate": "agent_message_chunk", "content": content}))
    };
    let agent = format!(
        r#"read a; echo '{{"jsonrpc":"2.0","id":1,"result":{{"protocolVersion":1,"agentCapabilities":{{"sessionCapabilities":{{"resume":{{}}}}}}}}}}'
        read a; echo '{{"jsonrpc":"2.0","id":2,"result":{{"_meta":{{"duologue":{{"turn":true}}}}}}}}'
        read a; case $a in *session/cancel*) echo '{}'; echo '{}';; esac; read a"#,
        chunk("stopped"),
        json!({"jsonrpc": "2.0", "method": "_session/turn", "params": {"sessionId": "s", "running": false}}),
    );
    let mut terminal = Terminal::start(20, 60, &["run", "--resume", "s", "--", "sh", "-c", &agent], &[]);
    terminal.wait_for("Ctrl-C cancels it");
    terminal.type_keys("\u{3}");
    terminal.wait_for("stopped");
    terminal.wait_for("turn has ended");
    terminal.type_keys("\u{3}");
    assert_eq!(terminal.end(), 130);
}

/// An open permission question ends when its turn is cancelled.
#[test]
fn a_question_ends_with_its_turn() {
    let mut terminal = start(20, 60, &["permission"], "0");
    terminal.wait_for("[1-4, y, n]");
    terminal.type_keys("\u{3}");
    assert_eq!(terminal.end(), 130);
    assert!(!terminal.screen().contains("[1-4, y, n]"), "{}", terminal.screen());
}

#[test]
fn no_color_is_respected() {
    let args: Vec<&str> = ["run", "tools"].into_iter().chain(MOCK).chain(["0"]).collect();
    let mut terminal = Terminal::start(60, 70, &args, &[("NO_COLOR", "1")]);
    assert_eq!(terminal.end(), 0);
    assert!(terminal.screen().contains("+    run();"));
    assert!(!terminal.has_styles());
    let mut terminal = Terminal::start(60, 70, &args, &[]);
    assert_eq!(terminal.end(), 0);
    assert!(terminal.has_styles());
}

/// A terminal that cannot move its cursor gets plain text.
#[test]
fn dumb_terminals_get_text() {
    let args: Vec<&str> = ["run", "hello"].into_iter().chain(MOCK).chain(["0"]).collect();
    let mut terminal = Terminal::start(20, 60, &args, &[("TERM", "dumb")]);
    assert_eq!(terminal.end(), 0);
    assert!(terminal.screen().starts_with("  Hello! I am the mock agent"), "{}", terminal.screen());
    assert!(!terminal.bytes().contains('\u{1b}'));

    // Questions to the user work in such a terminal too.
    let args: Vec<&str> = ["run", "permission"].into_iter().chain(MOCK).chain(["0"]).collect();
    let mut terminal = Terminal::start(20, 60, &args, &[("TERM", "dumb")]);
    terminal.wait_for("[1-4, y, n]");
    terminal.type_line("y");
    assert_eq!(terminal.end(), 0);
    assert!(terminal.screen().contains("You allowed it."), "{}", terminal.screen());
}

/// A long message is not looked at from its beginning whenever it grows, nor is what has scrolled away.
#[test]
fn much_is_shown_in_time() {
    let agent = r#"read a; echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1}}'
        read a; echo '{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s"}}'
        read a; seq 1 20000 >&2; words=$(seq 1 600 | tr '\n' ' '); i=0
        while [ $i -lt 1000 ]; do i=$((i+1)); echo '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"'"$words"'"}}}}'; done
        echo '{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}'; read a"#;
    let start = std::time::Instant::now();
    let mut terminal = Terminal::start(20, 80, &["run", "-v", "hello", "--", "sh", "-c", agent], &[]);
    assert_eq!(terminal.end(), 0);
    assert!(terminal.bytes().contains("598 599 600"), "{}", terminal.screen());
    assert!(start.elapsed() < std::time::Duration::from_secs(30), "{:?}", start.elapsed());
}

#[test]
fn a_slow_start_is_explained() {
    let mut terminal = Terminal::start(20, 60, &["run", "hi", "--", "sleep", "100"], &[]);
    terminal.wait_for("waiting for sleep…");
    terminal.type_keys("\u{3}");
    assert_eq!(terminal.end(), 130);
}

/// Nothing an agent says moves the cursor, changes the window or turns text around.
#[test]
fn a_hostile_agent_leaves_the_screen_alone() {
    let mut terminal = start(60, 100, &["hostile"], "0");
    terminal.wait_for("[1-2, y, n]");
    insta::assert_snapshot!(terminal.screen(), @r"
      thinking: A thought with
      \u{1b}[2J\u{1b}[1;1H\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}desrever\u{2066}\u{200b}\u{8}\r! in it.

      Words with
      \u{1b}[2J\u{1b}[1;1H\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}desrever\u{2066}\u{200b}\u{8}\r! in them.

      Plan
        ○ Plan \u{1b}[2J\u{1b}[1;1H\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}desrever\u{2066}\u{200b}\u{8}\r!
       high

      · title: Title
      \u{1b}[2J\u{1b}[1;1H\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}desrever\u{2066}\u{200b}\u{8}\r!
      · mode:
      mode-\u{1b}[2J\u{1b}[1;1H\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}desrever\u{2066}\u{200b}\u{8}\r!
      · Mode:
      mode-\u{1b}[2J\u{1b}[1;1H\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}desrever\u{2066}\u{200b}\u{8}\r!

      ○ Tool \u{1b}[2J\u{1b}[1;1H\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}desrever\u{2066}\u{200b}\u{8}\r!
      edit
    ? May it do this?
    │ edit  Tool
    ┊ \u{1b}[2J\u{1b}[1;1H\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}desrever\u{2066}\u{200b}\u{8}\r!
    │ change:
    ┊ /path-\u{1b}[2J\u{1b}[1;1H\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}desrever\u{2066}\u{200b}\u{8}\r!
    │ @@ -1,2 +1,2 @@
    │ -old \u{1b}[2J\u{1b}[1;1H\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}desrever\u{2066}\u{200b}\u{8}
    │ +new \u{1b}[2J\u{1b}[1;1H\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}desrever\u{2066}\u{200b}\u{8}
    │  !
      1  allow once     Yes
         \u{1b}[2J\u{1b}[1;1H\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}desrever\u{2066}\u{200b}\u{8}\r!
      2  reject once    No
         \u{1b}[2J\u{1b}[1;1H\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}desrever\u{2066}\u{200b}\u{8}\r!
    [1-2, y, n]
    ");
    terminal.type_line("n");
    assert_eq!(terminal.end(), 6);
    assert!(terminal.screen().contains("That is all the harm I can do."));
    let bytes = terminal.bytes();
    assert!(!bytes.contains('\u{202e}') && !bytes.contains('\u{9b}') && !bytes.contains('\u{7}'));
    for sequence in bytes.split('\u{1b}').skip(1) {
        let end = sequence.find(|char: char| char.is_ascii_alphabetic()).unwrap();
        let (sequence, _) = sequence.split_at(end + 1);
        let ours = ["[K", "[J", "[?7l", "[?7h", "[?2004h", "[?2004l"].contains(&sequence)
            || sequence.ends_with(['A', 'B', 'C', 'm']);
        assert!(ours, "{sequence:?}");
    }
}

/// Nobody knows how a terminal has moved its text, so what is drawn stays, and everything is there in the
/// end.
#[test]
fn another_size_of_the_window_loses_nothing() {
    let mut terminal = start(20, 60, &["hello"], "20");
    terminal.wait_for("This is a draft.");
    terminal.resize(20, 40);
    assert_eq!(terminal.end(), 0);
    let shown = terminal.screen();
    assert!(shown.contains("the text above was retracted"), "{shown}");
    assert!(shown.contains("for all I can do."), "{shown}");
}

/// Typed keys are shown only at the prompt, and again after the program has ended.
#[test]
fn the_terminal_is_left_as_it_was() {
    let mut terminal = start(20, 60, &["cancel"], "0");
    terminal.wait_for("Cancel me.");
    assert!(!terminal.echoes());
    terminal.type_keys("\u{3}");
    assert_eq!(terminal.end(), 130);
    assert!(terminal.echoes());
}

/// Rows that have scrolled out of a small window are complete and in order.
#[test]
fn tool_calls_that_scrolled_away_are_complete() {
    let mut terminal = start(60, 80, &["tools"], "0");
    assert_eq!(terminal.end(), 0);
    let whole = terminal.everything();
    let body = |text: &str| -> Vec<String> {
        let is_body = |line: &&str| line.starts_with("    ") || line.starts_with("  Those");
        text.lines().filter(is_body).map(str::to_owned).collect()
    };
    let is_head = |line: &&str| line.starts_with("  ✓") || line.starts_with("  ✗");
    for (rows, pace) in [(5, "2"), (8, "2"), (8, "20"), (12, "20")] {
        let mut terminal = start(rows, 80, &["tools"], pace);
        assert_eq!(terminal.end(), 0);
        let shown = terminal.everything();
        assert_eq!(body(&shown), body(&whole), "{rows} rows, pace {pace}:\n{shown}");
        let done: Vec<_> = shown.lines().filter(is_head).collect();
        let expected: Vec<_> = whole.lines().filter(is_head).collect();
        assert_eq!(done, expected, "{rows} rows, pace {pace}:\n{shown}");
    }
}

/// A change is printed once, though it was scrolled away when its call failed.
#[test]
fn a_change_is_not_printed_again_when_it_ends() {
    let folder = tempfile::TempDir::new().unwrap();
    let diff = serde_json::json!({"type": "diff", "path": "/p/a.txt", "newText": "one\ntwo\nthree\n"});
    let words = serde_json::json!({"sessionUpdate": "agent_message_chunk",
        "content": {"type": "text", "text": "line\n".repeat(20)}});
    for status in ["completed", "failed"] {
        let lines = [
            scripted::update(
                serde_json::json!({"sessionUpdate": "tool_call", "toolCallId": "t", "title": "Edit",
                "kind": "edit", "status": "in_progress", "content": [diff]}),
            ),
            scripted::update(words.clone()),
            scripted::ask("1", serde_json::json!({"toolCallId": "t"})),
            scripted::update(
                serde_json::json!({"sessionUpdate": "tool_call_update", "toolCallId": "t", "status": status}),
            ),
            scripted::end_turn(),
        ];
        let agent = scripted::agent(folder.path(), &lines);
        let mut terminal = Terminal::start(8, 80, &["run", "go", "--", "sh", "-c", &agent], &[]);
        terminal.wait_for("v] ");
        terminal.type_line("y");
        assert_eq!(terminal.end(), 0);
        let shown = terminal.everything();
        assert_eq!(shown.matches("+three").count(), 1, "{shown}");
    }
}

/// The output of a program that this command runs is shown while it runs, and so is its end.
#[test]
fn the_output_of_a_terminal_is_shown_while_it_runs() {
    let folder = tempfile::TempDir::new().unwrap();
    let program =
        r"printf 'one\n\033[31mtwo\033[0m\n'; sleep 2; for i in $(seq 30); do echo line $i; done; exit 3";
    let call = serde_json::json!({"sessionUpdate": "tool_call", "toolCallId": "t", "title": "Build",
        "kind": "execute", "status": "in_progress", "content": [{"type": "terminal", "terminalId": "terminal-1"}]});
    let lines = [
        scripted::request(
            "1",
            "terminal/create",
            serde_json::json!({"command": "sh", "args": ["-c", program]}),
        ),
        scripted::update(call),
        scripted::request("2", "terminal/wait_for_exit", serde_json::json!({"terminalId": "terminal-1"})),
        scripted::request("3", "terminal/release", serde_json::json!({"terminalId": "terminal-1"})),
        scripted::end_turn(),
    ];
    let agent = scripted::agent(folder.path(), &lines);
    let mut terminal = Terminal::start(40, 80, &["run", "go", "--", "sh", "-c", &agent], &[]);
    terminal.wait_for("    one\n    two\n");
    assert_eq!(terminal.end(), 0);
    let screen = terminal.screen();
    let (_, shown) = screen.split_once("  ▸ Build  execute\n").unwrap();
    let lines: Vec<_> = (19..=30).map(|line| format!("    line {line}\n")).collect();
    assert_eq!(shown, format!("    …\n{}    [ended with code 3]", lines.concat()), "{screen}");
}

/// A message that arrives between two turns is a paragraph of its own.
#[test]
fn a_message_between_turns_is_a_paragraph_of_its_own() {
    let folder = tempfile::TempDir::new().unwrap();
    let agent = scripted::talkative(folder.path());
    let mut terminal = Terminal::start(20, 60, &["run", "--", "sh", "-c", &agent], &[]);
    terminal.wait_for("leaves\n> ");
    terminal.type_line("one");
    terminal.wait_for("stray 3\n> ");
    terminal.type_line("two");
    terminal.wait_for("stray 4\n> ");
    terminal.type_keys("\u{4}");
    assert_eq!(terminal.end(), 0);
    let screen = terminal.screen();
    let (_, shown) = screen.split_once("leaves\n").unwrap();
    let answers = "> one\n\n  answer 3\n\n  stray 3\n> two\n\n  answer 4\n\n  stray 4\n>";
    assert_eq!(shown, answers, "{screen}");
}

#[test]
fn costs_are_rounded() {
    let folder = tempfile::TempDir::new().unwrap();
    let usage = |amount: f64| {
        scripted::update(serde_json::json!({"sessionUpdate": "usage_update", "used": 1, "size": 2,
            "cost": {"amount": amount, "currency": "USD"}}))
    };
    for (amount, shown) in
        [(0.001_400_000_000_000_000_2, "0.0014 USD"), (12.5, "12.5 USD"), (1e-9, "1.0e-9 USD")]
    {
        let agent = scripted::agent(folder.path(), &[usage(amount), scripted::end_turn()]);
        let mut terminal = Terminal::start(10, 60, &["run", "go", "--", "sh", "-c", &agent], &[]);
        assert_eq!(terminal.end(), 0);
        assert_eq!(terminal.screen(), format!("  · 1 of 2 tokens, {shown}"));
    }
}

/// On a terminal only the problems are shown; a pipe gets a line of JSON for each frame.
#[test]
fn validate_is_short_on_a_terminal() {
    let transcript = |name: &str| format!("{}/tests/transcripts/{name}", env!("CARGO_MANIFEST_DIR"));
    let mut terminal = Terminal::start(10, 80, &["validate", &transcript("hello.jsonl")], &[]);
    assert_eq!(terminal.end(), 0);
    insta::assert_snapshot!(terminal.screen(), @"10 frames: 0 not ok, 0 more with warnings, 0 not lossless");
    let mut terminal = Terminal::start(60, 100, &["validate", &transcript("faults.jsonl")], &[]);
    assert_eq!(terminal.end(), 1);
    let screen = terminal.screen();
    assert!(
        screen.contains("line 4, session/new (client): error: $.params.cwd must be absolute"),
        "{screen}"
    );
    assert!(screen.contains("line 26, session/update (agent): warning: $."), "{screen}");
    assert!(!screen.contains("\"line\":"), "{screen}");
    let mut terminal = Terminal::start(60, 300, &["validate", "--json", &transcript("hello.jsonl")], &[]);
    assert_eq!(terminal.end(), 0);
    assert!(terminal.screen().contains("{\"line\":2,"), "{}", terminal.screen());
}
