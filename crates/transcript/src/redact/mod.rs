//! Taking out of a transcript what must not be in it, or differs from one run to the next.

pub(crate) mod folders;
mod lines;
mod names;
pub(crate) mod placeholders;
mod redaction;
mod redactor;
pub(crate) mod scan;
mod secrets;
mod shapes;
mod streams;
mod whole;

pub(crate) use lines::Lines as SecretLines;
pub use redaction::Redaction;
pub use redactor::Redactor;
pub use secrets::Secrets;
