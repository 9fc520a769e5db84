//! The dialogue message.

use std::fmt;

use duologue_schema_derive::wire;

use super::ids::is_id;
use super::{AgentUri, DialogueContent, DialogueId, DialogueMessageId, ID_CHARS};

/// The greatest number of messages in `previous_context`, of `belief_updates` and of `attachments`.
pub const LIST_ITEMS: usize = 256;

/// One message of a dialogue.
///
/// ```
/// use duologue_schema::dialogue::{DialogueContent, DialogueAct, DialogueMessage, MessageType};
///
/// let message = DialogueMessage::new(
///     "m1", "s1", "agent://buyer.example", "agent://seller.example/sales",
///     "2026-03-01T12:00:00Z", 1, MessageType::Propose,
/// )
/// .dialogue_act(DialogueAct::Propose)
/// .content(DialogueContent::new().domain("automotive.sales").task("negotiatePrice"));
/// assert!(message.check().is_ok());
/// ```
#[wire(snake, definition = "Message")]
pub struct DialogueMessage {
    /// The id of the message.
    pub message_id: DialogueMessageId,
    /// The id of the dialogue. It is unrelated to ACP sessions.
    pub session_id: DialogueId,
    /// The message that this one answers.
    pub parent_message_id: Option<DialogueMessageId>,
    /// The sender.
    pub sender_id: AgentUri,
    /// The recipient.
    pub recipient_id: AgentUri,
    /// The time of sending, as an ISO 8601 timestamp with an offset from UTC.
    pub timestamp: String,
    /// The position in the dialogue. Both agents count the same sequence from 1.
    #[wire(integer)]
    pub interaction_step: u64,
    /// The type of the message.
    pub message_type: MessageType,
    /// The communicative intent.
    pub dialogue_act: Option<DialogueAct>,
    /// The content.
    #[wire(default, always)]
    pub content: DialogueContent,
    /// Metadata for routing and expiry.
    #[wire(default, null_default)]
    pub metadata: DialogueMetadata,
    /// The signature of the sender over all other fields.
    pub signature: Option<String>,
}

impl DialogueMessage {
    /// Checks each field by itself, not the place of the message in its dialogue.
    ///
    /// # Errors
    ///
    /// If an id or the `routing_key` is empty or longer than [`ID_CHARS`], a list is longer than
    /// [`LIST_ITEMS`], a URI is invalid, or the step is 0.
    pub fn check(&self) -> Result<(), InvalidField> {
        let fault = |field, reason: String| Err(InvalidField { field, reason });
        let parents = [&self.parent_message_id, &self.metadata.parent_message_id].into_iter().flatten();
        let ids = [("message_id", self.message_id.as_str()), ("session_id", self.session_id.as_str())]
            .into_iter()
            .chain(parents.map(|id| ("parent_message_id", id.as_str())))
            .chain(self.metadata.parent_session_id.iter().map(|id| ("parent_session_id", id.as_str())))
            .chain(self.content.previous_context.iter().map(|id| ("previous_context", id.as_str())))
            .chain(self.metadata.correlation_id.iter().map(|id| ("correlation_id", id.as_str())))
            .chain(self.metadata.routing_key.iter().map(|key| ("routing_key", key.as_str())));
        for (field, id) in ids {
            if !is_id(id) {
                return Err(InvalidField::id(field));
            }
        }
        let lists = [
            ("previous_context", self.content.previous_context.len()),
            ("belief_updates", self.content.belief_updates.len()),
            ("attachments", self.content.attachments.len()),
        ];
        for (field, items) in lists {
            if items > LIST_ITEMS {
                return fault(field, format!("must have at most {LIST_ITEMS} items"));
            }
        }
        for (field, uri) in [("sender_id", &self.sender_id), ("recipient_id", &self.recipient_id)] {
            if let Err(reason) = uri.check() {
                return fault(field, reason.to_string());
            }
        }
        if self.interaction_step == 0 {
            return fault("interaction_step", "counts from 1".to_owned());
        }
        Ok(())
    }
}

