//! The caller's side of a delegated task: its progress, its result, and its cancellation.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use duologue_client::exchange;
use duologue_client::exchange::envelope::{
    DelegateBuilder, Delegation, DelegationOutcome, Lagged, Notify, OutputGap, OutputStream, PROGRESS,
    Received, Subscription, TaskOutput,
};
use duologue_schema::envelope::{Ack, EnvelopeKind, OutcomeStatus, OutputChunk};
use tokio::time::Instant;

use super::agent_session::{Listen, SessionEnd, WaitResult, at};
use super::envelope_command::{
    EnvelopeCommand, attached, data, fault, format_duration, multi_line, one_line, to_error,
};
use crate::exit::Exit;
use crate::signals::Signal;

/// Limit on the time in which a cancelled task has to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// A notification, or the number of lost ones.
type TaskNotification = Result<Arc<Received<Notify>>, Lagged>;

/// The first event of a wait for the end of a task.
enum TaskEvent {
    Notification(TaskNotification),
    /// A chunk of the output of the task, or a gap in it.
    Output(Result<TaskOutput, OutputGap>),
    /// The task exceeded its time.
    Late,
    /// The response to our cancellation.
    Ack(exchange::Result<Ack>),
    /// The cancelled task did not end in time.
    Ignored,
    End(exchange::Result<DelegationOutcome>),
}

type Cancelling<'a> = Pin<Box<dyn Future<Output = exchange::Result<Ack>> + Send + 'a>>;

