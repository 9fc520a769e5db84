//! Faults that were found by reading and are fixed: one small test each, named after what is right.

mod agent;
mod client;
mod loads;
mod sessions;
mod wire;

/// Makes a test of each function, on a runtime of several threads and with a time limit.
macro_rules! in_time {
    ($($name:ident),* $(,)?) => {$(
        mod $name {
            #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn holds() {
                $crate::support::in_time(super::$name()).await;
            }
        }
    )*};
}
use in_time;
