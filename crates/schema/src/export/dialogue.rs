//! The schema of dialogue messages.

use serde_json::{Map, Value, json};

use super::extension_schemas::ExtensionSchema;
use super::registry::{Definition, define};
use super::{nullable, reference};
use crate::SessionId;
use crate::dialogue::{
    AgentUri, Attachment, Belief, BeliefUpdate, DialogueAct, DialogueContent, DialogueErrorCode, DialogueId,
    DialogueMessage, DialogueMessageId, DialogueMetadata, DialogueRequest, DialogueResponse, ErrorContent,
    ID_CHARS, METHODS, MessageType, Receipt, ReceiptStatus, URI_BYTES,
};

pub(super) const SCHEME: ExtensionSchema = ExtensionSchema {
    name: "dialogue",
    methods: METHODS,
    title: "Dialogue messages of Duologue: the messages of `_session/dialogue`",
    definitions,
    refine,
};

fn definitions() -> Vec<Definition> {
    define! {
        AgentUri, Attachment, Belief, BeliefUpdate, DialogueContent, DialogueAct, DialogueErrorCode, DialogueId, DialogueMessageId,
        DialogueRequest, DialogueResponse, ErrorContent, DialogueMessage, MessageType, DialogueMetadata, Receipt, ReceiptStatus,
        SessionId,
    }
}

fn refine(all: &mut Map<String, Value>) {
    let mut set = |definition: &str, rules: Value| {
        if let (Some(Value::Object(definition)), Value::Object(rules)) = (all.get_mut(definition), rules) {
            definition.extend(rules);
        }
    };
    for id in ["DialogueId", "DialogueMessageId"] {
        set(id, json!({ "minLength": 1, "maxLength": ID_CHARS }));
    }
    set("AgentUri", json!({ "pattern": r"^agent://[^/\s?#\\]+[^\s?#\\]*$", "maxLength": URI_BYTES }));
    let mut property = |definition: &str, property: &str, rules: Value| {
        if let (Some(definition), Value::Object(rules)) = (all.get_mut(definition), rules)
            && let Some(property) = definition["properties"][property].as_object_mut()
        {
            property.extend(rules);
        }
    };
    property("Message", "timestamp", json!({ "format": "date-time" }));
    property("Message", "interaction_step", json!({ "minimum": 1 }));
    property("Belief", "confidence", json!({ "minimum": 0, "maximum": 1 }));
    // Both fields have the type `Json`, because they keep the original text.
    property("DialogueRequest", "message", reference("Message"));
    property("DialogueResponse", "error", nullable(reference("Message")));
}
