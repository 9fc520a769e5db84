//! Questions for permission show what they are about, and every answer stays to be read.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::emulator::Terminal;
use crate::scripted::{agent, ask, end_turn, request, update};

fn start(rows: u16, folder: &Path, lines: &[Value], env: &[(&str, &str)]) -> Terminal {
    let (agent, folder) = (agent(folder, lines), folder.to_str().unwrap());
    Terminal::start(rows, 80, &["run", "go", "--cwd", folder, "--", "sh", "-c", &agent], env)
}

fn bash(command: &str) -> Value {
    let input = json!({"command": command, "description": "List the files"});
    json!({"toolCallId": "t", "title": "Bash", "kind": "execute", "rawInput": input})
}

/// An edit of a file with this many lines, each of which changes.
fn edit(lines: usize) -> Value {
    let text = |word: &str| (1..=lines).map(|line| format!("{word} line {line}\n")).collect::<String>();
    let (old, new) = (text("old"), text("new"));
    let diff = json!({"type": "diff", "path": "/p/notes.txt", "oldText": old, "newText": new});
    json!({"toolCallId": "e", "title": "Edit notes.txt", "kind": "edit", "content": [diff],
        "rawInput": {"file_path": "/p/notes.txt", "old_string": old, "new_string": new}})
}

#[test]
fn a_question_shows_the_command_and_not_just_the_title() {
    let folder = TempDir::new().unwrap();
    let lines = [ask("1", bash("rm -rf ~/project && echo done")), end_turn()];
    let mut terminal = start(24, folder.path(), &lines, &[]);
    terminal.wait_for("[1-3, y, n]");
    insta::assert_snapshot!(terminal.screen(), @r#"
      ○ Bash  execute
    ? May it do this?
    │ execute  Bash
    │ $ rm -rf ~/project && echo done
    │ description: "List the files"
      1  allow once     Yes
      2  allow always   Always
      3  reject once    No
    [1-3, y, n]
    "#);
    terminal.type_line("y");
    assert_eq!(terminal.end(), 0);
    insta::assert_snapshot!(terminal.screen(), @r#"
      ○ Bash  execute

    ✓ allowed by you (allow once, "Yes"): Bash  $ rm -rf ~/project && echo done
    "#);
}

/// An agent may announce a call and ask about it with nothing but its id.
#[test]
fn a_question_shows_earlier_updates_of_the_call() {
    let folder = TempDir::new().unwrap();
    let mut call = bash("rm -rf ~/project");
    call["sessionUpdate"] = "tool_call".into();
    let words =
        json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "In between."}});
    let lines = [update(call), update(words), ask("1", json!({"toolCallId": "t"})), end_turn()];
    let mut terminal = start(24, folder.path(), &lines, &[]);
    terminal.wait_for("[1-3, y, n]");
    insta::assert_snapshot!(terminal.screen(), @r#"
      ○ Bash  execute

      In between.
    ? May it do this?
    │ execute  Bash
    │ $ rm -rf ~/project
    │ description: "List the files"
      1  allow once     Yes
      2  allow always   Always
      3  reject once    No
    [1-3, y, n]
    "#);
}

#[test]
fn a_call_with_nothing_but_a_title_is_distinguished() {
    let folder = TempDir::new().unwrap();
    let lines = [ask("1", json!({"toolCallId": "t", "title": "Bash"})), end_turn()];
    let mut terminal = start(24, folder.path(), &lines, &[]);
    terminal.wait_for("only the title says what it does");
}

