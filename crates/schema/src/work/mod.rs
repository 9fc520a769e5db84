//! Work orders: self-contained steps of a workflow, sent as `_session/work`.
//!
//! An agent keeps no state between two orders. An order contains paths, not file contents. The agent
//! proposes files, and the sender of the order writes them.

mod paths;

use duologue_schema_derive::wire;
use serde::{Deserialize, Serialize};

use crate::wire::schema_of;
use crate::{Json, Members, MethodRow, MethodSide, Request, SessionId};

pub use paths::WorkPaths;

/// The greatest length of the id of an order, in characters.
pub const ORDER_ID_CHARS: usize = 128;

/// The params of `_session/work`.
#[wire]
pub struct WorkParams {
    /// The session. An order needs none, because it is self-contained.
    pub session_id: Option<SessionId>,
    /// The id of the order, which its sender chose to be able to repeat it. 1 to [`ORDER_ID_CHARS`]
    /// characters. The same order with the same id is performed once on a connection.
    pub order_id: Option<String>,
    /// The work order.
    pub input: WorkInput,
}

/// The result of `_session/work`.
#[wire]
pub struct WorkResult {
    /// The result of the order.
    pub output: WorkOutput,
    /// True if the order was a repetition: the output is that of the first one.
    #[wire(default)]
    pub duplicate: bool,
}

impl Request for WorkParams {
    const METHOD: &'static str = "_session/work";
    type Result = WorkResult;
}

/// The method of work orders. Both sides handle it.
pub const METHODS: &[MethodRow] = &[MethodRow {
    method: <WorkParams as Request>::METHOD,
    name: "Work",
    params: "WorkParams",
    result: Some("WorkResult"),
    side: MethodSide::Protocol,
}];

/// A work order: everything that an agent needs for one step.
///
/// ```
/// use duologue_schema::Members;
/// use duologue_schema::work::{WorkContext, WorkInput, WorkTask};
///
/// let context = WorkContext::new("login", "feature", 1);
/// let task = WorkTask::new("specify", Members::new());
/// let input = WorkInput::new(context, [("feature_root", "features/login")], task);
/// assert_eq!(input.paths.feature_root(), Some("features/login"));
/// ```
#[wire(snake, definition = "Input")]
pub struct WorkInput {
    /// The context of the step.
    pub context: WorkContext,
    /// The paths of files and directories, by name. The agent reads the files that it needs.
    pub paths: WorkPaths,
    /// The task.
    pub task: WorkTask,
    /// The notes of earlier steps, oldest first.
    #[wire(default, null_default)]
    pub prior_context: Vec<WorkNote>,
}

/// The context of a step.
#[wire(snake, definition = "Context")]
pub struct WorkContext {
    /// The id of the feature.
    pub feature_id: String,
    /// The name of the workflow.
    pub workflow: String,
    /// The number of the attempt. It starts at 1, and each `retry` adds 1.
    #[wire(integer)]
    pub iteration: u32,
}

/// The task of a step.
#[wire(snake, definition = "Task")]
pub struct WorkTask {
    /// The action of the agent.
    pub action: String,
    /// The params of the action, or `{}`.
    pub params: Members,
}

/// The result of a work order.
///
/// A failed step is a normal response: `success` is false, and the summary gives the reason.
///
/// ```
/// use duologue_schema::work::{Artifact, WorkOutput, Recommendation};
///
/// let artifacts = [Artifact::create("spec.md", "# Login\n")];
/// let output = WorkOutput::new(true, "Wrote the specification.", artifacts, Recommendation::Proceed);
/// assert!(!output.recommendation.escalates());
/// ```
#[wire(snake, definition = "Output")]
pub struct WorkOutput {
    /// True if the step succeeded.
    pub success: bool,
    /// A summary of the work, or of the reason of a failure, in one or two sentences.
    pub summary: String,
    /// The proposed files in any order, possibly none.
    pub artifacts: Vec<Artifact>,
    /// Notes for the next steps. They do not name agents, because steps are independent of agents.
    #[wire(default, null_default)]
    pub notes: Vec<WorkNote>,
    /// The recommendation for the workflow. `proceed` also states that the step succeeded, so it
    /// contradicts a `success` of false.
    pub recommendation: Recommendation,
}

