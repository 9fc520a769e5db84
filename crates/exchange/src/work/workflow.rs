//! Running work orders one after the other.

use std::path::PathBuf;
use std::sync::Arc;

use duologue_schema::Members;
use duologue_schema::envelope::EnvelopeError;
use duologue_schema::work::{
    Recommendation, WorkContext, WorkInput, WorkNote, WorkOutput, WorkPaths, WorkTask,
};

use super::artifacts::{ApplyError, apply_artifacts};
use super::notes;
use super::worker::{ErasedWorker, Worker};

/// Steps that agents do one after the other, each with what the steps before it noted.
///
/// After a step the run goes where its [`Recommendation`] says. `proceed`: on to the next step. `retry`:
/// `iteration` is raised, and the run goes on with the step that [`WorkflowStep::back_to`] names, or else with the
/// same step again. `escalate`, and whatever is not known here: the run stops, and a person is told. So it
/// does instead of a retry once `iteration` has reached its limit. That a step's `success` is false changes
/// nothing about this: it is the recommendation that counts.
///
/// With [`apply_to`](Self::apply_to) the artifacts of each step are written before the next begins: those
/// of steps that succeeded and do not escalate. What else was proposed is in the [`WorkflowRun`], for a person to
/// look at.
///
/// ```
/// use duologue_exchange::work::{WorkContext, RunEnd, WorkInput, WorkOutput, Recommendation, WorkflowStep, Workflow};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), duologue_exchange::work::WorkflowError> {
/// let specify = async |_: Input| Ok(WorkOutput::new(true, "Wrote it.", [], Recommendation::Proceed));
/// let validate = async |input: Input| {
///     let verdict = match input.context.iteration {
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
    project: Option<PathBuf>,
    prior_context: Vec<WorkNote>,
    on_step: Option<Callback<CompletedStep>>,
    on_escalate: Option<Callback<WorkflowRun>>,
}

type Callback<T> = Box<dyn Fn(&T) + Send + Sync>;

/// A step of a [`Workflow`]: what is to be done, and by whom.
#[must_use = "give it to a workflow"]
pub struct WorkflowStep {
    action: String,
    params: Members,
    worker: Arc<dyn ErasedWorker>,
    back_to: Option<String>,
    agent: Option<String>,
}

impl WorkflowStep {
    /// A step: `worker` is asked for `action`. A [`PeerAgent`](crate::PeerAgent) is a worker.
    pub fn new(action: impl Into<String>, worker: impl Worker) -> Self {
        WorkflowStep {
            action: action.into(),
            params: Members::new(),
            worker: Arc::new(worker),
            back_to: None,
            agent: None,
        }
    }

    /// What the agent has to know to do it.
    pub fn params(mut self, params: impl Into<Members>) -> Self {
        self.params = params.into();
        self
    }

    /// The action of the step the run goes back to when this one recommends `retry`: the nearest of that
    /// name up to this step. By default this step is done again.
    pub fn back_to(mut self, action: impl Into<String>) -> Self {
        self.back_to = Some(action.into());
        self
    }

    /// What the agent calls itself. Steps know no agents: where that name stands by itself in the text of a
    /// note, between spaces or punctuation, those after it read this step's action instead. By default, notes
    /// go on as they are.
    ///
    /// This is a help and no filter. Names that no step has here, other spellings, and a name within a word,
    /// a path or a key stay; a name that is also a common word is replaced wherever that word stands.
    /// [`CompletedStep::output`] has the notes as they were said.
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
            project: None,
            prior_context: Vec::new(),
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
    /// The highest `iteration`, unless something else is set.
    pub const MAX_ITERATIONS: u32 = 3;

    /// A workflow without steps.
    pub fn new() -> Self {
        Workflow::default()
    }

    /// Adds a step at the end.
    pub fn step(mut self, step: WorkflowStep) -> Self {
        self.steps.push(step);
        self
    }

    /// The highest `iteration`; [`MAX_ITERATIONS`](Self::MAX_ITERATIONS) by default.
    pub fn max_iterations(mut self, max_iterations: u32) -> Self {
        self.max_iterations = max_iterations;
        self
    }

    /// Writes the artifacts of each step below this folder, see [`apply_artifacts`]. By default nothing is
    /// written.
    pub fn apply_to(mut self, project_root: impl Into<PathBuf>) -> Self {
        self.project = Some(project_root.into());
        self
    }

    /// What the first step is told already, such as the notes of an earlier run.
    pub fn prior_context(mut self, notes: impl Into<Vec<WorkNote>>) -> Self {
        self.prior_context = notes.into();
        self
    }

    /// Called after each step, when its artifacts have been written.
    pub fn on_step(mut self, callback: impl Fn(&CompletedStep) + Send + Sync + 'static) -> Self {
        self.on_step = Some(Box::new(callback));
        self
    }

    /// Called when the run stops because a person has to decide. What to do then is theirs: correct what
    /// [`WorkflowRun::done`] shows, and run again.
    pub fn on_escalate(mut self, callback: impl Fn(&WorkflowRun) + Send + Sync + 'static) -> Self {
        self.on_escalate = Some(Box::new(callback));
        self
    }

