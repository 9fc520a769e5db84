//! Dialogue messages: signed, in order, with moves that are checked.

mod allow;
mod canonical;
mod keys;
mod refusal;
mod seen;
mod signature;
mod verify;

pub use allow::{Allow, AllowList};
pub use canonical::{CanonicalFault, MAX_DEPTH, MAX_INTEGER, canonical};
pub use keys::{Algorithm, Key, KeyFault, KeyStore, Keys, SECRET_BYTES};
pub use refusal::Refusal;
pub use signature::{SIGNATURE_TYPE, SignFault, sign};
pub use verify::{Verdict, Verified, Verifier};
