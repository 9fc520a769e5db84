//! `cargo xtask interop --real`: our client with real agents, and `acpx`, a real client, with our agent.
//! A mock model answers; nothing leaves the machine but the installation.

use super::exchange::quiet;
use super::{InteropPaths, Result, finish, install};
use duologue_client::schema::{
    ClientCapabilities, Error, FileSystemCapabilities, PermissionOptionKind, ReadTextFileRequest,
    ReadTextFileResponse, RequestPermissionOutcome, RequestPermissionRequest, RequestPermissionResponse,
    SessionUpdate, StopReason, ToolCallStatus, WriteTextFileRequest, WriteTextFileResponse,
};
use duologue_client::{Client, Command, Exchange, Host, HostContext, HostResult};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

/// A real agent: its program, its arguments, and whether it writes files that are there (or only new ones).
const AGENTS: [(&str, &str, bool); 3] =
    [("gemini", "--acp", true), ("opencode", "acp", false), ("qwen", "--acp", false)];
const WRITTEN: &str = "written by the mock model\n";

/// Runs all of it and prints a line for each.
#[expect(clippy::print_stdout, reason = "this is the program's output")]
pub(super) fn run(paths: &InteropPaths) -> Result<()> {
    let target = std::path::absolute(paths.target.join("real"))?;
    install::npm(&paths.sources.join("real"), &target)?;
    let bin = target.join("node_modules/.bin");
    let model = Model::start(&paths.sources.join("real/model.py"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut bad = 0;
    for (name, argument, existing) in AGENTS {
        let place = RunFolder::new(paths, name, &bin)?;
        let turns = drive(&place, name, argument, existing, model.port);
        let outcome = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(180), turns).await });
        match outcome.unwrap_or_else(|_| Err("not done in 180 s".into())) {
            Ok(seen) => println!("our client drives {name}: {seen}"),
            Err(error) => {
                bad += 1;
                println!("our client drives {name}: FAIL: {error}");
            }
        }
    }
    for (prompt, expected) in [("clear", "Done."), ("permission", ""), ("files", ""), ("terminal", "")] {
        let place = RunFolder::new(paths, &format!("acpx-{prompt}"), &bin)?;
        match acpx(paths, &place, prompt, expected) {
            Ok(()) => println!("acpx drives our agent: {prompt}: ok"),
            Err(error) => {
                bad += 1;
                println!("acpx drives our agent: {prompt}: FAIL: {error}");
            }
        }
    }
    if bad > 0 { Err(format!("{bad} runs with real peers failed").into()) } else { Ok(()) }
}

/// The mock model server, ended when it is dropped.
pub(super) struct Model {
    child: Child,
    pub(super) port: u16,
}

impl Model {
    pub(super) fn start(program: &Path) -> Result<Self> {
        let mut child = std::process::Command::new("python3").arg(program).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("no stdout")?).read_line(&mut line)?;
        Ok(Self { child, port: line.trim().parse()? })
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A fresh home and project for one peer, with its program first in the path.
pub(super) struct RunFolder {
    pub(super) home: PathBuf,
    pub(super) project: PathBuf,
    pub(super) path: String,
}

impl RunFolder {
    pub(super) fn new(paths: &InteropPaths, name: &str, bin: &Path) -> Result<Self> {
        let dir = std::path::absolute(paths.target.join("runs/real").join(name))?;
        let _ = fs::remove_dir_all(&dir);
        let (home, project) = (dir.join("home"), dir.join("project"));
        fs::create_dir_all(&home)?;
        fs::create_dir_all(project.join("more"))?;
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
        Ok(Self { home, project, path })
    }
}

/// Returns the variables by which each agent finds the mock model.
pub(super) fn environment(name: &str, port: u16) -> Vec<(&'static str, String)> {
    let host = format!("http://127.0.0.1:{port}");
    let openai = format!("{host}/v1");
    let key = || "mock".to_owned();
    match name {
        "gemini" => vec![("GEMINI_API_KEY", key()), ("GOOGLE_GEMINI_BASE_URL", host)],
        "qwen" => vec![("OPENAI_API_KEY", key()), ("OPENAI_BASE_URL", openai), ("OPENAI_MODEL", key())],
        _ => {
            let options = json!({"baseURL": openai, "apiKey": "mock"});
            let models = json!({"mock": {"name": "mock"}});
            let mock = json!({"npm": "@ai-sdk/openai-compatible", "name": "mock", "options": options, "models": models});
            let permission = json!({"edit": "ask", "bash": "ask"});
            let config = json!({"model": "mock/mock", "small_model": "mock/mock", "permission": permission, "provider": {"mock": mock}});
            vec![("OPENCODE_CONFIG_CONTENT", config.to_string())]
        }
    }
}

/// Three turns with a real agent: it talks, it runs a command, it writes a file through us.
async fn drive(place: &RunFolder, name: &str, argument: &str, existing: bool, port: u16) -> Result<String> {
    let file = place.project.join("out.txt");
    if existing {
        fs::write(&file, "old\n")?;
    }
    let mut command = Command::new(name).args([argument]).cwd(&place.project).clean_env();
    command = command.env("PATH", &place.path).env("HOME", &place.home);
    for (key, value) in environment(name, port) {
        command = command.env(key, value);
    }
    let agent = Client::new(Editor).exchange(Exchange::new()).spawn(command).await?;
    let session = agent.new_session(&place.project).await?;
    quiet::refused(&session.peer_agent()).await?;
    let (mut updates, mut calls) = (0, 0);
    for prompt in ["Say hello".to_owned(), "SHELLTOOL".to_owned(), format!("WRITETOOL={}", file.display())] {
        let mut turn = session.prompt(prompt.as_str()).await?;
        let (mut text, mut completed) = (String::new(), false);
        while let Some(update) = turn.next().await {
            updates += 1;
            match update? {
                SessionUpdate::ToolCallUpdate(call) => {
                    completed |= call.status == Some(ToolCallStatus::Completed)
                }
                update @ SessionUpdate::AgentMessageChunk(_) => text += &update.to_string(),
                _ => {}
            }
        }
        let outcome = turn.outcome().await?;
        if outcome.stop_reason != StopReason::EndTurn || !text.contains("the mock model: é世界 😀.") {
            return Err(format!("{prompt:?} ended {:?} with {text:?}", outcome.stop_reason).into());
        }
        if prompt != "Say hello" && !completed {
            return Err(format!("no tool call completed in {prompt:?}").into());
        }
        calls += usize::from(completed);
    }
    let content = fs::read_to_string(&file)?;
    if content != WRITTEN {
        return Err(format!("the file holds {content:?}").into());
    }
    let version = agent.info().map(|info| format!("{} {}", info.name, info.version)).unwrap_or_default();
    agent.close().await;
    Ok(format!("{version}: initialize, session/new, 3 turns, {updates} updates, {calls} tool calls"))
}

/// Serves its files, and allows each permission request once.
struct Editor;

impl Host for Editor {
    fn capabilities(&self) -> ClientCapabilities {
        ClientCapabilities::new().fs(FileSystemCapabilities::new().read_text_file(true).write_text_file(true))
    }

