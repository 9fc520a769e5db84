//! Parts of messages as lines: content, tool calls, modes, options, capabilities.

use serde_json::Value;

use super::fields::Fields;
use super::line::ScriptLine;

/// Writes the fields of an object that are words, then those that are text.
pub(super) fn item(line: &mut ScriptLine, fields: &mut Fields, words: &[&str], texts: &[&str]) {
    for key in words {
        if let Some(word) = fields.string(key) {
            line.word(&word);
        }
    }
    for key in texts {
        if let Some(text) = fields.string(key) {
            line.quoted(&text);
        }
    }
}

/// Writes each object of a list on a line below.
pub(super) fn list(
    line: &ScriptLine,
    fields: &mut Fields,
    below: &mut Vec<ScriptLine>,
    key: &str,
    mut write: impl FnMut(&mut ScriptLine, &mut Fields),
) {
    for mut object in fields.objects(key).unwrap_or_default() {
        let mut item = line.another();
        write(&mut item, &mut object);
        item.rest(object);
        below.push(item);
    }
}

/// Writes any JSON on a line below.
pub(super) fn raw(line: &ScriptLine, fields: &mut Fields, below: &mut Vec<ScriptLine>, key: &str) {
    let Some(value) = fields.take(key) else { return };
    let mut item = line.another();
    item.add(key);
    match value {
        Value::String(text) => item.text(&text),
        value => item.json(value),
    };
    below.push(item);
}

/// Writes a list of content blocks: a single one on the line itself, several below it.
pub(super) fn blocks(line: &mut ScriptLine, fields: &mut Fields, below: &mut Vec<ScriptLine>, key: &str) {
    let Some(mut blocks) = fields.objects(key) else { return };
    if let [only] = blocks.as_mut_slice() {
        return block(line, std::mem::take(only));
    }
    for content in blocks {
        let mut item = line.another();
        block(&mut item, content);
        below.push(item);
    }
}

/// Writes a content block.
pub(super) fn block(line: &mut ScriptLine, mut block: Fields) {
    let kind = block.string("type");
    match kind.as_deref() {
        Some("text") => {
            if let Some(text) = block.string("text") {
                line.text(&text);
            }
        }
        Some(kind @ ("image" | "audio")) => {
            item(line.add(kind), &mut block, &["mimeType", "uri"], &[]);
            if let Some(data) = block.string("data") {
                line.data(&data);
            }
        }
        Some("resource_link") => {
            item(
                line.add("resource_link"),
                &mut block,
                &["uri", "mimeType"],
                &["name", "title", "description"],
            );
        }
        Some("resource") => {
            line.add("resource");
            if let Some(mut resource) = block.object("resource") {
                item(line, &mut resource, &["uri", "mimeType"], &[]);
                if let Some(text) = resource.string("text") {
                    line.text(&text);
                }
                if let Some(data) = resource.string("blob") {
                    line.data(&data);
                }
                line.rest(resource);
            }
        }
        Some(kind) => block.put("type", kind.into()),
        None => {}
    }
    line.rest(block);
}

/// Writes a tool call or its update.
pub(super) fn tool_call(line: &mut ScriptLine, call: &mut Fields, below: &mut Vec<ScriptLine>) {
    item(line, call, &["toolCallId", "kind", "status"], &["title"]);
    list(line, call, below, "locations", |line, location| {
        let path = location.string("path").unwrap_or_default();
        location.forget("line", &Value::Null);
        match location.number("line") {
            Some(number) => line.add("at").word(&format!("{path}:{number}")),
            None => line.add("at").word(&path),
        };
    });
    raw(line, call, below, "rawInput");
    list(line, call, below, "content", tool_content);
    raw(line, call, below, "rawOutput");
}

