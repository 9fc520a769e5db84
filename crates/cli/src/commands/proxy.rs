//! `duologue proxy`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use duologue_client::AgentProcess;
use duologue_proxy::{
    PathMap, PermissionPolicy, PermissionRule, Proxy, RecordStage, RedactStage, RelayActivity, Side,
    SystemPromptStage, Transport, copy_to_end,
};
use duologue_rpc::{Lock as _, Stdio};
use duologue_schema::ToolKind;
use duologue_transcript::{Recorder, forward_stderr};
use tokio::sync::Notify;

use crate::commands::AgentArgs;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::recording::{self, RunningRecording, SecretArgs};
use crate::relay::{self, Relay};
use crate::signals::Signals;
use crate::{files, runtime};

const EXAMPLES: &str = "\
Examples:
  duologue proxy --use record=talk.jsonl --use redact -- my-agent --acp
  duologue proxy --use permissions=deny:execute,allow:read -- my-agent
  duologue proxy --use path-map=/home/me/project=/workspace -- docker exec -i box my-agent
  duologue proxy --use system-prompt=house-rules.md -- my-agent
  duologue run permission -- duologue proxy --use 'permissions=deny:*' -- duologue mock";

/// Run an agent behind stages that record, redact, decide or change messages
///
/// Put it in front of the agent's command in the client's configuration. The order of --use is the order of the stages
/// from the client to the agent. Without --use everything passes unchanged. It ends as `duologue record` does.
///
/// record=FILE: write the messages at this place into a new file, as `duologue record` does.
///
/// redact: remove keys and tokens from what the user of the client reads. Files keep them.
///
/// permissions=RULE:KIND,…: answer permission requests. RULE is allow, deny or ask. KIND is the kind of the tool (read,
/// edit, delete, move, search, execute, think, fetch, switch_mode, other), or * for all others. The default is ask. The kind is
/// a claim of the agent, so this is not a sandbox.
///
/// path-map=CLIENT=AGENT: replace a folder of the client by one of the agent in paths and file links, and back. Maps that
/// follow each other are one stage.
///
/// system-prompt=FILE: add the text of a file to the instructions of each session, or to its first prompt if the agent does
/// not support instructions. The client does not show this text as a part of the prompt.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ProxyArgs {
    /// Add a stage: record=FILE, redact, permissions=RULE:KIND,…, path-map=CLIENT=AGENT or system-prompt=FILE
    #[arg(long = "use", value_name = "STAGE", value_parser = stage)]
    stages: Vec<StageArg>,
    /// Reject requests with a path outside of the folders of path-map, or a relative one
    #[arg(long)]
    strict_paths: bool,
    /// Replace the files of record if they exist
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    secrets: SecretArgs,
    #[command(flatten)]
    agent: AgentArgs,
}

/// A value of `--use`.
#[derive(Clone, Debug)]
enum StageArg {
    Record(PathBuf),
    Redact,
    Permissions(Vec<(PermissionRule, String)>),
    PathMap(String, String),
    SystemPrompt(PathBuf),
}

fn stage(text: &str) -> Result<StageArg, String> {
    let (name, value) = text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)));
    let needed = |form: &str| match value {
        Some(value) if !value.is_empty() => Ok(value),
        _ => Err(format!("{name} needs a value: {name}={form}")),
    };
    match name {
        "record" => Ok(StageArg::Record(needed("FILE")?.into())),
        "redact" if value.is_none() => Ok(StageArg::Redact),
        "redact" => Err("redact has no value".into()),
        "permissions" => {
            let rules = needed("deny:execute")?.split(',').map(permission_rule);
            Ok(StageArg::Permissions(rules.collect::<Result<_, _>>()?))
        }
        "path-map" => {
            let (client, agent) = files::folder_pair(needed("CLIENT=AGENT")?, "path-map=CLIENT=AGENT")?;
            Ok(StageArg::PathMap(client, agent))
        }
        "system-prompt" => Ok(StageArg::SystemPrompt(needed("FILE")?.into())),
        _ => Err("the stages are record, redact, permissions, path-map and system-prompt".into()),
    }
}

fn permission_rule(text: &str) -> Result<(PermissionRule, String), String> {
    let (rule, kind) =
        text.split_once(':').ok_or_else(|| format!("{text} is not a rule like deny:execute"))?;
    let rule = match rule {
        "allow" => PermissionRule::Allow,
        "ask" => PermissionRule::Ask,
        "deny" => PermissionRule::Deny,
        _ => return Err(format!("{rule} is not a rule: allow, ask or deny")),
    };
    let is_known = kind == "*"
        || kind.starts_with('_')
        || !matches!(serde_json::from_value(kind.into()), Err(_) | Ok(ToolKind::Unknown(_)));
    if is_known {
        Ok((rule, kind.into()))
    } else {
        Err(format!("{kind} is not a kind of tool; `duologue proxy --help` lists them"))
    }
}

pub(crate) fn run(args: ProxyArgs) -> Result<Exit> {
    let runtime = runtime::current_thread()?;
    let exit = runtime.block_on(proxy(&args));
    // A blocked read of a terminal is not waited for.
    runtime.shutdown_background();
    exit
}

