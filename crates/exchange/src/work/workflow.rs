//! Runs work orders in sequence.

use std::path::PathBuf;
use std::sync::Arc;

use duologue_schema::envelope::EnvelopeError;
use duologue_schema::work::{
    Recommendation, WorkContext, WorkInput, WorkNote, WorkOutput, WorkPaths, WorkResult, WorkTask,
};
use duologue_schema::{Members, Meta, TraceContext};

use super::artifacts::{ApplyError, ArtifactWriter};
use super::notes;
use super::order::WorkOrder;
use super::worker::{ErasedWorker, Worker, run as perform};

/// A sequence of steps performed by agents, each with the notes of the steps before it.
///
/// The [`Recommendation`] of a step decides how the run continues. `proceed` continues with the
/// next step. `retry` increments `iteration` and continues with the step named by
/// [`WorkflowStep::back_to`], or repeats this one. `escalate` and unknown recommendations stop the
/// run for a decision by the user, as does `retry` at the limit of `iteration`. `proceed` means that
/// the step succeeded, so together with a `success` of false it stops the run too.
///
/// The notes of all steps together are limited; see [`max_note_bytes`](Self::max_note_bytes).
///
/// With [`apply_to`](Self::apply_to) the artifacts of each step are written before the next one
/// begins, if the step succeeded and does not escalate. Other artifacts are available in the
/// [`WorkflowRun`].
///
/// ```
/// use duologue_exchange::work::{WorkContext, RunEnd, WorkOrder, WorkOutput, Recommendation, WorkflowStep, Workflow};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), duologue_exchange::work::WorkflowError> {
/// let specify = async |_: WorkOrder| Ok(WorkOutput::new(true, "Wrote it.", [], Recommendation::Proceed));
/// let validate = async |order: WorkOrder| {
///     let verdict = match order.context.iteration {
///         1 => Recommendation::Retry,
///         _ => Recommendation::Proceed,
///     };
///     Ok(WorkOutput::new(true, "Read it.", [], verdict).notes(["A case is missing.".into()]))
/// };
/// let workflow = Workflow::new()
///     .step(WorkflowStep::new("specify", specify))
///     .step(WorkflowStep::new("validate", validate).back_to("specify"));
///
/// let run = workflow.run(WorkContext::new("login", "feature", 1), [("feature_root", "features/login")]).await?;
/// let actions: Vec<_> = run.completed.iter().map(|done| done.action.as_str()).collect();
/// assert_eq!(actions, ["specify", "validate", "specify", "validate"]);
/// assert_eq!(run.end, RunEnd::Finished);
/// # Ok(())
/// # }
/// ```
#[must_use = "a workflow does nothing until it is run"]
pub struct Workflow {
    steps: Vec<WorkflowStep>,
    max_iterations: u32,
    max_note_bytes: usize,
    artifacts: ArtifactWriter,
    project: Option<PathBuf>,
    prior_context: Vec<WorkNote>,
    meta: Option<Meta>,
    trace: Option<TraceContext>,
    on_step: Option<Callback<CompletedStep>>,
    on_escalate: Option<Callback<WorkflowRun>>,
}

type Callback<T> = Box<dyn Fn(&T) + Send + Sync>;

/// A step of a [`Workflow`]: an action and its worker.
#[must_use = "pass it to a workflow"]
pub struct WorkflowStep {
    action: String,
    params: Members,
    worker: Arc<dyn ErasedWorker>,
    back_to: Option<String>,
    agent: Option<String>,
}

impl WorkflowStep {
    /// Creates a step in which `worker` performs `action`. A [`PeerAgent`](crate::PeerAgent) is a
    /// worker.
    pub fn new(action: impl Into<String>, worker: impl Worker) -> Self {
        WorkflowStep {
            action: action.into(),
            params: Members::new(),
            worker: Arc::new(worker),
            back_to: None,
            agent: None,
        }
    }

    /// Sets the parameters of the action.
    pub fn params(mut self, params: impl Into<Members>) -> Self {
        self.params = params.into();
        self
    }

    /// Sets the action with which the run continues after `retry`: the nearest step with that
    /// action, up to this one. By default this step is repeated.
    pub fn back_to(mut self, action: impl Into<String>) -> Self {
        self.back_to = Some(action.into());
        self
    }