fn tool_content(line: &mut ScriptLine, content: &mut Fields) {
    match content.peek("type") {
        Some("content") => {
            content.take("type");
            if let Some(inner) = content.object("content") {
                block(line, inner);
            }
        }
        Some("diff") => {
            content.take("type");
            content.forget("oldText", &Value::Null);
            let old = content.string("oldText");
            line.add(if old.is_some() { "diff" } else { "new file" });
            item(line, content, &["path"], &[]);
            let new = content.string("newText").unwrap_or_default();
            line.change(old.as_deref().unwrap_or_default(), &new);
        }
        Some("terminal") => item(line, content, &["type", "terminalId"], &[]),
        _ => {}
    }
}

/// Writes the modes of a session, the current one first.
pub(super) fn modes(line: &mut ScriptLine, fields: &mut Fields, below: &mut Vec<ScriptLine>) {
    let Some(mut modes) = fields.object("modes") else { return };
    let current = modes.string("currentModeId");
    let mut head = line.another();
    head.add("mode");
    if let Some(current) = &current {
        head.word(current);
    }
    let mut all = Vec::new();
    list(line, &mut modes, &mut all, "availableModes", |line, mode| {
        item(line, mode, &["id"], &["name", "description"]);
    });
    head.rest(modes);
    all.into_iter().for_each(|mode| _ = head.below(mode));
    below.push(head);
}

/// Writes the configuration options of a session with their values.
pub(super) fn config_options(line: &mut ScriptLine, fields: &mut Fields, below: &mut Vec<ScriptLine>) {
    list(line, fields, below, "configOptions", |line, option| {
        item(line.add("option"), option, &["id"], &[]);
        match option.take("currentValue") {
            Some(Value::String(value)) => _ = line.add("=").word(&value),
            Some(value) => _ = line.add("=").json(value),
            None => {}
        }
        item(line, option, &["type", "category"], &["name", "description"]);
        let mut values = Vec::new();
        list(line, option, &mut values, "options", |line, value| {
            item(line, value, &["value", "group"], &["name", "description"]);
            let mut group = Vec::new();
            list(line, value, &mut group, "options", |line, value| {
                item(line, value, &["value"], &["name", "description"]);
            });
            group.into_iter().for_each(|value| _ = line.below(value));
        });
        values.into_iter().for_each(|value| _ = line.below(value));
    });
}

/// Writes the slash commands.
pub(super) fn commands(line: &mut ScriptLine, fields: &mut Fields, below: &mut Vec<ScriptLine>) {
    list(line, fields, below, "availableCommands", |line, command| {
        if let Some(name) = command.string("name") {
            line.word(&format!("/{name}"));
        }
        if let Some(mut input) = command.object("input") {
            if let Some(hint) = input.string("hint") {
                line.add("…").quoted(&hint);
            }
            line.rest(input);
        }
        item(line, command, &[], &["description"]);
    });
}

/// Writes the steps of a plan.
pub(super) fn plan(line: &mut ScriptLine, fields: &mut Fields, below: &mut Vec<ScriptLine>) {
    list(line, fields, below, "entries", |line, entry| {
        match entry.peek("status") {
            Some("pending") => line.add("[ ]"),
            Some("in_progress") => line.add("[~]"),
            Some("completed") => line.add("[x]"),
            _ => line.add("[?]"),
        };
        if matches!(entry.peek("status"), Some("pending" | "in_progress" | "completed")) {
            entry.take("status");
        }
        if let Some(text) = entry.string("content") {
            line.text(&text);
        }
        item(line, entry, &["priority"], &[]);
    });
}

/// Writes capabilities, one line for each at the top level. Nested ones have dotted names. A value
/// other than `true` or `{}` is written too.
pub(super) fn capabilities(line: &ScriptLine, capabilities: Fields, below: &mut Vec<ScriptLine>) {
    for (key, value) in capabilities.into_map() {
        let mut can = line.another();
        can.add("can").word(&key);
        match value {
            Value::Bool(true) => {}
            Value::Object(map) if key != "_meta" => {
                map.into_iter().for_each(|(key, value)| capability(&mut can, &key, value));
            }
            value => _ = can.add("=").json(value),
        }
        below.push(can);
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
