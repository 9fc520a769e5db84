//! Faults that were found by reading and are fixed: one small test each, named after what is right.

#[path = "regressions/agent.rs"]
mod agent;
#[path = "regressions/client.rs"]
mod client;
#[path = "regressions/loads.rs"]
mod loads;
#[path = "regressions/sessions.rs"]
mod sessions;
mod support;
#[path = "regressions/wire.rs"]
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
