//! `duologue tasks`.

use std::collections::HashSet;
use std::io::Write as _;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum as _};
use duologue_hub::client::{HubClientError, HubTaskEvent, TaskEventStream};
use duologue_hub::gateway::types::{
    OwnerQuery, RestAnswer, RestMetadata, RestNewTask, RestNumber, RestQuestion, RestQuestionState,
    RestStateFilter, RestTask, RestTaskInput, RestTaskStatus, RestUrl, TaskFilter,
};
use duologue_schema::{Conversation, PermissionOption, SessionUpdate, serialized_len};
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::hub_request::{self, HubArgs, HubRequest, PageArgs, PriorityName, shown, value};
use crate::run::envelope_command::parse_duration;
use crate::ui;

const EXAMPLES: &str = "\
Examples:
  duologue tasks create writer \"Plan the release\" --watch
  duologue tasks list writer --state input_required
  duologue tasks show reviewer review-7
  duologue tasks answer reviewer review-7 allow-once";

/// Give the agents of a hub tasks: create, follow, answer and cancel them
///
/// A task goes on when this command ends. The hub keeps it over restarts.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TasksArgs {
    #[command(flatten)]
    hub: HubArgs,
    #[command(subcommand)]
    verb: TasksVerb,
}

#[derive(Subcommand)]
enum TasksVerb {
    /// List the tasks of an agent, the newest first
    List(TasksListArgs),
    /// Show a task with its result and its open questions
    Show(TaskArgs),
    /// Give an agent a task
    Create(TasksCreateArgs),
    /// Follow a task to its end. A hub that is started again is tried for ten minutes
    Watch(TaskArgs),
    /// Cancel a task
    Cancel(TaskArgs),
    /// Answer a question of a task
    Answer(TasksAnswerArgs),
}

#[derive(Args)]
struct TaskArgs {
    /// The agent
    agent: String,
    /// The id of the task
    id: String,
    /// The principal that has created the task, if several have used its id
    #[arg(long, value_name = "ID")]
    owner: Option<String>,
}

impl TaskArgs {
    fn query(&self) -> OwnerQuery {
        let mut query = OwnerQuery::default();
        query.owner.clone_from(&self.owner);
        query
    }
}

#[derive(Args)]
struct TasksListArgs {
    /// The agent
    agent: String,
    /// Only tasks in this state
    #[arg(long, value_name = "STATE", value_enum)]
    state: Option<StateName>,
    /// Only tasks of this principal
    #[arg(long, value_name = "ID")]
    owner: Option<String>,
    #[command(flatten)]
    page: PageArgs,
}

#[derive(Args)]
struct TasksCreateArgs {
    /// The agent
    agent: String,
    /// The prompt, or parameters as JSON
    prompt: String,
    /// The type of the task
    #[arg(long = "type", value_name = "NAME", default_value = "prompt")]
    kind: String,
    /// The id of the task, if not a new one. The same id and content again runs nothing twice
    #[arg(long)]
    id: Option<String>,
    /// The priority
    #[arg(long, value_name = "LEVEL", value_enum)]
    priority: Option<PriorityName>,
    /// The time limit of the work, such as 10m
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    timeout: Option<Duration>,
    /// The address that receives the end of the task
    #[arg(long, value_name = "URL")]
    callback: Option<String>,
    /// Let the hub start the task again if its agent was lost
    #[arg(long)]
    retry: bool,
    /// Follow the task to its end
    #[arg(long)]
    watch: bool,
}

#[derive(Args)]
struct TasksAnswerArgs {
    #[command(flatten)]
    task: TaskArgs,
    /// The id of an option of the question, or the answer as a JSON object
    answer: String,
    /// The id of the question, if several are open
    #[arg(long, value_name = "ID")]
    question: Option<String>,
}

/// The name of a state on the command line.
#[derive(Clone, Copy, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
enum StateName {
    Submitted,
    Working,
    InputRequired,
    Cancelling,
    Completed,
    Failed,
    Cancelled,
    Rejected,
    Expired,
}

impl StateName {
    fn filter(self) -> Result<RestStateFilter> {
        let name = self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
        serde_json::from_value(json!(name)).map_err(|error| Error::Usage(error.to_string()))
    }
}

