//! Doors for the targets in `fuzz/`; no other build has them.

use std::sync::Arc;
use std::time::SystemTime;

use duologue_schema::Json;
use duologue_schema::dialogue::AgentUri;

use super::canonical::{self, CanonicalError};
use super::verify::Verifier;
use super::{Key, Keys};

/// The canonical form of any JSON.
pub fn canonical(json: &str) -> Result<String, CanonicalError> {
    canonical::canonical(json)
}

/// Whether `own`, who has seen nothing yet and knows the sender's key, takes a message at that time.
pub fn is_taken(own: &AgentUri, key: Key, message: &Json, now: SystemTime) -> bool {
    let keys = Keys::new();
    let verifier = Verifier::new(own.clone()).since(SystemTime::UNIX_EPOCH);
    keys.insert(key).is_ok() && verifier.keys(Arc::new(keys)).verify(message, 0, now).is_ok()
}
