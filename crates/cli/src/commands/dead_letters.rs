//! `duologue dead-letters`.

use clap::{Args, Subcommand};
use duologue_hub::client::HubClientError;
use duologue_hub::gateway::types::{DeadFilter, DeadQuery, RestDeadKind};

use crate::commands::inbox::columns;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::hub_request::{self, HubArgs, HubRequest, PageArgs};

const EXAMPLES: &str = "\
Examples:
  duologue dead-letters list translator
  duologue dead-letters resend translator m-1
  duologue dead-letters drop writer plan-7 --task";

/// Show the messages that a hub could not deliver, and send them again
///
/// With `--tasks` and `--task` they are the tasks whose agent was lost.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DeadLettersArgs {
    #[command(flatten)]
    hub: HubArgs,
    #[command(subcommand)]
    verb: DeadLettersVerb,
}

#[derive(Subcommand)]
enum DeadLettersVerb {
    /// List the dead letters of an agent
    List(DeadListArgs),
    /// Send a dead letter again
    Resend(DeadArgs),
    /// Drop a dead letter
    Drop(DeadArgs),
}

#[derive(Args)]
struct DeadListArgs {
    /// The agent
    agent: String,
    /// Tasks in the place of messages
    #[arg(long)]
    tasks: bool,
    /// Only those of this principal
    #[arg(long, value_name = "ID")]
    sender: Option<String>,
    #[command(flatten)]
    page: PageArgs,
}

#[derive(Args)]
struct DeadArgs {
    /// The agent
    agent: String,
    /// The id of the message or task
    id: String,
    /// It is a task
    #[arg(long)]
    task: bool,
    /// The principal that has sent or created it, if several have used its id
    #[arg(long, value_name = "ID")]
    sender: Option<String>,
}

fn kind(is_task: bool) -> RestDeadKind {
    if is_task { RestDeadKind::Task } else { RestDeadKind::Message }
}

pub(crate) fn run(args: DeadLettersArgs) -> Result<Exit> {
    hub_request::run(args.hub, async |request| match args.verb {
        DeadLettersVerb::List(args) => list(request, args).await,
        DeadLettersVerb::Resend(args) => change(request, args, true).await,
        DeadLettersVerb::Drop(args) => change(request, args, false).await,
    })
}

async fn list(request: &HubRequest, args: DeadListArgs) -> Result<Exit> {
    let mut filter = DeadFilter::default();
    (filter.kind, filter.sender) = (kind(args.tasks), args.sender);
    (filter.offset, filter.limit) = args.page.place();
    let listed = request.result(request.hub.dead_letters(&args.agent, &filter).await)?;
    let page = listed.pagination;
    if args.tasks {
        return request.print_page(&listed.tasks, page, |task| {
            let error = task.error.as_ref().map(|error| error.message.clone());
            vec![task.task_id.clone(), task.owner.clone(), task.kind.clone(), error.unwrap_or_default()]
        });
    }
    request.print_page(&listed.messages, page, |message| {
        let error = message.error.as_ref().map(|error| error.message.clone());
        [columns(message), error.into_iter().collect()].concat()
    })
}

async fn change(request: &HubRequest, args: DeadArgs, is_resend: bool) -> Result<Exit> {
    let DeadArgs { agent, id, task, sender } = args;
    let mut query = DeadQuery::default();
    (query.kind, query.sender) = (kind(task), sender);
    let (changed, status) = match is_resend {
        true => (request.hub.resend(&agent, &id, &query).await, "sent again"),
        false => (request.hub.drop_dead_letter(&agent, &id, &query).await, "dropped"),
    };
    if let (Err(HubClientError::Refused { refusal, .. }), false) = (&changed, task)
        && refusal.message.starts_with("no such message")
    {
        let why = format!("{}; a task needs `--task`", refusal.message);
        return Err(Error::HubRequest(why, Exit::Found));
    }
    request.result(changed)?;
    request.print(&serde_json::json!({"id": id, "status": status}), || format!("{id}: {status}"))
}
