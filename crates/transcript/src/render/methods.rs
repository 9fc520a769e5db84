//! Steps as lines: the direction, the method, and the known fields.

use std::fmt;

use duologue_schema::{
    AuthenticateRequest, CreateElicitationRequest, CreateTerminalRequest, InitializeRequest,
    ListSessionsRequest, LoadSessionRequest, NewSessionRequest, Notification as _, PromptRequest,
    ReadTextFileRequest, Request as _, RequestPermissionRequest, ResumeSessionRequest, SessionNotification,
    SetSessionConfigOptionRequest, SetSessionModeRequest, TerminalOutputRequest, WaitForTerminalExitRequest,
    WriteTextFileRequest,
};
use serde_json::Value;

use super::RenderOptions;
use super::agents;
use super::content::{self, item};
use super::describe;
use super::fields::Fields;
use super::line::ScriptLine;
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
        turn_ended = matches!(&step.kind, StepKind::Response { to: ResponseTo::Request { method, .. }, .. } if method == PromptRequest::METHOD);
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
            match (method.as_str(), params.clone().map(Fields::try_from)) {
                (SessionNotification::METHOD, Some(Ok(params))) => {
                    describe::write_update(&mut line, params, options)
                }
                (_, params) => {
                    line.word(method);
                    let params =
                        params.map(|params| params.map_or_else(|value| value, |it| it.into_map().into()));
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
                response(&mut line, method, result.clone());
            }
            if let Some(error) = error {
                failure(&mut line, error.clone());
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
        StepKind::Stderr { text } => {
            line.output(text);
        }
        StepKind::Eof => {
            line.add("end of output");
        }
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
            line.add("unknown record").json(record.clone());
        }
        StepKind::Cut => {
            line.add("the recording was cut short here");
        }
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

fn failure(line: &mut ScriptLine, error: Value) {
    line.add("error");
    match Fields::try_from(error) {
        Ok(mut error) => {
            if let Some(code) = error.number("code") {
                line.add(code);
            }
            if let Some(message) = error.string("message") {
                line.text(&message);
            }
            let mut below = Vec::new();
            agents::error(line, &mut error, &mut below);
            line.rest(error);
            below.into_iter().for_each(|it| _ = line.below(it));
        }
        Err(error) => _ = line.json(error),
    }
}

/// Writes the params of a request or notification.
fn request(line: &mut ScriptLine, method: &str, params: Option<Value>) {
    let mut params = match params.map(Fields::try_from) {
        None => return,
        Some(Ok(params)) => params,
        Some(Err(params)) => {
            line.json(params);
            return;
        }
    };
    let mut below = Vec::new();
    match method {
        InitializeRequest::METHOD => initialize(line, &mut params, &mut below, "client"),
        AuthenticateRequest::METHOD => item(line, &mut params, &["methodId"], &[]),
        NewSessionRequest::METHOD
        | LoadSessionRequest::METHOD
        | ResumeSessionRequest::METHOD
        | ListSessionsRequest::METHOD => {
            item(line, &mut params, &["cwd"], &[]);
            for folder in params.strings("additionalDirectories").unwrap_or_default() {
                below.push(line.another().add("also in").word(&folder).take());
            }
            content::list(line, &mut params, &mut below, "mcpServers", |line, server| {
                item(line.add("mcp server"), server, &["name", "type", "url", "command"], &[]);
                for arg in server.strings("args").unwrap_or_default() {
                    line.word(&arg);
                }
            });
            params.forget("mcpServers", &Value::Array(Vec::new()));
        }
        PromptRequest::METHOD => content::blocks(line, &mut params, &mut below, "prompt"),
        SetSessionModeRequest::METHOD => item(line, &mut params, &["modeId"], &[]),
        SetSessionConfigOptionRequest::METHOD => {
            item(line, &mut params, &["configId"], &[]);
            if let Some(value) = params.take("value") {
                match value {
                    Value::String(value) => line.add("=").word(&value),
                    value => line.add("=").json(value),
                };
            }
        }
        RequestPermissionRequest::METHOD => {
            if let Some(mut call) = params.object("toolCall") {
                content::tool_call(line, &mut call, &mut below);
                line.rest(call);
            }
            content::list(line, &mut params, &mut below, "options", |line, option| {
                item(line.add("?"), option, &["kind", "optionId"], &["name"]);
            });
        }
        ReadTextFileRequest::METHOD | WriteTextFileRequest::METHOD => {
            item(line, &mut params, &["path"], &[]);
            for key in ["line", "limit"] {
                if let Some(number) = params.number(key) {
                    line.add(key).add(number);
                }
            }
            if let Some(text) = params.string("content") {
                line.text(&text);
            }
        }
        CreateTerminalRequest::METHOD => {
            item(line, &mut params, &["command"], &[]);
            for arg in params.strings("args").unwrap_or_default() {
                line.word(&arg);
            }
            if let Some(folder) = params.string("cwd") {
                below.push(line.another().add("in").word(&folder).take());
            }
            content::list(line, &mut params, &mut below, "env", |line, variable| {
                let (name, value) = (variable.string("name"), variable.string("value"));
                line.add("with").word(&format!("{}={}", name.unwrap_or_default(), value.unwrap_or_default()));
            });
        }
        CreateElicitationRequest::METHOD => {
            item(line, &mut params, &["mode", "elicitationId", "url"], &[]);
            if let Some(message) = params.string("message") {
                line.text(&message);
            }
            content::raw(line, &mut params, &mut below, "requestedSchema");
        }
        _ if agents::request(line, method, &mut params, &mut below) => {}
        _ => item(line, &mut params, &["terminalId", "requestId", "elicitationId"], &[]),
    }
    line.rest(params);
    below.into_iter().for_each(|it| _ = line.below(it));
}

/// Writes the result of a request.
fn response(line: &mut ScriptLine, method: &str, result: Value) {
    let mut result = match Fields::try_from(result) {
        Ok(result) => result,
        Err(result) => {
            line.json(result);
            return;
        }
    };
    if result.is_empty() {
        line.add("ok");
        return;
    }
    let mut below = Vec::new();
    match method {
        InitializeRequest::METHOD => initialize(line, &mut result, &mut below, "agent"),
        NewSessionRequest::METHOD
        | LoadSessionRequest::METHOD
        | ResumeSessionRequest::METHOD
        | SetSessionConfigOptionRequest::METHOD => {
            content::modes(line, &mut result, &mut below);
            content::config_options(line, &mut result, &mut below);
            if result.is_empty() {
                line.add("ok");
            }
        }
        ListSessionsRequest::METHOD => {
            content::list(line, &mut result, &mut below, "sessions", |line, session| {
                item(line, session, &["sessionId", "cwd"], &["title"]);
            });
        }
        PromptRequest::METHOD => item(line, &mut result, &["stopReason"], &[]),
        RequestPermissionRequest::METHOD => {
            if let Some(mut outcome) = result.object("outcome") {
                item(line, &mut outcome, &["outcome", "optionId"], &[]);
                line.rest(outcome);
            }
        }
        ReadTextFileRequest::METHOD => {
            if let Some(text) = result.string("content") {
                line.text(&text);
            }
        }
        CreateTerminalRequest::METHOD => item(line, &mut result, &["terminalId"], &[]),
        TerminalOutputRequest::METHOD => {
            if let Some(mut status) = result.object("exitStatus") {
                exit_status(line, &mut status);
                line.rest(status);
            }
            result.forget("truncated", &false.into());
            if let Some(text) = result.string("output") {
                line.text(&text);
            }
        }
        WaitForTerminalExitRequest::METHOD => exit_status(line, &mut result),
        CreateElicitationRequest::METHOD => item(line, &mut result, &["action"], &[]),
        _ => _ = agents::response(line, method, &mut result, &mut below),
    }
    line.rest(result);
    below.into_iter().for_each(|it| _ = line.below(it));
}

fn initialize(line: &mut ScriptLine, body: &mut Fields, below: &mut Vec<ScriptLine>, side: &str) {
    if let Some(version) = body.number("protocolVersion") {
        line.add(format_args!("v{version}"));
    }
    if let Some(mut info) = body.object(&format!("{side}Info")) {
        item(line, &mut info, &["name", "version"], &["title"]);
        line.rest(info);
    }
    if let Some(capabilities) = body.object(&format!("{side}Capabilities")) {
        content::capabilities(line, capabilities, below);
    }
    content::list(line, body, below, "authMethods", |line, method| {
        item(line.add("auth"), method, &["id", "type"], &["name", "description"]);
    });
}

fn exit_status(line: &mut ScriptLine, status: &mut Fields) {
    if let Some(code) = status.number("exitCode") {
        line.add("exit").add(code);
    }
    if let Some(signal) = status.string("signal") {
        line.add("signal").word(&signal);
    }
    for key in ["exitCode", "signal"] {
        status.forget(key, &Value::Null);
    }
}