pub(crate) fn run(args: TasksArgs) -> Result<Exit> {
    hub_request::run(args.hub, async |request| match args.verb {
        TasksVerb::List(args) => list(request, args).await,
        TasksVerb::Show(args) => show(request, &args).await,
        TasksVerb::Create(args) => create(request, args).await,
        TasksVerb::Watch(args) => watch(request, &args.agent, &args.id).await,
        TasksVerb::Cancel(args) => {
            let cancelled = request.hub.cancel_task(&args.agent, &args.id, &args.query()).await;
            let task = request.result(cancelled)?;
            request.print(&task, || line(&task))
        }
        TasksVerb::Answer(args) => answer(request, args).await,
    })
}

async fn list(request: &HubRequest, args: TasksListArgs) -> Result<Exit> {
    let mut filter = TaskFilter::default();
    (filter.offset, filter.limit) = args.page.place();
    (filter.owner, filter.state) = (args.owner, args.state.map(StateName::filter).transpose()?);
    let listed = request.result(request.hub.tasks(&args.agent, &filter).await)?;
    request.print_page(&listed.tasks, listed.pagination, |task| {
        vec![task.task_id.clone(), task.state.clone(), percent(task), task.kind.clone()]
    })
}

async fn show(request: &HubRequest, args: &TaskArgs) -> Result<Exit> {
    let query = args.query();
    let task = request.result(request.hub.task(&args.agent, &args.id, &query).await)?;
    let questions = match task.awaiting {
        true => request.result(request.hub.questions(&args.agent, &args.id, &query).await)?.questions,
        false => Vec::new(),
    };
    /// A task, and the questions that it waits for.
    #[derive(serde::Serialize)]
    struct ShownTask<'a> {
        task: &'a RestTask,
        questions: &'a [RestQuestion],
    }
    let entry = ShownTask { task: &task, questions: &questions };
    request.print(&entry, || {
        let mut text = line(&task) + "\n";
        for (name, value) in [("session", &task.session_id), ("owner", &Some(task.owner.clone()))] {
            text.extend(value.as_ref().map(|value| format!("{name}: {value}\n")));
        }
        text.extend(questions.iter().map(|question| question_text(question) + "\n"));
        text + &end_text(&task)
    })
}

/// Returns the metadata of work that may be repeated.
pub(crate) fn retry_metadata() -> RestMetadata {
    let mut metadata = RestMetadata::default();
    metadata.0.insert("retry".to_owned(), json!("safe"));
    metadata
}

async fn create(request: &HubRequest, args: TasksCreateArgs) -> Result<Exit> {
    let mut new = RestNewTask::new(args.kind, value(&args.prompt)?);
    new.task_id = args.id.map(Into::into);
    new.priority = args.priority.map(Into::into);
    new.callback = args.callback.map(RestUrl);
    new.timeout = args.timeout.map(|limit| RestNumber(limit.as_millis().try_into().unwrap_or(u64::MAX)));
    new.metadata = args.retry.then(retry_metadata);
    let created = request.result(request.hub.create_task(&args.agent, &new).await)?;
    if args.watch {
        // An address that several agents fit has chosen one.
        return watch(request, &created.agent_id, &created.task_id).await;
    }
    request.print(&created, || created.task_id.clone())
}

/// The time in which a hub that was lost is tried again.
const OUTAGE: Duration = Duration::from_secs(600);
/// The most bytes of updates whose text is compared with the result of a task.
const LAST_BYTES: usize = 4 << 20;
/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// A task that is followed over the restarts of its hub.
struct WatchedTask<'a> {
    request: &'a HubRequest,
    agent: &'a str,
    id: &'a str,
    stream: TaskEventStream,
    /// The attempts to reach the hub since the last event, and their pauses together.
    attempts: u32,
    waited: Duration,
}

impl<'a> WatchedTask<'a> {
    async fn begin(request: &'a HubRequest, agent: &'a str, id: &'a str) -> Result<Self> {
        let stream = request.result(request.hub.task_events(agent, id, None).await)?;
        Ok(WatchedTask { request, agent, id, stream, attempts: 0, waited: Duration::ZERO })
    }

    /// Returns the next event. A lost stream is replaced by one behind its last event.
    async fn next(&mut self) -> Result<HubTaskEvent> {
        loop {
            let error = match self.stream.next().await {
                Ok(Some(event)) => {
                    (self.attempts, self.waited) = (0, Duration::ZERO);
                    return Ok(event);
                }
                Ok(None) => None,
                Err(error) => Some(error),
            };
            self.wait(error).await?;
            match self.request.hub.task_events(self.agent, self.id, self.stream.last_id()).await {
                Ok(stream) => self.stream = stream,
                Err(error) => self.wait(Some(error)).await?,
            }
        }
    }

