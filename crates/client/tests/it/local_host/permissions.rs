//! Permissions that are decided without the user, and the chosen options.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use duologue_client::limits::QUESTION_PATHS;
use duologue_client::schema::{
    Meta, RequestPermissionOutcome, RequestPermissionRequest, RequestPermissionResponse, ToolKind,
};
use duologue_client::{Client, LocalHost, Permissions};
use serde_json::{Value, json};

use super::desk::{Agent, Desk};
use duologue_test_support::{in_time, measured, runs};

const ALL: [&str; 4] = ["allow_once", "allow_always", "reject_once", "reject_always"];

/// Options whose ids are their kinds.
fn options(kinds: &[&str]) -> Value {
    kinds.iter().map(|kind| json!({"optionId": kind, "name": kind, "kind": kind})).collect()
}

/// Returns the outcome of the host: the option, or `cancelled`.
async fn answer(agent: &mut Agent, session: &str, call: &Value, options: Value) -> String {
    let mut call = call.clone();
    call["toolCallId"] = "call".into();
    let params = json!({"toolCall": call, "options": options});
    let result = agent.ask_in(session, "session/request_permission", params).await.expect("an answer");
    let outcome = &result["outcome"];
    let said = if outcome["outcome"] == "selected" { &outcome["optionId"] } else { &outcome["outcome"] };
    said.as_str().expect("a word").to_owned()
}

