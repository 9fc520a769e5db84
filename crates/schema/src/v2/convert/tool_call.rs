//! Tool calls and their content.

use std::path::Path;

use crate::{
    ClearedFields, Diff, Patch, ToolCallContent, ToolCallContentChunk, ToolCallStatus, ToolCallUpdate,
    ToolKind, v2,
};

use super::all;

impl From<v2::ToolCallUpdate> for ToolCallUpdate {
    fn from(update: v2::ToolCallUpdate) -> Self {
        /// Returns the new value, and true if the field is cleared.
        fn split<T>(patch: Patch<T>) -> (Option<T>, bool) {
            match patch {
                Patch::Keep => (None, false),
                Patch::Clear => (None, true),
                Patch::Set(value) => (Some(value), false),
            }
        }
        /// Returns the new value, or the default for a cleared field.
        fn or_default<T>(patch: Patch<T>, default: impl FnOnce() -> T) -> Option<T> {
            match patch {
                Patch::Keep => None,
                Patch::Clear => Some(default()),
                Patch::Set(value) => Some(value),
            }
        }
        let id = update.tool_call_id;
        let (name, clears_name) = split(update.name);
        let (raw_input, clears_input) = split(update.raw_input);
        let (raw_output, clears_output) = split(update.raw_output);
        let (meta, clears_meta) = split(update.meta);
        ToolCallUpdate {
            title: or_default(update.title, || id.as_str().to_owned()),
            tool_call_id: id,
            name,
            kind: or_default(update.kind, ToolKind::default),
            status: or_default(update.status, ToolCallStatus::default),
            content: or_default(update.content, Vec::new).map(all),
            locations: or_default(update.locations, Vec::new),
            raw_input,
            raw_output,
            capabilities: update.capabilities,
            cleared: ClearedFields {
                name: clears_name,
                raw_input: clears_input,
                raw_output: clears_output,
                meta: clears_meta,
            },
            meta,
        }
    }
}

impl From<ToolCallUpdate> for v2::ToolCallUpdate {
    fn from(update: ToolCallUpdate) -> Self {
        fn set<T>(value: Option<T>, is_cleared: bool) -> Patch<T> {
            match value {
                Some(value) => Patch::Set(value),
                None if is_cleared => Patch::Clear,
                None => Patch::Keep,
            }
        }
        let cleared = update.cleared;
        v2::ToolCallUpdate {
            tool_call_id: update.tool_call_id,
            name: set(update.name, cleared.name),
            title: set(update.title, false),
            kind: set(update.kind, false),
            status: set(update.status, false),
            content: set(update.content.map(all), false),
            locations: set(update.locations, false),
            raw_input: set(update.raw_input, cleared.raw_input),
            raw_output: set(update.raw_output, cleared.raw_output),
            capabilities: update.capabilities,
            meta: set(update.meta, cleared.meta),
        }
    }
}

impl From<v2::ToolCallContent> for ToolCallContent {
    fn from(content: v2::ToolCallContent) -> Self {
        match content {
            v2::ToolCallContent::Content(content) => ToolCallContent::Content(content),
            v2::ToolCallContent::Diff(diff) => ToolCallContent::Changes(diff),
            v2::ToolCallContent::Terminal(terminal) => ToolCallContent::DisplayTerminal(terminal),
            v2::ToolCallContent::Session(session) => ToolCallContent::Session(session),
            v2::ToolCallContent::Unknown(unknown) => ToolCallContent::Unknown(unknown),
        }
    }
}

impl From<ToolCallContent> for v2::ToolCallContent {
    fn from(content: ToolCallContent) -> Self {
        match content {
            ToolCallContent::Content(content) => v2::ToolCallContent::Content(content),
            ToolCallContent::Diff(diff) => v2::Diff::from(*diff).into(),
            ToolCallContent::Changes(diff) => v2::ToolCallContent::Diff(diff),
            ToolCallContent::Terminal(terminal) | ToolCallContent::DisplayTerminal(terminal) => {
                v2::ToolCallContent::Terminal(terminal)
            }
            ToolCallContent::Session(session) => v2::ToolCallContent::Session(session),
            ToolCallContent::Unknown(unknown) => v2::ToolCallContent::Unknown(unknown),
        }
    }
}

