//! `cargo xtask interop --real`: our client with real agents, at their pipes and behind our server, and `acpx`, a real client,
//! with our agent. A mock model answers; nothing leaves the machine but the installation.

use super::exchange::quiet;
use super::{InteropPaths, Result, finish, install};
use duologue_client::schema::{
    ClientCapabilities, Error, FileSystemCapabilities, PermissionOptionKind, ReadTextFileRequest,
    ReadTextFileResponse, RequestPermissionOutcome, RequestPermissionRequest, RequestPermissionResponse,
    SessionUpdate, StopReason, ToolCallStatus, WriteTextFileRequest, WriteTextFileResponse,
};
use duologue_client::{Client, Command, Exchange, Host, HostContext, HostResult, Session};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A real agent.
struct RealAgent {
    program: &'static str,
    args: &'static [&'static str],
    /// The mode in which it requests permissions, if it is not the first one.
    mode: Option<&'static str>,
    /// The content of the file before its tool writes it, or none if it does not overwrite a file that it has not read.
    before: Option<&'static str>,
    /// True if it has a tool of its own to write files.
    has_write_tool: bool,
}

impl RealAgent {
    const fn new(program: &'static str, args: &'static [&'static str]) -> Self {
        Self { program, args, mode: None, before: Some("old\n"), has_write_tool: true }
    }
}

const AGENTS: [RealAgent; 5] = [
    RealAgent::new("gemini", &["--acp"]),
    RealAgent { before: None, ..RealAgent::new("opencode", &["acp"]) },
    RealAgent { mode: Some("default"), before: None, ..RealAgent::new("qwen", &["--acp"]) },
    RealAgent { mode: Some("default"), before: None, ..RealAgent::new("claude-agent-acp", &[]) },
    RealAgent { mode: Some("read-only"), has_write_tool: false, ..RealAgent::new("codex-acp", &[]) },
];
const WRITTEN: &str = "written by the mock model\n";

/// Runs all of it and prints a line for each.
#[expect(clippy::print_stdout, reason = "this is the program's output")]
pub(super) fn run(paths: &InteropPaths) -> Result<()> {
    let target = std::path::absolute(paths.target.join("real"))?;
    install::npm(&paths.sources.join("real"), &target)?;
    let bin = target.join("node_modules/.bin");
    let duologue = install::duologue()?;
    let model = Model::start(&paths.sources.join("real/model.py"))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut bad = 0;
    for (agent, server) in AGENTS.iter().flat_map(|agent| [(agent, None), (agent, Some(&duologue))]) {
        let behind = if server.is_some() { " behind our server" } else { "" };
        let place = RunFolder::new(paths, &format!("{}{}", agent.program, behind.replace(' ', "-")), &bin)?;
        let turns = drive(&place, agent, server.map(PathBuf::as_path), model.port);
        let outcome = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(180), turns).await });
        match outcome.unwrap_or_else(|_| Err("not done in 180 s".into())) {
            Ok(seen) => println!("our client drives {}{behind}: {seen}", agent.program),
            Err(error) => {
                bad += 1;
                println!("our client drives {}{behind}: FAIL: {error}", agent.program);
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
        "claude-agent-acp" => vec![("ANTHROPIC_API_KEY", key()), ("ANTHROPIC_BASE_URL", host)],
        "codex-acp" => {
            let mock = json!({"name": "mock", "base_url": openai, "wire_api": "responses", "env_key": "OPENAI_API_KEY"});
            let config =
                json!({"model": "mock", "model_provider": "mock", "model_providers": {"mock": mock}});
            vec![
                ("OPENAI_API_KEY", key()),
                ("NO_BROWSER", "1".to_owned()),
                ("CODEX_CONFIG", config.to_string()),
            ]
        }
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

/// The turns with a real agent: it talks, it runs a command, it writes a file, and it is cancelled. With the program of our
/// server, the agent is behind it.
async fn drive(place: &RunFolder, agent: &RealAgent, server: Option<&Path>, port: u16) -> Result<String> {
    let file = place.project.join("out.txt");
    if let Some(content) = agent.before {
        fs::write(&file, content)?;
    }
    let environment = environment(agent.program, port);
    let _server = server.map(|duologue| Server::start(duologue, place, agent, &environment)).transpose()?;
    let command = match server {
        Some(duologue) => Command::new(duologue).arg("connect"),
        None => Command::new(agent.program).args(agent.args),
    };
    let mut command = command.cwd(&place.project).clean_env();
    command = command.env("PATH", &place.path).env("HOME", &place.home).env(STATE, state_folder());
    for (key, value) in environment.iter().filter(|_| server.is_none()) {
        command = command.env(key, value);
    }
    let permissions = Arc::new(AtomicUsize::new(0));
    let host = Editor { permissions: permissions.clone() };
    let connection = Client::new(host).exchange(Exchange::new()).spawn(command).await?;
    let session = connection.new_session(&place.project).await?;
    if server.is_none() {
        quiet::refused(&session.peer_agent()).await?;
    }
    if let Some(mode) = agent.mode {
        session.set_mode(mode).await?;
    }
    let (mut updates, mut calls) = (0, 0);
    let mut prompts = vec!["Say hello".to_owned(), "SHELLTOOL".to_owned()];
    prompts.extend(agent.has_write_tool.then(|| format!("WRITETOOL={}", file.display())));
    for prompt in &prompts {
        let mut turn = session.prompt(prompt.as_str()).await?;
        let (mut text, mut completed) = (String::new(), false);
        while let Some(update) = turn.next().await {
            updates += 1;
            match update? {
                SessionUpdate::ToolCallUpdate(call) => {
                    completed |= call.status == Some(ToolCallStatus::Completed)
                }
                SessionUpdate::ToolCall(call) => completed |= call.status == ToolCallStatus::Completed,
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
    if !place.project.join("interop-ran").exists() {
        return Err("the command of the tool call did not run".into());
    }
    let content = fs::read_to_string(&file)?;
    if agent.has_write_tool && content != WRITTEN {
        return Err(format!("the file holds {content:?}").into());
    }
    let permissions = permissions.load(Ordering::Relaxed);
    if permissions == 0 {
        return Err("the agent requested no permission".into());
    }
    cancel(&session).await?;
    let info = connection.info().map(|info| format!("{} {}", info.name, info.version)).unwrap_or_default();
    connection.close().await;
    let turns = prompts.len();
    Ok(format!(
        "{info}: {turns} turns, {updates} updates, {calls} tool calls, {permissions} permissions, a cancel"
    ))
}

/// A turn that is cancelled at its first text.
async fn cancel(session: &Session) -> Result<()> {
    let mut turn = session.prompt("SLOWLY").await?;
    while let Some(update) = turn.next().await {
        if let SessionUpdate::AgentMessageChunk(_) = update? {
            turn.cancel();
        }
    }
    match turn.outcome().await?.stop_reason {
        StopReason::Cancelled => Ok(()),
        other => Err(format!("the cancelled turn ended {other:?}").into()),
    }
}

/// The variable of the folder with the state of programs.
const STATE: &str = "XDG_STATE_HOME";

/// Returns the folder of the server's socket, whose path has to be short.
fn state_folder() -> PathBuf {
    std::env::temp_dir().join(format!("interop-{}", std::process::id()))
}

/// Our server with a real agent, ended when it is dropped.
struct Server(Child);

impl Server {
    /// Starts it, and waits until it listens.
    fn start(
        duologue: &Path,
        place: &RunFolder,
        agent: &RealAgent,
        environment: &[(&str, String)],
    ) -> Result<Self> {
        let log = place.home.with_file_name("server.log");
        let mut command = std::process::Command::new(duologue);
        command.args(["serve", "--", agent.program]).args(agent.args).current_dir(&place.project);
        command.env_clear().env("PATH", &place.path).env("HOME", &place.home).env(STATE, state_folder());
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        let output = File::create(&log)?;
        let server = Self(command.stdout(output.try_clone()?).stderr(output).spawn()?);
        for _ in 0..500 {
            if fs::read_to_string(&log)?.contains("serving ") {
                return Ok(server);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(format!("the server does not listen: {}", fs::read_to_string(&log)?).into())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::process::Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
        let _ = fs::remove_dir_all(state_folder());
    }
}

/// Serves its files, and allows each permission request once.
struct Editor {
    /// The number of permission requests.
    permissions: Arc<AtomicUsize>,
}

impl Host for Editor {
    fn capabilities(&self) -> ClientCapabilities {
        ClientCapabilities::new().fs(FileSystemCapabilities::new().read_text_file(true).write_text_file(true))
    }

    async fn request_permission(
        &self,
        _: &HostContext,
        request: RequestPermissionRequest,
    ) -> HostResult<RequestPermissionResponse> {
        self.permissions.fetch_add(1, Ordering::Relaxed);
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
