//! Recording, by a tap on an SDK or by a proxy between other programs.

mod file;
mod line_splitter;
mod proxy;
mod queue;
mod recorder;
mod tap;
mod target;
mod writer;

pub use proxy::{StderrWriter, forward, forward_stderr, proxy};
pub use recorder::{Recorder, RecorderBuilder};
