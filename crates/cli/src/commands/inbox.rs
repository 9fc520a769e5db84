//! `duologue inbox`.

use std::time::Duration;

use clap::{Args, Subcommand};
use duologue_hub::gateway::types::{
    ClaimMax, ClaimQuery, MessageFilter, RestAck, RestInboxMessage, RestNack, RestNewMessage, RestNumber,
    RestSendMode, SenderQuery,
};

use crate::commands::tasks::retry_metadata;
use crate::error::Result;
use crate::exit::Exit;
use crate::hub_request::{self, HubArgs, HubRequest, PageArgs, PriorityName, shown, value};
use crate::run::envelope_command::parse_duration;

const EXAMPLES: &str = "\
Examples:
  duologue inbox send writer \"What is new?\" --sync
  duologue inbox list translator
  duologue inbox claim translator --wait 30s
  duologue inbox ack translator m-1 LEASE --response \"Bonjour\"";

/// Send messages to the agents of a hub, and take them as an agent
///
/// An agent that the hub starts answers its messages itself. Another one takes them with `claim` and ends each with `ack`
/// or `nack`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct InboxArgs {
    #[command(flatten)]
    hub: HubArgs,
    #[command(subcommand)]
    verb: InboxVerb,
}

#[derive(Subcommand)]
enum InboxVerb {
    /// List the messages of an agent
    List(InboxListArgs),
    /// Show a message with its answer
    Show(MessageArgs),
    /// Send a message to an agent
    Send(InboxSendArgs),
    /// Take messages, with a lease for each
    Claim(InboxClaimArgs),
    /// Acknowledge a message
    Ack(InboxAckArgs),
    /// Return a message for another attempt
    Nack(InboxNackArgs),
}

#[derive(Args)]
struct InboxListArgs {
    /// The agent
    agent: String,
    /// Only messages of this principal
    #[arg(long, value_name = "ID")]
    sender: Option<String>,
    #[command(flatten)]
    page: PageArgs,
}

#[derive(Args)]
struct MessageArgs {
    /// The agent
    agent: String,
    /// The id of the message
    id: String,
    /// The principal that has sent the message, if several have used its id
    #[arg(long, value_name = "ID")]
    sender: Option<String>,
}

#[derive(Args)]
struct InboxSendArgs {
    /// The agent
    agent: String,
    /// The content: a text, or JSON
    content: String,
    /// The type of the message, such as query, notify or inform
    #[arg(long = "type", value_name = "NAME", default_value = "query")]
    kind: String,
    /// The id of the message, if not a new one. The same id and content again delivers nothing twice
    #[arg(long)]
    id: Option<String>,
    /// Wait for the answer
    #[arg(long)]
    sync: bool,
    /// The priority
    #[arg(long, value_name = "LEVEL", value_enum)]
    priority: Option<PriorityName>,
    /// Deliver it within so much time, or not at all
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    ttl: Option<Duration>,
    /// The group: one message of it is out at a time, in their order
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// The id that the answers repeat
    #[arg(long, value_name = "ID")]
    correlation: Option<String>,
    /// Deliver it again if the hub, or the connection to an agent elsewhere, is lost in the middle
    #[arg(long)]
    retry: bool,
}

#[derive(Args)]
struct InboxClaimArgs {
    /// The agent
    agent: String,
    /// Take at most so many messages
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=100))]
    max: u16,
    /// Wait so long for a message
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    wait: Option<Duration>,
    /// The time of the lease, if shorter than that of the hub
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    lease: Option<Duration>,
}

#[derive(Args)]
struct InboxAckArgs {
    /// The agent
    agent: String,
    /// The id of the message
    id: String,
    /// The lease from the claim
    lease: String,
    /// The answer, for a sender that waits: a text, or JSON
    #[arg(long, value_name = "TEXT")]
    response: Option<String>,
}

#[derive(Args)]
struct InboxNackArgs {
    /// The agent
    agent: String,
    /// The id of the message
    id: String,
    /// The lease from the claim
    lease: String,
    /// Wait so long before the next attempt
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    delay: Option<Duration>,
    /// The reason
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
    /// Make the message a dead letter at once
    #[arg(long, conflicts_with = "delay")]
    dead: bool,
}