#[test]
fn a_long_change_can_be_paged_through_before_it_is_allowed() {
    let folder = TempDir::new().unwrap();
    let mut terminal = start(24, folder.path(), &[ask("1", edit(200)), end_turn()], &[]);
    terminal.wait_for("[1-3, y, n, v]");
    insta::assert_snapshot!(terminal.screen(), @r#"
      ○ Edit notes.txt  edit
    ? May it do this?
    │ edit  Edit notes.txt
    │ file_path: "/p/notes.txt"
    │ new_string: the new text of the change below
    │ old_string: the old text of the change below
    │ change: /p/notes.txt
    │ @@ -1,200 +1,200 @@
    │ -old line 1
    │ -old line 2
    │ -old line 3
    │ -old line 4
    │ -old line 5
    │ -old line 6
    │ -old line 7
    │ -old line 8
    │ -old line 9
    │ -old line 10
    │ -old line 11
    … 389 more lines; enter v to view all
      1  allow once     Yes
      2  allow always   Always
      3  reject once    No
    [1-3, y, n, v]
    "#);
    terminal.type_line("v");
    let mut pages = 0;
    for first in (1..).step_by(21).take_while(|first| *first <= 406 + 3) {
        terminal.wait_for(&format!("lines {first}-"));
        pages += 1;
        if first == 22 {
            terminal.type_line("b");
            terminal.wait_for("lines 1-21 of 409");
            terminal.type_line("");
            terminal.wait_for("lines 22-42 of 409");
        }
        if first + 21 <= 409 {
            terminal.type_line("");
        }
    }
    assert_eq!(pages, 20);
    terminal.wait_for("[Enter: the question");
    insta::assert_snapshot!(terminal.screen(), @"
      ○ Edit notes.txt  edit
    │ +new line 194
    │ +new line 195
    │ +new line 196
    │ +new line 197
    │ +new line 198
    │ +new line 199
    │ +new line 200
      1  allow once     Yes
      2  allow always   Always
      3  reject once    No
    lines 400-409 of 409
    [Enter: the question, b: back, q: the question, 1-3, y, n]
    ");
    // The end of the last page is the question again, and `q` is another way there.
    terminal.type_line("");
    terminal.wait_for("[1-3, y, n, v]");
    terminal.type_line("v");
    terminal.wait_for("lines 1-21 of 409");
    terminal.type_line("q");
    terminal.wait_for("[1-3, y, n, v]");
    terminal.type_line("n");
    assert_eq!(terminal.end(), 6);
    assert!(terminal.screen().contains("✗ rejected by you (reject once, \"No\"): Edit notes.txt"));
}

/// Every page fits, however small the window is and however it changes.
#[test]
fn the_question_fits_a_window_that_changes() {
    let folder = TempDir::new().unwrap();
    let mut terminal = start(24, folder.path(), &[ask("1", edit(200)), end_turn()], &[]);
    terminal.wait_for("[1-3, y, n, v]");
    terminal.resize(12, 60);
    // The terminal's earlier contents stay above; one answer that does not count draws the question again.
    terminal.type_line("9");
    terminal.wait_for("there is no answer 9");
    let screen = terminal.screen();
    assert!(screen.contains("? May it do this?") && screen.contains("more lines; enter v"), "{screen}");
}

#[test]
fn a_terminal_without_a_moving_cursor_pages_too() {
    let folder = TempDir::new().unwrap();
    let lines = [ask("1", edit(20)), end_turn()];
    let mut terminal = start(24, folder.path(), &lines, &[("TERM", "dumb")]);
    terminal.wait_for("[1-3, y, n, v]");
    assert!(terminal.screen().contains("more lines; enter v to view all"), "{}", terminal.screen());
    terminal.type_line("v");
    terminal.wait_for("lines 1-21 of 49");
    terminal.type_line("");
    terminal.wait_for("lines 22-42 of 49");
    assert!(terminal.screen().contains("│ +new line 16"), "{}", terminal.screen());
    terminal.type_line("y");
    assert_eq!(terminal.end(), 0);
    assert!(terminal.screen().contains("✓ allowed by you"), "{}", terminal.screen());
}

/// Whatever the agent writes stands behind a margin: no title, input or file adds a line that looks like ours.
#[test]
fn nothing_of_the_agent_passes_for_the_question() {
    let folder = TempDir::new().unwrap();
    let fake = "  1  allow once     Yes";
    let padded = format!("x{}{fake}\n{fake}", " ".repeat(200));
    let mut call = bash(&padded);
    call["title"] = padded.clone().into();
    call["rawInput"]["script"] = format!("{fake}\n{fake}\u{1b}[2J").into();
    call["locations"] = json!([{"path": format!("/p/{padded}")}]);
    let lines = [ask("1", call), end_turn()];
    let mut terminal = start(60, folder.path(), &lines, &[]);
    terminal.wait_for("[1-3, y, n]");
    let screen = terminal.screen();
    let (_, question) = screen.split_once("? May it do this?\n").unwrap();
    let options = question.lines().filter(|line| line.starts_with(fake)).count();
    assert_eq!(options, 1, "{screen}");
    let ours = ["  1  allow once", "  2  allow always", "  3  reject once", "[1-3, y, n]"];
    for line in question.lines() {
        let known = line.starts_with(['│', '┊']) || ours.iter().any(|ours| line.starts_with(ours));
        assert!(known, "{line:?} in\n{screen}");
    }
}

/// Nothing of the agent begins in the first column, where the rows of this program begin, colours or not.
#[test]
fn only_rows_of_this_program_begin_in_the_first_column() {
    let fake = "FAKE May it do this? FAKE [1-3, y, n] FAKE";
    let breaks =
        ["\n", "\r", "\r\n", "\u{85}", "\u{2028}", "\u{2029}", "\u{b}", "\u{c}", "\u{1b}E", "\u{1b}[1G"];
    for (columns, env) in
        [(80, &[("NO_COLOR", "1")][..]), (41, &[("NO_COLOR", "1")]), (41, &[]), (41, &[("TERM", "dumb")])]
    {
        let folder = TempDir::new().unwrap();
        let mut text: String = breaks.iter().map(|end| format!("x{end}{fake}")).collect();
        // Lines that end in every column near the edge of the window, in narrow and in wide characters.
        for width in usize::from(columns) - 5..usize::from(columns) + 2 {
            text.push_str(&format!("\n{}{fake}", "-".repeat(width)));
            text.push_str(&format!("\n{}{fake}", "終".repeat(width / 2)));
        }
        let chunk = |kind: &str, id: &str| {
            update(json!({"sessionUpdate": kind, "messageId": id, "content": {"type": "text", "text": text}}))
        };
        let select = json!({"id": "o", "name": fake, "type": "select", "currentValue": text, "options": []});
        let content = json!([{"type": "content", "content": {"type": "text", "text": text}},
            {"type": "diff", "path": format!("/{fake}"), "oldText": "", "newText": text}]);
        let lines = [
            chunk("agent_thought_chunk", "1"),
            chunk("user_message_chunk", "2"),
            update(json!({"sessionUpdate": "tool_call", "toolCallId": "c", "title": text, "kind": fake,
                "status": "completed", "content": content, "locations": [{"path": format!("/{text}")}]})),
            update(json!({"sessionUpdate": "plan",
                "entries": [{"content": text, "priority": "high", "status": "pending"}]})),
            update(json!({"sessionUpdate": "current_mode_update", "currentModeId": text})),
            update(json!({"sessionUpdate": "session_info_update", "title": text})),
            update(
                json!({"sessionUpdate": "notice", "severity": "info", "title": text, "description": text}),
            ),
            update(json!({"sessionUpdate": "config_option_update", "configOptions": [select]})),
            update(json!({"sessionUpdate": "usage_update", "used": 1, "size": 2,
                "cost": {"amount": 1, "currency": text}})),
            update(json!({"sessionUpdate": fake})),
            chunk("agent_message_chunk", "3"),
            ask("1", json!({"toolCallId": "t", "title": "Bash", "rawInput": {"command": text}})),
            request(
                "2",
                "elicitation/create",
                json!({"mode": "url", "elicitationId": "e", "message": text, "url": format!("https://{text}")}),
            ),
            end_turn(),
        ];
        let (agent, dir) = (agent(folder.path(), &lines), folder.path().to_str().unwrap());
        let args = ["run", "go", "--cwd", dir, "--", "sh", "-c", &agent];
        let mut terminal = Terminal::start(30, columns, &args, env);
        terminal.wait_for("[1-3, y, n, v] ");
        let real = |row: &&str| row.starts_with("? May it do this?");
        assert_eq!(terminal.everything().lines().filter(real).count(), 1);
        terminal.type_line("y");
        terminal.wait_for("opened it, n] ");
        terminal.type_line("n");
        assert_eq!(terminal.end(), 6);
        let shown = terminal.everything();
        assert!(shown.matches("FAKE").count() > 30, "{shown}");
        for row in shown.lines().filter(|row| row.contains("FAKE")) {
            // An entry of the audit trail quotes a title behind its own words.
            let is_ours = ["  ", "│ ", "┊ ", "✓ allowed by you", "✗ declined by you"];
            assert!(
                is_ours.iter().any(|ours| row.starts_with(ours)),
                "{row:?} in {columns} columns\n{shown}"
            );
        }
        for row in shown.lines().filter(|row| !row.is_empty()) {
            let known = ["  ", "│ ", "┊ ", "? ", "✓ ", "✗ ", "… ", "[", "· "];
            let begins = |known: &&str| row.starts_with(known) || row == known.trim_end();
            assert!(known.iter().any(begins), "{row:?} in {columns} columns\n{shown}");
        }
    }
}

/// Enter turns pages, and answers neither that question nor one that replaces it meanwhile.
#[test]
fn enter_does_not_answer_while_pages_are_turned() {
    let folder = TempDir::new().unwrap();
    let field = json!({"type": "string", "title": "Sure?", "default": "yes"});
    let form = json!({"sessionId": "s", "mode": "form", "message": "Really?",
        "requestedSchema": {"type": "object", "properties": {"sure": field}}});
    let form = json!({"jsonrpc": "2.0", "id": "form", "method": "elicitation/create", "params": form});
    let cancel = json!({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": "q 1"}});
    let put = |name: &str, value: &Value| fs::write(folder.path().join(name), format!("{value}\n")).unwrap();
    put("ask", &ask("1", edit(200)));
    put("cancel", &cancel);
    put("form", &form);
    put("end", &end_turn());
    let agent = format!(
        r#"cd '{}'; read -r a; echo '{{"jsonrpc":"2.0","id":1,"result":{{"protocolVersion":1}}}}'
        read -r a; echo '{{"jsonrpc":"2.0","id":2,"result":{{"sessionId":"s"}}}}'; read -r a; cat ask
        while [ ! -e go ]; do sleep 0.05; done
        cat cancel; read -r a; echo "$a" >>answers; cat form; read -r a; echo "$a" >>answers; cat end; read -r a"#,
        folder.path().display()
    );
    let mut terminal = Terminal::start(24, 80, &["run", "go", "--", "sh", "-c", &agent], &[]);
    terminal.wait_for("[1-3, y, n, v]");
    terminal.type_line("v");
    terminal.wait_for("lines 1-21 of 409");
    terminal.type_line("");
    terminal.wait_for("lines 22-42 of 409");
    fs::write(folder.path().join("go"), "").unwrap();
    terminal.wait_for("Sure?");
    // It was meant for the next page.
    terminal.type_line("");
    terminal.wait_for("was meant for the question before");
    terminal.type_line("!");
    terminal.end();
    let answers = fs::read_to_string(folder.path().join("answers")).unwrap();
    assert!(!answers.contains("selected") && answers.contains(r#""action":"decline""#), "{answers}");
}

/// Questions that are open together are shown one after the other. Their order is that of the host's tasks.
#[test]
fn each_answer_is_for_the_question_that_is_shown() {
    let folder = TempDir::new().unwrap();
    let call = |name: &str| json!({"toolCallId": name, "title": name, "kind": "execute"});
    let lines: String =
        ["first", "second", "third"].iter().map(|name| format!("{}\n", ask(name, call(name)))).collect();
    fs::write(folder.path().join("ask"), lines).unwrap();
    let agent = format!(
        r#"cd '{}'; read -r a; echo '{{"jsonrpc":"2.0","id":1,"result":{{"protocolVersion":1}}}}'
        read -r a; echo '{{"jsonrpc":"2.0","id":2,"result":{{"sessionId":"s"}}}}'; read -r a; cat ask
        for i in 1 2 3; do read -r a; echo "$a" >>answers; done; echo '{}'; read -r a"#,
        folder.path().display(),
        end_turn()
    );
    let mut terminal = Terminal::start(24, 80, &["run", "go", "--", "sh", "-c", &agent], &[]);
    let options = [("first", "n", "no"), ("second", "2", "all"), ("third", "y", "yes")];
    let mut open = options.to_vec();
    while !open.is_empty() {
        let shown: Vec<_> = open.iter().map(|(name, ..)| format!("│ execute  {name}\n")).collect();
        let index = terminal.wait_for_one(&shown.iter().map(String::as_str).collect::<Vec<_>>());
        let (_, answer, _) = open.remove(index);
        terminal.type_line(answer);
    }
    assert_eq!(terminal.end(), 6);
    let answers = fs::read_to_string(folder.path().join("answers")).unwrap();
    for (name, _, option) in options {
        let answer = answers.lines().find(|line| line.contains(&format!(r#""id":"q {name}""#))).unwrap();
        assert!(answer.contains(&format!(r#""optionId":"{option}""#)), "{answer}");
    }
}

/// A login of the agent's choice runs after the user has seen its whole command line, and in this terminal.
#[test]
fn a_login_in_the_terminal_is_run_with_consent() {
    let folder = TempDir::new().unwrap();
    let login = json!({"command": "sh", "args": ["-c", "read a; echo \"$NAME and $a\" >login"], "env": {"NAME": "me"}});
    let methods = json!([{"id": "old", "name": "Old", "_meta": {"terminal-auth": login}}]);
    let init = json!({"jsonrpc": "2.0", "id": 1, "result": {"protocolVersion": 1, "authMethods": methods}});
    fs::write(folder.path().join("init"), format!("{init}\n")).unwrap();
    let agent = format!(
        r#"cd '{}'; read -r a; cat init; read -r a; echo '{{"jsonrpc":"2.0","id":2,"result":{{"sessionId":"s"}}}}'
        read -r a; cat login >&2; echo '{}'; read -r a"#,
        folder.path().display(),
        end_turn()
    );
    let start = || {
        let args = ["run", "--login", "old", "-v", "go", "--", "sh", "-c", &agent];
        Terminal::start_in(folder.path(), 24, 80, &args, &[])
    };
    let mut terminal = start();
    terminal.wait_for("[y, n] ");
    insta::assert_snapshot!(terminal.screen(), @r#"
    ? Run this program of the agent to log in?
    │ env NAME=me sh -c 'read a; echo "$NAME and $a" >login'
    [y, n]
    "#);
    terminal.type_line("n");
    assert_eq!(terminal.end(), 1);
    assert!(!folder.path().join("login").exists());

    let mut terminal = start();
    terminal.wait_for("[y, n] ");
    terminal.type_line("y");
    terminal.type_line("secret");
    terminal.wait_for("stderr: me and secret");
    assert_eq!(terminal.end(), 0);
}

/// A line that was typed before the question does not run the program.
#[test]
fn a_line_typed_ahead_runs_no_login() {
    let folder = TempDir::new().unwrap();
    let login = json!({"command": "sh", "args": ["-c", "echo ran >login"]});
    let methods = json!([{"id": "old", "name": "Old", "_meta": {"terminal-auth": login}}]);
    let init = json!({"jsonrpc": "2.0", "id": 1, "result": {"protocolVersion": 1, "authMethods": methods}});
    fs::write(folder.path().join("init"), format!("{init}\n")).unwrap();
    let agent = "read -r a; until test -e typed; do sleep 0.1; done; cat init; read -r a";
    let args = ["run", "--login", "old", "go", "--", "sh", "-c", agent];
    let mut terminal = Terminal::start_in(folder.path(), 24, 80, &args, &[]);
    terminal.type_line("y");
    fs::write(folder.path().join("typed"), "").unwrap();
    terminal.wait_for("[y, n] ");
    terminal.type_line("n");
    assert_eq!(terminal.end(), 1);
    assert!(!folder.path().join("login").exists());
}

#[test]
fn writes_programs_and_answers_are_lines() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let lines = [
        request("1", "fs/write_text_file", json!({"path": path("a"), "content": "text"})),
        request("2", "fs/write_text_file", json!({"path": "/etc/none", "content": "text"})),
        request(
            "3",
            "terminal/create",
            json!({"command": "true", "args": ["a b"], "env": [{"name": "A", "value": "1"}]}),
        ),
        request("4", "terminal/create", json!({"command": "no-such-program"})),
        ask("5", bash("ls")),
        end_turn(),
    ];
    let mut terminal = start(24, folder.path(), &lines, &[]);
    terminal.wait_for("[1-3, y, n]");
    terminal.type_line("3");
    assert_eq!(terminal.end(), 6);
    let screen = terminal.screen().replace(folder.path().to_str().unwrap(), "[folder]");
    insta::assert_snapshot!(screen, @r#"
    · wrote [folder]/a (4 bytes)
    ✗ refused to write /etc/none (4 bytes): /etc/none is outside of the session's
      folders: [folder]
    · started $ A=1 true 'a b'
    ✗ could not start $ no-such-program: there is no program no-such-program

      ○ Bash  execute

    ✗ rejected by you (reject once, "No"): Bash  $ ls
    "#);
}

/// The third question is answered by the *always* of the first, and says so.
#[test]
fn an_answer_from_before_is_a_line_too() {
    let folder = TempDir::new().unwrap();
    let lines = [ask("1", bash("ls")), ask("2", bash("ls")), end_turn()];
    let mut terminal = start(24, folder.path(), &lines, &[]);
    terminal.wait_for("[1-3, y, n]");
    terminal.type_line("2");
    assert_eq!(terminal.end(), 0);
    let screen = terminal.screen();
    assert!(screen.contains("✓ allowed by you (allow always, \"Always\"): Bash  $ ls"), "{screen}");
    assert!(
        screen.contains("✓ allowed as you answered before (allow once, \"Yes\"): Bash  $ ls"),
        "{screen}"
    );
}

#[test]
fn a_question_that_ends_with_its_turn_is_shown_as_unanswered() {
    let folder = TempDir::new().unwrap();
    let lines = [ask("1", bash("ls")), end_turn()];
    let mut terminal = start(24, folder.path(), &lines, &[]);
    terminal.wait_for("[1-3, y, n]");
    terminal.type_keys("\u{3}");
    assert_eq!(terminal.end(), 130);
    assert!(terminal.screen().contains("✗ not answered: Bash  $ ls"), "{}", terminal.screen());
}
