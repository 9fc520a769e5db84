//! Taking out of a transcript what must not be in it, or differs from one run to the next.

pub(crate) mod scan;
mod secrets;
mod shapes;

pub use secrets::Secrets;