impl From<v2::ToolCallContentChunk> for ToolCallContentChunk {
    fn from(chunk: v2::ToolCallContentChunk) -> Self {
        let v2::ToolCallContentChunk { tool_call_id, content, meta } = chunk;
        ToolCallContentChunk { tool_call_id, content: content.into(), meta }
    }
}

impl From<ToolCallContentChunk> for v2::ToolCallContentChunk {
    fn from(chunk: ToolCallContentChunk) -> Self {
        let ToolCallContentChunk { tool_call_id, content, meta } = chunk;
        v2::ToolCallContentChunk { tool_call_id, content: content.into(), meta }
    }
}

/// The texts become a patch with one hunk: from the first changed line to the last one, with three lines around them.
impl From<Diff> for v2::Diff {
    fn from(diff: Diff) -> Self {
        let text = patch(&diff.path, diff.old_text.as_deref(), &diff.new_text);
        let path = v2::DiffPathChange::new(diff.path);
        let operation = match diff.old_text {
            Some(_) => v2::DiffOperation::Modify(path),
            None => v2::DiffOperation::Add(path),
        };
        let mut converted = v2::Diff::new([v2::DiffChange::new(operation)]);
        converted.patch = Some(v2::DiffPatch::new(v2::DiffPatchFormat::GitPatch, text));
        converted.meta = diff.meta;
        converted
    }
}

/// The unchanged lines around a hunk.
const CONTEXT: usize = 3;

/// Returns the patch from one text to another.
fn patch(path: &Path, old: Option<&str>, new: &str) -> String {
    let name = quoted(path);
    let mut text = format!("diff --git {name} {name}\n");
    if old.is_none() {
        text.push_str("new file mode 100644\n");
    }
    let old_lines: Vec<&str> = old.unwrap_or_default().split_inclusive('\n').collect();
    let new_lines: Vec<&str> = new.split_inclusive('\n').collect();
    let same = |(old, new): &(&&str, &&str)| old == new;
    let before = old_lines.iter().zip(&new_lines).take_while(same).count();
    let shorter = old_lines.len().min(new_lines.len());
    let after =
        old_lines.iter().rev().zip(new_lines.iter().rev()).take(shorter - before).take_while(same).count();
    let (old_end, new_end) = (old_lines.len() - after, new_lines.len() - after);
    if before == old_end && before == new_end {
        return text;
    }
    let source = if old.is_some() { &name } else { "/dev/null" };
    text.push_str(&format!("--- {source}\n+++ {name}\n"));
    let start = before.saturating_sub(CONTEXT);
    let trailing = after.min(CONTEXT);
    let range = |end: usize| {
        let count = end + trailing - start;
        // Of an empty range the line before it is named.
        format!("{},{count}", if count == 0 { start } else { start + 1 })
    };
    text.push_str(&format!("@@ -{} +{} @@\n", range(old_end), range(new_end)));
    let mut push = |mark: char, lines: Option<&[&str]>| {
        for line in lines.unwrap_or_default() {
            text.push(mark);
            text.push_str(line);
            if !line.ends_with('\n') {
                text.push_str("\n\\ No newline at end of file\n");
            }
        }
    };
    push(' ', old_lines.get(start..before));
    push('-', old_lines.get(before..old_end));
    push('+', new_lines.get(before..new_end));
    push(' ', old_lines.get(old_end..old_end + trailing));
    text
}

/// Returns the name of a file in a patch, in the quotes of git where it needs them. It is the absolute path without a
/// prefix, as in the list of changes.
fn quoted(path: &Path) -> String {
    let name = path.to_string_lossy().into_owned();
    if !name.contains(|c: char| c.is_control() || matches!(c, '"' | '\\')) {
        return name;
    }
    let mut quoted = String::from("\"");
    for c in name.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            c if c.is_control() => {
                let mut bytes = [0; 4];
                for byte in c.encode_utf8(&mut bytes).bytes() {
                    quoted.push_str(&format!("\\{byte:03o}"));
                }
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