/// The error of an invalid field of a [`DialogueMessage`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InvalidField {
    /// The name of the field.
    pub field: &'static str,
    /// The reason, as the continuation of a sentence that starts with the name.
    pub reason: String,
}

impl InvalidField {
    /// Creates the error of an id with an invalid length.
    pub(super) fn id(field: &'static str) -> Self {
        InvalidField { field, reason: format!("must have 1 to {ID_CHARS} characters") }
    }
}

impl fmt::Display for InvalidField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.field, self.reason)
    }
}

impl std::error::Error for InvalidField {}

/// The type of a message. The rules of a dialogue apply to it.
#[wire]
pub enum MessageType {
    /// Requests an action.
    Request,
    /// Answers a request or a query.
    Response,
    /// Provides information without a request.
    Inform,
    /// Confirms that a message was understood.
    Confirm,
    /// Makes an offer.
    Propose,
    /// Accepts an offer.
    Accept,
    /// Rejects an offer, possibly with a counter-offer.
    Reject,
    /// Requests a clarification.
    Clarify,
    /// Requests information.
    Query,
    /// Reports progress or a change.
    Update,
    /// Reports an error.
    Error,
    /// Ends the dialogue.
    Termination,
}

/// The communicative intent of a message. No rule depends on it. Peers may use others.
#[wire(open)]
pub enum DialogueAct {
    /// Informs of a value.
    #[wire(rename = "inform-ref")]
    InformRef,
    /// Informs of a truth value.
    #[wire(rename = "inform-if")]
    InformIf,
    /// Asks for a value.
    #[wire(rename = "question-ref")]
    QuestionRef,
    /// Asks for a truth value.
    #[wire(rename = "question-yn")]
    QuestionYn,
    /// Requests an action.
    #[wire(rename = "request-action")]
    RequestAction,
    /// Makes an offer.
    Propose,
    /// Accepts an offer.
    Accept,
    /// Rejects an offer.
    Reject,
    /// Opens the conversation.
    Greeting,
    /// Closes the conversation.
    Closing,
}

/// Metadata of a message, for routing and expiry.
#[wire(snake, definition = "Metadata")]
pub struct DialogueMetadata {
    /// The priority, from 0 to 9. Any other integer is kept as well, because the signature covers it;
    /// see [`band`](Self::band).
    #[wire(integer)]
    pub priority: Option<i64>,
    /// The lifetime in seconds from the `timestamp`. Absent means no limit.
    #[wire(integer)]
    pub ttl: Option<u64>,
    /// An id shared by the messages of related dialogues, 1 to 128 characters.
    pub correlation_id: Option<String>,
    /// A key for agents that route the message, 1 to 128 characters.
    pub routing_key: Option<String>,
    /// The dialogue in which this one was opened.
    pub parent_session_id: Option<DialogueId>,
    /// The message of that dialogue that caused it.
    pub parent_message_id: Option<DialogueMessageId>,
}

impl DialogueMetadata {
    /// Returns the band of the `priority`.
    ///
    /// ```
    /// use duologue_schema::dialogue::{DialogueMetadata, PriorityBand};
    ///
    /// assert_eq!(DialogueMetadata::new().priority(10).band(), PriorityBand::Critical);
    /// assert_eq!(DialogueMetadata::new().band(), PriorityBand::Medium);
    /// ```
    #[must_use]
    pub fn band(&self) -> PriorityBand {
        self.priority.map_or(PriorityBand::Medium, PriorityBand::from)
    }
}

/// The four bands of priorities. Integers beyond 0 to 9 count as the nearest of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PriorityBand {
    /// 0 to 2.
    Low,
    /// 3 to 5, and a message without a priority.
    #[default]
    Medium,
    /// 6 and 7.
    High,
    /// 8 and 9.
    Critical,
}

