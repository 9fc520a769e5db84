//! Redaction of secrets and of values that differ from run to run.

mod chunk_secrets;
pub(crate) mod folders;
pub(crate) mod json_scan;
mod match_starts;
mod placeholder_ids;
pub(crate) mod placeholders;
mod plain_text;
mod redaction;
mod redactor;
mod secret_patterns;
mod secrets;
mod split_text;
mod stream_secrets;
mod streamed_text;
mod text_key;
mod whole_transcript;

pub use redaction::Redaction;
pub use redactor::Redactor;
pub use secrets::Secrets;
pub use stream_secrets::StreamSecrets;
