//! Tests over real sockets on the loopback interface.

mod cuts;
mod http_rules;
mod sdk;
mod setup;
mod socket_rules;