    /// Sets the agent's name. Steps do not know agents: where the name stands alone in the text of
    /// a note, later steps receive this step's action instead. By default notes are passed on
    /// unchanged.
    ///
    /// This is a convenience and not a filter. Names of other agents, other spellings, and names
    /// within a word, a path or a key are unchanged. A name that is also a common word is replaced
    /// everywhere. [`CompletedStep::output`] has the original notes.
    pub fn agent(mut self, name: impl Into<String>) -> Self {
        self.agent = Some(name.into());
        self
    }
}

impl Default for Workflow {
    fn default() -> Self {
        Workflow {
            steps: Vec::new(),
            max_iterations: Workflow::MAX_ITERATIONS,
            max_note_bytes: Workflow::MAX_NOTE_BYTES,
            artifacts: ArtifactWriter::new(),
            project: None,
            prior_context: Vec::new(),
            meta: None,
            trace: None,
            on_step: None,
            on_escalate: None,
        }
    }
}

impl std::fmt::Debug for Workflow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let actions: Vec<_> = self.steps.iter().map(|step| &step.action).collect();
        f.debug_struct("Workflow").field("steps", &actions).finish_non_exhaustive()
    }
}

impl Workflow {
    /// Default of the highest `iteration`.
    pub const MAX_ITERATIONS: u32 = 3;

    /// Default of the maximum size of all notes, in bytes: 1 MiB.
    pub const MAX_NOTE_BYTES: usize = 1 << 20;

    /// Creates a workflow without steps.
    pub fn new() -> Self {
        Workflow::default()
    }

    /// Appends a step.
    pub fn step(mut self, step: WorkflowStep) -> Self {
        self.steps.push(step);
        self
    }

    /// Sets the highest `iteration`; [`MAX_ITERATIONS`](Self::MAX_ITERATIONS) by default.
    pub fn max_iterations(mut self, max_iterations: u32) -> Self {
        self.max_iterations = max_iterations;
        self
    }

    /// Sets the maximum size of the notes of all steps, in bytes;
    /// [`MAX_NOTE_BYTES`](Self::MAX_NOTE_BYTES) by default. Each order contains all of them. A step
    /// whose notes exceed it stops the run for a decision by the user.
    pub fn max_note_bytes(mut self, bytes: usize) -> Self {
        self.max_note_bytes = bytes;
        self
    }

    /// Sets the artifacts that are written; see [`ArtifactWriter`].
    pub fn artifacts(mut self, writer: ArtifactWriter) -> Self {
        self.artifacts = writer;
        self
    }

    /// Writes the artifacts of each step below this folder; see
    /// [`apply_artifacts`](super::apply_artifacts). By default nothing is written.
    pub fn apply_to(mut self, project_root: impl Into<PathBuf>) -> Self {
        self.project = Some(project_root.into());
        self
    }

    /// Sets the notes for the first step, for example those of an earlier run.
    pub fn prior_context(mut self, notes: impl Into<Vec<WorkNote>>) -> Self {
        self.prior_context = notes.into();
        self
    }

    /// Sets the `_meta` beside each order.
    pub fn meta(mut self, meta: impl Into<Meta>) -> Self {
        self.meta = Some(meta.into());
        self
    }

    /// Sets the trace context in the `_meta` beside each order; `None` is ignored. It replaces the one
    /// in [`meta`](Self::meta).
    pub fn trace_context(mut self, context: impl Into<Option<TraceContext>>) -> Self {
        self.trace = context.into().or(self.trace);
        self
    }

    /// Sets a callback for the end of each step, after its artifacts have been written.
    pub fn on_step(mut self, callback: impl Fn(&CompletedStep) + Send + Sync + 'static) -> Self {
        self.on_step = Some(Box::new(callback));
        self
    }

    /// Sets a callback for runs that stop for a decision by the user. The user may correct the
    /// results in [`WorkflowRun::completed`] and start another run.
    pub fn on_escalate(mut self, callback: impl Fn(&WorkflowRun) + Send + Sync + 'static) -> Self {
        self.on_escalate = Some(Box::new(callback));
        self
    }

