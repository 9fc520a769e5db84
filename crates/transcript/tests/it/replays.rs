//! Recordings of our two SDKs, replayed: to the client as its agent, to the agent as its client.

mod actors;

use std::path::Path;

use actors::{Plan, PlannedSession, record, replay_to_agent, replay_to_client};
use duologue_transcript::{ReplayReport, Transcript};
use proptest::prelude::*;

fn script(transcript: &Transcript) -> String {
    transcript.redacted().render()
}

fn is_clean(report: &ReplayReport, recording: &Transcript) {
    assert_eq!(report.differences, [], "{}", recording.render());
    assert_eq!(report.unused, Vec::<String>::new(), "{}", recording.render());
    assert_eq!(report.diff(), None);
}

/// Records a plan, and replays it in every way.
async fn check(plan: &Plan) {
    let recording = record(plan, Path::new("/work/recorded")).await;

    // The client's own recording of the replay has to be the same; so has what the replay saw.
    let (live, report) = replay_to_client(&recording, plan, Path::new("/work/recorded")).await;
    is_clean(&report, &recording);
    assert_eq!(script(&live), script(&recording));

    // Another folder, and a recording without names.
    let (live, report) = replay_to_client(&recording, plan, Path::new("/elsewhere/x")).await;
    is_clean(&report, &recording);
    assert_eq!(script(&live), script(&recording));
    let (live, report) = replay_to_client(&recording.redacted(), plan, Path::new("/elsewhere/x")).await;
    assert_eq!(report.differences, [], "{}", recording.render());
    assert_eq!(script(&live), script(&recording));

    // The same agent again.
    let report = replay_to_agent(&recording, "/work/recorded").await;
    is_clean(&report, &recording);
    let report = replay_to_agent(&recording.redacted(), "/elsewhere/x").await;
    assert_eq!(report.differences, [], "{}", recording.render());
}

fn sessions() -> impl Strategy<Value = Plan> {
    let word = prop::sample::select(vec![
        "say", "clear", "think", "plan", "tool", "ask", "read", "write", "terminal", "fail", "query",
        "delegate", "tell",
    ]);
    let turn = (prop::collection::vec(word, 0..6), prop::bool::weighted(0.2)).prop_map(|(words, cancel)| {
        let cancel = if cancel { " wait" } else { "" };
        format!("{}{cancel}", words.join(" "))
    });
    let colleague = prop::sample::select(vec!["colleague query", "colleague delegate", "colleague tell"]);
    let turn = prop_oneof![4 => turn, 1 => colleague.prop_map(str::to_owned)];
    let session = (prop::collection::vec(turn, 0..4), prop::option::of(prop::bool::ANY))
        .prop_map(|(turns, restore)| PlannedSession { turns, restore });
    (prop::collection::vec(session, 0..4), prop::bool::ANY, prop::bool::ANY)
        .prop_map(|(sessions, at_once, list)| Plan { sessions, at_once, list })
}

proptest! {
    #![proptest_config(crate::random_cases(12))]

    #[test]
    fn any_conversation_replays_both_ways(plan in sessions()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            tokio::time::timeout(std::time::Duration::from_secs(60), check(&plan)).await.expect("this hangs");
        });
    }
}

#[tokio::test]
async fn every_callback_in_sessions_side_by_side() {
    let session = |restore| PlannedSession {
        turns: vec![
            "say clear say think plan".into(),
            "tool ask read write terminal".into(),
            "say wait".into(),
            "colleague delegate".into(),
            "query delegate tell".into(),
            "colleague query".into(),
            "colleague tell".into(),
        ],
        restore,
    };
    let sessions = vec![session(None), session(Some(true)), session(Some(false))];
    check(&Plan { sessions, at_once: true, list: true }).await;
}

#[tokio::test]
async fn another_prompt_is_an_error_that_shows_the_difference() {
    let session = |text: &str| PlannedSession { turns: vec![text.into()], restore: None };
    let plan = |text| Plan { sessions: vec![session(text)], at_once: false, list: false };
    let recording = record(&plan("say"), Path::new("/work")).await;
    let (_, report) = replay_to_client(&recording, &plan("say think"), Path::new("/work")).await;
    let differences: Vec<String> = report.differences.iter().map(ToString::to_string).collect();
    let session = recording.entries().into_iter().find_map(|entry| entry.session).expect("a session");
    insta::assert_snapshot!(differences.join("\n").replace(session.as_str(), "SESSION"), @r#"
    not in the recording: session/prompt; the nearest, the session/prompt in SESSION of line 6, differs at `prompt.0.text`
        --- recorded
        +++ live
        @@ -2,5 +2,5 @@
           "prompt": [
             {
        -      "text": "say",
        +      "text": "say think",
               "type": "text"
             }
    "#);
    insta::assert_snapshot!(report.unused.join("\n").replace(session.as_str(), "SESSION"), @"the session/prompt in SESSION of line 6");
}
