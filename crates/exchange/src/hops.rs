//! Hop counts, which stop agents that call each other in a circle.
//!
//! A query, a delegation and a work order carry their hops as `_meta.duologue.hops`. A side that
//! does not support hops ignores the number, and its own calls start at 0.

use duologue_schema::envelope::{EnvelopeError, EnvelopeErrorCode, EnvelopeKind};
use duologue_schema::{DuologueCapabilities, Meta};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// The name of the member in `_meta.duologue`.
const KEY: &str = "hops";

tokio::task_local! {
    static CURRENT: Hops;
}

/// The number of handlers that a call has passed through: 0 for a call that was not made by a
/// handler.
///
/// A query, a delegation or a work order that a handler makes has one hop more than the call that
/// the handler serves. Calls in the handler's own task, and calls through the `peer` that came with the
/// call, are counted automatically. For calls to another agent, a task that the handler spawns
/// inherits the number with [`scope`](Self::scope). Both sides reject a call above
/// [`Exchange::max_hops`](crate::Exchange::max_hops).
///
/// ```
/// use duologue_exchange::envelope::{EnvelopeHandler, EnvelopeError, Query, Received, QueryResponse};
/// use duologue_exchange::{Exchange, Hops};
///
/// struct Hall;
///
/// impl EnvelopeHandler for Hall {
///     async fn query(&self, query: Received<Query>) -> Result<QueryResponse, EnvelopeError> {
///         // Asks back until there have been enough.
///         let asking = async move { query.peer.query("What is that?").await };
///         let answer = tokio::spawn(Hops::current().scope(asking)).await;
///         Ok(answer.map_err(|error| EnvelopeError::internal(error.to_string()))??)
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let (hall, _) = Exchange::new().envelope_handler(Hall).in_memory(Exchange::new().envelope_handler(Hall));
/// let error = hall.query("What is that?").await.unwrap_err();
/// assert!(error.to_string().contains("Exchange::max_hops"));
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hops(u32);

impl Hops {
    /// Returns the hops of a call made here: one more than those of the call that is being handled,
    /// or 0 outside a handler.
    #[must_use]
    pub fn current() -> Self {
        CURRENT.try_with(|hops| *hops).unwrap_or_default()
    }

    /// Runs a future whose calls have this number of hops, for example in a task that a handler
    /// spawned.
    pub async fn scope<F: Future>(self, future: F) -> F::Output {
        CURRENT.scope(self, future).await
    }

    /// Returns the number.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0
    }

    /// Returns the hops of the calls made by the handler of a call with these hops.
    pub(crate) fn next(self) -> Self {
        Hops(self.0.saturating_add(1))
    }

    /// Reads the hops of an incoming call: 0 without `_meta.duologue.hops`. As in envelopes, `3.0` is the integer 3.
    ///
    /// # Errors
    ///
    /// `invalid_parameter` for hops that are no whole number. As 0 they would let a circle go on for ever.
    pub(crate) fn of(meta: Option<&Meta>) -> Result<Self, EnvelopeError> {
        #[derive(Default, Deserialize)]
        struct Own {
            hops: Option<f64>,
        }
        let own = meta.filter(|meta| meta.keys().any(|key| key == DuologueCapabilities::KEY));
        let own = own.map_or(Some(None), |meta| meta.get::<Option<Own>>(DuologueCapabilities::KEY));
        let hops = own.map(|own| own.unwrap_or_default().hops.unwrap_or_default());
        match hops.filter(|hops| hops.fract() == 0.0 && *hops >= 0.0) {
            // A number that is too large becomes the largest one.
            Some(hops) => Ok(Hops(hops as u32)),
            None => {
                let message = "`_meta.duologue.hops` must be a whole number from 0 on";
                Err(EnvelopeError::of(EnvelopeErrorCode::InvalidParameter, message))
            }
        }
    }

    /// Writes the hops into the `_meta` of an outgoing call and keeps the other members.
    ///
    /// # Errors
    ///
    /// [`Error::TooManyHops`].
    pub(crate) fn write_to(self, meta: &mut Option<Meta>, limit: u32) -> Result<()> {
        let Hops(hops) = self;
        if hops > limit {
            return Err(Error::TooManyHops { hops, limit });
        }
        if hops > 0 {
            let meta = meta.get_or_insert_default();
            let mut own = meta.get::<Map<String, Value>>(DuologueCapabilities::KEY).unwrap_or_default();
            own.insert(KEY.to_owned(), hops.into());
            meta.insert(DuologueCapabilities::KEY, Value::Object(own));
        }
        Ok(())
    }

    /// Rejects a call with too many hops.
    pub(crate) fn check(self, limit: u32) -> Result<(), EnvelopeError> {
        let Hops(hops) = self;
        if hops <= limit {
            return Ok(());
        }
        let message = format!(
            "this call has {hops} hops, more than Exchange::max_hops = {limit}: agents may be asking each other in a \
             circle"
        );
        Err(EnvelopeError::of(EnvelopeErrorCode::TooManyHops, message))
    }
}

