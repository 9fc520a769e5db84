//! Tests over real sockets on the loopback interface.

mod cuts;
mod event_scripts;
mod events;
mod http_rules;
mod local_socket;
mod refusals;
mod sdk;
mod setup;
mod socket_rules;
#[cfg(feature = "tls")]
mod tls;
