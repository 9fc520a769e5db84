//! Types of the `parameters` of tasks, by domain and task.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use duologue_schema::dialogue::{DialogueMessage, MessageType};
use duologue_schema::{Json, Members};
use serde::de::DeserializeOwned;

use super::callbacks;

/// Parses members as a `T`.
pub(crate) fn read<T: DeserializeOwned>(members: &Members) -> serde_json::Result<T> {
    Json::new(members)?.parse()
}

/// A check for messages of these types, or of all types if the list is empty.
type Form = (Vec<MessageType>, Check);
type Check = Arc<dyn Fn(&Members) -> serde_json::Result<()> + Send + Sync>;

/// The types of the parameters of tasks. A message with invalid parameters is rejected with the
/// reason, in both directions.
///
/// A task without a registered type accepts any parameters. `error` messages are not checked.
///
/// ```
/// use duologue_exchange::dialogue::Parameters;
/// use duologue_schema::dialogue::MessageType;
/// use serde::Deserialize;
///
/// #[derive(Deserialize)]
/// struct Offer { amount: u32, currency: String }
///
/// let parameters = Parameters::new()
///     .of::<Offer>("automotive.sales", "negotiatePrice", &[MessageType::Propose, MessageType::Accept]);
/// # let _ = parameters;
/// ```
#[derive(Clone, Default)]
pub struct Parameters {
    checks: HashMap<(String, String), Vec<Form>>,
}

impl Parameters {
    /// Creates an empty set.
    #[must_use]
    pub fn new() -> Self {
        Parameters::default()
    }

    /// Registers `T` as the type of the parameters of `task` in `domain`, for messages of these
    /// types or of all types if `types` is empty. The first type registered for a message type
    /// wins.
    ///
    /// Deserializing a `T` must not block, because a message waits for it. Sending or receiving in
    /// a dialogue there fails with [`Error::InCallback`](super::Error::InCallback).
    #[must_use]
    pub fn of<T: DeserializeOwned>(mut self, domain: &str, task: &str, types: &[MessageType]) -> Self {
        let check: Check = Arc::new(|members| read::<T>(members).map(drop));
        let key = (domain.to_owned(), task.to_owned());
        self.checks.entry(key).or_default().push((types.to_vec(), check));
        self
    }

    /// Checks the parameters of a message.
    ///
    /// # Errors
    ///
    /// Returns an error if they do not match the registered type.
    pub fn check(&self, message: &DialogueMessage) -> Result<(), InvalidParameters> {
        let content = &message.content;
        let (Some(domain), Some(task)) = (&content.domain, &content.task) else { return Ok(()) };
        if message.message_type == MessageType::Error {
            return Ok(());
        }
        let forms = self.checks.get(&(domain.clone(), task.clone()));
        let form = forms
            .into_iter()
            .flatten()
            .find(|(types, _)| types.is_empty() || types.contains(&message.message_type));
        let check =
            |(_, check): &Form| callbacks::call("a form of Parameters", || check(&content.parameters));
        form.map_or(Ok(()), check).map_err(|error| InvalidParameters {
            message_type: message.message_type.clone(),
            task: task.clone(),
            reason: error.to_string(),
        })
    }
}

impl fmt::Debug for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.checks.keys()).finish()
    }
}

/// Parameters that do not match the registered type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the parameters of a {message_type} for {task} are invalid: {reason}")]
#[non_exhaustive]
pub struct InvalidParameters {
    /// The type of the message.
    pub message_type: MessageType,
    /// The task.
    pub task: String,
    /// The reason.
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use duologue_schema::dialogue::DialogueContent;
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Deserialize)]
    #[allow(dead_code, reason = "only its deserialization is tested")]
    struct Offer {
        amount: u32,
    }

    fn message(kind: MessageType, task: &str, parameters: serde_json::Value) -> DialogueMessage {
        let content = DialogueContent::new()
            .domain("sales")
            .task(task)
            .parameters(super::super::state::object(parameters));
        DialogueMessage::new("m", "s", "agent://a", "agent://b", "2026-03-01T12:00:00Z", 1, kind)
            .content(content)
    }

    #[test]
    fn a_type_applies_to_a_task_and_a_message_type() {
        let parameters = Parameters::new().of::<Offer>("sales", "price", &[MessageType::Propose]);
        let check = |kind, task, value| parameters.check(&message(kind, task, value));
        assert!(check(MessageType::Propose, "price", json!({ "amount": 7, "more": true })).is_ok());
        assert!(check(MessageType::Reject, "price", json!({ "amount": "7" })).is_ok());
        assert!(check(MessageType::Propose, "colour", json!({})).is_ok());
        let bad = check(MessageType::Propose, "price", json!({})).unwrap_err();
        assert!(
            bad.to_string()
                .starts_with("the parameters of a propose for price are invalid: missing field `amount`")
        );
    }

    #[test]
    fn errors_are_not_checked() {
        let parameters = Parameters::new().of::<Offer>("sales", "price", &[]);
        assert!(parameters.check(&message(MessageType::Inform, "price", json!({}))).is_err());
        assert!(parameters.check(&message(MessageType::Error, "price", json!({}))).is_ok());
    }
}