pub(crate) fn run(args: InboxArgs) -> Result<Exit> {
    hub_request::run(args.hub, async |request| match args.verb {
        InboxVerb::List(args) => list(request, args).await,
        InboxVerb::Show(args) => {
            let mut query = SenderQuery::default();
            query.sender = args.sender;
            let message = request.result(request.hub.message(&args.agent, &args.id, &query).await)?;
            request.print(&message, || details(&message))
        }
        InboxVerb::Send(args) => send(request, args).await,
        InboxVerb::Claim(args) => claim(request, args).await,
        InboxVerb::Ack(args) => {
            let mut ack = RestAck::new(args.lease);
            if let Some(response) = args.response {
                ack.response = Some(RestNewMessage::new("response", value(&response)?).message);
            }
            let ended = request.result(request.hub.ack(&args.agent, &args.id, &ack).await)?;
            request.print(&ended, || format!("{}: {}", ended.message_id, ended.status.as_str()))
        }
        InboxVerb::Nack(args) => {
            let mut nack = RestNack::new(args.lease);
            nack.delay = args.delay.map(|delay| RestNumber(millis(delay)));
            (nack.error, nack.requeue) = (args.error, args.dead.then_some(false));
            let ended = request.result(request.hub.nack(&args.agent, &args.id, &nack).await)?;
            request.print(&ended, || format!("{}: {}", ended.message_id, ended.status.as_str()))
        }
    })
}

async fn list(request: &HubRequest, args: InboxListArgs) -> Result<Exit> {
    let mut filter = MessageFilter::default();
    (filter.offset, filter.limit) = args.page.place();
    filter.sender = args.sender;
    let listed = request.result(request.hub.messages(&args.agent, &filter).await)?;
    request.print_page(&listed.messages, listed.pagination, columns)
}

/// Returns the columns of a message in a list.
pub(crate) fn columns(message: &RestInboxMessage) -> Vec<String> {
    let (id, from) = (message.message_id.clone(), message.from.clone());
    let mut columns = vec![id, message.status.as_str().to_owned(), from, shown(&message.message.content)];
    // The lease of a claim is what the next command needs.
    if let Some(lease) = &message.lease {
        columns.insert(1, lease.clone());
    }
    columns
}

async fn send(request: &HubRequest, args: InboxSendArgs) -> Result<Exit> {
    let mut new = RestNewMessage::new(args.kind, value(&args.content)?);
    new.message_id = args.id.map(Into::into);
    new.priority = args.priority.map(Into::into);
    new.mode = args.sync.then_some(RestSendMode::Sync);
    new.ttl = args.ttl.map(|ttl| RestNumber(millis(ttl)));
    new.group = args.group.map(Into::into);
    new.correlation_id = args.correlation.map(Into::into);
    new.message.metadata = args.retry.then(retry_metadata);
    let sent = request.result(request.hub.send_message(&args.agent, &new).await)?;
    request.print(&sent, || match (&sent.response, &sent.error) {
        (Some(response), _) => response_text(response),
        (None, Some(error)) => format!("error: {} ({})", error.message, error.code),
        (None, None) => format!("{}: {}", sent.message_id, sent.status.as_str()),
    })?;
    Ok(if sent.error.is_some() { Exit::Found } else { Exit::Ok })
}

async fn claim(request: &HubRequest, args: InboxClaimArgs) -> Result<Exit> {
    let mut query = ClaimQuery::default();
    query.max = ClaimMax(args.max.into());
    query.wait = args.wait.map(|wait| RestNumber(wait.as_secs()));
    query.lease = args.lease.map(|lease| RestNumber(lease.as_secs()));
    let claimed = request.result(request.hub.claim(&args.agent, &query).await)?;
    request.print_list(&claimed.messages, columns)
}

fn millis(time: Duration) -> u64 {
    time.as_millis().try_into().unwrap_or(u64::MAX)
}

/// Returns the content of an answer.
fn response_text(response: &duologue_hub::gateway::types::JsonText) -> String {
    #[derive(serde::Deserialize)]
    struct Response {
        content: serde_json::Value,
    }
    match response.parse::<Response>().map(|response| response.content) {
        Ok(serde_json::Value::String(text)) => text,
        Ok(content) => content.to_string(),
        Err(_) => shown(response),
    }
}

fn details(message: &RestInboxMessage) -> String {
    let RestInboxMessage { message_id, status, from, message: content, .. } = message;
    let mut text = format!("{message_id}: {}\nfrom: {from}\n", status.as_str());
    text.push_str(&format!("{}: {}\n", content.kind.0, shown(&content.content)));
    text.extend(message.response.as_ref().map(|response| format!("answer: {}\n", response_text(response))));
    text.extend(message.error.as_ref().map(|error| format!("error: {} ({})\n", error.message, error.code)));
    text
}