async fn agent(permissions: Permissions) -> Agent {
    Agent::of(LocalHost::new("/tmp").permissions(permissions), "/tmp").await
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_go_by_kind_and_by_file() {
    in_time(async {
        let permissions = || {
            Permissions::new()
                .allow(ToolKind::Read)
                .allow_in(ToolKind::Edit, "/p/src")
                .allow(ToolKind::Execute)
                .deny(ToolKind::Delete)
                .allow(ToolKind::Delete)
                .deny_in("/p/src/private")
                .deny_in("/p/.git/../.ssh")
        };
        let at = |kind: &str, paths: &[&str]| {
            let locations: Vec<_> = paths.iter().map(|path| json!({"path": path})).collect();
            json!({"kind": kind, "locations": locations})
        };
        let edit =
            |path: &str| json!({"kind": "edit", "content": [{"type": "diff", "path": path, "newText": ""}]});
        let mut agent = agent(permissions()).await;
        let long = "/a".repeat(100_000);
        for (call, allowed) in [
            (at("read", &[]), true),
            (at("read", &["/etc/passwd"]), true),
            (at("read", &["/p/src/private"]), false),
            (at("read", &["/p/src/a", "/p/src/private/key"]), false),
            (at("read", &["/p/src/x/../private/key"]), false),
            (at("read", &["/p/.ssh/key"]), false),
            (at("edit", &["/p/src/a"]), true),
            (at("edit", &["/p/src"]), true),
            (at("edit", &["/p/src/a", "/p/other"]), false),
            (at("edit", &["/p/source"]), false),
            (at("edit", &["/p/src/../other"]), false),
            (at("edit", &["/../p/src/a"]), true),
            (at("edit", &["src/a"]), false),
            (at("edit", &[]), false),
            (edit("/p/src/a"), true),
            (edit("/p/other"), false),
            (edit("/p/src/private/a"), false),
            (at("execute", &[]), true),
            (at("execute", &["/p/.ssh"]), false),
            (at("delete", &["/p/src/a"]), false),
            (at("fetch", &[]), false),
            (at("unheard-of", &[]), false),
            (json!({}), false),
            (json!({"title": "read"}), false),
            // Where is it?
            (at("read", &["src/a"]), false),
            (at("read", &["/p/src/a", ""]), false),
            (at("read", &[&long]), false),
        ] {
            let expect = if allowed { "allow_once" } else { "reject_once" };
            assert_eq!(answer(&mut agent, "s0", &call, options(&ALL)).await, expect, "{call}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_one_of_those_that_fit() {
    in_time(async {
        let mut yes = agent(Permissions::new().allow(ToolKind::Read)).await;
        // The default is no.
        let mut no = agent(Permissions::new()).await;
        let mut default = Agent::of(LocalHost::new("/tmp"), "/tmp").await;
        let call = json!({"kind": "read"});
        for (kinds, allow, reject) in [
            (&ALL[..], "allow_once", "reject_once"),
            (&["reject_always", "reject_once", "allow_always", "allow_once"], "allow_once", "reject_once"),
            (&["allow_always", "reject_always"], "allow_always", "reject_always"),
            (&["allow_once"], "allow_once", "cancelled"),
            (&["reject_once"], "cancelled", "reject_once"),
            (&[], "cancelled", "cancelled"),
        ] {
            assert_eq!(answer(&mut yes, "s0", &call, options(kinds)).await, allow, "{kinds:?}");
            assert_eq!(answer(&mut no, "s0", &call, options(kinds)).await, reject, "{kinds:?}");
            assert_eq!(answer(&mut default, "s0", &call, options(kinds)).await, reject, "{kinds:?}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_chooses_none_of_several_answers() {
    in_time(async {
        let call = json!({"kind": "read"});
        let option = |id: &str, kind: &str| json!({"optionId": id, "name": id, "kind": kind});
        let stores = || vec![option("sqlite", "allow_once"), option("postgres", "allow_once")];
        let options =
            json!([stores(), vec![option("all", "allow_always"), option("no", "reject_once")]].concat());
        let allowing = || Permissions::new().allow(ToolKind::Read);
        let mut rule = agent(allowing()).await;
        assert_eq!(answer(&mut rule, "s0", &call, options.clone()).await, "cancelled");
        // A user chooses, and an answer for always does not count for another choice.
        let user = allowing().ask(async |_, request: RequestPermissionRequest| {
            let always = request.options.iter().find(|option| option.option_id.as_str() == "all");
            let first = always.or(request.options.first()).expect("an option");
            RequestPermissionOutcome::selected(first.option_id.clone())
        });
        let mut user = agent(user).await;
        assert_eq!(answer(&mut user, "s0", &call, options).await, "all");
        assert_eq!(answer(&mut user, "s0", &call, json!(stores())).await, "sqlite");
        // A rule that rejects does not ask.
        let several =
            json!([option("a", "reject_once"), option("b", "reject_once"), option("y", "allow_once")]);
        let mut no =
            agent(Permissions::new().deny(ToolKind::Read).ask(async |_, _| -> RequestPermissionOutcome {
                unreachable!("a question about a denied call")
            }))
            .await;
        assert_eq!(answer(&mut no, "s0", &call, several).await, "cancelled");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_chooses_no_id_that_stands_twice() {
    in_time(async {
        let mut yes = agent(Permissions::new().allow(ToolKind::Read)).await;
        let mut no = agent(Permissions::new()).await;
        let option = |id: &str, kind: &str| json!({"optionId": id, "name": kind, "kind": kind});
        let (same, call) =
            (json!([option("x", "reject_once"), option("x", "allow_once")]), json!({"kind": "read"}));
        assert_eq!(answer(&mut yes, "s0", &call, same.clone()).await, "cancelled");
        assert_eq!(answer(&mut no, "s0", &call, same.clone()).await, "cancelled");
        let mut more = same;
        let options = more.as_array_mut().expect("a list");
        options.extend([option("y", "allow_always"), option("n", "reject_always")]);
        assert_eq!(answer(&mut yes, "s0", &call, more.clone()).await, "y");
        assert_eq!(answer(&mut no, "s0", &call, more).await, "n");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_in_a_folder_by_every_name_it_has() {
    in_time(async {
        let desk = Desk::new();
        desk.link("out", "../outside");
        desk.link("alias", "dir");
        desk.link("new", "../outside/new.txt");
        desk.link("nowhere", "nowhere");
        let outside = desk.path("outside");
        std::os::unix::fs::symlink(desk.root(), desk.path("name")).expect("a link");
        let permissions = Permissions::new()
            .allow_in(ToolKind::Edit, desk.root())
            .deny_in(desk.path("name/dir"))
            .deny_in(&outside);
        let mut denied = agent(permissions).await;
        let mut allowed = agent(Permissions::new().allow_in(ToolKind::Edit, desk.root())).await;
        let mut anything = agent(Permissions::new().allow(ToolKind::Edit).deny_in(&outside)).await;
        for (path, in_root, not_outside, passes) in [
            ("project/file.txt", true, true, true),
            ("project/to/be/made.txt", true, true, true),
            ("project/dir/inner.txt", true, true, false),
            ("project/alias/inner.txt", true, true, false),
            ("project/alias/to/be/made.txt", true, true, false),
            ("name/dir/inner.txt", false, true, false),
            ("project/out/secret.txt", false, false, false),
            ("project/out/to/be/made.txt", false, false, false),
            ("project/out/../secret.txt", false, true, false),
            ("project/out/dir/../secret.txt", false, false, false),
            ("project/new", false, false, false),
            ("project/nowhere", false, false, false),
        ] {
            let call = json!({"kind": "edit", "locations": [{"path": desk.path(path)}]});
            for (agent, expect) in
                [(&mut allowed, in_root), (&mut anything, not_outside), (&mut denied, passes)]
            {
                let expect = if expect { "allow_once" } else { "reject_once" };
                assert_eq!(answer(agent, "s0", &call, options(&ALL)).await, expect, "{path}");
            }
        }
    })
    .await;
}

impl Agent {
    /// Says something of a tool call in session `s0`.
    async fn update(&mut self, kind: &str, call: Value) {
        let mut update = call;
        update["sessionUpdate"] = kind.into();
        self.script.notify("session/update", json!({"sessionId": "s0", "update": update})).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permission_request_has_the_whole_call() {
    in_time(async {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = asked.clone();
        let permissions = Permissions::new()
            .allow(ToolKind::Read)
            .deny_in("/p/.git")
            .ask(move |_, question| {
                seen.lock().expect("no panic").push(serde_json::to_value(question.tool_call).expect("json"));
                async { RequestPermissionOutcome::selected("allow_always") }
            });
        let mut agent = agent(permissions).await;
        let only = json!({});
        let read = json!({"toolCallId": "call", "title": "Read", "kind": "read", "locations": [{"path": "/p/a"}]});
        agent.update("tool_call", read.clone()).await;
        assert_eq!(answer(&mut agent, "s0", &only, options(&ALL)).await, "allow_once");
        // It goes by the last word, and by the question first of all.
        agent.update("tool_call_update", json!({"toolCallId": "call", "locations": [{"path": "/p/.git/x"}]})).await;
        assert_eq!(answer(&mut agent, "s0", &only, options(&ALL)).await, "reject_once");
        let here = json!({"locations": [{"path": "/p/a"}]});
        assert_eq!(answer(&mut agent, "s0", &here, options(&ALL)).await, "allow_once");
        assert_eq!(asked.lock().expect("no panic").len(), 0);
        // Another session knows nothing of it, and an ended call is forgotten.
        agent.open("/tmp", &[]).await;
        assert_eq!(answer(&mut agent, "s1", &only, options(&ALL)).await, "allow_always");
        agent.update("tool_call_update", json!({"toolCallId": "call", "status": "completed"})).await;
        assert_eq!(answer(&mut agent, "s0", &only, options(&ALL)).await, "allow_always");
        // Only that command was always allowed.
        for (command, chosen) in [("ls", "allow_always"), ("ls", "allow_once"), ("rm -rf /", "allow_always")] {
            let run = json!({"toolCallId": "call", "title": "Run", "kind": "execute"});
            agent.update("tool_call", run).await;
            let input = json!({"toolCallId": "call", "rawInput": {"command": command}, "rawOutput": "left out"});
            agent.update("tool_call_update", input).await;
            assert_eq!(answer(&mut agent, "s0", &only, options(&ALL)).await, chosen, "{command}");
        }
        let call = |command: &str| {
            json!({"toolCallId": "call", "title": "Run", "kind": "execute", "rawInput": {"command": command}})
        };
        let nothing = json!({"toolCallId": "call"});
        assert_eq!(*asked.lock().expect("no panic"), [nothing.clone(), nothing, call("ls"), call("rm -rf /")]);
        // So many calls are known.
        agent.update("tool_call", read.clone()).await;
        for number in 0..255 {
            agent.update("tool_call", json!({"toolCallId": format!("{number}"), "title": "Wait"})).await;
        }
        assert_eq!(answer(&mut agent, "s0", &only, options(&ALL)).await, "allow_once");
        agent.update("tool_call", json!({"toolCallId": "last", "title": "Wait"})).await;
        assert_eq!(answer(&mut agent, "s0", &only, options(&ALL)).await, "allow_always");
        // With its turn it is over.
        agent.update("tool_call", read).await;
        let turn = agent.sessions[0].prompt("go on").await.expect("a turn");
        let prompt = agent.script.expect("session/prompt").await;
        assert_eq!(answer(&mut agent, "s0", &only, options(&ALL)).await, "allow_once");
        agent.script.end_turn(&prompt, "end_turn").await;
        assert_eq!(answer(&mut agent, "s0", &only, options(&ALL)).await, "allow_always");
        drop(turn);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closure_gets_the_whole_call_too() {
    in_time(async {
        let client = Client::new(()).on(async |_, question: RequestPermissionRequest| {
            let title = question.tool_call.title.unwrap_or_default();
            Ok(RequestPermissionResponse::new(RequestPermissionOutcome::selected(title)))
        });
        let mut agent = Agent::with(client, "/tmp").await;
        agent.update("tool_call", json!({"toolCallId": "call", "title": "Read"})).await;
        assert_eq!(answer(&mut agent, "s0", &json!({}), json!([])).await, "Read");
        assert_eq!(answer(&mut agent, "s0", &json!({"title": "Write"}), json!([])).await, "Write");
    })
    .await;
}

/// Asks, counts, and chooses this option.
fn choosing(option: &'static str) -> (Permissions, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let permissions = Permissions::new().deny(ToolKind::Fetch).ask(move |_, _| {
        count.fetch_add(1, SeqCst);
        async move { RequestPermissionOutcome::selected(option) }
    });
    (permissions, asked)
}

#[tokio::test(flavor = "multi_thread")]
async fn always_is_remembered_for_its_own_subject() {
    in_time(async {
        for (chosen, again) in [("allow_always", "allow_once"), ("reject_always", "reject_once")] {
            let (permissions, asked) = choosing(chosen);
            let mut agent = agent(permissions).await;
            agent.open("/tmp", &[]).await;
            let run = |command: &str| {
                json!({"kind": "execute", "title": "Run", "rawInput": {"command": command},
                    "locations": [{"path": "/p"}]})
            };
            let edit = |path: &str, text: &str| {
                json!({"kind": "edit", "title": format!("Edit {path}"),
                    "content": [{"type": "diff", "path": path, "newText": text}]})
            };
            let delete = |path: &str| {
                json!({"kind": "delete", "title": "Delete file", "locations": [{"path": path}]})
            };
            let rename = |from: &str, to: &str| {
                json!({"kind": "move", "title": "Rename", "locations": [{"path": from}, {"path": to}]})
            };
            let mut times = 0;
            for (session, call, new) in [
                ("s0", run("git status"), true),
                ("s0", run("git status"), false),
                // The same words on the button, and something else behind it.
                ("s0", run("rm -rf /"), true),
                ("s0", edit("/p/a", "1"), true),
                ("s0", edit("/p/a", "2"), false),
                ("s0", edit("/p/../p/a", "3"), false),
                ("s0", edit("/p/b", "1"), true),
                ("s0", json!({"kind": "read", "locations": [{"path": "/p/a"}]}), true),
                ("s0", delete("/p/scratch.txt"), true),
                ("s0", delete("/p/scratch.txt"), false),
                ("s0", delete("/p/important.db"), true),
                ("s0", rename("/p/a", "/p/b"), true),
                ("s0", rename("/p/a", "/p/b"), false),
                ("s0", rename("/p/a", "/p/c"), true),
                // Too little to know it again.
                ("s0", json!({"kind": "read"}), true),
                ("s0", json!({"kind": "read"}), true),
                ("s0", json!({"kind": "execute", "title": "Run", "rawInput": {}}), true),
                ("s0", json!({"kind": "execute", "title": "Run", "rawInput": {}}), true),
                ("s0", json!({"title": "Run", "rawInput": {"command": "ls"}}), true),
                ("s0", json!({"title": "Run", "rawInput": {"command": "ls"}}), true),
                ("s0", json!({}), true),
                ("s0", json!({}), true),
                ("s1", run("git status"), true),
                ("s1", edit("/p/a", "1"), true),
                ("s1", edit("/p/a", "2"), false),
            ] {
                times += usize::from(new);
                let expect = if new { chosen } else { again };
                assert_eq!(answer(&mut agent, session, &call, options(&ALL)).await, expect, "{call}");
                assert_eq!(asked.load(SeqCst), times, "{call}");
            }
            // Rules come first.
            let fetch = json!({"kind": "fetch"});
            assert_eq!(answer(&mut agent, "s0", &fetch, options(&ALL)).await, "reject_once");
            assert_eq!(asked.load(SeqCst), times);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn once_is_requested_again_and_only_offered_options_count() {
    in_time(async {
        let call = json!({"kind": "read"});
        for (chosen, offered, expect) in [
            ("allow_once", options(&ALL), "allow_once"),
            ("reject_once", options(&ALL), "reject_once"),
            ("allow_always", options(&["allow_once"]), "cancelled"),
            ("allow_always", options(&[]), "cancelled"),
            // Two options of one id: nobody knows which the agent means.
            (
                "same",
                json!([{"optionId": "same", "name": "No", "kind": "reject_once"},
                    {"optionId": "same", "name": "Yes", "kind": "allow_always"}]),
                "cancelled",
            ),
        ] {
            let (permissions, asked) = choosing(chosen);
            let mut agent = agent(permissions).await;
            for times in 1..4 {
                assert_eq!(answer(&mut agent, "s0", &call, offered.clone()).await, expect, "{chosen}");
                assert_eq!(asked.load(SeqCst), times);
            }
        }
    })
    .await;
}

/// The ways in which a permission request to the user fails.
#[derive(Clone, Copy, Debug)]
enum Wrong {
    /// The answer is no option, however much it looks like one.
    Says(&'static str),
    Panics,
    /// Nobody answers, and this ends it.
    Turn,
    Connection,
    Host,
}

const WRONG: [Wrong; 12] = [
    Wrong::Says(""),
    Wrong::Says("ALLOW_ONCE"),
    Wrong::Says(" allow_once"),
    Wrong::Says("allow_once\0"),
    Wrong::Says("allow"),
    Wrong::Says("yes"),
    Wrong::Says("0"),
    Wrong::Says("selected"),
    Wrong::Panics,
    Wrong::Turn,
    Wrong::Connection,
    Wrong::Host,
];

/// Asks a user with whom this goes wrong.
fn going_wrong(wrong: Wrong) -> Permissions {
    Permissions::new().ask(move |_, _| async move {
        match wrong {
            Wrong::Says(answer) => RequestPermissionOutcome::selected(answer),
            Wrong::Panics => panic!("in the handler"),
            Wrong::Turn | Wrong::Connection | Wrong::Host => std::future::pending().await,
        }
    })
}

/// Whatever becomes of the question, nothing is allowed that nobody allowed.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_permission_request_is_never_a_yes() {
    let rounds = runs(5);
    for round in 0..rounds {
        for wrong in WRONG {
            let refused = in_time(asked_in_vain(wrong)).await;
            assert!(refused, "{wrong:?} in round {round}");
        }
    }
    measured(format_args!("0 of {} questions that went wrong were allowed", rounds * WRONG.len() as u64));
}

async fn asked_in_vain(wrong: Wrong) -> bool {
    let mut agent = agent(going_wrong(wrong)).await;
    let turn = agent.sessions[0].prompt("go on").await.expect("a turn");
    agent.script.expect("session/prompt").await;
    let call = json!({"toolCallId": "call", "kind": "execute", "title": "Run"});
    let params = json!({"sessionId": "s0", "toolCall": call, "options": options(&ALL)});
    let asked = agent.script.send_request("session/request_permission", params).await;
    let Agent { mut script, connection, sessions } = agent;
    match wrong {
        Wrong::Turn => turn.cancel(),
        Wrong::Connection => {
            tokio::spawn(async move { connection.close().await });
        }
        Wrong::Host => drop((turn, sessions, connection)),
        _ => {}
    }
    // An end is no yes either.
    while let Some(line) = script.next_line().await {
        let line: Value = serde_json::from_str(&line).expect("JSON");
        if line["id"] == asked && line.get("method").is_none() {
            return line["result"]["outcome"]["outcome"] == "cancelled" || line["error"]["code"].is_i64();
        }
    }
    true
}

/// Paths over the limit are not looked up, so nobody knows that they are in the folder.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_names_too_many_paths_is_allowed_by_no_folder() {
    in_time(async {
        let permissions = Permissions::new().allow_in(ToolKind::Read, "/p");
        let mut agent = agent(permissions).await;
        for (paths, expect) in [(QUESTION_PATHS, "allow_once"), (QUESTION_PATHS + 1, "reject_once")] {
            let locations: Vec<_> =
                (0..paths).map(|number| json!({"path": format!("/p/{number}")})).collect();
            let call = json!({"kind": "read", "locations": locations});
            assert_eq!(answer(&mut agent, "s0", &call, options(&ALL)).await, expect, "{paths} paths");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_answer_of_the_user_may_have_a_meta() {
    in_time(async {
        let permissions = Permissions::new().ask(async |_, request: RequestPermissionRequest| {
            let outcome = RequestPermissionOutcome::selected(request.options[0].option_id.clone());
            RequestPermissionResponse::new(outcome).meta(Meta::from_iter([("by", "the user")]))
        });
        let mut agent = agent(permissions).await;
        let params = json!({"toolCall": {"toolCallId": "call"}, "options": options(&ALL)});
        let result = agent.ask_in("s0", "session/request_permission", params).await.expect("an answer");
        let outcome = json!({"outcome": "selected", "optionId": "allow_once"});
        assert_eq!(result, json!({"outcome": outcome, "_meta": {"by": "the user"}}));
    })
    .await;
}
