//! The admission of requests: their places, the room for their responses, and the end of their waits.

use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, sleep_until};

use crate::gateway::rest::RestShared;
use crate::gateway::rest::messages::stopping;
use crate::gateway::rest::request::RestCaller;
use crate::gateway::rest::response_room::ResponseRoom;
use crate::gateway::{Refusal, RefusalCode};
use crate::place_counts::CountedPlace;

/// A request that waits, streams or reads: what it takes until its response has been sent, and the end of its waits.
pub(crate) struct RestAdmission {
    rest: Arc<RestShared>,
    principal: Arc<str>,
    room: ResponseRoom,
    /// The end of its waits, if they have one.
    until: Option<Instant>,
    closing: watch::Receiver<bool>,
    place: Option<Arc<RequestPlace>>,
}

/// The place of a request among those that wait, stream or read pages.
pub(crate) struct RequestPlace {
    _own: CountedPlace<Arc<str>>,
    _permit: OwnedSemaphorePermit,
}

impl RestCaller {
    /// Admits a request that waits or streams. It has a place, and no room yet.
    pub(crate) fn admit(&self) -> Result<RestAdmission, Refusal> {
        Ok(self.admission(Some(self.rest.place(&self.principal.id)?)))
    }

    /// Admits a request for a record, which takes no place. It has no room yet.
    pub(crate) fn admit_record(&self) -> RestAdmission {
        self.admission(None)
    }

    /// Admits a request for a page, with its room.
    pub(crate) async fn open_page(&self) -> Result<RestAdmission, Refusal> {
        self.admit()?.with_room().await
    }

    /// Admits a request for a record, with its room.
    pub(crate) async fn open_record(&self) -> Result<RestAdmission, Refusal> {
        self.admit_record().with_room().await
    }

    fn admission(&self, place: Option<RequestPlace>) -> RestAdmission {
        let wait = Duration::from_secs(self.gateway().config.limits.sync_seconds);
        RestAdmission {
            rest: self.rest.clone(),
            principal: self.principal.id.clone(),
            room: ResponseRoom::default(),
            until: Some(Instant::now() + wait),
            closing: self.gateway().closing.subscribe(),
            place: place.map(Arc::new),
        }
    }
}

impl RestAdmission {
    /// Ends its waits after this time. By default that is `limits.sync_seconds`.
    pub(crate) fn ends_after(&mut self, wait: Duration) {
        self.until = Some(Instant::now() + wait);
    }

    /// Lets it wait until the server stops.
    pub(crate) fn never_ends(&mut self) {
        self.until = None;
    }

    /// Returns the place, which is taken until all of its owners are dropped.
    pub(crate) fn place(&self) -> Option<Arc<RequestPlace>> {
        self.place.clone()
    }

    /// Waits until the principal has room for a page, unless the request has that.
    pub(crate) async fn take_room(&mut self) -> Result<(), Refusal> {
        if !self.room.is_empty() {
            return Ok(());
        }
        let bytes = self.rest.gateway.store.settings().page_bytes;
        tokio::select! {
            biased;
            room = self.rest.rooms.take(&self.principal, bytes) => self.room = room,
            () = over(self.until) => {
                let why = "your responses that are sent take all of your room; read them to their ends and retry, or raise \
                           `limits.principal_response_bytes`";
                return Err(Refusal::new(RefusalCode::Overloaded, why));
            }
            _ = self.closing.wait_for(|closing| *closing) => return Err(stopping()),
        }
        Ok(())
    }

    /// Returns the part of the room that so many bytes need. The rest is free.
    pub(crate) fn split_room(&mut self, bytes: usize) -> ResponseRoom {
        let mut room = std::mem::take(&mut self.room);
        room.shrink(bytes);
        room
    }

    /// Waits for the turn of the principal to read a list from the store.
    pub(crate) async fn list_turn(&self) -> ResponseRoom {
        self.rest.list_turn(&self.principal).await
    }

    /// Gives back the room.
    pub(crate) fn leave_room(&mut self) {
        self.room = ResponseRoom::default();
    }

    /// Waits for a change. Returns false if the time is over or the server stops before.
    pub(crate) async fn changed(&mut self, change: impl Future<Output = ()>) -> bool {
        tokio::select! {
            biased;
            _ = self.closing.wait_for(|closing| *closing) => false,
            () = over(self.until) => false,
            () = change => true,
        }
    }

    /// Waits until the server stops.
    pub(crate) async fn stopped(&mut self) {
        let _ = self.closing.wait_for(|closing| *closing).await;
    }

    /// Keeps the room that a reply needs.
    pub(crate) fn shrink_room(&mut self, bytes: usize) {
        self.room.shrink(bytes);
    }

    async fn with_room(mut self) -> Result<Self, Refusal> {
        self.take_room().await?;
        Ok(self)
    }
}

/// Waits for a time.
async fn over(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => pending().await,
    }
}

impl RestShared {
    fn place(&self, principal: &Arc<str>) -> Result<RequestPlace, Refusal> {
        let limits = &self.gateway.config.limits;
        let own = self.open_of.take(principal, limits.principal_requests).ok_or_else(|| {
            let limit = limits.principal_requests;
            let why = format!(
                "{limit} requests of yours wait, stream or read already; end one, or raise `limits.principal_requests`"
            );
            Refusal::new(RefusalCode::Overloaded, why)
        })?;
        let permit = self.open.clone().try_acquire_owned().map_err(|_| {
            let limit = limits.open_requests;
            let why = format!(
                "{limit} requests wait, stream or read already; retry later, or raise `limits.open_requests`"
            );
            Refusal::new(RefusalCode::Overloaded, why)
        })?;
        Ok(RequestPlace { _own: own, _permit: permit })
    }
}
