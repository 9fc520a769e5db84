//! Tests of logs, of the index and of the store through the public interface.

mod contract;
mod damage;
#[cfg(unix)]
mod file_logs;
mod full_disk;
mod index;
mod kills;
#[cfg(unix)]
mod lives;
mod model;
mod power_cut;
#[cfg(unix)]
mod root;
mod store_contract;
#[cfg(unix)]
mod store_file;
mod store_full_disk;
mod store_kills;
mod store_model;
mod support;
