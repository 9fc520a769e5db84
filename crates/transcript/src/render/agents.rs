//! Messages between agents as lines: envelopes, dialogue messages, work orders.

use duologue_schema::envelope::EnvelopeKind;
use serde_json::Value;

use super::object_line::ObjectLine;

/// The prefix of these methods.
const METHODS: &str = "_session/";

/// Writes the params of `_session/<kind>`. Returns false for any other method.
pub(super) fn request(it: &mut ObjectLine<'_>, method: &str) -> bool {
    let Some(kind) = method.strip_prefix(METHODS) else { return false };
    it.object("envelope", |it| envelope(it, kind, Carrier::Params));
    match kind {
        "dialogue" => _ = it.object("message", message),
        "work" => _ = it.object("input", input),
        _ => {}
    }
    true
}

/// Writes the result of `_session/<kind>`. Returns false for any other method.
pub(super) fn response(it: &mut ObjectLine<'_>, method: &str) -> bool {
    let Some(kind) = method.strip_prefix(METHODS) else { return false };
    it.object("envelope", |it| {
        let answer = EnvelopeKind::from(kind).response();
        envelope(it, answer.as_ref().map_or(kind, EnvelopeKind::as_str), Carrier::Result);
    });
    match kind {
        "dialogue" => {
            it.object("receipt", |it| {
                it.words(&["status", "message_id"]).named("in", "session_id").flag("duplicate", "again", "");
            });
            it.object("error", message);
        }
        "work" => _ = it.object("output", output),
        _ => {}
    }
    true
}

/// Writes the envelope in the data of an error, if there is one.
pub(super) fn error(it: &mut ObjectLine<'_>) {
    let Some(mut data) = it.fields.object("data") else { return };
    if let Some(fields) = data.object("envelope") {
        it.line.object(fields, |it| envelope(it, "error", Carrier::Result));
    }
    if !data.is_empty() {
        it.fields.put("data", data.into_map().into());
    }
}

/// The JSON-RPC member that carries an envelope.
#[derive(PartialEq)]
enum Carrier {
    Params,
    Result,
}

/// Writes an envelope. The arrow shows its direction, and the JSON-RPC response its request. So an id
/// is written only if a later message refers to it.
fn envelope(it: &mut ObjectLine<'_>, expected: &str, carrier: Carrier) {
    let kind = it.fields.string("kind").unwrap_or_default();
    if kind != expected {
        it.line.add("of the kind").word(&kind);
    }
    it.forget("v", 1);
    for key in ["from", "to"] {
        it.fields.string(key);
    }
    it.fields.number("ts");
    let id = it.fields.string("id");
    if let Some(id) = id.filter(|_| matches!(kind.as_str(), "delegate" | "notify")) {
        it.line.word(&id);
    }
    match it.fields.string("ref") {
        Some(about) if carrier == Carrier::Params => _ = it.line.add("re").word(&about),
        _ => _ = it.forget("ref", Value::Null),
    }
    it.object("payload", |it| payload(it, &kind)).forget("payload", Value::Null);
}

fn payload(it: &mut ObjectLine<'_>, kind: &str) {
    match kind {
        "pong" => {
            it.words(&["status"]).quoted(&["agent_name"]);
            it.amount("active_tasks", "{} tasks").amount("uptime_secs", "{} s up");
        }
        "query" => {
            it.words(&["domain"]).quoted(&["question"]).raw("question");
            it.amount("max_tokens", "{} tokens at most").number("deadline_ms", WITHIN);
        }
        "response" => {
            it.text("summary").flag("truncated", "truncated", "").amount("tokens_used", "{} tokens");
            it.raw("data");
        }
        "delegate" => {
            it.text("task").forget("priority", "normal").words(&["priority"]);
            it.flag("report_back", "", "no report").number("deadline_ms", WITHIN);
            it.forget("context", serde_json::Map::new()).raw("context");
        }
        "ack" => {
            it.flag("accepted", "accepted", "refused");
            it.amount("estimated_ms", "{} ms to go").quoted(&["reason"]);
            fault_in(it);
        }
        "result" => {
            it.words(&["status"]).text("outcome");
            fault_in(it);
            it.raw("data");
        }
        "notify" => {
            it.words(&["topic"]).forget("importance", "medium").words(&["importance"]).raw("data");
        }
        "cancel" => _ = it.text("reason"),
        "capabilities" => {
            it.words(&["model"]).quoted(&["agent_name"]).words(&["version"]).quoted(&["provider"]);
            it.amount("max_concurrent_tasks", "{} tasks at once")
                .number("average_response_ms", "{} ms on average");
            for key in ["domains", "channels", "topics", "tools", "mime_types"] {
                word_list_below(it, key, key);
            }
            it.raw("capabilities").raw("pricing");
        }
        "error" => fault(it),
        _ => {}
    }
    attachments(it);
}

