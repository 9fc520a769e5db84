//! Protocol version 1, the stable one.

pub(crate) mod auth;
pub(crate) mod capabilities;
pub(crate) mod command;
pub(crate) mod compaction;
pub(crate) mod config;
pub(crate) mod content;
pub(crate) mod elicitation;
pub(crate) mod extension;
pub(crate) mod form;
pub(crate) mod fs;
pub(crate) mod initialize;
pub(crate) mod mcp;
pub(crate) mod methods;
pub(crate) mod mode;
pub(crate) mod permission;
pub(crate) mod plan;
pub(crate) mod prompt;
pub(crate) mod session;
pub(crate) mod terminal;
pub(crate) mod tool_call;
pub(crate) mod update;
