//! Who answers for the user, and with which option.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use duologue_client::schema::{RequestPermissionOutcome, ToolKind};
use duologue_client::{LocalHost, Permissions};
use serde_json::{Value, json};

use crate::desk::Agent;
use crate::support::in_time;

const ALL: [&str; 4] = ["allow_once", "allow_always", "reject_once", "reject_always"];

/// Options whose ids are their kinds.
fn options(kinds: &[&str]) -> Value {
    kinds.iter().map(|kind| json!({"optionId": kind, "name": kind, "kind": kind})).collect()
}

/// What the host answers: the option, or `cancelled`.
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
        // Nothing said is no.
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

/// Asks, counts, and chooses this option.
fn choosing(option: &'static str) -> (Permissions, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let permissions = Permissions::new().deny(ToolKind::Delete).ask(move |_| {
        count.fetch_add(1, SeqCst);
        async move { RequestPermissionOutcome::selected(option) }
    });
    (permissions, asked)
}

#[tokio::test(flavor = "multi_thread")]
async fn always_is_remembered_for_what_it_was_said_about() {
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
                ("s0", json!({"kind": "read"}), true),
                ("s0", json!({}), true),
                ("s0", json!({}), false),
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
            let delete = json!({"kind": "delete"});
            assert_eq!(answer(&mut agent, "s0", &delete, options(&ALL)).await, "reject_once");
            assert_eq!(asked.load(SeqCst), times);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn once_is_asked_again_and_what_was_not_offered_is_no_answer() {
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
