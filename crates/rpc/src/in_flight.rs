//! The peer's requests that wait for our response.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use duologue_schema::{Error as WireError, RequestId};
use tokio_util::sync::CancellationToken;

use crate::limits::Limits;

/// The peer's requests that have no response yet.
#[derive(Default)]
pub(crate) struct InFlight {
    requests: HashMap<RequestId, (CancellationToken, usize)>,
    pub(crate) bytes: usize,
}

impl InFlight {
    /// Adds a request.
    ///
    /// # Errors
    ///
    /// The error to respond with, if a limit is exceeded or the id is in use.
    pub(crate) fn admit(
        &mut self,
        id: &RequestId,
        cancellation: &CancellationToken,
        bytes: usize,
        limits: &Limits,
    ) -> Result<(), WireError> {
        if self.requests.len() >= limits.in_flight {
            let limit = limits.in_flight;
            return Err(WireError::internal(format!(
                "request limit reached ({limit} in flight, Limits::in_flight); retry later"
            )));
        }
        let bytes = if bytes > Limits::SMALL_REQUEST_BYTES { bytes } else { 0 };
        if bytes > 0 && self.bytes > 0 && self.bytes + bytes > limits.in_flight_bytes {
            return Err(too_many_bytes(self.bytes, limits));
        }
        match self.requests.entry(id.clone()) {
            Entry::Occupied(_) => {
                Err(WireError::invalid_request("a request with this id is still in flight"))
            }
            Entry::Vacant(entry) => {
                entry.insert((cancellation.clone(), bytes));
                self.bytes += bytes;
                Ok(())
            }
        }
    }

    /// Adds bytes to a request.
    ///
    /// # Errors
    ///
    /// The error to respond with, if the limit is exceeded.
    pub(crate) fn add(&mut self, id: &RequestId, bytes: usize, limits: &Limits) -> Result<(), WireError> {
        let Some((_, counted)) = self.requests.get_mut(id) else { return Ok(()) };
        if self.bytes > *counted && self.bytes + bytes > limits.in_flight_bytes {
            return Err(too_many_bytes(self.bytes, limits));
        }
        *counted += bytes;
        self.bytes += bytes;
        Ok(())
    }

    /// Removes a request. Returns true if no other one is left.
    pub(crate) fn remove(&mut self, id: &RequestId) -> bool {
        if let Some((_, bytes)) = self.requests.remove(id) {
            self.bytes -= bytes;
        }
        self.requests.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(crate) fn cancellation(&self, id: &RequestId) -> Option<CancellationToken> {
        self.requests.get(id).map(|(cancellation, _)| cancellation.clone())
    }
}

fn too_many_bytes(bytes: usize, limits: &Limits) -> WireError {
    let limit = limits.in_flight_bytes;
    WireError::internal(format!(
        "request size limit reached ({bytes} of {limit} bytes in flight, Limits::in_flight_bytes); retry later"
    ))
}
