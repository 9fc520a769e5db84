//! Parts of messages as lines: content, tool calls, modes, options, capabilities.

use serde_json::Value;

use super::fields::Fields;
use super::line::ScriptLine;
use super::object_line::ObjectLine;
use crate::terminal_text;

/// Writes a list of content blocks: a single one on the line itself, several below it.
pub(super) fn blocks(it: &mut ObjectLine<'_>, key: &str) {
    let blocks = it.fields.objects(key).unwrap_or_default();
    let is_single = blocks.len() == 1;
    for content in blocks {
        if is_single {
            it.line.object(content, block);
        } else {
            it.line.under(|line| line.object(content, block));
        }
    }
}

/// Writes a content block.
pub(super) fn block(it: &mut ObjectLine<'_>) {
    let kind = it.fields.string("type");
    match kind.as_deref() {
        Some("text") => _ = it.text("text"),
        Some(kind @ ("image" | "audio")) => _ = it.add(kind).words(&["mimeType", "uri"]).data("data"),
        Some("resource_link") => {
            it.add("resource_link").words(&["uri", "mimeType"]).quoted(&["name", "title", "description"]);
        }
        Some("resource") => {
            it.add("resource").object("resource", |it| {
                it.words(&["uri", "mimeType"]).text("text").data("blob");
            });
        }
        Some(kind) => it.fields.put("type", kind.into()),
        None => {}
    }
}

/// Writes a tool call or its update.
pub(super) fn tool_call(it: &mut ObjectLine<'_>) {
    it.words(&["toolCallId", "kind", "status"]).quoted(&["title"]);
    cancellation(it);
    it.list("locations", |it| {
        let path = it.fields.string("path").unwrap_or_default();
        it.add("at").forget("line", Value::Null);
        match it.fields.number("line") {
            Some(number) => it.line.word(&format!("{path}:{number}")),
            None => it.line.word(&path),
        };
    });
    it.raw("rawInput").list("content", tool_content).raw("rawOutput");
}

/// Writes the capability to cancel a tool call or terminal.
fn cancellation(it: &mut ObjectLine<'_>) {
    it.object("capabilities", |it| _ = it.object("cancel", |it| _ = it.add("cancellable")));
}

/// Writes the exit status of a terminal.
pub(super) fn exit_status(it: &mut ObjectLine<'_>) {
    it.number("exitCode", "exit {}").named("signal", "signal");
    it.forget("exitCode", Value::Null).forget("signal", Value::Null);
}

/// Writes an update of a terminal that the agent runs, or a piece of its output.
pub(super) fn display_terminal(it: &mut ObjectLine<'_>) {
    it.words(&["terminalId"]).object("exitStatus", exit_status).quoted(&["command"]).named("in", "cwd");
    it.object("size", |it| _ = it.number("cols", "{} x").number("rows", "{}"));
    cancellation(it);
    it.object("output", |it| {
        it.add("=");
        output(it);
    });
    output(it);
}

/// Writes output in base64 as text. Output that is not UTF-8 stays base64.
fn output(it: &mut ObjectLine<'_>) {
    let text = it.fields.peek("data").and_then(terminal_text::decoded).map(String::from_utf8);
    match text {
        Some(Ok(text)) => {
            it.fields.take("data");
            it.line.text(&text);
        }
        _ => _ = it.data("data"),
    }
}

/// Writes the state of the foreground work, and the work in the background below.
pub(super) fn state(it: &mut ObjectLine<'_>) {
    it.words(&["state", "stopReason"]);
    it.object("error", |it| _ = it.number("code", "{}").text("message"));
    it.list("background", |it| {
        it.add("background").words(&["type", "terminalId", "toolCallId", "sessionId"]);
    });
    it.forget("background", Vec::<Value>::new());
}

/// Writes the operation of a permission request.
pub(super) fn permission_subject(it: &mut ObjectLine<'_>) {
    match it.fields.peek("type") {
        Some("tool_call") => {
            it.fields.take("type");
            it.object("toolCall", tool_call);
        }
        Some("command") => {
            it.below(|it| _ = it.words(&["type"]).quoted(&["command"]).named("in", "cwd"));
            it.words(&["toolCallId", "terminalId"]);
        }
        _ => {}
    }
}