    /// Runs all steps, beginning with the first.
    ///
    /// The orders have no time limit; put a `timeout` around the run.
    ///
    /// # Errors
    ///
    /// When an order could not be tried, or its artifacts are refused. What earlier steps wrote stays; the
    /// error has the [run](WorkflowError::run) so far. Also, before anything is done, when a step is to go back
    /// to one that is not there.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future withdraws the order that runs. Artifacts that are being written are written.
    pub async fn run(
        &self,
        context: WorkContext,
        paths: impl Into<WorkPaths>,
    ) -> Result<WorkflowRun, WorkflowError> {
        let back = self.steps.iter().enumerate().map(|(at, step)| self.back(at, step));
        let back = back.collect::<Result<Vec<_>, _>>()?;
        let paths = paths.into();
        let (mut context, mut at) = (context, 0);
        let mut run =
            WorkflowRun { completed: Vec::new(), notes: self.prior_context.clone(), end: RunEnd::Finished };
        while let Some(step) = self.steps.get(at) {
            let (action, iteration) = (step.action.clone(), context.iteration);
            tracing::debug!(action, iteration, "a work order");
            let task = WorkTask::new(action.clone(), step.params.clone());
            let input = WorkInput::new(context.clone(), paths.clone(), task).prior_context(&*run.notes);
            let output = match step.worker.clone().work(input.clone()).await {
                Ok(output) => output,
                Err(fault) => {
                    run.end = RunEnd::Failed;
                    return Err(WorkflowError::WorkflowStep { action, iteration, fault, run: Box::new(run) });
                }
            };
            run.notes.extend(self.nameless(&output.notes));
            let recommendation = output.recommendation.clone();
            let written = self.write(input, &output).await;
            let mut done = CompletedStep { action: action.clone(), iteration, output, written: Vec::new() };
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
                Recommendation::Proceed => at += 1,
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

    /// Where to go on when `step`, which is the one `at`, is to be tried again.
    fn back(&self, at: usize, step: &WorkflowStep) -> Result<usize, WorkflowError> {
        let Some(action) = &step.back_to else { return Ok(at) };
        let earlier = self.steps[..=at].iter().rposition(|earlier| earlier.action == *action);
        earlier
            .ok_or_else(|| WorkflowError::NoSuchStep { action: step.action.clone(), back_to: action.clone() })
    }

    /// Writes the artifacts, if they are to be written. That waits for the disk.
    async fn write(&self, input: WorkInput, output: &WorkOutput) -> Result<Vec<PathBuf>, ApplyError> {
        let Some(project) = &self.project else { return Ok(Vec::new()) };
        if !output.success || output.recommendation.escalates() {
            return Ok(Vec::new());
        }
        let (path, output) = (project.clone(), output.clone());
        let written = tokio::task::spawn_blocking(move || apply_artifacts(path, &input, &output));
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

/// What came of a [`Workflow`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct WorkflowRun {
    /// What was done, in the order in which it was done.
    pub completed: Vec<CompletedStep>,
    /// What a next step would be told: the notes of all steps, oldest first.
    pub notes: Vec<WorkNote>,
    /// How it ended.
    pub end: RunEnd,
}

/// A step that was done.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CompletedStep {
    /// What was to be done.
    pub action: String,
    /// In which iteration.
    pub iteration: u32,
    /// What came of it, as the agent said it.
    pub output: WorkOutput,
    /// The files that were written, from the root of the project.
    pub written: Vec<PathBuf>,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunEnd {
    /// All steps are done.
    Finished,
    /// A person has to decide. The last step that was done says more.
    Escalated(EscalationReason),
    /// It could not go on; the [`WorkflowError`] that has this run says why.
    Failed,
}

/// Why a person has to decide.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EscalationReason {
    /// The agent asks for it.
    Requested,
    /// The agent recommends something that is not known here.
    Unknown(String),
    /// The agent recommends a retry, but there were enough.
    TooManyIterations,
}

/// Why a run could not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkflowError {
    /// A step is to go back to one that is not there, or comes after it.
    #[error("the step {action:?} goes back to {back_to:?}, but no step up to it has that action")]
    NoSuchStep {
        /// The step.
        action: String,
        /// Where it is to go back to.
        back_to: String,
    },
    /// The order could not be tried.
    #[error("the step {action:?}, iteration {iteration}, could not be tried: {fault}")]
    WorkflowStep {
        /// The step.
        action: String,
        /// In which iteration.
        iteration: u32,
        /// Why.
        fault: EnvelopeError,
        /// What was done before that.
        run: Box<WorkflowRun>,
    },
    /// The artifacts are refused, or could not be written. None of this step's was.
    #[error("the artifacts of the step {action:?}, iteration {iteration}, were not written: {error}")]
    Artifacts {
        /// The step.
        action: String,
        /// In which iteration.
        iteration: u32,
        /// Why.
        error: Box<ApplyError>,
        /// What was done, the step itself last.
        run: Box<WorkflowRun>,
    },
}

impl WorkflowError {
    /// What was done, noted and written before it could not go on; `None` if nothing was begun. A later run can go
    /// on with its notes as [`Workflow::prior_context`].
    #[must_use]
    pub fn run(&self) -> Option<&WorkflowRun> {
        match self {
            Self::NoSuchStep { .. } => None,
            Self::WorkflowStep { run, .. } | Self::Artifacts { run, .. } => Some(run),
        }
    }
}