    /// Waits for the next attempt.
    ///
    /// # Errors
    ///
    /// The error, if it is not temporary or the time for attempts is over.
    async fn wait(&mut self, error: Option<HubClientError>) -> Result<()> {
        let is_final = error.as_ref().is_some_and(|error| !error.is_temporary());
        if is_final || self.waited >= OUTAGE {
            let why = error.map_or_else(|| "the hub ends each stream".to_owned(), |error| error.to_string());
            let (agent, id) = (self.agent, self.id);
            return Err(Error::Start(format!("{why}; `duologue tasks watch {agent} {id}` goes on with it")));
        }
        if self.attempts == 0 {
            let seconds = OUTAGE.as_secs();
            // If stderr is closed, nobody reads it.
            let _ =
                writeln!(ui::stderr(), "the connection to the hub was lost; trying again for {seconds} s");
        }
        let pause = LONGEST_PAUSE.min(Duration::from_secs(1 << self.attempts.min(8)));
        (self.attempts, self.waited) = (self.attempts + 1, self.waited + pause);
        tokio::time::sleep(pause).await;
        Ok(())
    }
}

/// Follows a task to its end.
async fn watch(request: &HubRequest, agent: &str, id: &str) -> Result<Exit> {
    let mut task = WatchedTask::begin(request, agent, id).await?;
    let mut text = AgentText::default();
    loop {
        let event = task.next().await?;
        if !matches!(event, HubTaskEvent::Update(_)) {
            request.print_rest(&mut text.rest)?;
        }
        match event {
            HubTaskEvent::State(task) => request.print_event("state", &task, || line(&task))?,
            HubTaskEvent::Progress(progress) => {
                request.print_event("progress", &progress, || format!("progress: {}%", progress.progress))?
            }
            HubTaskEvent::Question(question) => request.print_event("question", &question, || {
                let remedy = format!("\n  answer with `duologue tasks answer {agent} {id} OPTION`");
                let is_open = question.state == RestQuestionState::Open && !options(&question).is_empty();
                question_text(&question) + if is_open { &remedy } else { "" }
            })?,
            HubTaskEvent::Update(update) => request.print_event("update", &update, || {
                let update = update.update.parse::<SessionUpdate>();
                update.map_or_else(|_| String::new(), |update| text.of_update(&update))
            })?,
            HubTaskEvent::End(task) => {
                request.print_event("end", &task, || {
                    format!("{}{}", line(&task), text.unprinted(&end_text(&task)))
                })?;
                let is_completed = task.status == RestTaskStatus::Completed;
                return Ok(if is_completed { Exit::Ok } else { Exit::Found });
            }
            _ => Exit::Ok,
        };
    }
}

async fn answer(request: &HubRequest, args: TasksAnswerArgs) -> Result<Exit> {
    let TasksAnswerArgs { task, answer, question } = args;
    let mut given = match answer.trim_start().starts_with('{') {
        true => RestAnswer::new(None, value(&answer)?),
        false => RestAnswer::option(&answer),
    };
    given.question_id = question.map(Into::into);
    // A misspelt option would cancel the tool call.
    let open = request.result(request.hub.questions(&task.agent, &task.id, &task.query()).await)?;
    check_option(&open, &given, &answer)?;
    let answered = request.hub.answer(&task.agent, &task.id, &task.query(), &given).await;
    let answered = request.result(answered)?;
    request.print(&answered, || format!("{}: answered", answered.question_id))
}

/// Rejects an option that the question does not have.
fn check_option(open: &RestTaskInput, given: &RestAnswer, answer: &str) -> Result<()> {
    let is_named =
        |question: &&RestQuestion| given.question_id.as_ref().is_none_or(|id| id.0 == question.question_id);
    let Some(question) = open.questions.iter().find(is_named) else { return Ok(()) };
    let options = options(question);
    let is_option = options.iter().any(|option| option.option_id.as_str() == answer);
    if options.is_empty() || is_option || answer.trim_start().starts_with('{') {
        return Ok(());
    }
    let ids: Vec<&str> = options.iter().map(|option| option.option_id.as_str()).collect();
    Err(Error::Usage(format!("the question has no option {answer:?}; use one of {}", ids.join(", "))))
}

fn options(question: &RestQuestion) -> Vec<PermissionOption> {
    #[derive(serde::Deserialize)]
    struct Options {
        options: Vec<PermissionOption>,
    }
    question.question.parse::<Options>().map(|question| question.options).unwrap_or_default()
}

