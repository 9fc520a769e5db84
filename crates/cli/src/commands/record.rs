//! `duologue record`.

use std::path::PathBuf;
use std::sync::Arc;

use duologue_client::AgentProcess;
use duologue_proxy::RelayActivity;
use duologue_rpc::Stdio;
use duologue_transcript::{Side, forward, forward_stderr};

use crate::commands::AgentArgs;
use crate::error::Result;
use crate::exit::Exit;
use crate::recording::{self, RunningRecording, SecretArgs};
use crate::relay::{self, Relay};
use crate::runtime;
use crate::signals::Signals;

const EXAMPLES: &str = "\
Examples:
  duologue record -o talk.jsonl -- my-agent --acp
  duologue run \"hello\" -- duologue record -o hello.jsonl -- duologue mock
In an editor's configuration of an agent: the command `duologue` with the arguments
  record -o /home/me/talk.jsonl -- my-agent --acp";

/// Record the conversation between a client and an agent
///
/// Put it in front of the agent's command in the client's configuration. No byte of the conversation is changed,
/// and everything that reached the other side is in the file.
///
/// The end of the client's input is passed on. An agent that does not end may continue while it owes a response or
/// sends something, and then gets a SIGTERM. It is not waited for once nothing reads its output. SIGHUP, SIGINT and
/// SIGTERM end it at once; a second one kills it.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RecordArgs {
    /// The recording to write; if `talk.jsonl` exists, `talk-2.jsonl` and so on, so that an editor can
    /// start the command again
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Replace FILE if it exists. A pipe needs a reader
    #[arg(long)]
    force: bool,
    /// Drop lines instead of delaying the conversation when the disk is slow
    #[arg(long)]
    lossy: bool,
    #[command(flatten)]
    secrets: SecretArgs,
    #[command(flatten)]
    agent: AgentArgs,
}

pub(crate) fn run(args: RecordArgs) -> Result<Exit> {
    let runtime = runtime::current_thread()?;
    let exit = runtime.block_on(record(&args));
    // A blocked read of a terminal is not waited for.
    runtime.shutdown_background();
    exit
}

async fn record(args: &RecordArgs) -> Result<Exit> {
    let command = args.agent.required()?;
    // Checked first, so that an unwritable file is an error too.
    let signals = Signals::listen()?;
    let recorder = || {
        let recorder = args.secrets.recorder().program(args.agent.words());
        if args.lossy { recorder.lossy() } else { recorder }
    };
    let (recorder, path) = recording::create_or_number(recorder, &args.output, args.force)?;
    let (process, pipes) = match AgentProcess::start(command) {
        Ok(started) => started,
        Err(error) => {
            recording::remove(recorder, &path).await;
            return Err(error.into());
        }
    };
    let stdio = Stdio::take()?;
    let (from_client, to_client) = stdio.transport.into_split();
    let recording = RunningRecording::new(recorder.clone());
    let activity = Arc::new(RelayActivity::default());
    let from_client = activity.observe(Side::Client, from_client);
    let from_agent = activity.observe(Side::Agent, pipes.stdout);
    let [client_recorder, agent_recorder, stderr_recorder] = [(); 3].map(|()| recorder.clone());
    let relay = Relay {
        to_agent: async move { forward(Side::Client, from_client, pipes.stdin, &client_recorder).await },
        to_client: async move { forward(Side::Agent, from_agent, to_client, &agent_recorder).await },
        stderr: async move { forward_stderr(pipes.stderr, tokio::io::stderr(), &stderr_recorder).await },
        broken: std::future::pending(),
        activity,
        output: stdio.output,
        signals,
    };
    drop(recorder);
    let status = relay.run(process).await;
    Ok(relay::outcome(status, recording.finish(status).await))
}
