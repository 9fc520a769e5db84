//! The keys of two agents that talk to each other: one for each direction, since every owner of a key can sign
//! with it.
//!
//! Here who starts an agent makes both anew and leaves them in its environment, where other users of the machine
//! do not see them (arguments they do), and where they are in no transcript. Between owners who do not trust each
//! other a key comes from a vault or a key service of theirs, is handed over before the first message, outlives a
//! run, and is replaced in time: `Keys` holds several of an owner, and a `KeyStore` of one's own can ask
//! elsewhere.

use std::path::Path;
use std::sync::Arc;

use duologue_client::exchange::dialogue::{Key, KeyError, Keys, SECRET_BYTES};
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::tasks::{BUYER, CAR_DETAILS, SELLER};

/// The variable that an agent finds its keys in.
pub(crate) const VARIABLE: &str = "CAR_PURCHASE_KEYS";

/// The agent that starts the other, and the started one.
pub(crate) type Pair = [&'static str; 2];

/// A secret for each of the two, in that order.
type Secrets = [[u8; SECRET_BYTES]; 2];

/// New keys, and the text for the environment of the one who is started.
pub(crate) fn new(pair: Pair) -> Result<(Arc<Keys>, String)> {
    let mut secrets = Secrets::default();
    for secret in &mut secrets {
        getrandom::fill(secret)?;
    }
    Ok((keys(pair, secrets)?, serde_json::to_string(&secrets)?))
}

/// The keys that the one who started us left for us.
pub(crate) fn inherited(pair: Pair) -> Result<Arc<Keys>> {
    let text = std::env::var(VARIABLE).map_err(|_| format!("there are no keys in {VARIABLE}"))?;
    let secrets = serde_json::from_str(&text).map_err(|_| format!("what {VARIABLE} holds are no keys"))?;
    Ok(keys(pair, secrets)?)
}

fn keys(pair: Pair, secrets: Secrets) -> Result<Arc<Keys>, KeyError> {
    let keys = Keys::new();
    let [starter, started] = pair;
    for (owner, peer, secret) in [(starter, started, secrets[0]), (started, starter, secrets[1])] {
        keys.insert(Key::new(format!("{owner} to {peer}"), owner, secret)?.with(peer)?)?;
    }
    Ok(Arc::new(keys))
}

/// A key in a file, in the format of `duologue attach --keys` and `duologue peer dialogue --keys`.
#[derive(Serialize, Deserialize)]
struct KeyRow {
    id: String,
    owner: String,
    peer: String,
    secret: String,
}

/// Prints new keys for the three agents.
pub(crate) fn print() -> Result {
    let mut rows = Vec::new();
    for (owner, peer) in [(BUYER, SELLER), (SELLER, BUYER), (SELLER, CAR_DETAILS), (CAR_DETAILS, SELLER)] {
        let mut secret = [0; SECRET_BYTES];
        getrandom::fill(&mut secret)?;
        let secret = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        rows.push(KeyRow {
            id: format!("{owner} to {peer}"),
            owner: owner.into(),
            peer: peer.into(),
            secret,
        });
    }
    println!("{}", serde_json::to_string_pretty(&rows)?);
    Ok(())
}

/// Returns the keys of a file with which `own` signs, and those that others sign with to it.
pub(crate) fn of_file(file: &Path, own: &str) -> Result<Keys> {
    let rows: Vec<KeyRow> = serde_json::from_slice(&std::fs::read(file)?)?;
    let keys = Keys::new();
    for row in rows.into_iter().filter(|row| row.owner == own || row.peer == own) {
        keys.insert(Key::new(row.id, row.owner, row.secret)?.with(row.peer)?)?;
    }
    Ok(keys)
}