/// Writes content of a tool call.
pub(super) fn tool_content(it: &mut ObjectLine<'_>) {
    match it.fields.peek("type") {
        Some("content") => {
            it.fields.take("type");
            it.object("content", block);
        }
        Some("diff") if it.fields.peek_value("changes").is_some() => {
            it.fields.take("type");
            it.add("diff").list("changes", |it| _ = it.words(&["operation", "oldPath", "path"]));
            it.forget("changes", Vec::<Value>::new());
            it.object("patch", |it| _ = it.words(&["format"]).text("text"));
        }
        Some("diff") => {
            it.fields.take("type");
            it.forget("oldText", Value::Null);
            let old = it.fields.string("oldText");
            it.add(if old.is_some() { "diff" } else { "new file" }).words(&["path"]);
            let new = it.fields.string("newText").unwrap_or_default();
            it.line.change(old.as_deref().unwrap_or_default(), &new);
        }
        Some("terminal") => _ = it.words(&["type", "terminalId"]),
        Some("session") => _ = it.words(&["type", "sessionId"]),
        _ => {}
    }
}

/// The texts that name and explain an item of a list.
const NAMED: &[&str] = &["name", "description"];

/// Writes the modes of a session, the current one first.
pub(super) fn modes(it: &mut ObjectLine<'_>) {
    let Some(modes) = it.fields.object("modes") else { return };
    it.line.under(|line| {
        line.add("mode").object(modes, |it| {
            it.words(&["currentModeId"]);
            it.list("availableModes", |it| _ = it.words(&["id"]).quoted(NAMED));
        });
    });
}

/// Writes the configuration options of a session with their values.
pub(super) fn config_options(it: &mut ObjectLine<'_>) {
    it.list("configOptions", |it| {
        it.add("option").words(&["id"]).assigned("currentValue");
        it.words(&["type", "category"]).quoted(NAMED);
        it.list("options", |it| {
            it.words(&["value", "group"]).quoted(NAMED);
            it.list("options", |it| _ = it.words(&["value"]).quoted(NAMED));
        });
    });
}

/// Writes the slash commands.
pub(super) fn commands(it: &mut ObjectLine<'_>) {
    it.list("availableCommands", |it| {
        if let Some(name) = it.fields.string("name") {
            it.line.word(&format!("/{name}"));
        }
        it.object("input", |it| {
            if let Some(hint) = it.fields.string("hint") {
                it.line.add("…").quoted(&hint);
            }
        });
        it.quoted(&["description"]);
    });
}

/// Writes a plan with an id.
pub(super) fn plan_with_id(it: &mut ObjectLine<'_>) {
    if let Some("items" | "markdown") = it.fields.peek("type") {
        it.fields.take("type");
        it.words(&["planId", "path"]).text("content");
        plan(it);
    }
}

/// Writes the steps of a plan.
pub(super) fn plan(it: &mut ObjectLine<'_>) {
    it.list("entries", |it| {
        let mark = match it.fields.peek("status") {
            Some("pending") => "[ ]",
            Some("in_progress") => "[~]",
            Some("completed") => "[x]",
            _ => "[?]",
        };
        if mark != "[?]" {
            it.fields.take("status");
        }
        it.add(mark).text("content").words(&["priority"]);
    });
}

/// Writes capabilities behind a word, one line for each at the top level. Nested ones have dotted names. A value
/// other than `true` or `{}` is written too.
pub(super) fn capabilities(line: &mut ScriptLine, word: &str, capabilities: Fields) {
    for (key, value) in capabilities.into_map() {
        line.under(|can| {
            can.add(word).word(&key);
            match value {
                Value::Bool(true) => {}
                Value::Object(map) if key != "_meta" => {
                    map.into_iter().for_each(|(key, value)| capability(can, &key, value));
                }
                value => _ = can.add("=").json(value),
            }
        });
    }
}

fn capability(line: &mut ScriptLine, name: &str, value: Value) {
    match value {
        Value::Bool(true) => _ = line.word(name),
        Value::Object(map) if map.is_empty() => _ = line.word(name),
        Value::Object(map) if !name.ends_with("_meta") => {
            map.into_iter().for_each(|(key, value)| capability(line, &format!("{name}.{key}"), value));
        }
        value => _ = line.word(name).add("=").json(value),
    }
}
