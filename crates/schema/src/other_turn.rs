//! The turn of another client: what a server with several clients tells those that have not sent the prompt.

use duologue_schema_derive::wire;
use serde_json::{Map, Value};

use crate::{Meta, Notification, SessionId, Versioned};

/// The key of `_meta` and its member with which the response that opens a session says that a turn runs.
const KEY: (&str, &str) = ("duologue", "turn");

/// The params of `_session/turn`: the turn of another client begins or ends. A client without the method ignores it.
#[wire]
pub struct OtherTurnNotification {
    /// The session.
    pub session_id: SessionId,
    /// True at the beginning of the turn, and false at its end.
    pub running: bool,
}

impl Notification for OtherTurnNotification {
    const METHOD: &'static str = "_session/turn";
}

impl Versioned for OtherTurnNotification {}

impl OtherTurnNotification {
    /// Returns `_meta.duologue.turn` of a response that opened a session: true if the turn of another client runs. `None` if
    /// the agent does not know.
    ///
    /// ```
    /// use duologue_schema::{LoadSessionResponse, OtherTurnNotification};
    ///
    /// let response: LoadSessionResponse = serde_json::from_str(r#"{"_meta":{"duologue":{"turn":true}}}"#)?;
    /// assert_eq!(OtherTurnNotification::at_begin(response.meta.as_ref()), Some(true));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    #[must_use]
    pub fn at_begin(meta: Option<&Meta>) -> Option<bool> {
        let own: Map<String, Value> = meta?.get(KEY.0)?;
        own.get(KEY.1)?.as_bool()
    }
}