async fn proxy(args: &ProxyArgs) -> Result<Exit> {
    let command = args.agent.required()?;
    // Checked first, so that an unwritable file is an error too.
    let signals = Signals::listen()?;
    let mut recorders = Vec::new();
    let started = args.stages(&mut recorders).and_then(|stages| Ok((stages, AgentProcess::start(command)?)));
    let (stages, (process, pipes)) = match started {
        Ok(started) => started,
        Err(error) => {
            for (recorder, path) in recorders {
                recording::remove(recorder, &path).await;
            }
            return Err(error);
        }
    };
    let stdio = Stdio::take()?;
    let (from_client, to_client) = stdio.transport.into_split();
    let agent = Transport::new(pipes.stdout, pipes.stdin);
    // On other systems a thread writes to the pipe.
    let agent = if cfg!(unix) { agent.writes_at_once() } else { agent };
    let (from_agent, to_agent) = stages.to_agent(agent).into_split();
    let activity = Arc::new(RelayActivity::default());
    let from_client = activity.observe(Side::Client, from_client);
    let from_agent = activity.observe(Side::Agent, from_agent);
    let stderr_recorder = recorders.first().map(|(recorder, _)| recorder.clone());
    let mut stderr = pipes.stderr;
    let fault = Arc::new(Fault::default());
    let faults = [fault.clone(), fault.clone()];
    let [agent_fault, client_fault] = faults;
    let recordings: Vec<_> =
        recorders.into_iter().map(|(recorder, _)| RunningRecording::new(recorder)).collect();
    let relay = Relay {
        to_agent: async move { agent_fault.note(copy_to_end(from_client, to_agent).await) },
        to_client: async move { client_fault.note(copy_to_end(from_agent, to_client).await) },
        stderr: async move {
            match stderr_recorder {
                Some(recorder) => forward_stderr(stderr, tokio::io::stderr(), &recorder).await,
                None => tokio::io::copy(&mut stderr, &mut tokio::io::stderr()).await.map(drop),
            }
        },
        broken: fault.clone().noted(),
        activity,
        output: stdio.output,
        signals,
    };
    let status = relay.run(process).await;
    let mut is_recorded = true;
    for recording in recordings {
        is_recorded &= recording.finish(status).await;
    }
    match fault.take() {
        Some(fault) => Err(Error::Start(fault)),
        None => Ok(relay::outcome(status, is_recorded)),
    }
}

impl ProxyArgs {
    /// Creates the chain, and adds its recorders, each with the path of its file.
    fn stages(&self, recorders: &mut Vec<(Recorder, PathBuf)>) -> Result<Proxy> {
        let (mut proxy, mut paths) = (Proxy::new(), PathMap::new());
        // Read before a file is created.
        let texts = self.stages.iter().map(|stage| match stage {
            StageArg::SystemPrompt(path) => read_text(path).map(Some),
            _ => Ok(None),
        });
        let texts: Vec<Option<String>> = texts.collect::<Result<_>>()?;
        for (stage, text) in self.stages.iter().zip(texts) {
            if !matches!(stage, StageArg::PathMap(..)) && !paths.is_empty() {
                proxy = proxy.stage(std::mem::take(&mut paths));
            }
            proxy = match stage {
                StageArg::Record(path) => {
                    let recorder = || self.secrets.recorder().program(self.agent.words());
                    let created = recording::create_or_number(recorder, path, self.force)?;
                    let record = RecordStage::new(created.0.clone());
                    recorders.push(created);
                    proxy.stage(record)
                }
                StageArg::Redact => proxy.stage(RedactStage::new()),
                StageArg::Permissions(rules) => {
                    proxy.stage(rules.iter().fold(PermissionPolicy::new(), |policy, (rule, kind)| {
                        match kind.as_str() {
                            "*" => policy.otherwise(*rule),
                            kind => policy.rule(kind, *rule),
                        }
                    }))
                }
                StageArg::PathMap(client, agent) => {
                    paths = paths.map(client, agent);
                    if self.strict_paths {
                        paths = paths.strict();
                    }
                    proxy
                }
                StageArg::SystemPrompt(_) => proxy.stage(SystemPromptStage::new(text.unwrap_or_default())),
            };
        }
        if !paths.is_empty() {
            proxy = proxy.stage(paths);
        }
        Ok(proxy)
    }
}

fn read_text(path: &Path) -> Result<String> {
    Ok(std::fs::read_to_string(path).map_err(files::in_file(path.display()))?)
}

/// The reason for which the connection cannot go on, such as a line that is too long.
#[derive(Default)]
struct Fault {
    text: Mutex<Option<String>>,
    noted: Notify,
}

impl Fault {
    /// Keeps an error that is not the end of a pipe.
    fn note(&self, forwarded: io::Result<()>) -> io::Result<()> {
        if let Err(error) = &forwarded
            && error.kind() == io::ErrorKind::InvalidData
        {
            self.text.lock_unpoisoned().get_or_insert_with(|| error.to_string());
            self.noted.notify_one();
        }
        forwarded
    }

    async fn noted(self: Arc<Self>) {
        self.noted.notified().await;
    }

    fn take(&self) -> Option<String> {
        self.text.lock_unpoisoned().take()
    }
}