/// Converts a number that arrived another way, for example beside a prompt.
impl From<u32> for Hops {
    fn from(hops: u32) -> Self {
        Hops(hops)
    }
}

/// Returns true for the kinds of envelopes that carry hops.
pub(crate) fn are_counted(kind: &EnvelopeKind) -> bool {
    matches!(kind, EnvelopeKind::Query | EnvelopeKind::Delegate)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(json: &str) -> Option<Meta> {
        Some(serde_json::from_str(json).unwrap())
    }

    #[test]
    fn absent_hops_are_none_and_invalid_ones_are_refused() {
        let of = |json| Hops::of(meta(json).as_ref()).map(Hops::get);
        assert_eq!(of(r#"{"duologue":{"hops":3,"later":[]}}"#), Ok(3));
        for json in [r#"{"duologue":{"hops":3.0}}"#, r#"{"duologue":{"hops":30e-1}}"#] {
            assert_eq!(of(json), Ok(3), "{json}");
        }
        for json in
            [r#"{"duologue":{"hops":99999999999999}}"#, r#"{"duologue":{"hops":99999999999999999999}}"#]
        {
            assert_eq!(of(json), Ok(u32::MAX), "{json}");
        }
        for json in
            ["{}", r#"{"hops":"3"}"#, r#"{"duologue":{}}"#, r#"{"duologue":{"later":[],"hops":null}}"#]
        {
            assert_eq!(of(json), Ok(0), "{json}");
        }
        for json in [
            r#"{"duologue":3}"#,
            r#"{"duologue":{"hops":-1}}"#,
            r#"{"duologue":{"hops":1.5}}"#,
            r#"{"duologue":{"hops":"3"}}"#,
            r#"{"duologue":{"hops":true}}"#,
            r#"{"duologue":{"hops":1e999}}"#,
            r#"{"duologue":{"hops":1,"hops":0}}"#,
        ] {
            assert_eq!(of(json).unwrap_err().code, EnvelopeErrorCode::InvalidParameter, "{json}");
        }
        assert_eq!(Hops::of(None), Ok(Hops::default()));
    }

    #[test]
    fn writing_keeps_other_members() {
        let mut written = meta(r#"{"a":1,"duologue":{"later":[]}}"#);
        Hops(2).write_to(&mut written, 2).unwrap();
        assert_eq!(serde_json::to_string(&written).unwrap(), r#"{"a":1,"duologue":{"hops":2,"later":[]}}"#);
        let mut none = None;
        Hops(0).write_to(&mut none, 0).unwrap();
        assert_eq!(none, None);
        let error = Hops(3).write_to(&mut none, 2).unwrap_err();
        assert!(matches!(error, Error::TooManyHops { hops: 3, limit: 2 }), "{error}");
        assert!(Hops(2).check(2).is_ok() && Hops(3).check(2).is_err());
    }
}
