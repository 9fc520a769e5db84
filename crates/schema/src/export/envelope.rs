//! The schema of envelopes, with one definition for each kind, since the kind determines the payload.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Value, json};

use super::extension_schemas::ExtensionSchema;
use super::nullable;
use super::registry::{Definition, define};
use crate::envelope::{
    AgentCapability, AgentId, AgentStatus, Attachment, DescribedCapability, Envelope, EnvelopeErrorCode,
    EnvelopeId, EnvelopeKind, EnvelopeParams, EnvelopeResult, Importance, METHODS, OutcomeStatus,
    OutputChunk, Payload, Pricing, PricingModel, Priority, TaskState, TaskStatus, VERSION,
};
use crate::{Json, SessionId};

pub(super) const SCHEME: ExtensionSchema = ExtensionSchema {
    name: "envelope",
    methods: METHODS,
    title: "Envelopes of Duologue, version 1: the messages of `_session/<kind>`",
    definitions,
    refine: |_| {},
};

fn definitions() -> Vec<Definition> {
    let mut all = define![
        AgentCapability,
        AgentId,
        AgentStatus,
        Attachment,
        DescribedCapability,
        Envelope<Json>,
        EnvelopeErrorCode,
        EnvelopeId,
        EnvelopeKind,
        Importance,
        OutcomeStatus,
        OutputChunk,
        Pricing,
        PricingModel,
        Priority,
        SessionId,
        TaskState,
        TaskStatus,
    ];
    all.extend(crate::envelope::definitions());
    // Two requests may have the same response.
    all.sort_by(|left, right| left.name.cmp(&right.name));
    all.dedup_by(|left, right| left.name == right.name);
    all
}

impl<P: Payload + JsonSchema> JsonSchema for Envelope<P> {
    fn schema_name() -> Cow<'static, str> {
        format!("{}Envelope", P::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let kind = json!({ "type": "string", "const": P::KIND.as_str() });
        let mut payload = generator.subschema_for::<P>().to_value();
        // A payload without required members may be `null`.
        let optional = serde_json::from_str::<P>("null").is_ok();
        if optional {
            payload = nullable(payload);
        }
        let doc = format!("An envelope of the kind `{}`.", P::KIND);
        envelope(generator, &doc, kind, payload, !optional)
    }
}

impl JsonSchema for Envelope<Json> {
    fn schema_name() -> Cow<'static, str> {
        "Envelope".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let kind = generator.subschema_for::<EnvelopeKind>().to_value();
        envelope(generator, "An envelope of any kind, known or unknown.", kind, json!({}), false)
    }
}

fn envelope(
    generator: &mut SchemaGenerator,
    doc: &str,
    mut kind: Value,
    mut payload: Value,
    needs_payload: bool,
) -> Schema {
    kind["description"] = "The kind of the payload.".into();
    payload["description"] = "The payload.".into();
    let id = generator.subschema_for::<EnvelopeId>();
    let agent = generator.subschema_for::<AgentId>();
    let mut required = vec!["id", "from", "to", "ts", "kind"];
    if needs_payload {
        required.push("payload");
    }
    let described = |schema: &Schema, doc: &str| {
        let mut schema = schema.clone().to_value();
        schema["description"] = doc.into();
        schema
    };
    let mut reference = nullable(id.clone().to_value());
    reference["description"] = "The message that this one answers or refers to.".into();
    schemars::json_schema!({
        "description": doc,
        "type": "object",
        "properties": {
            "v": {
                "description": "The version. An absent version means 1.",
                "type": "integer",
                "const": VERSION,
                "default": VERSION,
            },
            "id": described(&id, "The id of the message."),
            "from": described(&agent, "The sender."),
            "to": described(&agent, "The recipient."),
            "ts": described(
                &generator.subschema_for::<u64>(),
                "The time of sending, in milliseconds since 1970.",
            ),
            "kind": kind,
            "ref": reference,
            "payload": payload,
        },
        "required": required,
    })
}

impl<P: Payload + JsonSchema> JsonSchema for EnvelopeParams<P> {
    fn schema_name() -> Cow<'static, str> {
        format!("{}Params", P::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut session = generator.subschema_for::<SessionId>().to_value();
        if P::KIND.needs_session() {
            session["description"] = "The session.".into();
        } else {
            session = nullable(session);
            session["description"] = "The session, if there is one.".into();
        }
        let mut envelope = generator.subschema_for::<Envelope<P>>().to_value();
        if P::KIND.needs_ref() {
            let mut reference = generator.subschema_for::<EnvelopeId>().to_value();
            reference["description"] = "The message that this one refers to.".into();
            envelope = json!({
                "allOf": [envelope],
                "properties": { "ref": reference },
                "required": ["ref"],
            });
        }
        let doc = format!("The params of `{}`.", P::METHOD);
        let mut params = carrier(&doc, &envelope, Some(session));
        if P::KIND.needs_session() {
            params.insert("required".into(), json!(["sessionId", "envelope"]));
        }
        params
    }
}

impl<P: Payload + JsonSchema> JsonSchema for EnvelopeResult<P> {
    fn schema_name() -> Cow<'static, str> {
        format!("{}Result", P::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let doc = if P::KIND == EnvelopeKind::Error {
            "The `data` of the JSON-RPC error that answers a request with an envelope.".to_owned()
        } else {
            format!("A result with an envelope of the kind `{}`.", P::KIND)
        };
        carrier(&doc, generator.subschema_for::<Envelope<P>>().as_value(), None)
    }
}

fn carrier(doc: &str, envelope: &Value, session: Option<Value>) -> Schema {
    let mut properties = json!({
        "envelope": envelope,
        "_meta": {
            "description": "Extension data.",
            "type": ["object", "null"],
            "additionalProperties": true,
        },
    });
    if let Some(session) = session {
        properties["sessionId"] = session;
    }
    schemars::json_schema!({
        "description": doc,
        "type": "object",
        "properties": properties,
        "required": ["envelope"],
    })
}