impl From<i64> for PriorityBand {
    fn from(priority: i64) -> Self {
        match priority {
            ..=2 => Self::Low,
            3..=5 => Self::Medium,
            6..=7 => Self::High,
            8.. => Self::Critical,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::dialogue::{Belief, BeliefUpdate, DialogueErrorCode, ErrorContent};
    use crate::{Attachment, Json, params_fault};

    fn message() -> DialogueMessage {
        DialogueMessage::new(
            "m1",
            "s1",
            "agent://a",
            "agent://b/c",
            "2026-03-01T12:00:00Z",
            1,
            MessageType::Inform,
        )
    }

    #[test]
    fn the_fields_are_checked_and_named() {
        assert_eq!(message().check(), Ok(()));
        let long = "é".repeat(ID_CHARS + 1);
        let parent = DialogueMetadata::new().parent_session_id(long.as_str());
        let context = DialogueContent::new().previous_context(vec![DialogueMessageId::from("")]);
        let often = |id: &str| vec![DialogueMessageId::from(id); LIST_ITEMS + 1];
        let belief = BeliefUpdate::Other(Json::from(json!(1)));
        let picture = Attachment::with_bytes("image/png", "");
        let wrong = [
            ("message_id", DialogueMessage { message_id: "".into(), ..message() }),
            ("session_id", DialogueMessage { session_id: long.as_str().into(), ..message() }),
            ("parent_message_id", message().parent_message_id("")),
            ("sender_id", DialogueMessage { sender_id: "buyer".into(), ..message() }),
            ("recipient_id", DialogueMessage { recipient_id: "agent://".into(), ..message() }),
            ("interaction_step", DialogueMessage { interaction_step: 0, ..message() }),
            ("parent_session_id", message().metadata(parent)),
            ("previous_context", message().content(context)),
            ("previous_context", message().content(DialogueContent::new().previous_context(often("m")))),
            (
                "belief_updates",
                message().content(DialogueContent::new().belief_updates(vec![belief; LIST_ITEMS + 1])),
            ),
            (
                "attachments",
                message().content(DialogueContent::new().attachments(vec![picture; LIST_ITEMS + 1])),
            ),
            ("correlation_id", message().metadata(DialogueMetadata::new().correlation_id(long.as_str()))),
            ("routing_key", message().metadata(DialogueMetadata::new().routing_key(""))),
        ];
        for (field, message) in wrong {
            assert_eq!(message.check().unwrap_err().field, field);
        }
    }

    #[test]
    fn any_priority_belongs_to_a_band_and_is_kept() {
        use PriorityBand::{Critical, High, Low, Medium};
        let bands =
            [(-1, Low), (0, Low), (2, Low), (3, Medium), (5, Medium), (6, High), (7, High), (8, Critical)];
        for (priority, band) in bands.into_iter().chain([(9, Critical), (10, Critical), (i64::MIN, Low)]) {
            let text = format!(r#"{{"priority":{priority}}}"#);
            let metadata: DialogueMetadata = serde_json::from_str(&text).unwrap();
            assert_eq!(metadata.band(), band, "{priority}");
            assert_eq!(serde_json::to_string(&metadata).unwrap(), text);
        }
        assert_eq!(DialogueMetadata::new().band(), PriorityBand::default());
    }

    #[test]
    fn integers_have_any_spelling() {
        let read = |text: &str| serde_json::from_str::<DialogueMetadata>(text);
        let read_ttl = |value: &str| read(&format!(r#"{{"ttl":{value}}}"#)).map(|metadata| metadata.ttl);
        for (spelling, value) in [("60", 60), ("60.0", 60), ("6e1", 60), ("6.0E+1", 60), ("-0.0", 0)] {
            assert_eq!(read_ttl(spelling).unwrap(), Some(value), "{spelling}");
        }
        assert_eq!(read_ttl("null").unwrap(), None);
        assert_eq!(read_ttl("1.0e15").unwrap(), Some(1_000_000_000_000_000));
        for (spelling, fault) in [
            ("1.5", "must be an integer"),
            ("1e300", "must be an integer"),
            ("9007199254740991.0", "must be an integer"),
            ("-1", "is out of range: -1"),
            ("-1.0", "is out of range: -1"),
            ("\"60\"", "must be an integer"),
            ("true", "must be an integer"),
            ("[60]", "must be an integer"),
            ("{\"a\":1}", "must be an integer"),
        ] {
            let error = params_fault("a", &read_ttl(spelling).unwrap_err());
            assert_eq!(error, format!("a: field `ttl` {fault}"), "{spelling}");
        }
        assert_eq!(read(r#"{"priority":-3.0}"#).unwrap().priority, Some(-3));
        let step = |value: &str| {
            let text = serde_json::to_string(&message()).unwrap();
            serde_json::from_str::<DialogueMessage>(&text.replace("\"interaction_step\":1", value))
        };
        assert_eq!(step("\"interaction_step\":7.0").unwrap().interaction_step, 7);
        for (value, fault) in [
            ("\"interaction_step\":null", "field `interaction_step` must be an integer"),
            ("\"interaction_step\":0.5", "field `interaction_step` must be an integer"),
            ("\"step\":1", "missing field `interaction_step`"),
        ] {
            let error = step(value).unwrap_err().to_string();
            assert!(error.contains(fault), "{value}: {error}");
        }
    }

    #[test]
    fn a_bad_message_is_read_all_the_same() {
        let text = r#"{"message_id":"","session_id":"s","sender_id":"me","recipient_id":"you","timestamp":"now",
            "interaction_step":0,"message_type":"shout","dialogue_act":null,"content":{},"parent_message_id":null}"#;
        let message: DialogueMessage = serde_json::from_str(text).unwrap();
        assert_eq!(message.message_type, MessageType::Unknown("shout".into()));
        assert_eq!(message.parent_message_id, None);
        assert!(message.check().is_err());
    }

    #[test]
    fn beliefs_of_other_forms_are_kept() {
        let text = r#"{"previous_context":[],"parameters":{},"belief_updates":[{"entity":"car","attribute":"price",
            "value":18000,"confidence":1.0,"since":"today"},{"believes":"in luck"},"words",{"entity":1}]}"#;
        let content: DialogueContent = serde_json::from_str(text).unwrap();
        let belief: Vec<&Belief> = content.beliefs().collect();
        assert_eq!(belief.len(), 1);
        assert_eq!(belief[0].extra.get::<String>("since").as_deref(), Some("today"));
        assert!(
            matches!(&content.belief_updates[1], BeliefUpdate::Other(json) if json.get().contains("luck"))
        );
        assert_eq!(Json::new(&content).unwrap(), serde_json::from_str::<Json>(text).unwrap());
    }

    #[test]
    fn an_error_of_another_form_keeps_its_code() {
        let text = r#"{"error_code":"OVERLOADED","error_message":["try","later"],"details":"queue full",
            "retryable":"yes","failed_message_id":7,"failed_session_id":"d"}"#;
        let error = serde_json::from_str::<DialogueContent>(text).unwrap().error().unwrap();
        assert_eq!(error.error_code, DialogueErrorCode::Overloaded);
        assert!(error.is_retryable() && error.details.is_empty() && error.error_message.is_empty());
        assert_eq!((error.failed_message_id, error.failed_session_id), (None, Some("d".into())));
    }

    #[test]
    fn an_error_names_what_it_can_of_any_value() {
        let error = ErrorContent::of(DialogueErrorCode::Unauthorized, "no");
        for text in ["7", "null", "[]", "{}", r#"{"message_id":7,"sender_id":"me"}"#] {
            assert_eq!(error.clone().about(&serde_json::from_str(text).unwrap()), error, "{text}");
        }
        let about = error.about(&Json::new(&message()).unwrap());
        assert_eq!(about.failed_message_id, Some("m1".into()));
        assert_eq!(about.failed_session_id, Some("s1".into()));
        assert_eq!(about.failed_sender_id, Some("agent://a".into()));
        assert_eq!(about.failed_recipient_id, Some("agent://b/c".into()));
        let wire = serde_json::to_value(&about).unwrap();
        assert_eq!(wire["error_code"], "UNAUTHORIZED");
        assert_eq!(DialogueContent::from(about.clone()).error(), Some(about));
    }
}
