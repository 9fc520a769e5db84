//! The order of the messages of a dialogue, whose calls run at the same time.

use std::collections::HashMap;

use duologue_schema::SessionId;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

/// The last messages of dialogues that were not passed on yet, by the session of their sender and by the dialogue.
#[derive(Default)]
pub(super) struct MessageOrder(HashMap<(SessionId, String), oneshot::Receiver<()>>);

/// The turn of a message behind the earlier ones of its sender in the dialogue. Dropping it begins the next turn.
pub(crate) struct MessageTurn {
    before: Option<oneshot::Receiver<()>>,
    _next: oneshot::Sender<()>,
}

impl MessageOrder {
    /// Returns the turn of the next message. Call it in the order of the messages.
    pub(super) fn turn(&mut self, session: &SessionId, dialogue: String) -> MessageTurn {
        self.0.retain(|_, last| last.try_recv() == Err(TryRecvError::Empty));
        let (next, last) = oneshot::channel();
        let before = self.0.insert((session.clone(), dialogue), last);
        MessageTurn { before, _next: next }
    }
}

impl MessageTurn {
    /// Waits for the end of the turn before.
    pub(super) async fn begin(&mut self) {
        if let Some(before) = self.before.take() {
            // It is dropped without a value.
            let _ = before.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn messages_of_a_dialogue_take_turns_and_do_not_wait_for_other_dialogues() {
        let mut order = MessageOrder::default();
        let (one, other) = (SessionId::from("one"), SessionId::from("other"));
        let mut turn = |session: &SessionId, dialogue: &str| order.turn(session, dialogue.to_owned());
        let (mut first, mut second, mut third) = (turn(&one, "d1"), turn(&one, "d1"), turn(&one, "d1"));
        let mut elsewhere = [turn(&one, "d2"), turn(&other, "d1")];
        let begins = |turn: &mut MessageTurn| turn.begin().now_or_never().is_some();
        assert!(elsewhere.iter_mut().all(begins) && begins(&mut first));
        let waits = second.before.is_some();
        drop(first);
        assert!(waits && begins(&mut second));
        assert_eq!(third.before.as_mut().map(oneshot::Receiver::try_recv), Some(Err(TryRecvError::Empty)));
        // One that is given up lets the next one go.
        drop(second);
        assert!(begins(&mut third));
        drop((third, elsewhere));
        drop(turn(&one, "d3"));
        assert_eq!(order.0.len(), 1);
    }
}
