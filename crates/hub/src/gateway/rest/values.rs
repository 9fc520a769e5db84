//! The values that several routes share.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use duologue_store::{JsonText, StorePage, TaskFailure};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use crate::gateway::{Refusal, RefusalCode};
use crate::outbound::OutboundUrl;

/// The largest number that all readers of JSON represent exactly.
pub(crate) const MAX_NUMBER: u64 = (1 << 53) - 1;
/// The most bytes of an address.
const URL_BYTES: usize = 2_048;
/// The most entries of a page. Zero in a query of the store is its default.
const PAGE: u64 = 1_000;

/// An error: the body of every refused request. Programs switch on `code`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Refusal)]
#[non_exhaustive]
pub struct RefusalBody {
    /// The code.
    #[schema(example = "not_found")]
    pub code: String,
    /// The failure, the value, the limit and the remedy.
    pub message: String,
    /// True if the same request can succeed later.
    pub retryable: bool,
}

impl From<&Refusal> for RefusalBody {
    fn from(refusal: &Refusal) -> Self {
        let code = refusal.code;
        let message = refusal.message.clone().into_owned();
        RefusalBody { code: code.as_str().to_owned(), message, retryable: code.is_retryable() }
    }
}

/// The error of a message or a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Failure)]
#[non_exhaustive]
pub struct RestFailure {
    /// The code, such as `timeout`.
    pub code: String,
    /// The message.
    pub message: String,
    /// True if the same work can succeed later.
    pub retryable: bool,
}

impl From<TaskFailure> for RestFailure {
    fn from(failure: TaskFailure) -> Self {
        RestFailure { code: failure.code, message: failure.message, retryable: failure.retryable }
    }
}

/// An id that the sender of a request chooses. `.` and `..` are no ids.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Id, value_type = String, min_length = 1, max_length = 128, pattern = r"^[^\u0000-\u001f\u007f-\u009f]+$")]
pub struct RestId(pub String);

impl<T: Into<String>> From<T> for RestId {
    fn from(id: T) -> Self {
        RestId(id.into())
    }
}

/// The rule of [`is_id`], for errors.
pub(crate) const ID_RULE: &str =
    "use 1 to 128 characters, and no control characters; `.` and `..` are no ids";

/// Returns true for 1 to 128 characters, none of which is a control character. Clients remove `.` and `..` from paths.
pub(crate) fn is_id(text: &str) -> bool {
    let count = text.chars().take(129).count();
    (1..=128).contains(&count) && !text.chars().any(char::is_control) && !matches!(text, "." | "..")
}

impl<'de> Deserialize<'de> for RestId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if !is_id(&text) {
            return Err(D::Error::custom(ID_RULE));
        }
        Ok(RestId(text))
    }
}

/// A struct of a body, which is read from an object alone. Its derived parser also takes an array, as the members in their order.
pub(crate) struct JsonObject<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for JsonObject<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ObjectVisitor(PhantomData)).map(JsonObject)
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(members))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<T, A::Error> {
        Err(A::Error::custom("an array; use an object"))
    }
}

/// Parses a member that is an object: `deserialize_with` of each struct inside of a body.
pub(crate) fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    JsonObject::deserialize(deserializer).map(|JsonObject(value)| value)
}

/// Parses a member that is an object or `null`.
pub(crate) fn object_or_null<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Option::deserialize(deserializer).map(|object| object.map(|JsonObject(value)| value))
}

/// A whole number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Number, value_type = u64, maximum = 9_007_199_254_740_991_u64)]
pub struct RestNumber(pub u64);

impl From<u64> for RestNumber {
    fn from(number: u64) -> Self {
        RestNumber(number)
    }
}

impl<'de> Deserialize<'de> for RestNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Some programs write all numbers with a fraction.
        match deserializer.deserialize_u64(WholeNumber)? {
            number @ 0..=MAX_NUMBER => Ok(RestNumber(number)),
            _ => Err(D::Error::custom(format!("use a whole number, at most {MAX_NUMBER}"))),
        }
    }
}

/// Parses a number of the id of an event: 1 to 15 digits.
pub(crate) fn event_number(text: &str) -> Option<u64> {
    let is_number = text.len() <= 15 && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

struct WholeNumber;

impl Visitor<'_> for WholeNumber {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from 0 to {MAX_NUMBER}")
    }

    fn visit_u64<E>(self, number: u64) -> Result<u64, E> {
        Ok(number)
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<u64, E> {
        let is_whole = number.fract() == 0.0 && (0.0..=MAX_NUMBER as f64).contains(&number);
        if is_whole { Ok(number as u64) } else { Err(E::invalid_value(Unexpected::Float(number), &self)) }
    }
}