    /// Runs all steps, starting with the first.
    ///
    /// The orders have no time limit; put a `timeout` around the run.
    ///
    /// # Errors
    ///
    /// Returns an error if an order could not be attempted, or if its artifacts are rejected. Files
    /// written by earlier steps stay, and the error has the [run](WorkflowError::run) so far. It
    /// also returns an error, before anything runs, if a step goes back to one that does not exist.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future withdraws the current order. Artifacts that are being written are
    /// completed.
    pub async fn run(
        &self,
        context: WorkContext,
        paths: impl Into<WorkPaths>,
    ) -> Result<WorkflowRun, WorkflowError> {
        let back = self.steps.iter().enumerate().map(|(at, step)| self.back(at, step));
        let back = back.collect::<Result<Vec<_>, _>>()?;
        let paths = paths.into();
        let (mut context, mut at) = (context, 0);
        let mut order_meta = self.meta.clone();
        if let Some(trace) = &self.trace {
            order_meta = Some(order_meta.unwrap_or_default().with_trace_context(trace));
        }
        let mut run =
            WorkflowRun { completed: Vec::new(), notes: self.prior_context.clone(), end: RunEnd::Finished };
        while let Some(step) = self.steps.get(at) {
            let (action, iteration) = (step.action.clone(), context.iteration);
            tracing::debug!(action, iteration, "a work order");
            let task = WorkTask::new(action.clone(), step.params.clone());
            let input = WorkInput::new(context.clone(), paths.clone(), task).prior_context(&*run.notes);
            let order = WorkOrder::from(input.clone()).with_meta(order_meta.clone());
            let (output, meta) = match perform(step.worker.clone(), order).await {
                Ok(WorkResult { output, meta, .. }) => (output, meta),
                Err(fault) => {
                    run.end = RunEnd::Failed;
                    return Err(WorkflowError::WorkflowStep { action, iteration, fault, run: Box::new(run) });
                }
            };
            let notes = self.nameless(&output.notes);
            let bytes = bytes_of(&run.notes).saturating_add(bytes_of(&notes));
            if bytes > self.max_note_bytes {
                run.completed.push(CompletedStep { action, iteration, output, meta, written: Vec::new() });
                let limit = self.max_note_bytes;
                return Ok(self.escalated(run, EscalationReason::TooManyNotes { bytes, limit }));
            }
            run.notes.extend(notes);
            let (success, recommendation) = (output.success, output.recommendation.clone());
            let written = self.write(input, &output).await;
            let mut done =
                CompletedStep { action: action.clone(), iteration, output, meta, written: Vec::new() };
            match written {
                Ok(written) => done.written = written,
                Err(error) => {
                    run.completed.push(done);
                    run.end = RunEnd::Failed;
                    let (error, run) = (Box::new(error), Box::new(run));
                    return Err(WorkflowError::Artifacts { action, iteration, error, run });
                }
            }
            if let Some(on_step) = &self.on_step {
                on_step(&done);
            }
            run.completed.push(done);
            match recommendation {
                Recommendation::Proceed if success => at += 1,
                Recommendation::Proceed => return Ok(self.escalated(run, EscalationReason::Contradiction)),
                Recommendation::Retry if context.iteration < self.max_iterations => {
                    context.iteration += 1;
                    at = back[at];
                }
                Recommendation::Retry => return Ok(self.escalated(run, EscalationReason::TooManyIterations)),
                Recommendation::Escalate => return Ok(self.escalated(run, EscalationReason::Requested)),
                other => return Ok(self.escalated(run, EscalationReason::Unknown(other.as_str().to_owned()))),
            }
        }
        Ok(run)
    }

    /// Returns the index of the step that follows a `retry` of `step`, which has the index `at`.
    fn back(&self, at: usize, step: &WorkflowStep) -> Result<usize, WorkflowError> {
        let Some(action) = &step.back_to else { return Ok(at) };
        let earlier = self.steps[..=at].iter().rposition(|earlier| earlier.action == *action);
        earlier
            .ok_or_else(|| WorkflowError::NoSuchStep { action: step.action.clone(), back_to: action.clone() })
    }

