//! `duologue peer dialogue`.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use duologue_client::exchange::dialogue::{Algorithm, Dialogues, Key, Keys, PublishedKey};
use duologue_http::SecretText;
use duologue_schema::dialogue::{DialogueContent, MessageType};
use serde::Deserialize;

use crate::commands::peer::MetaArgs;
use crate::commands::{EnvelopeArgs, block_on};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::files::in_file;
use crate::run::envelope_command::{self, PeerScheme, parse_duration};

/// The types of a message that opens a dialogue.
const TYPES: [&str; 4] = ["request", "query", "propose", "inform"];

/// Open a dialogue with a message and print the answers
///
/// The agent has to advertise dialogues. The message is sent in a new session, signed with a key of the
/// file. Without a file, messages of both sides are unsigned.
#[derive(clap::Args)]
pub(crate) struct DialogueArgs {
    /// The type of the message
    #[arg(value_name = "TYPE", value_parser = TYPES)]
    message_type: String,
    /// The content: a JSON object, or else a text
    content: String,
    /// The name of this agent
    #[arg(long, value_name = "URI", default_value = "agent://duologue.local")]
    from: String,
    /// The name of the other agent
    #[arg(long, value_name = "URI")]
    to: String,
    /// The keys: a JSON array of objects with `id`, `owner`, `secret` and, for a key of one pair of agents, `peer`; `not_before`
    /// and `not_after` limit its validity
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
    /// Wait so long for each answer, such as 2m
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    wait: Duration,
    /// End after so many answers
    #[arg(long, value_name = "N", default_value_t = 1)]
    answers: u32,
    #[command(flatten)]
    meta: MetaArgs,
    #[command(flatten)]
    envelope: EnvelopeArgs,
}

/// A key in a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyRow {
    id: String,
    owner: String,
    secret: SecretText,
    peer: Option<String>,
    /// The limits of its validity, such as `2027-01-31T00:00:00Z`.
    not_before: Option<String>,
    not_after: Option<String>,
}

impl KeyRow {
    fn published(&self) -> PublishedKey {
        let mut published = PublishedKey::new(&self.id, Algorithm::Hs256.as_str());
        published.not_before.clone_from(&self.not_before);
        published.not_after.clone_from(&self.not_after);
        published
    }
}

pub(crate) fn run(args: DialogueArgs) -> Result<Exit> {
    let usage = |error: &dyn std::fmt::Display| Error::Usage(error.to_string());
    let dialogues = Dialogues::new(&args.from).map_err(|error| Error::Usage(format!("--from: {error}")))?;
    let dialogues = match &args.keys {
        Some(file) => dialogues.keys(keys(file)?),
        None => dialogues.accept_unsigned(true),
    };
    let content = match args.content.starts_with('{') {
        true => serde_json::from_str(&args.content).map_err(|error| usage(&error))?,
        false => DialogueContent::from(args.content.as_str()),
    };
    let message_type: MessageType =
        serde_json::from_value(args.message_type.as_str().into()).map_err(|error| usage(&error))?;
    block_on(envelope_command::run_with(
        &args.envelope,
        PeerScheme::Dialogue(dialogues.into()),
        async |command| {
            let dialogue = command.in_session().await?.dialogue(&args.to).map_err(Error::from)?;
            let mut message = dialogue.send(message_type.clone(), content.clone());
            if let Some(meta) = args.meta.meta() {
                message = message.meta(meta);
            }
            command.converse(&dialogue, message, args.answers, args.wait).await?;
            Ok(Exit::Ok)
        },
    ))
}

fn keys(file: &Path) -> Result<Keys> {
    let wrong = |error: &dyn std::fmt::Display| wrong(file, error);
    let keys = Keys::new();
    for row in rows(file)? {
        let (not_before, not_after) = validity(file, &row)?;
        let mut key = Key::new(row.id, row.owner, row.secret.as_str()).map_err(|error| wrong(&error))?;
        if let Some(peer) = row.peer {
            key = key.with(peer).map_err(|error| wrong(&error))?;
        }
        key = not_before.into_iter().fold(key, Key::not_before);
        key = not_after.into_iter().fold(key, Key::not_after);
        keys.insert(key).map_err(|error| wrong(&error))?;
    }
    Ok(keys)
}

/// Returns the keys of an owner in a file, without their secrets.
#[cfg(feature = "serve")]
pub(crate) fn published_keys(file: &Path, owner: &str) -> Result<Vec<PublishedKey>> {
    let rows = rows(file)?.into_iter().filter(|row| row.owner == owner);
    rows.map(|row| validity(file, &row).map(|_| row.published())).collect()
}

fn rows(file: &Path) -> Result<Vec<KeyRow>> {
    let text = std::fs::read_to_string(file).map_err(in_file(file.display()))?;
    serde_json::from_str(&text).map_err(|error| wrong(file, &error))
}

/// Returns start and end of the validity of a key.
fn validity(file: &Path, row: &KeyRow) -> Result<(Option<SystemTime>, Option<SystemTime>)> {
    row.published().validity().ok_or_else(|| {
        let why = format!(
            "`not_before` and `not_after` of the key {:?} are times, such as `2027-01-31T00:00:00Z`",
            row.id
        );
        wrong(file, &why)
    })
}

fn wrong(file: &Path, error: &dyn std::fmt::Display) -> Error {
    Error::Usage(format!("{}: {error}", file.display()))
}
