//! The script: the steps of a transcript in order, ready to be written.

use std::fmt;
use std::time::Duration;

use duologue_schema::SessionId;
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::{RenderOptions, methods};
use crate::format::{ProcessExit, Side};

/// A transcript in sections of steps.
///
/// It implements `Display` and `Serialize`. Both forms are the same for recordings that differ only
/// in times, in the boundaries of chunks, and in the interleaving of independent sessions and stderr.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Script {
    /// The connection, the sessions in the order of the requests that opened them, stderr, the end.
    /// Empty sections are left out.
    pub sections: Vec<Section>,
    #[serde(skip)]
    pub(super) options: RenderOptions,
}

/// The steps of one subject.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Section {
    /// The subject.
    #[serde(flatten)]
    pub subject: Subject,
    /// The steps in order.
    pub steps: Vec<ScriptStep>,
}

/// The subject of a section.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase", tag = "section", content = "id")]
#[non_exhaustive]
pub enum Subject {
    /// The connection: messages without a session, and lines that are no messages.
    Connection,
    /// A session.
    Session(SessionId),
    /// The agent's stderr.
    Stderr,
    /// The end of the streams and of the process.
    End,
}

/// One step of a script.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ScriptStep {
    /// The time of its first chunk in microseconds, with [`RenderOptions::times`].
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "micros")]
    pub at: Option<Duration>,
    /// The side that wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Side>,
    /// The kind and its fields.
    #[serde(flatten)]
    pub kind: StepKind,
    /// True if a turn ends with it.
    #[serde(skip)]
    pub(super) ends_turn: bool,
}

/// The kinds of steps.
///
/// Messages in the section of a session are without its id. Members that JSON-RPC does not know are
/// in `more`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase", tag = "what")]
#[non_exhaustive]
pub enum StepKind {
    /// A request.
    #[non_exhaustive]
    Request {
        /// The method.
        method: String,
        /// Distinguishes open requests of the same side, method and section. 1 for the first.
        #[serde(skip_serializing_if = "is_one")]
        number: u32,
        /// The params.
        #[serde(skip_serializing_if = "Option::is_none")]
        params: Option<Value>,
        /// True if there is a response.
        answered: bool,
        /// Other members of the line.
        #[serde(skip_serializing_if = "Value::is_null")]
        more: Value,
    },
    /// A notification. Adjacent chunks of one message are one notification.
    #[non_exhaustive]
    Notification {
        /// The method.
        method: String,
        /// The params.
        #[serde(skip_serializing_if = "Option::is_none")]
        params: Option<Value>,
        /// Other members of the line.
        #[serde(skip_serializing_if = "Value::is_null")]
        more: Value,
    },
    /// A response.
    #[non_exhaustive]
    Response {
        /// The method of the request, or an id that matches no request.
        #[serde(flatten)]
        to: ResponseTo,
        /// The result of a success.
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<Value>,
        /// The error of a failure.
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<Value>,
        /// Other members of the line.
        #[serde(skip_serializing_if = "Value::is_null")]
        more: Value,
    },
    /// A line that is not a message.
    #[non_exhaustive]
    Noise {
        /// The line. Bytes that are not UTF-8 are escaped.
        text: String,
        /// The reason for which it is not a message.
        reason: String,
    },
    /// A line on stderr.
    #[non_exhaustive]
    Stderr {
        /// The line.
        text: String,
    },
    /// The end of a side's output.
    Eof,
    /// The end of the agent's process.
    Exit(ProcessExit),
    /// Lines that the recorder left out, see [`RecordEvent::Dropped`](crate::RecordEvent::Dropped).
    #[non_exhaustive]
    Dropped {
        /// Their number.
        lines: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// A record of a later version of the format.
    #[non_exhaustive]
    Unknown {
        /// Its members except the time.
        record: Value,
    },
    /// The recording was cut short.
    Cut,
}

/// The request of a response.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
#[serde(untagged)]
#[non_exhaustive]
pub enum ResponseTo {
    /// A request.
    #[non_exhaustive]
    Request {
        /// Its method.
        method: String,
        /// Its number among the open requests.
        #[serde(skip_serializing_if = "is_one")]
        number: u32,
    },
    /// No known request.
    #[non_exhaustive]
    Nothing {
        /// The id of the response.
        id: Value,
    },
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde wants it")]
fn is_one(number: &u32) -> bool {
    *number == 1
}

fn micros<S: Serializer>(at: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    at.map(crate::format::micros).serialize(serializer)
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, section) in self.sections.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            methods::write(f, section, self.options)?;
        }
        Ok(())
    }
}
