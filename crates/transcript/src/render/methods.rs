//! Steps as lines: the direction, the method, and the known fields.

use std::fmt;

use duologue_schema::{
    AuthenticateRequest, CreateElicitationRequest, CreateTerminalRequest, ForkSessionRequest,
    InitializeRequest, ListSessionsRequest, LoadSessionRequest, MessageMcpRequest, NewSessionRequest,
    Notification as _, PromptRequest, ReadTextFileRequest, Request as _, RequestPermissionRequest,
    ResumeSessionRequest, SessionNotification, SetSessionConfigOptionRequest, SetSessionModeRequest,
    SetSessionTitleRequest, TerminalOutputRequest, WaitForTerminalExitRequest, WriteTextFileRequest, v2,
};
use serde_json::Value;

use super::RenderOptions;
use super::agents;
use super::content;
use super::describe;
use super::line::ScriptLine;
use super::object_line::ObjectLine;
use super::script::{ResponseTo, ScriptStep, Section, StepKind, Subject};
use crate::format::{ProcessExit, Side};

/// Writes a section with its heading.
pub(super) fn write(f: &mut fmt::Formatter<'_>, section: &Section, options: RenderOptions) -> fmt::Result {
    let mut heading = ScriptLine::new(options.text_bytes);
    match &section.subject {
        Subject::Connection => heading.add("## connection"),
        Subject::Session(id) => heading.add("## session").word(id.as_str()),
        Subject::Stderr => heading.add("## stderr"),
        Subject::End => heading.add("## end"),
    };
    writeln!(f, "{heading}")?;
    let mut turn_ended = false;
    for step in &section.steps {
        if turn_ended {
            f.write_str("\n")?;
        }
        write!(f, "{}", line(step, options))?;
        turn_ended = step.ends_turn;
    }
    Ok(())
}

fn line(step: &ScriptStep, options: RenderOptions) -> ScriptLine {
    let mut line = ScriptLine::new(options.text_bytes);
    if let Some(at) = step.at {
        line.add(format_args!("{:>8}.{:03}", at.as_secs(), at.subsec_millis()));
    }
    match step.from {
        Some(Side::Client) => line.add("→"),
        Some(Side::Agent) => line.add("←"),
        None => &mut line,
    };
    match &step.kind {
        StepKind::Request { method, number, params, answered, more } => {
            name(&mut line, method, *number);
            request(&mut line, method, params.clone());
            if !answered {
                line.add("(no answer)");
            }
            extra(&mut line, more);
        }
        StepKind::Notification { method, params, more } => {
            match params.clone() {
                Some(params @ Value::Object(_)) if method == SessionNotification::METHOD => {
                    line.value(params, |it| describe::write_update(it, options));
                }
                params => {
                    line.word(method);
                    request(&mut line, method, params);
                }
            }
            extra(&mut line, more);
        }
        StepKind::Response { to, result, error, more } => {
            let method = match to {
                ResponseTo::Request { method, number } => {
                    name(&mut line, method, *number);
                    method.as_str()
                }
                ResponseTo::Nothing { id } => {
                    line.add("answer to nothing, id").json(id.clone());
                    ""
                }
            };
            if let Some(result) = result {
                line.value(result.clone(), |it| response(it, method));
            }
            if let Some(error) = error {
                line.add("error").value(error.clone(), |it| {
                    agents::error(it.number("code", "{}").text("message"));
                });
            }
            extra(&mut line, more);
        }
        StepKind::Noise { text, reason } => {
            line.add("noise");
            // JSON is easier to read without quotes.
            match serde_json::from_str(text) {
                Ok(json @ (Value::Object(_) | Value::Array(_))) => line.json(json),
                _ => line.quoted(text),
            };
            line.add(format_args!("({reason})"));
        }
        StepKind::Stderr { text } => _ = line.output(text),
        StepKind::Eof => _ = line.add("end of output"),
        StepKind::Exit(ProcessExit { code, signal }) => {
            line.add("the agent's process ended");
            if let Some(code) = code {
                line.add(format_args!("with code {code}"));
            }
            if let Some(signal) = signal {
                line.add(format_args!("by signal {signal}"));
            }
        }
        StepKind::Dropped { lines, bytes } => {
            line.add(format_args!("… {lines} lines ({bytes} bytes) were not recorded"));
        }
        StepKind::Unknown { record } => {
            let (name, json) = match record.get("hub") {
                // RFD 0019.
                Some(event) => ("hub", event),
                None => ("unknown record", record),
            };
            line.add(name).json(json.clone());
        }
        StepKind::Cut => _ = line.add("the recording was cut short here"),
    }
    line
}

fn name(line: &mut ScriptLine, method: &str, number: u32) {
    line.word(method);
    if number > 1 {
        line.add(format_args!("#{number}"));
    }
}

/// Writes the unknown members of a JSON-RPC message.
fn extra(line: &mut ScriptLine, more: &Value) {
    if !more.is_null() {
        line.add("beside it").json(more.clone());
    }
}

/// Writes the params of a request or notification.
fn request(line: &mut ScriptLine, method: &str, params: Option<Value>) {
    if let Some(params) = params {
        line.value(params, |it| request_params(it, method));
    }
}

