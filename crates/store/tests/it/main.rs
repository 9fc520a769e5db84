//! Tests of logs and of the index through the public interface.

mod contract;
mod damage;
#[cfg(unix)]
mod file_logs;
mod full_disk;
mod index;
mod kills;
mod model;
mod power_cut;
mod support;
