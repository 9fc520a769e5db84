//! The script: what a transcript says, in order, ready to be written.

use std::fmt;
use std::time::Duration;

use duologue_schema::SessionId;
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::{RenderOptions, methods};
use crate::format::{ProcessExit, Side};

/// A transcript as it is read: sections, each with what happened in it.
///
/// It shows as text, and it can be serialized. Both forms are the same for recordings that differ only
/// in times, in where messages were cut into chunks, and in how independent sessions and stderr ran
/// into each other.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Script {
    /// The connection, the sessions in the order of the requests that made them, stderr, the end. Those
    /// in which nothing happened are left out.
    pub sections: Vec<Section>,
    #[serde(skip)]
    pub(super) options: RenderOptions,
}

/// Steps that belong together.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Section {
    /// To what.
    #[serde(flatten)]
    pub subject: Subject,
    /// What happened, in order.
    pub steps: Vec<ScriptStep>,
}

/// What a section is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase", tag = "section", content = "id")]
#[non_exhaustive]
pub enum Subject {
    /// The connection as a whole: everything that is said of no session, and what is no message.
    Connection,
    /// A session.
    Session(SessionId),
    /// What the agent wrote to stderr.
    Stderr,
    /// How it ended.
    End,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ScriptStep {
    /// When, if times were [asked for](RenderOptions::times); in microseconds. The first chunk counts.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "micros")]
    pub at: Option<Duration>,
    /// Who did it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Side>,
    /// What.
    #[serde(flatten)]
    pub kind: StepKind,
}

/// What can happen.
///
/// A session's own id is left out of what is said in it. Members of an envelope that JSON-RPC does not
/// know are in `more`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase", tag = "what")]
#[non_exhaustive]
pub enum StepKind {
    /// A question.
    #[non_exhaustive]
    Request {
        /// What is asked.
        method: String,
        /// Tells it from requests of the same side, method and section that are open at the same time;
        /// 1 when there is none.
        #[serde(skip_serializing_if = "is_one")]
        number: u32,
        /// About what.
        #[serde(skip_serializing_if = "Option::is_none")]
        params: Option<Value>,
        /// Whether there is an answer to it.
        answered: bool,
        /// What else the line holds.
        #[serde(skip_serializing_if = "Value::is_null")]
        more: Value,
    },
    /// Something told. Chunks of one message that follow one another are one notification.
    #[non_exhaustive]
    Notification {
        /// What is told.
        method: String,
        /// About what.
        #[serde(skip_serializing_if = "Option::is_none")]
        params: Option<Value>,
        /// What else the line holds.
        #[serde(skip_serializing_if = "Value::is_null")]
        more: Value,
    },
    /// An answer.
    #[non_exhaustive]
    Response {
        /// The method of the request, or the id of a request that nobody made.
        #[serde(flatten)]
        to: ResponseTo,
        /// What it says when it worked.
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<Value>,
        /// What it says when it did not.
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<Value>,
        /// What else the line holds.
        #[serde(skip_serializing_if = "Value::is_null")]
        more: Value,
    },
    /// A line that is no message.
    #[non_exhaustive]
    Noise {
        /// The line. What is not UTF-8 in it is escaped.
        text: String,
        /// Why it is none.
        reason: String,
    },
    /// A line on stderr.
    #[non_exhaustive]
    Stderr {
        /// The line.
        text: String,
    },
    /// A side wrote nothing more.
    Eof,
    /// The agent's process ended.
    Exit(ProcessExit),
    /// Lines the recorder left out, see [`RecordEvent::Dropped`](crate::RecordEvent::Dropped).
    #[non_exhaustive]
    Dropped {
        /// How many.
        lines: u64,
        /// How long they were together.
        bytes: u64,
    },
    /// A record of a later version of the format.
    #[non_exhaustive]
    Unknown {
        /// What it says, but for its time.
        record: Value,
    },
    /// The recording was cut short.
    Cut,
}

/// What a response answers.
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
        /// Its number among those that were open.
        #[serde(skip_serializing_if = "is_one")]
        number: u32,
    },
    /// Nothing that is known.
    #[non_exhaustive]
    Nothing {
        /// The id it gives.
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
        for (place, section) in self.sections.iter().enumerate() {
            if place > 0 {
                f.write_str("\n")?;
            }
            methods::write(f, section, self.options)?;
        }
        Ok(())
    }
}
