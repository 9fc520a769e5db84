//! The order of the messages of a dialogue, whose calls run at the same time.

use std::collections::HashMap;

use duologue_schema::SessionId;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

/// The last messages of dialogues that were not passed on yet, by the session of their sender and by the dialogue.
#[derive(Default)]
pub(super) struct MessageOrder {
    last: HashMap<(SessionId, String), EarlierTurn>,
    /// The number of entries at which those of turns that are over are removed.
    clean_at: usize,
}

/// The end of an earlier turn. It has the turn before that one if the earlier one was given up before its begin.
struct EarlierTurn(oneshot::Receiver<EarlierTurn>);

/// The turn of a message behind the earlier ones of its sender in the dialogue. Dropping it begins the next turn, behind the same
/// earlier ones.
pub(crate) struct MessageTurn {
    before: Option<EarlierTurn>,
    next: Option<oneshot::Sender<EarlierTurn>>,
}

impl MessageOrder {
    /// The fewest entries that are looked through.
    const FEW: usize = 16;

    /// Returns the turn of the next message. Call it in the order of the messages.
    pub(super) fn turn(&mut self, session: &SessionId, dialogue: String) -> MessageTurn {
        if self.last.len() >= self.clean_at.max(Self::FEW) {
            self.last.retain(|_, last| last.is_waiting());
            self.clean_at = 2 * self.last.len();
        }
        let (next, last) = oneshot::channel();
        let before = self.last.insert((session.clone(), dialogue), EarlierTurn(last));
        MessageTurn { before, next: Some(next) }
    }
}

impl EarlierTurn {
    fn is_waiting(&mut self) -> bool {
        loop {
            match self.0.try_recv() {
                Ok(earlier) => *self = earlier,
                Err(end) => return end == TryRecvError::Empty,
            }
        }
    }
}

impl MessageTurn {
    /// Waits for the end of the turns before.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not end them.
    pub(super) async fn begin(&mut self) {
        while let Some(before) = &mut self.before {
            self.before = (&mut before.0).await.ok();
        }
    }
}

impl Drop for MessageTurn {
    fn drop(&mut self) {
        if let (Some(next), Some(before)) = (self.next.take(), self.before.take()) {
            // Nobody may follow.
            let _ = next.send(before);
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
        assert!(!begins(&mut second) && !begins(&mut third));
        // One that is given up leaves the next one behind those before it.
        drop(second);
        assert!(!begins(&mut third));
        drop(first);
        assert!(begins(&mut third));
        drop((third, elsewhere));
        for number in 0..100 {
            drop(turn(&one, &number.to_string()));
        }
        assert!(order.last.len() <= MessageOrder::FEW);
    }
}