/// The address of a program that receives posts: `http` or `https`, without a user. The host is a name, as in the pattern, or an IP
/// address in its usual form. That of a callback is one of the public network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(
    as = Url, value_type = String, max_length = 2048,
    pattern = r"^https?://([A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?\.){0,2}[A-Za-z]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?(:(80|443|[2-9][0-9]{3}|[1-5][0-9]{4}))?(/[A-Za-z0-9._~!$&'()*+,;=:@/?-]*)?$"
)]
pub struct RestUrl(pub String);

impl<'de> Deserialize<'de> for RestUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        OutboundUrl::parse(&text, URL_BYTES).map_err(D::Error::custom)?;
        Ok(RestUrl(text))
    }
}

/// Members that the interface does not interpret, except those that a description names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(as = Members, value_type = BTreeMap<String, Value>)]
pub struct RestMetadata(pub BTreeMap<String, Value>);

/// A level of urgency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = Priority)]
pub enum RestPriority {
    /// 1 of 9.
    Low,
    /// 4 of 9. The default.
    #[default]
    Medium,
    /// 6 of 9.
    High,
    /// 9 of 9.
    Critical,
}

impl RestPriority {
    pub(crate) fn number(self) -> u8 {
        match self {
            RestPriority::Low => 1,
            RestPriority::Medium => 4,
            RestPriority::High => 6,
            RestPriority::Critical => 9,
        }
    }

    /// Returns the level whose band has a number.
    pub(crate) fn of(number: u8) -> Self {
        match number {
            0..=2 => RestPriority::Low,
            3..=5 => RestPriority::Medium,
            6 | 7 => RestPriority::High,
            _ => RestPriority::Critical,
        }
    }
}

/// The number of entries in front of a page, as a parameter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(value_type = u64, maximum = 9_007_199_254_740_991_u64)]
pub struct PageOffset(pub u64);

impl<'de> Deserialize<'de> for PageOffset {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        RestNumber::deserialize(deserializer).map(|number| PageOffset(number.0))
    }
}

/// The most entries of a page, as a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(value_type = u64, minimum = 1, maximum = 1000, default = 100)]
pub struct PageLimit(pub u64);

impl Default for PageLimit {
    fn default() -> Self {
        PageLimit(duologue_store::StoreSettings::DEFAULT_PAGE)
    }
}

impl<'de> Deserialize<'de> for PageLimit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u64::deserialize(deserializer)? {
            limit @ 1..=PAGE => Ok(PageLimit(limit)),
            _ => Err(D::Error::custom(format!("use a number from 1 to {PAGE}"))),
        }
    }
}

/// The place of a page in its list. A page of 4 MiB has fewer entries than `limit`. The next one begins behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Pagination)]
#[non_exhaustive]
pub struct Pagination {
    /// The number of entries in front of the page.
    pub offset: u64,
    /// The most entries of the page.
    pub limit: u64,
    /// The number of all entries.
    pub total: u64,
}

impl<T> From<&StorePage<T>> for Pagination {
    fn from(page: &StorePage<T>) -> Self {
        Pagination { offset: page.offset, limit: page.limit, total: page.total }
    }
}

/// The agent of a path.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Path)]
pub(crate) struct AgentTarget {
    /// The id of the agent.
    pub(crate) agent_id: String,
}

/// The message of a path.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Path)]
pub(crate) struct MessageTarget {
    /// The id of the agent that receives it.
    pub(crate) agent_id: String,
    /// The id of the message.
    pub(crate) message_id: String,
}

/// The task of a path.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Path)]
pub(crate) struct TaskTarget {
    /// The id of the agent that runs it.
    pub(crate) agent_id: String,
    /// The id of the task.
    pub(crate) task_id: String,
}

/// The sender of a message, if several have used its id.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
#[non_exhaustive]
pub struct SenderQuery {
    /// The principal that has sent it. By default the caller, then any that the caller may see.
    pub sender: Option<String>,
}

/// The owner of a task, if several have used its id.
#[derive(Clone, Debug, Default, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
#[non_exhaustive]
pub struct OwnerQuery {
    /// The principal that has created it. By default the caller, then any that the caller may see.
    pub owner: Option<String>,
}

/// Creates the refusal of a change that the state of a record does not allow.
pub(crate) fn conflict(message: &'static str) -> Refusal {
    Refusal::new(RefusalCode::Conflict, message)
}

/// Returns the text, unless it is `null`.
pub(crate) fn unless_null(text: &JsonText) -> Option<JsonText> {
    Some(text.clone()).filter(|text| text.as_str() != "null")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_short_and_visible() {
        assert!(is_id("a/ü") && is_id(&"ü".repeat(128)));
        assert!(!is_id("") && !is_id("a\n") && !is_id(&"a".repeat(129)));
    }
}
