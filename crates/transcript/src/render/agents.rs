//! Messages between agents as lines: envelopes, dialogue messages, work orders.

use duologue_schema::envelope::EnvelopeKind;
use serde_json::Value;

use super::content::{item, list, raw};
use super::fields::Fields;
use super::line::ScriptLine;

/// The prefix of these methods.
const METHODS: &str = "_session/";

/// Writes the params of `_session/<kind>`. Returns false for any other method.
pub(super) fn request(
    line: &mut ScriptLine,
    method: &str,
    params: &mut Fields,
    below: &mut Vec<ScriptLine>,
) -> bool {
    let Some(kind) = method.strip_prefix(METHODS) else { return false };
    if let Some(envelope) = params.object("envelope") {
        self::envelope(line, envelope, kind, Carrier::Params, below);
    }
    if let Some(content) = params.object("message").filter(|_| kind == "dialogue") {
        message(line, content, below);
    }
    if let Some(order) = params.object("input").filter(|_| kind == "work") {
        input(line, order, below);
    }
    true
}

/// Writes the result of `_session/<kind>`. Returns false for any other method.
pub(super) fn response(
    line: &mut ScriptLine,
    method: &str,
    result: &mut Fields,
    below: &mut Vec<ScriptLine>,
) -> bool {
    let Some(kind) = method.strip_prefix(METHODS) else { return false };
    if let Some(envelope) = result.object("envelope") {
        let answer = EnvelopeKind::from(kind).response();
        let answer = answer.as_ref().map_or(kind, EnvelopeKind::as_str);
        self::envelope(line, envelope, answer, Carrier::Result, below);
    }
    if kind == "dialogue" {
        if let Some(mut receipt) = result.object("receipt") {
            words(line, &mut receipt, [("", "status"), ("", "message_id"), ("in", "session_id")]);
            flag(line, &mut receipt, "duplicate", "again");
            line.rest(receipt);
        }
        if let Some(refusal) = result.object("error") {
            message(line, refusal, below);
        }
    }
    if let Some(output) = result.object("output").filter(|_| kind == "work") {
        self::output(line, output, below);
    }
    true
}

