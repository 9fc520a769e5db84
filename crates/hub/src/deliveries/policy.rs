//! The decision after an attempt: delivered, again, or never again.

use std::time::Duration;

use duologue_store::{OutboxEntry, OutboxKind};
use hyper::StatusCode;
use jiff::fmt::rfc2822::DateTimeParser;

use crate::deliveries::DeliverySettings;
use crate::outbound::{OutboundError, OutboundResponse};

/// The attempts after which [`DeliverySettings::age`] counts, so that a clock that is set gives nothing up at once.
const ATTEMPTS_BEFORE_AGE: u32 = 8;

/// The consequence of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeliveryVerdict {
    Delivered,
    Retry { delay: Duration, error: String },
    GiveUp { error: String, whole_stream: bool },
}

/// The reason for which there is no response.
#[derive(Clone, Debug)]
pub(crate) struct DeliveryFailure {
    pub(crate) error: String,
    pub(crate) is_permanent: bool,
}

impl From<OutboundError> for DeliveryFailure {
    fn from(error: OutboundError) -> Self {
        DeliveryFailure { error: error.to_string(), is_permanent: error.is_permanent() }
    }
}

/// Decides on an attempt. `wall` is the time of day in ms since 1970, and `random` returns a number up to its argument.
pub(crate) fn decide(
    entry: &OutboxEntry,
    result: Result<OutboundResponse, DeliveryFailure>,
    settings: &DeliverySettings,
    wall: u64,
    random: impl FnOnce(u64) -> u64,
) -> DeliveryVerdict {
    let (error, is_final, wait) = match result {
        Ok(response) if response.status.is_success() => return DeliveryVerdict::Delivered,
        Ok(response) => {
            let status = response.status;
            let error = format!("the receiver answered {status}");
            if status == StatusCode::GONE {
                return DeliveryVerdict::GiveUp { error, whole_stream: true };
            }
            let wait = honoured_wait(response.retry_after.as_deref(), wall, settings.retry_after);
            (error, is_final(status), wait)
        }
        Err(failure) => (failure.error, failure.is_permanent, Duration::ZERO),
    };
    // A stream of chunks has no holes.
    let whole_stream = entry.kind == OutboxKind::Chunk;
    if is_final {
        return DeliveryVerdict::GiveUp { error, whole_stream };
    }
    if entry.attempts >= settings.attempts {
        let attempts = entry.attempts;
        let error = format!("given up after {attempts} attempts (`DeliverySettings::attempts`): {error}");
        return DeliveryVerdict::GiveUp { error, whole_stream };
    }
    let age = Duration::from_millis(wall.saturating_sub(entry.created));
    if age >= settings.age && entry.attempts >= ATTEMPTS_BEFORE_AGE {
        let limit = settings.age;
        let error = format!("given up after {limit:?} (`DeliverySettings::age`): {error}");
        return DeliveryVerdict::GiveUp { error, whole_stream };
    }
    let jitter = jitter(entry.attempts, settings, random);
    DeliveryVerdict::Retry { delay: jitter.max(wait), error }
}

/// Returns a random pause after an attempt, the first of which has the number 1.
pub(crate) fn jitter(
    attempts: u32,
    settings: &DeliverySettings,
    random: impl FnOnce(u64) -> u64,
) -> Duration {
    let doubled = 1_u32.checked_shl(attempts.saturating_sub(1)).unwrap_or(u32::MAX);
    let bound = settings.first_delay.saturating_mul(doubled).min(settings.max_delay);
    Duration::from_millis(random(u64::try_from(bound.as_millis()).unwrap_or(u64::MAX)))
}

/// Returns true for the statuses after which a repetition makes no sense.
fn is_final(status: StatusCode) -> bool {
    status.is_client_error()
        && !matches!(
            status,
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS
        )
}

/// Returns the time that a `Retry-After` asks for, up to a limit.
pub(crate) fn honoured_wait(text: Option<&str>, wall: u64, limit: Duration) -> Duration {
    text.and_then(|text| retry_after(text, wall)).unwrap_or_default().min(limit)
}

/// Reads `Retry-After`: seconds, or a date.
fn retry_after(text: &str, wall: u64) -> Option<Duration> {
    let text = text.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    let date = DateTimeParser::new().parse_timestamp(text).ok()?;
    let at = u64::try_from(date.as_millisecond()).ok()?;
    Some(Duration::from_millis(at.saturating_sub(wall)))
}