    async fn request_permission(
        &self,
        _: &HostContext,
        request: RequestPermissionRequest,
    ) -> HostResult<RequestPermissionResponse> {
        let once = request.options.iter().find(|option| option.kind == PermissionOptionKind::AllowOnce);
        let answer = once.map(|option| RequestPermissionOutcome::selected(option.option_id.clone()));
        Ok(answer.unwrap_or(RequestPermissionOutcome::Cancelled).into())
    }

    async fn read_text_file(
        &self,
        _: &HostContext,
        request: ReadTextFileRequest,
    ) -> HostResult<ReadTextFileResponse> {
        let text = tokio::fs::read_to_string(&request.path).await;
        text.map(ReadTextFileResponse::new).map_err(|error| Error::resource_not_found(error.to_string()))
    }

    async fn write_text_file(
        &self,
        _: &HostContext,
        request: WriteTextFileRequest,
    ) -> HostResult<WriteTextFileResponse> {
        let done = tokio::fs::write(&request.path, &request.content).await;
        done.map(|()| WriteTextFileResponse::new()).map_err(|error| Error::internal(error.to_string()))
    }
}

/// One turn that `acpx` drives with our agent: its frames end well, and with the text expected.
fn acpx(paths: &InteropPaths, place: &RunFolder, prompt: &str, expected: &str) -> Result<()> {
    let agent = format!("{} interop-agent", std::env::current_exe()?.display());
    let log = place.home.with_file_name("acpx.jsonl");
    let mut command = std::process::Command::new("acpx");
    command
        .args(["--agent", &agent, "--approve-all", "--format", "json", "--timeout", "30", "--cwd"])
        .arg(&place.project)
        .args(["exec", prompt])
        .env("PATH", &place.path)
        .env("HOME", &place.home)
        .env("INTEROP_SURFACE", std::path::absolute(paths.sources.join("surface.json"))?)
        .env("INTEROP_CWD", &place.project)
        .env("INTEROP_LACKS", "$/cancel_request")
        .env("INTEROP_AGENT_REPORT", place.home.with_file_name("agent.jsonl"))
        .stdout(File::create(&log)?)
        .stderr(File::create(place.home.with_file_name("stderr.log"))?);
    finish(&mut command, Duration::from_secs(60))?;
    let (mut stopped, mut text) = (false, String::new());
    for line in fs::read_to_string(log)?.lines() {
        let frame: Value = serde_json::from_str(line).unwrap_or_default();
        let update = &frame["params"]["update"];
        if update["sessionUpdate"] == "agent_message_chunk" {
            text += update["content"]["text"].as_str().unwrap_or_default();
        }
        stopped |= frame["result"]["stopReason"] == "end_turn";
    }
    if stopped && text.ends_with(expected) { Ok(()) } else { Err(format!("it ended with {text:?}").into()) }
}
