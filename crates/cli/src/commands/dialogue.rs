//! `duologue peer dialogue`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use duologue_client::exchange::dialogue::{Dialogues, Key, KeyError, Keys, PublishedKey};
use duologue_http::SecretText;
use duologue_schema::dialogue::{DialogueContent, MessageType};
use serde::Deserialize;

use crate::commands::peer::MetaArgs;
use crate::commands::{EnvelopeArgs, block_on};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::files::in_file;
use crate::run::envelope_command::{self, PeerScheme, parse_duration};
use crate::state_folder::open_secret;

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
    /// The address of this agent in dialogues
    #[arg(long, value_name = "URI", default_value = "agent://duologue.local")]
    from: String,
    /// The address of the other agent in dialogues, which is `agent://duologue.dev/mock` for the built-in one
    #[arg(long, value_name = "URI")]
    to: String,
    /// The keys: a JSON array of objects with `id`, `owner` and `secret`, or for Ed25519 in its place `private_key` or
    /// `public_key` in base64; `peer` limits a key to one recipient, `not_before` and `not_after` limit its validity
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
    /// The secret of HMAC.
    secret: Option<SecretText>,
    /// The private key of Ed25519 in base64.
    private_key: Option<SecretText>,
    /// The public key of Ed25519 in base64.
    public_key: Option<String>,
    peer: Option<String>,
    /// The limits of its validity, such as `2027-01-31T00:00:00Z`.
    not_before: Option<String>,
    not_after: Option<String>,
}

impl KeyRow {
    fn key(self) -> std::result::Result<Key, String> {
        let shown = |error: KeyError| error.to_string();
        let KeyRow { id, owner, secret, private_key, public_key, peer, not_before, not_after } = self;
        let mut limits = PublishedKey::default();
        (limits.not_before, limits.not_after) = (not_before, not_after);
        let (not_before, not_after) = limits.validity().ok_or(KeyError::Validity).map_err(shown)?;
        let decoded = |text: &str, fault| bytes(text).ok_or(fault);
        let key = match (secret, private_key, public_key) {
            (Some(secret), None, None) => Key::new(id, owner, secret.as_str()),
            (None, Some(private), None) => decoded(private.as_str(), KeyError::Private)
                .and_then(|private| Key::ed25519(id, owner, private)),
            (None, None, Some(public)) => {
                decoded(&public, KeyError::Public).and_then(|public| Key::ed25519_public(id, owner, public))
            }
            _ => return Err("use one of `secret`, `private_key` and `public_key`".to_owned()),
        };
        let mut key = key.map_err(shown)?;
        if let Some(peer) = peer {
            key = key.with(peer).map_err(shown)?;
        }
        key = not_before.into_iter().fold(key, Key::not_before);
        Ok(not_after.into_iter().fold(key, Key::not_after))
    }
}

/// Decodes base64 of both alphabets, with or without padding.
fn bytes(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_end_matches('=').replace('+', "-").replace('/', "_");
    URL_SAFE_NO_PAD.decode(text).ok()
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
    let keys = Keys::new();
    for key in keys_of(file)? {
        keys.insert(key).map_err(|error| wrong(file, &error))?;
    }
    Ok(keys)
}

/// Returns the keys of an owner in a file, without secrets and private keys.
#[cfg(feature = "serve")]
pub(crate) fn published_keys(file: &Path, owner: &str) -> Result<Vec<PublishedKey>> {
    let keys = keys_of(file)?;
    Ok(keys.iter().filter(|key| key.owner().as_str() == owner).map(PublishedKey::from).collect())
}

fn keys_of(file: &Path) -> Result<Vec<Key>> {
    let text = std::io::read_to_string(open_secret(file)?).map_err(in_file(file.display()))?;
    let rows: Vec<KeyRow> = serde_json::from_str(&text).map_err(|error| wrong(file, &error))?;
    let key = |row: KeyRow| {
        let id = row.id.clone();
        row.key().map_err(|error| wrong(file, &format!("the key {id:?}: {error}")))
    };
    rows.into_iter().map(key).collect()
}

fn wrong(file: &Path, error: &dyn std::fmt::Display) -> Error {
    Error::Usage(format!("{}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_a_key_of_one_algorithm() {
        let read = |members: &str| {
            let row = format!(r#"{{"id":"k","owner":"agent://a",{members}}}"#);
            serde_json::from_str::<KeyRow>(&row).map_err(|error| error.to_string()).and_then(KeyRow::key)
        };
        // The private key of all ones, in both alphabets.
        let private = read(r#""private_key":"//////////////////////////////////////////8=""#).unwrap();
        let other = read(r#""private_key":"__________________________________________8","peer":"agent://b""#);
        let public = *private.public_key().unwrap();
        assert_eq!(Some(&public), other.unwrap().public_key());
        let shown = PublishedKey::from(&private).public_key.unwrap();
        let read_public =
            read(&format!(r#""public_key":"{shown}","not_after":"2027-01-31T00:00:00Z""#)).unwrap();
        assert_eq!((read_public.public_key(), read_public.may_sign()), (Some(&public), false));
        assert!(read(r#""secret":"0123456789abcdef0123456789abcdef""#).unwrap().public_key().is_none());

        for (members, expected) in [
            (r#""peer":"agent://b""#, "use one of `secret`, `private_key` and `public_key`"),
            (r#""secret":"0123456789abcdef0123456789abcdef","public_key":"AA""#, "use one of"),
            (r#""secret":"short""#, "a key's secret has 32 bytes"),
            (r#""private_key":"AAAA""#, "a private key of Ed25519 has 32 bytes"),
            (r#""private_key":"*""#, "a private key of Ed25519 has 32 bytes"),
            (r#""public_key":"AAAA""#, "a public key of Ed25519 has 32 bytes"),
            (r#""secret":"0123456789abcdef0123456789abcdef","not_after":"tomorrow""#, "are times"),
        ] {
            let error = read(members).unwrap_err();
            assert!(error.contains(expected), "{members}: {error}");
        }
    }
}