    /// Writes the artifacts, if required. Blocks a thread of the runtime's pool.
    async fn write(&self, input: WorkInput, output: &WorkOutput) -> Result<Vec<PathBuf>, ApplyError> {
        let Some(project) = &self.project else { return Ok(Vec::new()) };
        if !output.success || output.recommendation.escalates() {
            return Ok(Vec::new());
        }
        let (writer, path, output) = (self.artifacts.clone(), project.clone(), output.clone());
        let written = tokio::task::spawn_blocking(move || writer.apply(path, &input, &output));
        written.await.unwrap_or_else(|error| {
            Err(ApplyError::Project { path: project.clone(), error: std::io::Error::other(error) })
        })
    }

    fn nameless(&self, said: &[WorkNote]) -> Vec<WorkNote> {
        let mut said = said.to_vec();
        for step in &self.steps {
            if let Some(name) = &step.agent {
                said.iter_mut().for_each(|note| *note = notes::renamed(note, name, &step.action));
            }
        }
        said
    }

    fn escalated(&self, mut run: WorkflowRun, reason: EscalationReason) -> WorkflowRun {
        run.end = RunEnd::Escalated(reason);
        if let Some(on_escalate) = &self.on_escalate {
            on_escalate(&run);
        }
        run
    }
}

/// Returns the size of the notes as JSON.
fn bytes_of(notes: &[WorkNote]) -> usize {
    notes.iter().map(|note| note.as_json().get().len()).sum()
}

/// The result of a [`Workflow`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct WorkflowRun {
    /// The completed steps in order.
    pub completed: Vec<CompletedStep>,
    /// The notes of all steps, oldest first.
    pub notes: Vec<WorkNote>,
    /// The end of the run.
    pub end: RunEnd,
}

/// A completed step.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CompletedStep {
    /// The action.
    pub action: String,
    /// The iteration.
    pub iteration: u32,
    /// The output of the agent.
    pub output: WorkOutput,
    /// The `_meta` beside the output.
    pub meta: Option<Meta>,
    /// The paths of the written files, relative to the project.
    pub written: Vec<PathBuf>,
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunEnd {
    /// All steps are completed.
    Finished,
    /// The user has to decide. The last completed step has the details.
    Escalated(EscalationReason),
    /// The run failed; the [`WorkflowError`] with this run has the reason.
    Failed,
}

/// The reason for an escalation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EscalationReason {
    /// The agent requested it.
    Requested,
    /// The agent's recommendation is unknown here.
    Unknown(String),
    /// The agent recommended a retry, but the limit is reached.
    TooManyIterations,
    /// The agent recommended `proceed`, which means success, and reported a `success` of false.
    Contradiction,
    /// The notes exceed [`Workflow::max_note_bytes`]. Those of the last step are only in its
    /// [`CompletedStep::output`], and its artifacts were not written.
    TooManyNotes {
        /// The size of all notes with those of the last step.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
}

/// Errors of a run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkflowError {
    /// A step goes back to one that does not exist or comes after it.
    #[error("the step {action:?} goes back to {back_to:?}, but no step up to it has that action")]
    NoSuchStep {
        /// The action of the step.
        action: String,
        /// The action of the missing step.
        back_to: String,
    },
    /// The order could not be attempted.
    #[error("the step {action:?}, iteration {iteration}, could not be attempted: {fault}")]
    WorkflowStep {
        /// The action of the step.
        action: String,
        /// The iteration.
        iteration: u32,
        /// The error of the worker.
        fault: EnvelopeError,
        /// The run up to this step.
        run: Box<WorkflowRun>,
    },
    /// The artifacts were rejected or could not be written. None of this step's artifacts was
    /// written.
    #[error("the artifacts of the step {action:?}, iteration {iteration}, were not written: {error}")]
    Artifacts {
        /// The action of the step.
        action: String,
        /// The iteration.
        iteration: u32,
        /// The reason.
        error: Box<ApplyError>,
        /// The run including this step.
        run: Box<WorkflowRun>,
    },
}

impl WorkflowError {
    /// Returns the run up to the failure; `None` if nothing was started. A later run can continue
    /// with its notes as [`Workflow::prior_context`].
    #[must_use]
    pub fn run(&self) -> Option<&WorkflowRun> {
        match self {
            Self::NoSuchStep { .. } => None,
            Self::WorkflowStep { run, .. } | Self::Artifacts { run, .. } => Some(run),
        }
    }
}