fn question_text(question: &RestQuestion) -> String {
    let options = options(question);
    let options: Vec<String> =
        options.iter().map(|option| format!("{} ({})", option.option_id.as_str(), option.name)).collect();
    let state = serde_json::to_value(question.state).ok();
    let state = state.as_ref().and_then(|state| state.as_str()).unwrap_or_default();
    let subject = match call_text(question) {
        Some(call) if !options.is_empty() => call,
        _ => shown(&question.question),
    };
    let mut text = format!("question {} ({state}): {subject}", question.question_id);
    if !options.is_empty() {
        text += &format!("\n  {}", options.join(", "));
    }
    text
}

/// Returns the tool call that a question is about: its kind, title, paths and whole input.
fn call_text(question: &RestQuestion) -> Option<String> {
    let request: Value = question.question.parse().ok()?;
    let call = request.get("toolCall")?;
    let text = |name: &str| call[name].as_str().map(str::to_owned);
    let paths = |name: &str| {
        let entries = call[name].as_array().map(Vec::as_slice).unwrap_or_default();
        entries.iter().filter_map(|entry| entry["path"].as_str()).map(str::to_owned).collect::<Vec<_>>()
    };
    let input = call.get("rawInput").filter(|input| !input.is_null()).map(Value::to_string);
    let parts =
        text("kind").into_iter().chain(text("title")).chain(paths("locations")).chain(paths("content"));
    let mut seen = HashSet::new();
    // An agent can name a path in the title, the location and the content.
    let parts: Vec<String> = parts.chain(input).filter(|part| seen.insert(part.clone())).collect();
    (!parts.is_empty()).then(|| ui::printable_json(&parts.join(" ")).into_owned())
}

/// The text of an agent, which comes in pieces and is printed in lines.
#[derive(Default)]
struct AgentText {
    /// The text up to the next line feed or event.
    rest: String,
    /// The conversation so far, or its last part.
    conversation: Conversation,
    /// The bytes of its updates.
    bytes: usize,
    /// The message that the text is in, as the number of its entry.
    message: Option<usize>,
}

impl AgentText {
    /// Returns the whole lines that an update completes.
    fn of_update(&mut self, update: &SessionUpdate) -> String {
        let length = serialized_len(update, LAST_BYTES).unwrap_or(LAST_BYTES);
        if self.bytes + length > LAST_BYTES {
            (self.conversation, self.bytes, self.message) = Default::default();
        }
        self.bytes += length;
        let entry = self.conversation.apply(update);
        match update {
            SessionUpdate::AgentMessageChunk(chunk) => {
                let piece = chunk.content.as_text().unwrap_or_default();
                if piece.is_empty() {
                    return String::new();
                }
                // A result has an empty line between messages.
                if self.message.is_some() && self.message != entry {
                    self.rest.push_str("\n\n");
                }
                self.message = entry;
                self.rest.push_str(piece);
                let whole = self.rest.rfind('\n').map_or(0, |end| end + 1);
                self.rest.drain(..whole).collect()
            }
            SessionUpdate::AgentMessageClear(_) => self.event("(the agent withdraws this message)"),
            SessionUpdate::ToolCall(call) => self.event(&format!("tool call: {}", call.title)),
            _ => String::new(),
        }
    }

    /// Returns the rest of the text, and a line of its own.
    fn event(&mut self, line: &str) -> String {
        format!("{}\n{line}", std::mem::take(&mut self.rest)).trim_start_matches('\n').to_owned()
    }

    /// Returns the text of an end as a line, or nothing if the agent has written it just before.
    fn unprinted(&self, end: &str) -> String {
        if self.conversation.all_agent_text().ends_with(end) { String::new() } else { format!("\n{end}") }
    }
}

fn line(task: &RestTask) -> String {
    format!("{}: {}, {}", task.task_id, task.state, percent(task))
}

/// Returns the progress of a task, or a dash while none is known.
fn percent(task: &RestTask) -> String {
    task.progress.map_or_else(|| "–".to_owned(), |percent| format!("{percent}%"))
}

/// Returns the result or the error of a task, if it has one.
fn end_text(task: &RestTask) -> String {
    #[derive(serde::Deserialize)]
    struct TextResult {
        text: String,
    }
    if let Some(error) = &task.error {
        return format!("error: {} ({})", error.message, error.code);
    }
    let Some(result) = &task.result else { return String::new() };
    result.parse::<TextResult>().map_or_else(|_| shown(result), |result| result.text)
}
