//! Entry points for the targets in `fuzz/`, compiled only for fuzzing.

use std::sync::Arc;
use std::time::SystemTime;

use duologue_schema::Json;
use duologue_schema::dialogue::AgentUri;

use super::canonical::{self, CanonicalError};
use super::verify::Verifier;
use super::{Key, Keys};

/// Returns the canonical form of any JSON.
pub fn canonical(json: &str) -> Result<String, CanonicalError> {
    canonical::canonical(json)
}

/// Returns true if `own`, with an empty replay cache and the sender's key, accepts a message at
/// that time.
pub fn is_taken(own: &AgentUri, key: Key, message: &Json, now: SystemTime) -> bool {
    let keys = Keys::new();
    let verifier = Verifier::new(own.clone()).since(SystemTime::UNIX_EPOCH);
    keys.insert(key).is_ok() && verifier.keys(Arc::new(keys)).verify(message, 0, now).is_ok()
}
