//! Recording: a tap on either SDK, and a proxy for programs we do not own.

mod file;
mod line_splitter;
mod proxy;
mod queue;
mod recorder;
mod tap;
mod writer;

pub use proxy::{forward, forward_stderr, proxy};
pub use recorder::{Recorder, RecorderBuilder};