/// Writes the envelope in the data of an error, if there is one.
pub(super) fn error(line: &mut ScriptLine, error: &mut Fields, below: &mut Vec<ScriptLine>) {
    let Some(mut data) = error.object("data") else { return };
    if let Some(envelope) = data.object("envelope") {
        self::envelope(line, envelope, "error", Carrier::Result, below);
    }
    let left = data.into_map();
    if !left.is_empty() {
        error.put("data", left.into());
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
fn envelope(
    line: &mut ScriptLine,
    mut envelope: Fields,
    expected: &str,
    carrier: Carrier,
    below: &mut Vec<ScriptLine>,
) {
    let kind = envelope.string("kind").unwrap_or_default();
    if kind != expected {
        line.add("of the kind").word(&kind);
    }
    envelope.forget("v", &1.into());
    for key in ["from", "to"] {
        envelope.string(key);
    }
    envelope.number("ts");
    let id = envelope.string("id");
    if let Some(id) = id.filter(|_| matches!(kind.as_str(), "delegate" | "notify")) {
        line.word(&id);
    }
    match envelope.string("ref") {
        Some(about) if carrier == Carrier::Params => _ = line.add("re").word(&about),
        _ => envelope.forget("ref", &Value::Null),
    }
    match envelope.object("payload") {
        Some(mut content) => {
            payload(line, &kind, &mut content, below);
            line.rest(content);
        }
        None => envelope.forget("payload", &Value::Null),
    }
    line.rest(envelope);
}

fn payload(line: &mut ScriptLine, kind: &str, content: &mut Fields, below: &mut Vec<ScriptLine>) {
    match kind {
        "pong" => {
            item(line, content, &["status"], &["agent_name"]);
            number(line, content, "active_tasks", "tasks");
            number(line, content, "uptime_secs", "s up");
        }
        "query" => {
            item(line, content, &["domain"], &["question"]);
            number(line, content, "max_tokens", "tokens at most");
            within(line, content);
        }
        "response" => {
            text(line, content, "summary");
            flag(line, content, "truncated", "truncated");
            number(line, content, "tokens_used", "tokens");
            raw(line, content, below, "data");
        }
        "delegate" => {
            text(line, content, "task");
            content.forget("priority", &"normal".into());
            item(line, content, &["priority"], &[]);
            if content.take_if("report_back", |report| *report == Value::Bool(false)).is_some() {
                line.add("no report");
            }
            content.forget("report_back", &true.into());
            within(line, content);
            content.forget("context", &Value::Object(serde_json::Map::new()));
            raw(line, content, below, "context");
        }
        "ack" => {
            if content.take_if("accepted", |accepted| *accepted == Value::Bool(true)).is_some() {
                line.add("accepted");
            }
            if content.take_if("accepted", |accepted| *accepted == Value::Bool(false)).is_some() {
                line.add("refused");
            }
            number(line, content, "estimated_ms", "ms to go");
            item(line, content, &[], &["reason"]);
            fault_in(line, content);
        }
        "result" => {
            item(line, content, &["status"], &[]);
            text(line, content, "outcome");
            fault_in(line, content);
            raw(line, content, below, "data");
        }
        "notify" => {
            item(line, content, &["topic"], &[]);
            content.forget("importance", &"medium".into());
            item(line, content, &["importance"], &[]);
            raw(line, content, below, "data");
        }
        "cancel" => text(line, content, "reason"),
        "capabilities" => {
            item(line, content, &["model"], &["agent_name"]);
            number(line, content, "max_concurrent_tasks", "tasks at once");
            for key in ["domains", "channels", "tools"] {
                let mut can = line.another();
                can.add(key);
                content.forget(key, &Value::Array(Vec::new()));
                if let Some(words) = content.strings(key) {
                    words.iter().for_each(|word| _ = can.word(word));
                    below.push(can);
                }
            }
        }
        "error" => fault(line, content),
        _ => {}
    }
}

/// Writes an error, which is an object or a text.
fn fault_in(line: &mut ScriptLine, content: &mut Fields) {
    content.forget("error", &Value::Null);
    if let Some(mut error) = content.object("error") {
        fault(line.add("error"), &mut error);
        line.rest(error);
    } else if let Some(words) = content.string("error") {
        line.add("error").text(&words);
    }
}

fn fault(line: &mut ScriptLine, fault: &mut Fields) {
    item(line, fault, &["code"], &["message"]);
    flag(line, fault, "retryable", "retryable");
}

/// Writes a dialogue message: its type, then its sender and recipient, then its content.
fn message(line: &mut ScriptLine, mut message: Fields, below: &mut Vec<ScriptLine>) {
    if let Some(step) = message.number("interaction_step") {
        line.add(format_args!("step {step}"));
    }
    let kind = message.string("message_type");
    if let Some(kind) = &kind {
        line.word(kind);
    }
    // Most acts have the name of their type.
    if let Some(act) = message.string("dialogue_act").filter(|act| kind.as_ref() != Some(act)) {
        line.word(&act);
    }
    item(line, &mut message, &["message_id"], &[]);
    match message.string("parent_message_id") {
        Some(parent) => _ = line.add("re").word(&parent),
        None => message.forget("parent_message_id", &Value::Null),
    }
    if message.string("signature").is_some() {
        line.add("signed");
    }
    message.string("timestamp");

    let mut speakers = line.another();
    words(&mut speakers, &mut message, [("", "sender_id"), ("to", "recipient_id"), ("in", "session_id")]);
    below.push(speakers);
    if let Some(content) = message.object("content") {
        dialogue_content(line, content, below);
    }
    if let Some(metadata) = message.object("metadata").filter(|metadata| !metadata.is_empty()) {
        let mut way = line.another();
        way.add("metadata").rest(metadata);
        below.push(way);
    }
    line.rest(message);
}

fn dialogue_content(line: &mut ScriptLine, mut content: Fields, below: &mut Vec<ScriptLine>) {
    let mut task = line.another();
    item(&mut task, &mut content, &["domain", "task", "error_code"], &["error_message"]);
    for key in ["parameters", "details"] {
        if let Some(fields) = content.object(key) {
            task.rest(fields);
        }
    }
    below.push(task);
    let mut spoken = line.another();
    text(&mut spoken, &mut content, "natural_language");
    below.push(spoken);
    let mut failed = line.another();
    let ids = [
        ("about", "failed_message_id"),
        ("of", "failed_sender_id"),
        ("to", "failed_recipient_id"),
        ("in", "failed_session_id"),
    ];
    words(&mut failed, &mut content, ids);
    below.push(failed);
    content.forget("previous_context", &Value::Array(Vec::new()));
    if let Some(before) = content.strings("previous_context") {
        let mut after = line.another();
        after.add("after");
        before.iter().for_each(|id| _ = after.word(id));
        below.push(after);
    }
    let beliefs = |belief: &Fields| belief.peek("entity").is_some() && belief.peek("attribute").is_some();
    content.forget("belief_updates", &Value::Array(Vec::new()));
    list(line, &mut content, below, "belief_updates", |line, belief| {
        line.add("believes");
        if !beliefs(belief) {
            return;
        }
        item(line, belief, &["entity", "attribute"], &[]);
        if let Some(value) = belief.take("value") {
            line.add("=").json(value);
        }
        if let Some(confidence) = belief.number("confidence") {
            line.add(format_args!("({confidence})"));
        }
    });
    let mut more = line.another();
    more.rest(content);
    below.push(more);
}

/// Writes a work order: the task, its feature and iteration, then the paths.
fn input(line: &mut ScriptLine, mut input: Fields, below: &mut Vec<ScriptLine>) {
    if let Some(mut task) = input.object("task") {
        item(line, &mut task, &["action"], &[]);
        if let Some(params) = task.object("params") {
            line.rest(params);
        }
        line.rest(task);
    }
    if let Some(mut context) = input.object("context") {
        item(line.add("for"), &mut context, &["feature_id", "workflow"], &[]);
        if let Some(iteration) = context.number("iteration") {
            line.add(format_args!("iteration {iteration}"));
        }
        line.rest(context);
    }
    for (name, path) in input.object("paths").unwrap_or_default().into_map() {
        let mut path_line = line.another();
        path_line.add("path").word(&name).add("=");
        match path {
            Value::String(path) => path_line.word(&path),
            path => path_line.json(path),
        };
        below.push(path_line);
    }
    notes(line, &mut input, below, "prior_context", "prior");
    line.rest(input);
}

/// Writes the result of a work order: success, recommendation, then the files by path and size.
fn output(line: &mut ScriptLine, mut output: Fields, below: &mut Vec<ScriptLine>) {
    if output.take_if("success", |success| *success == Value::Bool(true)).is_some() {
        line.add("success");
    }
    if output.take_if("success", |success| *success == Value::Bool(false)).is_some() {
        line.add("failure");
    }
    item(line, &mut output, &["recommendation"], &[]);
    text(line, &mut output, "summary");
    output.forget("artifacts", &Value::Array(Vec::new()));
    list(line, &mut output, below, "artifacts", |line, artifact| {
        item(line, artifact, &["operation", "path"], &[]);
        if let Some(content) = artifact.string("content") {
            line.sized(&content);
        }
    });
    notes(line, &mut output, below, "notes", "note");
    line.rest(output);
}

/// Writes notes, which are texts or any JSON, one a line.
fn notes(line: &ScriptLine, fields: &mut Fields, below: &mut Vec<ScriptLine>, key: &str, mark: &str) {
    for note in fields.take_if(key, Value::is_array).into_iter().flat_map(items) {
        let mut remark = line.another();
        remark.add(mark);
        match note {
            Value::String(note) => remark.text(&note),
            note => remark.json(note),
        };
        below.push(remark);
    }
}

fn items(list: Value) -> Vec<Value> {
    match list {
        Value::Array(items) => items,
        _ => Vec::new(),
    }
}

/// Writes words, each behind one of ours.
fn words<const N: usize>(line: &mut ScriptLine, fields: &mut Fields, words: [(&str, &str); N]) {
    for (before, key) in words {
        let Some(word) = fields.string(key) else { continue };
        if !before.is_empty() {
            line.add(before);
        }
        line.word(&word);
    }
}

fn text(line: &mut ScriptLine, fields: &mut Fields, key: &str) {
    if let Some(text) = fields.string(key) {
        line.text(&text);
    }
}

/// Writes a number with its unit, unless it is 0.
fn number(line: &mut ScriptLine, fields: &mut Fields, key: &str, unit: &str) {
    if let Some(number) = fields.number(key).filter(|number| number.as_u64() != Some(0)) {
        line.add(format_args!("{number} {unit}"));
    }
}

fn within(line: &mut ScriptLine, fields: &mut Fields) {
    if let Some(deadline) = fields.number("deadline_ms") {
        line.add(format_args!("within {deadline} ms"));
    }
}

/// Writes a word for `true`, and nothing for `false`.
fn flag(line: &mut ScriptLine, fields: &mut Fields, key: &str, word: &str) {
    if fields.take_if(key, |value| *value == Value::Bool(true)).is_some() {
        line.add(word);
    }
    fields.forget(key, &false.into());
}
