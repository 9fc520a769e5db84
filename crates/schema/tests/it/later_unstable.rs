//! The rules of the unstable part of version 1 that a schema does not express, and the keys of version 2.

use duologue_schema::v2::IdempotencyKey;
use duologue_schema::{PromptSuggestionsUpdate, SessionConfigOptionCategory, SessionOptionsRequest};
use serde_json::{from_str, json, to_value};

#[test]
fn a_suggestion_with_a_bad_prompt_is_skipped() {
    let good = r#"{"prompt":[{"type":"text","text":"Run the tests."}]}"#;
    let bad = [r#"{"prompt":[]}"#, r#"{"prompt":[{"type":"text","text":"a"},{"type":"text"}]}"#, "{}", "7"];
    let text = format!(r#"{{"suggestions":[{},{good}]}}"#, bad.join(","));
    let update: PromptSuggestionsUpdate = from_str(&text).unwrap();
    assert_eq!(to_value(&update.suggestions).unwrap(), json!([from_str::<serde_json::Value>(good).unwrap()]));
    assert_eq!(update.suggestions[0].prompt.blocks().len(), 1);
    let withdrawn: PromptSuggestionsUpdate = from_str(r#"{"suggestions":[]}"#).unwrap();
    assert!(withdrawn.suggestions.is_empty());
    assert!(from_str::<PromptSuggestionsUpdate>("{}").is_err());
}

#[test]
fn a_key_of_a_prompt_has_1_to_255_characters() {
    for (key, is_valid) in [("", false), ("k", true), (&"é".repeat(255), true), (&"k".repeat(256), false)] {
        assert_eq!(IdempotencyKey::new(key).is_ok(), is_valid, "{} characters", key.chars().count());
        assert_eq!(from_str::<IdempotencyKey>(&json!(key).to_string()).is_ok(), is_valid);
    }
    let text = r#"{"sessionId":"s","prompt":[],"idempotencyKey":"k"}"#;
    let request: duologue_schema::PromptRequest =
        from_str::<duologue_schema::v2::PromptRequest>(text).unwrap().into();
    assert_eq!(to_value(&request).unwrap(), json!({"sessionId": "s", "prompt": []}), "version 1 has no key");
    let back = duologue_schema::v2::PromptRequest::from(request);
    assert_eq!(serde_json::to_string(&back).unwrap(), text);
}

#[test]
fn the_category_speed_is_known_and_absent_folders_are_none() {
    let category: SessionConfigOptionCategory = from_str(r#""speed""#).unwrap();
    assert_eq!(category, SessionConfigOptionCategory::Speed);
    let request: SessionOptionsRequest = from_str(r#"{"cwd":"/","additionalDirectories":null}"#).unwrap();
    assert_eq!(to_value(&request).unwrap(), json!({"cwd": "/"}));
}