fn request_params(it: &mut ObjectLine<'_>, method: &str) {
    match method {
        InitializeRequest::METHOD => initialize(it, "client"),
        AuthenticateRequest::METHOD => _ = it.words(&["methodId"]),
        NewSessionRequest::METHOD
        | LoadSessionRequest::METHOD
        | ResumeSessionRequest::METHOD
        | ListSessionsRequest::METHOD => {
            workspace(it);
        }
        PromptRequest::METHOD => content::blocks(it, "prompt"),
        SetSessionModeRequest::METHOD => _ = it.words(&["modeId"]),
        SetSessionConfigOptionRequest::METHOD => _ = it.words(&["configId"]).assigned("value"),
        RequestPermissionRequest::METHOD => {
            if it.fields.peek_value("toolCall").is_none() {
                it.quoted(&["title", "description"]).object("subject", content::permission_subject);
            }
            it.object("toolCall", content::tool_call);
            it.list("options", |it| _ = it.add("?").words(&["kind", "optionId"]).quoted(&["name"]));
        }
        ReadTextFileRequest::METHOD | WriteTextFileRequest::METHOD => {
            it.words(&["path"]).number("line", "line {}").number("limit", "limit {}").text("content");
        }
        CreateTerminalRequest::METHOD => {
            it.words(&["command"]).word_list("args");
            it.below(|it| _ = it.named("in", "cwd"));
            it.list("env", |it| {
                let (name, value) = (it.fields.string("name"), it.fields.string("value"));
                let variable = format!("{}={}", name.unwrap_or_default(), value.unwrap_or_default());
                it.line.add("with").word(&variable);
            });
        }
        CreateElicitationRequest::METHOD => {
            it.words(&["mode", "elicitationId", "url"]).text("message").raw("requestedSchema");
        }
        v2::LoginAuthRequest::METHOD => _ = it.words(&["methodId"]),
        ForkSessionRequest::METHOD => workspace(it),
        MessageMcpRequest::METHOD => _ = it.words(&["serverId", "connectionId", "method"]),
        _ if agents::request(it, method) => {}
        v2::CancelToolCallRequest::METHOD => _ = it.words(&["toolCallId"]),
        SetSessionTitleRequest::METHOD => _ = it.quoted(&["title"]),
        _ => _ = it.words(&["terminalId", "requestId", "elicitationId"]),
    }
}

/// Writes the folders and MCP servers of a session.
fn workspace(it: &mut ObjectLine<'_>) {
    it.words(&["cwd"]).object("replayFrom", |it| _ = it.named("replay from", "type"));
    for folder in it.fields.strings("additionalDirectories").unwrap_or_default() {
        it.line.under(|line| _ = line.add("also in").word(&folder));
    }
    it.list("mcpServers", |it| {
        it.add("mcp server").words(&["name", "type", "url", "command"]).word_list("args");
    });
    it.forget("mcpServers", Vec::<Value>::new());
}

/// Writes the result of a request.
fn response(it: &mut ObjectLine<'_>, method: &str) {
    if it.fields.is_empty() {
        it.add("ok");
        return;
    }
    match method {
        InitializeRequest::METHOD => initialize(it, "agent"),
        NewSessionRequest::METHOD
        | LoadSessionRequest::METHOD
        | ResumeSessionRequest::METHOD
        | ForkSessionRequest::METHOD
        | SetSessionConfigOptionRequest::METHOD => {
            content::modes(it);
            content::config_options(it);
            content::commands(it);
            if it.fields.is_empty() {
                it.add("ok");
            }
        }
        ListSessionsRequest::METHOD => {
            it.list("sessions", |it| _ = it.words(&["sessionId", "cwd"]).quoted(&["title"]));
        }
        PromptRequest::METHOD => _ = it.words(&["stopReason"]).named("accepted as", "messageId"),
        RequestPermissionRequest::METHOD => {
            it.object("outcome", |it| _ = it.words(&["outcome", "optionId"]));
        }
        ReadTextFileRequest::METHOD => _ = it.text("content"),
        CreateTerminalRequest::METHOD => _ = it.words(&["terminalId"]),
        TerminalOutputRequest::METHOD => {
            it.object("exitStatus", content::exit_status).forget("truncated", false).text("output");
        }
        WaitForTerminalExitRequest::METHOD => content::exit_status(it),
        CreateElicitationRequest::METHOD => _ = it.words(&["action"]),
        _ => _ = agents::response(it, method),
    }
}

fn initialize(it: &mut ObjectLine<'_>, side: &str) {
    it.number("protocolVersion", "v{}");
    if let Some(info) = it.fields.peek_value(&format!("{side}Info")).cloned() {
        it.forget("info", info);
    }
    it.object(&format!("{side}Info"), |it| _ = it.words(&["name", "version"]).quoted(&["title"]));
    it.object("info", |it| _ = it.words(&["name", "version"]).quoted(&["title"]));
    let of_v1 = it.fields.object(&format!("{side}Capabilities"));
    let of_v2 = it.fields.object("capabilities");
    // A client that offers version 2 sends both.
    let word = if of_v1.is_some() { "in version 2 can" } else { "can" };
    for (word, capabilities) in [("can", of_v1), (word, of_v2)] {
        if let Some(capabilities) = capabilities {
            content::capabilities(it.line, word, capabilities);
        }
    }
    it.list("authMethods", |it| {
        it.add("auth").words(&["id", "methodId", "type"]).quoted(&["name", "description"]);
    });
}
