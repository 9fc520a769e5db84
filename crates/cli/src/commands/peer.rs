//! `duologue peer`: the commands that send messages as another agent would.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use duologue_schema::{Attachment, Json, Meta, TraceContext};

use crate::commands::{cancel, delegate, dialogue, discover, notify, ping, query, status, subscribe, work};
use crate::error::Result;
use crate::exit::Exit;
use crate::files::in_file;
use crate::run::envelope_command::json_or_text;

/// Send messages to an agent, as another agent would
///
/// The agent has to advertise the scheme of the message: envelopes, dialogues or work orders. It gets no
/// files, no programs and no permission.
///
/// Each command is a connection of its own. Most agents remember the ids of messages, tasks and orders for one
/// connection, so they perform a task again that another command sends with the same --id.
#[derive(clap::Args)]
pub(crate) struct PeerArgs {
    #[command(subcommand)]
    command: PeerCommand,
}

#[derive(Subcommand)]
enum PeerCommand {
    #[command(after_help = "Examples:\n  duologue peer ping -- my-agent")]
    Ping(ping::PingArgs),
    #[command(after_help = "Examples:\n  duologue peer discover --json -- my-agent")]
    Discover(discover::DiscoverArgs),
    #[command(
        after_help = "Examples:\n  duologue peer query \"Who is on call?\" --file rota.csv -- my-agent"
    )]
    Query(query::QueryArgs),
    #[command(
        after_help = "Examples:\n  duologue peer delegate \"Tidy up\" --priority high --deadline 10m -- my-agent"
    )]
    Delegate(delegate::DelegateArgs),
    #[command(after_help = "Examples:\n  duologue peer status job-17 -- my-agent")]
    Status(status::StatusArgs),
    #[command(
        after_help = "Examples:\n  duologue peer cancel job-17 --reason \"No longer needed\" -- my-agent"
    )]
    Cancel(cancel::CancelArgs),
    #[command(after_help = "Examples:\n  duologue peer notify work.build '{\"failed\": 2}' -- my-agent")]
    Notify(notify::NotifyArgs),
    #[command(after_help = "Examples:\n  duologue peer subscribe 'work.*' --count 1 -- my-agent")]
    Subscribe(subscribe::SubscribeArgs),
    #[command(after_help = "\
Examples:
  duologue peer dialogue request \"Is anybody there?\" --to agent://duologue.dev/mock
  duologue peer dialogue propose \"12,000 euros\" --to agent://cars.example/seller --keys keys.json -- my-agent")]
    Dialogue(dialogue::DialogueArgs),
    #[command(after_help = "Examples:\n  duologue peer work order.json --apply . -- my-agent")]
    Work(work::WorkArgs),
}

pub(crate) fn run(args: PeerArgs) -> Result<Exit> {
    match args.command {
        PeerCommand::Ping(args) => ping::run(args),
        PeerCommand::Discover(args) => discover::run(args),
        PeerCommand::Query(args) => query::run(args),
        PeerCommand::Delegate(args) => delegate::run(args),
        PeerCommand::Status(args) => status::run(args),
        PeerCommand::Cancel(args) => cancel::run(args),
        PeerCommand::Notify(args) => notify::run(args),
        PeerCommand::Subscribe(args) => subscribe::run(args),
        PeerCommand::Dialogue(args) => dialogue::run(args),
        PeerCommand::Work(args) => work::run(args),
    }
}

/// The `_meta` of a message.
#[derive(clap::Args)]
pub(crate) struct MetaArgs {
    /// Set a member of the `_meta` beside the message: JSON, or else a text
    #[arg(long, value_name = "KEY=JSON", value_parser = member)]
    meta: Vec<(String, Json)>,
    /// Continue a trace: a W3C `traceparent` such as 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
    #[arg(long, value_name = "TRACEPARENT", value_parser = trace)]
    trace: Option<TraceContext>,
}

impl MetaArgs {
    /// Returns the `_meta`, if an option sets some.
    pub(crate) fn meta(&self) -> Option<Meta> {
        let meta = Meta::from_iter(self.meta.iter().cloned());
        let meta = match &self.trace {
            Some(trace) => meta.with_trace_context(trace),
            None => meta,
        };
        (!meta.is_empty()).then_some(meta)
    }
}

fn member(text: &str) -> std::result::Result<(String, Json), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => {
            Ok((key.into(), json_or_text(value).map_err(|error| error.to_string())?))
        }
        _ => Err("it takes KEY=JSON".into()),
    }
}

fn trace(text: &str) -> std::result::Result<TraceContext, String> {
    TraceContext::new(text).ok_or_else(|| "it is no W3C traceparent".into())
}

/// Reads the files that a message carries.
pub(crate) fn attachments(files: &[PathBuf]) -> Result<Vec<Attachment>> {
    files.iter().map(|file| attachment(file)).collect()
}

fn attachment(file: &Path) -> Result<Attachment> {
    let bytes = std::fs::read(file).map_err(in_file(file.display()))?;
    let extension = file.extension().unwrap_or_default().to_string_lossy().to_lowercase();
    let known = match extension.as_str() {
        "png" => Some("image/png"),
        "jpg" | "jpeg" => Some("image/jpeg"),
        "gif" => Some("image/gif"),
        "webp" => Some("image/webp"),
        "wav" => Some("audio/wav"),
        "mp3" => Some("audio/mpeg"),
        "pdf" => Some("application/pdf"),
        "json" => Some("application/json"),
        "md" => Some("text/markdown"),
        "csv" => Some("text/csv"),
        "html" => Some("text/html"),
        _ => None,
    };
    let attachment = match String::from_utf8(bytes) {
        Ok(text) => Attachment::with_text(known.unwrap_or("text/plain"), text),
        Err(error) => Attachment::with_bytes(known.unwrap_or("application/octet-stream"), error.as_bytes()),
    };
    Ok(attachment.name(file.file_name().unwrap_or_default().to_string_lossy()))
}
