//! Work orders: one step of a workflow, with all that is needed to do it, carried by `_session/work`.
//!
//! An agent keeps nothing between two orders. It is told where things are, not what is in them, and it
//! proposes what shall be written; whoever sent the order writes it.

mod paths;

use duologue_schema_derive::wire;
use serde::{Deserialize, Serialize};

use crate::{Json, Members, MethodRow, MethodSide, Request, SessionId};

pub use paths::WorkPaths;

/// The params of `_session/work`.
#[wire]
pub struct WorkParams {
    /// The session it is sent in. An order needs none: all it is about stands in it.
    pub session_id: Option<SessionId>,
    /// What is to be done.
    pub input: WorkInput,
}

/// The result of `_session/work`.
#[wire]
pub struct WorkResult {
    /// What came of it.
    pub output: WorkOutput,
}

impl Request for WorkParams {
    const METHOD: &'static str = "_session/work";
    type Result = WorkResult;
}

/// The method of work orders, for both sides.
pub const METHODS: &[MethodRow] = &[MethodRow {
    method: <WorkParams as Request>::METHOD,
    name: "Work",
    params: "WorkParams",
    result: Some("WorkResult"),
    side: MethodSide::Protocol,
}];

/// An order: all that an agent needs to do one step.
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
    /// What the step is part of.
    pub context: WorkContext,
    /// Where things are, by name. Paths, not contents: the agent reads what it needs.
    pub paths: WorkPaths,
    /// What is to be done.
    pub task: WorkTask,
    /// What earlier steps noted, oldest first.
    #[wire(default, null_default)]
    pub prior_context: Vec<WorkNote>,
}

/// What a step is part of.
#[wire(snake, definition = "Context")]
pub struct WorkContext {
    /// What is being worked on.
    pub feature_id: String,
    /// The name of the workflow.
    pub workflow: String,
    /// How often it has been tried: 1 at first, one more with each `retry`.
    pub iteration: u32,
}

/// What is to be done in a step.
#[wire(snake, definition = "Task")]
pub struct WorkTask {
    /// Which of the things the agent can do.
    pub action: String,
    /// What it has to know to do that; `{}` if nothing.
    pub params: Members,
}

/// What came of an order.
///
/// A step that failed is an answer like any other: `success` is false, and the summary says why.
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
    /// Whether the agent did what it was told.
    pub success: bool,
    /// What it did, or why not, in a sentence or two.
    pub summary: String,
    /// The files it proposes, in any order. There may be none.
    pub artifacts: Vec<Artifact>,
    /// What the next steps should know. They say nothing about who did what: steps know no agents.
    #[wire(default, null_default)]
    pub notes: Vec<WorkNote>,
    /// How it should go on.
    pub recommendation: Recommendation,
}

/// A file that an agent proposes.
#[wire(snake)]
pub struct Artifact {
    /// Where. A path that starts with the order's `feature_root` begins, as that does, at the root of the
    /// project; any other begins at the feature root. Its parts are separated by `/`.
    pub path: String,
    /// Whether the file is there already.
    pub operation: ArtifactOperation,
    /// The whole file.
    pub content: String,
}

impl Artifact {
    /// A file that is not there yet.
    #[must_use]
    pub fn create(path: impl Into<String>, content: impl Into<String>) -> Self {
        Artifact::new(path, ArtifactOperation::Create, content)
    }

    /// New content for a file that is there.
    #[must_use]
    pub fn update(path: impl Into<String>, content: impl Into<String>) -> Self {
        Artifact::new(path, ArtifactOperation::Update, content)
    }
}

/// What is done with an artifact. One that is not listed is refused when it is to be done.
#[wire(definition = "Operation")]
pub enum ArtifactOperation {
    /// Make a file that must not be there.
    Create,
    /// Replace a file that must be there.
    Update,
}

/// How a workflow should go on.
#[wire(open)]
pub enum Recommendation {
    /// With the next step.
    Proceed,
    /// With another try.
    Retry,
    /// With a person.
    Escalate,
}

impl Recommendation {
    /// Whether a person has to decide: the agent asks for that, or for something nobody here knows.
    #[must_use]
    pub fn escalates(&self) -> bool {
        !matches!(self, Recommendation::Proceed | Recommendation::Retry)
    }
}

/// A remark of one step for those after it: mostly text, but it may be any JSON.
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
    /// The text, if it is one.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        self.0.parse().ok()
    }

    /// What it is as JSON.
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

/// The text, or else the JSON.
impl std::fmt::Display for WorkNote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.text() {
            Some(text) => f.pad(&text),
            None => self.0.fmt(f),
        }
    }
}

#[cfg(feature = "schemars")]
impl schemars::JsonSchema for WorkNote {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Note".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "A remark of one step for those after it: mostly text, but it may be any JSON.",
        })
    }
}
