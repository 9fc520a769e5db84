//! The work that was taken from the store and has not ended.

use std::sync::Arc;

use duologue_store::Store;

use crate::gateway::GatewayShared;
use crate::gateway::agent_turn::WorkSession;
use crate::gateway::hosted::HostedEntry;
use crate::gateway::work_seats::WorkSeat;

/// The number of pieces of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WorkCounts {
    /// The workers that are taking work from the store.
    claiming: usize,
    /// The work whose turn has not begun.
    pub(crate) starting: usize,
    /// The work whose turn has begun, until its end is written.
    begun: usize,
}

impl WorkCounts {
    /// Returns true if there is no work, and none is being taken.
    pub(crate) fn is_idle(&self) -> bool {
        *self == WorkCounts::default()
    }

    fn of(&mut self, stage: WorkStage) -> &mut usize {
        match stage {
            WorkStage::Claiming => &mut self.claiming,
            WorkStage::Starting => &mut self.starting,
            WorkStage::Begun => &mut self.begun,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WorkStage {
    Claiming,
    Starting,
    Begun,
}

/// The place of a piece of work in the counts. Dropping it ends the work.
pub(crate) struct WorkPlace {
    gateway: Arc<GatewayShared>,
    stage: WorkStage,
    seat: Option<Arc<WorkSeat>>,
}

impl WorkPlace {
    /// Counts a worker that is taking work.
    pub(crate) fn claiming(gateway: &Arc<GatewayShared>) -> Self {
        WorkPlace::of(gateway, WorkStage::Claiming, None)
    }

    /// Counts a piece of work whose turn has not begun.
    pub(crate) fn new(gateway: &Arc<GatewayShared>, seat: Arc<WorkSeat>) -> Self {
        WorkPlace::of(gateway, WorkStage::Starting, Some(seat))
    }

    fn of(gateway: &Arc<GatewayShared>, stage: WorkStage, seat: Option<Arc<WorkSeat>>) -> Self {
        gateway.work.send_modify(|counts| *counts.of(stage) += 1);
        WorkPlace { gateway: gateway.clone(), stage, seat }
    }

    /// Notes that the work waits for an answer of its owner.
    pub(crate) fn ask(&self) {
        if let Some(seat) = &self.seat {
            seat.ask();
        }
    }

    /// Notes that the turn has begun.
    pub(crate) fn begin(&mut self) {
        let before = std::mem::replace(&mut self.stage, WorkStage::Begun);
        self.gateway.work.send_modify(|counts| {
            *counts.of(before) -= 1;
            *counts.of(WorkStage::Begun) += 1;
        });
    }
}

impl GatewayShared {
    /// Ends the session of work of which its agent has nothing. Nothing of work that was erased stays: `is_there` tells if
    /// the store has it.
    pub(crate) async fn leave(
        &self,
        session: WorkSession,
        agent: Option<Arc<HostedEntry>>,
        owner: &str,
        is_there: impl FnOnce(&dyn Store) -> duologue_store::Result<bool> + Send + 'static,
    ) {
        let is_erased = matches!(self.in_store(is_there).await, Ok(false));
        let id = session.session.id().clone();
        session.close().await;
        if let (true, Some(agent)) = (is_erased, agent)
            && let Err(error) = agent.hub.erase_session(owner, id.as_str()).await
        {
            tracing::error!(session = %id, %error, "the session of erased work was not removed");
        }
    }
}

impl Drop for WorkPlace {
    fn drop(&mut self) {
        let stage = self.stage;
        self.gateway.work.send_modify(|counts| *counts.of(stage) -= 1);
    }
}
