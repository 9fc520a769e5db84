//! Limits on the size of ids and texts.

use duologue_rpc::SecretText;
use duologue_rpc::raw_message::beginning;

use crate::error::{Error, Result};
use crate::tables::agents::RegisteredAgent;
use crate::tables::batch::{StoreBatch, StoreChange};
use crate::tables::messages::NewInboxMessage;
use crate::tables::principals::{SeenKey, StoredPrincipal};
use crate::tables::settings::StoreSettings;
use crate::tables::tasks::{NewTask, StoredTaskKey, TaskUpdate};
use crate::tables::values::{Claim, JsonText};

/// The most bytes of a digest.
const DIGEST_BYTES: usize = 64;

struct SizeCheck<'a>(&'a StoreSettings);

impl SizeCheck<'_> {
    fn too_long(field: &'static str, size: usize, limit: usize, setting: &'static str) -> Result<()> {
        Err(Error::TooLong { field, size: size as u64, limit: limit as u64, setting })
    }

    /// Checks an id or a name.
    fn id(&self, field: &'static str, id: &str) -> Result<()> {
        let (chars, limit) = (id.chars().count(), self.0.id_chars);
        match chars {
            0 => Self::too_long(field, 0, limit, "StoreSettings::id_chars"),
            _ if chars > limit => Self::too_long(field, chars, limit, "StoreSettings::id_chars"),
            _ => Ok(()),
        }
    }

    fn ids(&self, ids: &[(&'static str, &str)]) -> Result<()> {
        ids.iter().try_for_each(|(field, id)| self.id(field, id))
    }

    fn maybe_id(&self, field: &'static str, id: Option<&String>) -> Result<()> {
        id.map_or(Ok(()), |id| self.id(field, id))
    }

    /// Checks an address or another text, which may be empty.
    fn text(&self, field: &'static str, text: Option<impl AsRef<str>>) -> Result<()> {
        match text.map_or(0, |text| text.as_ref().len()) {
            size if size > self.0.text_bytes => {
                Self::too_long(field, size, self.0.text_bytes, "StoreSettings::text_bytes")
            }
            _ => Ok(()),
        }
    }

    fn content(&self, field: &'static str, content: Option<&JsonText>) -> Result<()> {
        match content.map_or(0, |content| content.as_str().len()) {
            size if size > self.0.content_bytes => {
                Self::too_long(field, size, self.0.content_bytes, "StoreSettings::content_bytes")
            }
            _ => Ok(()),
        }
    }

    fn names(&self, field: &'static str, names: &[String]) -> Result<()> {
        if names.len() > self.0.names {
            return Self::too_long(field, names.len(), self.0.names, "StoreSettings::names");
        }
        names.iter().try_for_each(|name| self.id(field, name))
    }

    fn task(&self, key: &StoredTaskKey) -> Result<()> {
        self.ids(&[("owner", &key.owner), ("agent", &key.agent), ("task", &key.task)])
    }

    fn seen(&self, key: &SeenKey) -> Result<()> {
        self.ids(&[("principal", &key.principal), ("scope", &key.scope), ("key", &key.key)])
    }

    fn agent(&self, agent: &RegisteredAgent) -> Result<()> {
        self.ids(&[("agent", &agent.id), ("owner", &agent.owner)])?;
        self.maybe_id("provider", agent.provider.as_ref())?;
        self.text("endpoint", Some(&agent.endpoint))?;
        self.content("card", Some(&agent.card))?;
        self.names("capabilities", &agent.capabilities)?;
        self.names("domains", &agent.domains)?;
        self.names("tags", &agent.tags)
    }

    fn message(&self, message: &NewInboxMessage) -> Result<()> {
        self.ids(&[
            ("agent", &message.agent),
            ("message", &message.id),
            ("principal", &message.from.principal),
            ("sender", &message.from.name),
        ])?;
        self.maybe_id("correlation_id", message.correlation_id.as_ref())?;
        self.maybe_id("group", message.group.as_ref())?;
        self.text("trace", message.trace.as_ref())?;
        self.content("content", Some(&message.content))
    }

    fn new_task(&self, task: &NewTask) -> Result<()> {
        self.task(&task.key)?;
        self.ids(&[("sender", &task.from), ("type", &task.kind)])?;
        self.text("callback", task.callback.as_ref())?;
        self.text("trace", task.trace.as_ref())?;
        self.text("stream_endpoint", task.stream_endpoint.as_ref())?;
        self.content("parameters", Some(&task.parameters))?;
        self.content("metadata", Some(&task.metadata))
    }

    fn update(&self, update: &TaskUpdate) -> Result<()> {
        self.task(&update.key)?;
        self.maybe_id("session", update.session.as_ref())?;
        if let Some(error) = &update.error {
            self.id("error code", &error.code)?;
        }
        self.content("result", update.result.as_ref())?;
        self.content("metadata", update.metadata.as_ref())
    }

    fn principal(&self, principal: &StoredPrincipal) -> Result<()> {
        self.id("principal", &principal.id)?;
        self.text("webhook_secret", principal.webhook_secret.as_ref().map(SecretText::as_str))?;
        self.names("roles", &principal.roles)
    }

    fn change(&self, change: &StoreChange) -> Result<()> {
        match change {
            StoreChange::PutAgent(agent) => self.agent(agent),
            StoreChange::Enqueue(message) => self.message(message),
            StoreChange::AckMessage { response, .. } => self.content("response", response.as_ref()),
            StoreChange::CreateTask(task) => self.new_task(task),
            StoreChange::UpdateTask(update) => self.update(update),
            StoreChange::AddQuestion(question) => {
                self.task(&question.task)?;
                self.id("question", &question.id)?;
                self.content("body", Some(&question.body))
            }
            StoreChange::AnswerQuestion { answer, answered_by, .. } => {
                self.id("answered_by", answered_by)?;
                self.content("answer", Some(answer))
            }
            StoreChange::PushDelivery(delivery) => {
                self.id("principal", &delivery.principal)?;
                // A stream is often named after a task with all parts of its key.
                self.text("stream", Some(&delivery.stream))?;
                self.text("url", Some(&delivery.url))?;
                self.text("trace", delivery.trace.as_ref())?;
                self.content("body", Some(&delivery.body))
            }
            StoreChange::Remember(seen) => {
                self.seen(&seen.key)?;
                if seen.digest.len() > DIGEST_BYTES {
                    let size = seen.digest.len();
                    return Self::too_long("digest", size, DIGEST_BYTES, "a digest has a fixed limit");
                }
                self.content("response", seen.response.as_ref())
            }
            StoreChange::SetResponse { response, .. } => self.content("response", Some(response)),
            StoreChange::PutPrincipal(principal) => self.principal(principal),
            // They name records that are there, or error texts, which are cut.
            _ => Ok(()),
        }
    }
}

/// Checks the changes of a batch before the writer gets it.
pub(super) fn batch(settings: &StoreSettings, batch: &StoreBatch) -> Result<()> {
    let size = batch.changes.len();
    if size > settings.batch_changes {
        let limit = settings.batch_changes;
        return SizeCheck::too_long("the batch", size, limit, "StoreSettings::batch_changes");
    }
    let check = SizeCheck(settings);
    batch.changes.iter().try_for_each(|change| check.change(change))
}

pub(super) fn claim(settings: &StoreSettings, claim: &Claim) -> Result<()> {
    SizeCheck(settings).id("worker", &claim.worker)
}

/// Cuts an error text at the limit.
pub(super) fn cut(settings: &StoreSettings, mut text: String) -> String {
    text.truncate(beginning(&text, settings.text_bytes).len());
    text
}
