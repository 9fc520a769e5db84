//! The suite for servers of the remote transports, with our server and servers with one fault each.

mod faulty_server;
mod suite;