/// Writes images, sounds and documents, one a line. The size replaces long base64.
fn attachments(it: &mut ObjectLine<'_>) {
    it.list("attachments", |it| {
        it.add("attachment").words(&["mime_type"]).quoted(&["name"]).text("text").data("data");
        it.object("metadata", |_| {});
    });
}

const WITHIN: &str = "within {} ms";

/// Writes an error, which is an object or a text.
fn fault_in(it: &mut ObjectLine<'_>) {
    it.forget("error", Value::Null);
    it.object("error", |it| fault(it.add("error")));
    if let Some(words) = it.fields.string("error") {
        it.line.add("error").text(&words);
    }
}

fn fault(it: &mut ObjectLine<'_>) {
    it.words(&["code"]).quoted(&["message"]).flag("retryable", "retryable", "");
}

/// Writes a list of words on a line below, after a fixed word.
fn word_list_below(it: &mut ObjectLine<'_>, key: &str, name: &str) {
    it.forget(key, Vec::<Value>::new());
    if let Some(words) = it.fields.strings(key) {
        it.line.under(|line| {
            line.add(name);
            words.iter().for_each(|word| _ = line.word(word));
        });
    }
}

/// Writes a dialogue message: its type, then its sender and recipient, then its content.
fn message(it: &mut ObjectLine<'_>) {
    it.number("interaction_step", "step {}");
    let kind = it.fields.string("message_type");
    if let Some(kind) = &kind {
        it.line.word(kind);
    }
    // Most acts have the name of their type.
    if let Some(act) = it.fields.string("dialogue_act").filter(|act| kind.as_ref() != Some(act)) {
        it.line.word(&act);
    }
    it.words(&["message_id"]).named("re", "parent_message_id").forget("parent_message_id", Value::Null);
    if it.fields.string("signature").is_some() {
        it.add("signed");
    }
    it.fields.string("timestamp");
    it.below(|it| _ = it.words(&["sender_id"]).named("to", "recipient_id").named("in", "session_id"));
    it.object("content", dialogue_content);
    if let Some(metadata) = it.fields.object("metadata").filter(|metadata| !metadata.is_empty()) {
        it.line.under(|line| _ = line.add("metadata").rest(metadata));
    }
}

fn dialogue_content(it: &mut ObjectLine<'_>) {
    it.below(|it| {
        it.words(&["domain", "task", "error_code"]).quoted(&["error_message"]);
        it.object("parameters", |_| {}).object("details", |_| {});
    });
    it.below(|it| _ = it.text("natural_language"));
    it.below(|it| {
        it.named("about", "failed_message_id").named("of", "failed_sender_id");
        it.named("to", "failed_recipient_id").named("in", "failed_session_id");
    });
    word_list_below(it, "previous_context", "after");
    it.forget("belief_updates", Vec::<Value>::new()).list("belief_updates", |it| {
        it.add("believes");
        if it.fields.peek("entity").is_some() && it.fields.peek("attribute").is_some() {
            it.words(&["entity", "attribute"]);
            if let Some(value) = it.fields.take("value") {
                it.line.add("=").json(value);
            }
            it.number("confidence", "({})");
        }
    });
    attachments(it);
    let more = std::mem::take(&mut it.fields);
    it.line.under(|line| _ = line.rest(more));
}

/// Writes a work order: the task, its feature and iteration, then the paths.
fn input(it: &mut ObjectLine<'_>) {
    it.object("task", |it| _ = it.words(&["action"]).object("params", |_| {}));
    it.object("context", |it| {
        it.add("for").words(&["feature_id", "workflow"]).number("iteration", "iteration {}");
    });
    for (name, path) in it.fields.object("paths").unwrap_or_default().into_map() {
        it.line.under(|line| _ = line.add("path").word(&name).add("=").word_or_json(path));
    }
    notes(it, "prior_context", "prior");
}

/// Writes the result of a work order: success, recommendation, then the files by path and size.
fn output(it: &mut ObjectLine<'_>) {
    it.flag("success", "success", "failure").words(&["recommendation"]).text("summary");
    it.forget("artifacts", Vec::<Value>::new()).list("artifacts", |it| {
        it.words(&["operation", "path"]);
        if let Some(content) = it.fields.string("content") {
            it.line.sized(&content);
        }
    });
    notes(it, "notes", "note");
}

/// Writes notes, which are texts or any JSON, one a line.
fn notes(it: &mut ObjectLine<'_>, key: &str, mark: &str) {
    for note in it.fields.take_if(key, Value::is_array).iter().filter_map(Value::as_array).flatten() {
        it.line.under(|line| _ = line.add(mark).text_or_json(note.clone()));
    }
}
