//! Work orders as text.

use duologue_schema::work::{
    Artifact, ArtifactOperation, METHODS, Recommendation, WorkContext, WorkInput, WorkNote, WorkOutput,
    WorkParams, WorkPaths, WorkResult, WorkTask,
};
use duologue_schema::{Members, Request};
use insta::assert_snapshot;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn write<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap()
}

fn read<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
    serde_json::from_str(&value.to_string()).map_err(|error| error.to_string())
}

fn input() -> WorkInput {
    let context = WorkContext::new("login", "feature", 1);
    let task = WorkTask::new("validate", Members::from_iter([("strict", json!(true))]));
    WorkInput::new(context, [("feature_root", "features/login"), ("spec", "features/login/spec.md")], task)
        .prior_context(["Nobody said what happens offline.".into(), json!({ "open": 2 }).into()])
}

fn output() -> WorkOutput {
    let artifacts = [Artifact::create("spec.md", "Login\n"), Artifact::update("index.md", "")];
    WorkOutput::new(true, "Wrote the specification.", artifacts, Recommendation::Retry)
        .notes(["Two cases.".into()])
}

#[test]
fn on_the_wire() {
    assert_snapshot!(write(&WorkParams::new(input())), @r#"{"input":{"context":{"feature_id":"login","workflow":"feature","iteration":1},"paths":{"feature_root":"features/login","spec":"features/login/spec.md"},"task":{"action":"validate","params":{"strict":true}},"prior_context":["Nobody said what happens offline.",{"open":2}]}}"#);
    assert_snapshot!(write(&WorkParams::new(input()).session_id("s1")), @r#"{"sessionId":"s1","input":{"context":{"feature_id":"login","workflow":"feature","iteration":1},"paths":{"feature_root":"features/login","spec":"features/login/spec.md"},"task":{"action":"validate","params":{"strict":true}},"prior_context":["Nobody said what happens offline.",{"open":2}]}}"#);
    assert_snapshot!(write(&WorkResult::new(output())), @r#"{"output":{"success":true,"summary":"Wrote the specification.","artifacts":[{"path":"spec.md","operation":"create","content":"Login\n"},{"path":"index.md","operation":"update","content":""}],"notes":["Two cases."],"recommendation":"retry"}}"#);
    let bare =
        WorkInput::new(WorkContext::new("f", "w", 1), WorkPaths::new(), WorkTask::new("a", Members::new()));
    assert_snapshot!(write(&bare), @r#"{"context":{"feature_id":"f","workflow":"w","iteration":1},"paths":{},"task":{"action":"a","params":{}}}"#);
    assert_snapshot!(write(&WorkOutput::new(false, "No.", [], Recommendation::Escalate)), @r#"{"success":false,"summary":"No.","artifacts":[],"recommendation":"escalate"}"#);
    let row = METHODS[0];
    assert_eq!((row.method, row.params, row.result), (WorkParams::METHOD, "WorkParams", Some("WorkResult")));
}

#[test]
fn both_survive_the_types() {
    assert_eq!(read::<WorkParams>(&json!({ "input": input() })), Ok(WorkParams::new(input())));
    assert_eq!(read::<WorkResult>(&json!({ "output": output() })), Ok(WorkResult::new(output())));
}

/// Returns the value without the member at this path of keys.
fn without(value: &Value, at: &str) -> Value {
    let mut value = value.clone();
    let (object, key) = at.rsplit_once('/').unwrap();
    value.pointer_mut(object).unwrap().as_object_mut().unwrap().remove(key).expect(at);
    value
}

#[test]
fn missing_members_are_named() {
    fn check<T: DeserializeOwned>(whole: &Value, required: &[&str], optional: &[&str]) {
        for at in required {
            let key = at.rsplit('/').next().unwrap();
            let error = read::<T>(&without(whole, at)).map(drop).expect_err(at);
            assert!(error.starts_with(&format!("missing field `{key}`")), "{at}: {error}");
        }
        for at in optional {
            assert!(read::<T>(&without(whole, at)).is_ok(), "{at}");
            let mut null = whole.clone();
            *null.pointer_mut(at).unwrap() = Value::Null;
            assert!(read::<T>(&null).is_ok(), "{at}");
        }
    }
    let params = json!(WorkParams::new(input()).session_id("s1"));
    let required = [
        "/input",
        "/input/context",
        "/input/context/feature_id",
        "/input/context/workflow",
        "/input/context/iteration",
        "/input/paths",
        "/input/task",
        "/input/task/action",
        "/input/task/params",
    ];
    check::<WorkParams>(&params, &required, &["/sessionId", "/input/prior_context"]);
    let required = [
        "/output",
        "/output/success",
        "/output/summary",
        "/output/artifacts",
        "/output/artifacts/0/path",
        "/output/artifacts/0/operation",
        "/output/artifacts/0/content",
        "/output/recommendation",
    ];
    check::<WorkResult>(&json!(WorkResult::new(output())), &required, &["/output/notes"]);
}

#[test]
fn unknown_members_are_kept() {
    let text = r#"{"context":{"feature_id":"f","workflow":"w","iteration":2,"branch":"main"},"paths":{},"task":{"action":"a","params":{"deep":[1.50]},"budget":3},"deadline":"soon"}"#;
    let input: WorkInput = serde_json::from_str(text).unwrap();
    assert_eq!(write(&input), text);
    assert_eq!(input.context.extra.get::<String>("branch").as_deref(), Some("main"));

    let text = r#"{"success":true,"summary":"","artifacts":[{"path":"a","operation":"append","content":"","mode":420}],"recommendation":"ponder","cost":0.10}"#;
    let output: WorkOutput = serde_json::from_str(text).unwrap();
    assert_eq!(write(&output), text);
    assert_eq!(output.artifacts[0].operation, ArtifactOperation::Unknown("append".into()));
}

#[test]
fn an_unknown_recommendation_escalates() {
    let escalates = |name| Recommendation::from(name).escalates();
    assert!(!escalates("proceed") && !escalates("retry"));
    assert!(escalates("escalate") && escalates("ponder") && escalates("Proceed") && escalates(""));
}

#[test]
fn a_note_is_any_json() {
    for (value, shown) in [
        (json!("text"), "text"),
        (json!({ "open": [1] }), r#"{"open":[1]}"#),
        (json!(7), "7"),
        (Value::Null, "null"),
    ] {
        let note: WorkNote = read(&value).unwrap();
        assert_eq!((note.to_string().as_str(), note.text().is_some()), (shown, value.is_string()));
        assert_eq!(write(&note), value.to_string());
    }
}
