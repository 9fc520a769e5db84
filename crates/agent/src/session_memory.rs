//! The memory of the sessions of a connection, which is limited.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use duologue_schema::Error as WireError;

use crate::session::Session;

/// The bytes of the parameters of all sessions of a connection.
#[derive(Default)]
pub(crate) struct SessionMemory(Arc<AtomicUsize>);

impl SessionMemory {
    /// Reserves memory for the parameters of another session, or for a prompt.
    ///
    /// # Errors
    ///
    /// The answer to the request if the limit is reached.
    pub(crate) fn reserve(&self, wire_bytes: usize) -> Result<Reservation, WireError> {
        let bytes = wire_bytes.saturating_add(SESSION_ITSELF);
        let together = |reservation: usize| {
            let together = reservation.saturating_add(bytes);
            (reservation == 0 || together <= Session::BYTES_TOGETHER).then_some(together)
        };
        self.0.fetch_update(Relaxed, Relaxed, together).map_err(|_| {
            let mib = Session::BYTES_TOGETHER >> 20;
            WireError::internal(format!(
                "session memory limit reached ({mib} MiB for all open sessions); close a session first"
            ))
        })?;
        Ok(Reservation { together: self.0.clone(), bytes, settings: AtomicUsize::new(0) })
    }
}

/// The memory of a session without its parameters.
const SESSION_ITSELF: usize = 1024;

/// A reservation in [`SessionMemory`], which is released when this is dropped.
pub(crate) struct Reservation {
    together: Arc<AtomicUsize>,
    bytes: usize,
    settings: AtomicUsize,
}

impl Reservation {
    /// Counts the modes and options of the session instead of the earlier ones. The agent has chosen them, so they are
    /// never too many, but they leave less room for other sessions.
    pub(crate) fn count_settings(&self, bytes: usize) {
        let before = self.settings.swap(bytes, Relaxed);
        self.together.fetch_add(bytes, Relaxed);
        self.together.fetch_sub(before, Relaxed);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.together.fetch_sub(self.bytes + self.settings.load(Relaxed), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use duologue_schema::{NewSessionResponse, SessionUpdate};

    use super::*;
    use crate::agent::SessionSetup;
    use crate::session::WaitingUpdate;

    #[test]
    fn the_memory_of_all_sessions_is_limited() {
        let memory = SessionMemory::default();
        // The only session may be as large as a line.
        let alone = memory.reserve(2 * Session::BYTES_TOGETHER).expect("room");
        assert!(memory.reserve(0).is_err());
        drop(alone);
        let small: Vec<Reservation> = std::iter::from_fn(|| memory.reserve(0).ok()).collect();
        assert_eq!(small.len(), Session::BYTES_TOGETHER / SESSION_ITSELF);
        drop(small);
        // The settings of the agent count too, the last ones of each session.
        let large = memory.reserve(0).expect("room");
        large.count_settings(2 * Session::BYTES_TOGETHER);
        assert!(memory.reserve(0).is_err());
        large.count_settings(1);
        assert!(memory.reserve(0).is_ok());
        drop(large);
        assert_eq!(memory.0.load(Relaxed), 0);
    }

    /// However the modes and options change, their memory counts.
    #[tokio::test]
    async fn the_settings_of_a_session_count() {
        crate::service::tests::in_request(|responder, _, make_session| {
            use duologue_schema::{ConfigOptionUpdate, SessionConfigOption};

            let options = |count: usize| -> Vec<_> {
                (0..count).map(|n| SessionConfigOption::boolean(n.to_string(), "N", false)).collect()
            };
            let memory = SessionMemory::default();
            let session = make_session(&memory, true);
            let counted = || memory.0.load(Relaxed) - SESSION_ITSELF;
            assert_eq!(counted(), 0);
            session.offer(&mut SessionSetup::new().config_options(options(2)));
            let two = counted();
            assert!(two > 0 && two == session.settings().bytes());
            session.change_settings(|settings| (settings.set_options(options(4)), None)).unwrap();
            assert!(counted() > two && counted() == session.settings().bytes());
            // An update that is buffered until the session is open.
            let update = SessionUpdate::from(ConfigOptionUpdate::new(options(1)));
            assert!(session.try_send(&mut WaitingUpdate::new("s".into(), update)).unwrap());
            session.open(responder, NewSessionResponse::new("s"));
            assert!(counted() < two && counted() == session.settings().bytes());
            let update = SessionUpdate::from(ConfigOptionUpdate::new(options(8)));
            assert!(session.try_send(&mut WaitingUpdate::new("s".into(), update)).unwrap());
            assert!(counted() > two && counted() == session.settings().bytes());
            drop(session);
            assert_eq!(memory.0.load(Relaxed), 0);
        })
        .await;
    }
}
