//! Session updates as lines.

use super::RenderOptions;
use super::content::{self, item};
use super::fields::Fields;
use super::line::ScriptLine;

/// The params of a `session/update`.
pub(super) fn update(line: &mut ScriptLine, mut params: Fields, options: RenderOptions) {
    let Some(mut update) = params.object("update") else {
        line.add("session/update").rest(params);
        return;
    };
    let mut below = Vec::new();
    let kind = update.string("sessionUpdate").unwrap_or_default();
    match kind.as_str() {
        "user_message_chunk" | "agent_message_chunk" | "agent_thought_chunk" => {
            // Joined, they are a message.
            let message = kind.trim_end_matches("_chunk");
            line.add(if options.single_chunks { kind.as_str() } else { message });
            chunk(line, &mut update, "messageId");
        }
        "compaction_summary_chunk" => chunk(line.add("compaction_summary"), &mut update, "compactionId"),
        "agent_message_clear" | "agent_thought_clear" => {
            item(line.add(&kind), &mut update, &["messageId"], &[]);
        }
        "tool_call" | "tool_call_update" => {
            content::tool_call(line.add(&kind), &mut update, &mut below);
        }
        "plan" => content::plan(line.add(&kind), &mut update, &mut below),
        "available_commands_update" => content::commands(line.add(&kind), &mut update, &mut below),
        "current_mode_update" => item(line.add(&kind), &mut update, &["currentModeId", "modeId"], &[]),
        "config_option_update" => content::config_options(line.add(&kind), &mut update, &mut below),
        "session_info_update" => item(line.add(&kind), &mut update, &["updatedAt"], &["title"]),
        "usage_update" => usage(line.add(&kind), &mut update),
        "notice" => item(line.add(&kind), &mut update, &["severity"], &["title", "description"]),
        "compaction_update" => {
            item(line.add(&kind), &mut update, &["compactionId", "status"], &["error"]);
            content::blocks(line, &mut update, &mut below, "summary");
        }
        _ => {
            line.add("session/update");
            if !kind.is_empty() {
                update.put("sessionUpdate", kind.into());
            }
        }
    }
    line.rest(update).rest(params);
    below.into_iter().for_each(|it| _ = line.below(it));
}

fn chunk(line: &mut ScriptLine, update: &mut Fields, id: &str) {
    item(line, update, &[id], &[]);
    if let Some(inner) = update.object("content") {
        content::block(line, inner);
    }
}

/// The tokens used of those there are, and the money.
pub(super) fn usage(line: &mut ScriptLine, usage: &mut Fields) {
    for (key, before) in [("used", None), ("size", Some("of"))] {
        if let Some(number) = usage.number(key) {
            before.map(|word| line.add(word));
            line.add(number);
        }
    }
    if let Some(mut cost) = usage.object("cost") {
        if let Some(amount) = cost.number("amount") {
            line.add(amount);
        }
        item(line, &mut cost, &["currency"], &[]);
        line.rest(cost);
    }
}
