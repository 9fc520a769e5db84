//! Long runs of the command and of its server.

mod agents_pass;