impl EnvelopeCommand<'_> {
    /// Delegates a task.
    pub(crate) async fn delegated(&mut self, task: DelegateBuilder) -> Result<Delegation, SessionEnd> {
        let patience = self.patience();
        let task = self.answer(task.ack_timeout(patience).into_future()).await?;
        let mut ack = Ack::new(true);
        ack.estimated_ms = task.estimated().map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        self.print_progress(&ack, || match task.estimated() {
            Some(estimated) => format!("accepted, takes about {}", format_duration(estimated)),
            None => "accepted".to_owned(),
        })?;
        Ok(task)
    }

    /// Shows the notifications about the task until it ends. The task is cancelled after
    /// `cancel_after`, or when the user interrupts.
    pub(crate) async fn result(
        &mut self,
        task: &Delegation,
        cancel_after: Option<Duration>,
    ) -> Result<Exit, SessionEnd> {
        let mut output = task.output();
        let mut late = cancel_after.and_then(|after| Instant::now().checked_add(after));
        let mut cancelling: Option<Cancelling<'_>> = None;
        let mut until: Option<Instant> = None;
        let mut interrupted = false;
        let outcome = loop {
            let next = next(task, &mut self.notifications, &mut output, late, &mut cancelling, until);
            let reason = match self.agent_session.wait_for(next, Listen::Nothing).await? {
                WaitResult::Done(TaskEvent::Notification(notification)) => {
                    self.show_notification(notification)?;
                    continue;
                }
                WaitResult::Done(TaskEvent::Output(output)) => {
                    self.show_output(output)?;
                    continue;
                }
                WaitResult::Done(TaskEvent::Ack(ack)) => {
                    cancelling = None;
                    match ack {
                        Ok(ack) => {
                            self.cancel_answered(&ack)?;
                            if !ack.accepted && !interrupted {
                                // The task goes on, without a limit.
                                until = None;
                            }
                        }
                        Err(error) => self.note(&format!("no response to the cancellation: {error}"))?,
                    }
                    continue;
                }
                WaitResult::Done(TaskEvent::End(outcome)) => {
                    // They may have arrived together with the end.
                    while let Some(notification) = queued(&mut self.notifications).await {
                        self.show_notification(notification)?;
                    }
                    while let Some(chunk) = output.next().await {
                        self.show_output(chunk)?;
                    }
                    break outcome;
                }
                WaitResult::Done(TaskEvent::Ignored) => {
                    self.note(&format!(
                        "the agent did not end the cancelled task within {}",
                        format_duration(PATIENCE)
                    ))?;
                    if interrupted {
                        return Err(SessionEnd::Left(Signal::Interrupt));
                    }
                    break Err(exchange::Error::Timeout { kind: EnvelopeKind::Result, after: PATIENCE });
                }
                WaitResult::Done(TaskEvent::Late) => {
                    late = None;
                    "it takes too long"
                }
                WaitResult::Interrupt if interrupted => return Err(SessionEnd::Left(Signal::Interrupt)),
                WaitResult::Interrupt => {
                    interrupted = true;
                    late = None;
                    "the user cancelled"
                }
                WaitResult::Line(_) | WaitResult::Escape => continue,
            };
            self.note(if interrupted { "cancelling; Ctrl-C again leaves" } else { "cancelling" })?;
            until = Some(Instant::now() + PATIENCE);
            if cancelling.is_none() {
                cancelling = Some(task.cancel(reason).into_future());
            }
        };
        match self.outcome(outcome) {
            // The error is shown, and the interrupt decides the exit code.
            Err(SessionEnd::Failed(error)) if interrupted => {
                self.print_progress(&fault(&error), || error.to_string())?;
                Ok(Exit::Signal(Signal::Interrupt))
            }
            Ok(_) if interrupted => Ok(Exit::Signal(Signal::Interrupt)),
            exit => exit,
        }
    }

    /// Shows the response to a cancellation. As text it is shown only if the agent rejects the
    /// cancellation.
    pub(crate) fn cancel_answered(&mut self, ack: &Ack) -> crate::error::Result<()> {
        if ack.accepted {
            return self.print(ack, &[]);
        }
        let fault = ack.error.as_ref().map(ToString::to_string);
        let why = ack.reason.clone().or(fault).unwrap_or_else(|| "no reason given".into());
        self.print_progress(ack, || format!("the agent does not cancel: {why}"))
    }

    fn show_notification(&mut self, notification: TaskNotification) -> crate::error::Result<()> {
        match notification {
            // The output is shown in its order.
            Ok(received) if received.topic == OutputChunk::TOPIC => Ok(()),
            Ok(received) => {
                let text = received.data.as_ref().map(|value| value.parse().unwrap_or_else(|_| data(value)));
                let text: String = text.unwrap_or_default();
                let payload = &received.envelope.payload;
                self.print_progress(payload, || match received.topic.as_str() {
                    PROGRESS => text,
                    topic => format!("{topic}: {text}"),
                })
            }
            Err(lagged) => self.note(&lagged.to_string()),
        }
    }

    /// Prints a chunk of the output: its position and its content.
    fn show_output(&mut self, output: Result<TaskOutput, OutputGap>) -> crate::error::Result<()> {
        let output = match output {
            Ok(output) => output,
            Err(gap) => return self.note(&gap.to_string()),
        };
        let content = match (output.text(), &output.chunk.chunk) {
            (Some(text), _) => Some(text),
            (None, chunk) => chunk.as_ref().map(data),
        };
        let attached = output.attachments().iter().map(attached);
        let words: Vec<_> = content.into_iter().chain(attached).collect();
        let line = format!("{}\t{}", output.chunk.position, one_line(&words.join(" ")));
        self.print(&output.notification.envelope.payload, &[line])
    }

    fn outcome(&mut self, outcome: exchange::Result<DelegationOutcome>) -> Result<Exit, SessionEnd> {
        let outcome = outcome.map_err(to_error)?;
        let text = Some(multi_line(&outcome.outcome)).filter(|text| !text.is_empty());
        let data = outcome.data.as_ref().map(data);
        let lines: Vec<_> =
            text.into_iter().chain(data).chain(outcome.attachments.iter().map(attached)).collect();
        self.print(&outcome, &lines)?;
        if outcome.status == OutcomeStatus::Completed {
            return Ok(Exit::Ok);
        }
        let why = outcome.fault().map(|fault| format!(": {fault}")).unwrap_or_default();
        self.note(&format!("{}{why}", one_line(outcome.status.as_str())))?;
        Ok(Exit::Found)
    }
}

/// Waits for the first event. Notifications and output come before the result that follows them.
async fn next(
    task: &Delegation,
    notifications: &mut Subscription,
    output: &mut OutputStream,
    late: Option<Instant>,
    cancelling: &mut Option<Cancelling<'_>>,
    until: Option<Instant>,
) -> TaskEvent {
    tokio::select! {
        biased;
        Some(notification) = notifications.next() => TaskEvent::Notification(notification),
        Some(output) = output.next() => TaskEvent::Output(output),
        outcome = task.result() => TaskEvent::End(outcome),
        ack = answered(cancelling) => TaskEvent::Ack(ack),
        () = at(late) => TaskEvent::Late,
        () = at(until) => TaskEvent::Ignored,
    }
}

/// Returns the next notification, if one has arrived.
async fn queued(notifications: &mut Subscription) -> Option<TaskNotification> {
    tokio::select! {
        biased;
        notification = notifications.next() => notification,
        () = std::future::ready(()) => None,
    }
}

async fn answered(cancelling: &mut Option<Cancelling<'_>>) -> exchange::Result<Ack> {
    match cancelling {
        Some(cancelling) => cancelling.await,
        None => std::future::pending().await,
    }
}