/// A file that an agent proposes.
#[wire(snake)]
pub struct Artifact {
    /// The path, with `/` as separator. A path that starts with the `feature_root` of the order is
    /// relative to the root of the project, any other path to the `feature_root`.
    pub path: String,
    /// The operation: create a file, or update an existing one.
    pub operation: ArtifactOperation,
    /// The whole content of the file.
    pub content: String,
}

impl Artifact {
    /// Creates an artifact for a new file.
    #[must_use]
    pub fn create(path: impl Into<String>, content: impl Into<String>) -> Self {
        Artifact::new(path, ArtifactOperation::Create, content)
    }

    /// Creates an artifact for an existing file.
    #[must_use]
    pub fn update(path: impl Into<String>, content: impl Into<String>) -> Self {
        Artifact::new(path, ArtifactOperation::Update, content)
    }
}

/// The operation of an artifact. An unknown operation is rejected when it is applied.
#[wire(definition = "Operation")]
pub enum ArtifactOperation {
    /// Creates a file. It must not exist.
    Create,
    /// Replaces a file. It must exist.
    Update,
}

/// The recommendation of an agent for the workflow.
#[wire(open)]
pub enum Recommendation {
    /// The step succeeded: continue with the next one.
    Proceed,
    /// Retry the step.
    Retry,
    /// Let the user decide.
    Escalate,
}

impl Recommendation {
    /// Returns true if the user has to decide, which includes unknown recommendations.
    #[must_use]
    pub fn escalates(&self) -> bool {
        !matches!(self, Recommendation::Proceed | Recommendation::Retry)
    }
}

/// A note of one step for later steps: usually text, but any JSON is allowed.
///
/// ```
/// use duologue_schema::work::WorkNote;
///
/// assert_eq!(WorkNote::from("Two cases are missing.").text().as_deref(), Some("Two cases are missing."));
/// assert_eq!(WorkNote::from(serde_json::json!({ "missing": 2 })).to_string(), r#"{"missing":2}"#);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WorkNote(Json);

impl WorkNote {
    /// Returns the text, if the note is a text.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        self.0.parse().ok()
    }

    /// Returns the note as JSON.
    #[must_use]
    pub fn as_json(&self) -> &Json {
        &self.0
    }
}

impl From<&str> for WorkNote {
    fn from(text: &str) -> Self {
        serde_json::Value::from(text).into()
    }
}

impl From<String> for WorkNote {
    fn from(text: String) -> Self {
        serde_json::Value::from(text).into()
    }
}

impl From<serde_json::Value> for WorkNote {
    fn from(value: serde_json::Value) -> Self {
        WorkNote(value.into())
    }
}

/// Writes the text, or else the JSON.
impl std::fmt::Display for WorkNote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.text() {
            Some(text) => f.pad(&text),
            None => self.0.fmt(f),
        }
    }
}

schema_of!(WorkNote, "Note", |_| schemars::json_schema!({
    "description": "A note of one step for later steps: usually text, but any JSON is allowed.",
}));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_members_are_rejected() {
        let order = r#"{"input":{"context":{"feature_id":"a","workflow":"b","iteration":1},"paths":{},"task":{"action":"c","params":{}}}}"#;
        assert!(serde_json::from_str::<WorkParams>(order).is_ok());
        let output = r#"{"output":{"success":true,"summary":"a","artifacts":[{"path":"b","operation":"create","content":"c"}],"recommendation":"proceed"}}"#;
        assert!(serde_json::from_str::<WorkResult>(output).is_ok());
        for member in [r#""feature_id":"a""#, r#""iteration":1"#, r#""paths":{}"#, r#""action":"c""#] {
            let twice = order.replace(member, &format!("{member},{member}"));
            let error = serde_json::from_str::<WorkParams>(&twice).unwrap_err().to_string();
            assert!(error.contains("duplicate field"), "{member}: {error}");
        }
        for member in [r#""success":true"#, r#""content":"c""#, r#""recommendation":"proceed""#] {
            let twice = output.replace(member, &format!("{member},{member}"));
            let error = serde_json::from_str::<WorkResult>(&twice).unwrap_err().to_string();
            assert!(error.contains("duplicate field"), "{member}: {error}");
        }
        // Beside the order the last one counts.
        let twice = order.replacen('{', r#"{"orderId":"a","orderId":"b","#, 1);
        assert_eq!(serde_json::from_str::<WorkParams>(&twice).unwrap().order_id.as_deref(), Some("b"));
    }
}
