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
        if bytes > 0 && self.bytes > *counted && self.bytes + bytes > limits.in_flight_bytes {
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

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: usize = Limits::SMALL_REQUEST_BYTES;

    fn limits() -> Limits {
        Limits { in_flight_bytes: 4 * SMALL, ..Limits::default() }
    }

    fn admit(in_flight: &mut InFlight, id: u64, bytes: usize) -> bool {
        in_flight.admit(&RequestId::from(id), &CancellationToken::new(), bytes, &limits()).is_ok()
    }

    #[test]
    fn the_bytes_of_large_requests_count_until_their_response() {
        let mut in_flight = InFlight::default();
        assert!(admit(&mut in_flight, 1, SMALL));
        assert_eq!(in_flight.bytes, 0, "a small request does not count");
        assert!(admit(&mut in_flight, 2, SMALL + 1));
        assert!(admit(&mut in_flight, 3, 3 * SMALL - 1), "exactly the limit");
        assert_eq!(in_flight.bytes, 4 * SMALL);
        assert!(!admit(&mut in_flight, 4, SMALL + 1));
        assert!(admit(&mut in_flight, 4, SMALL), "a small request is not rejected");
        assert!(!in_flight.remove(&RequestId::from(3)));
        assert_eq!(in_flight.bytes, SMALL + 1);
        assert!(!admit(&mut in_flight, 3, 3 * SMALL), "one byte over the limit");
        assert!(!in_flight.remove(&RequestId::from(2)) && !in_flight.remove(&RequestId::from(1)));
        assert!(in_flight.remove(&RequestId::from(4)), "it was the last one");
        assert_eq!((in_flight.bytes, in_flight.len()), (0, 0));
        assert!(admit(&mut in_flight, 1, 40 * SMALL), "a request alone may exceed the limit");
        assert!(admit(&mut in_flight, 2, SMALL), "a small request is admitted beside it");
    }

    #[test]
    fn bytes_that_a_request_refers_to_count_like_its_own() {
        let mut in_flight = InFlight::default();
        let add = |in_flight: &mut InFlight, id: u64, bytes| {
            in_flight.add(&RequestId::from(id), bytes, &limits()).is_ok()
        };
        assert!(add(&mut in_flight, 9, 40 * SMALL), "there is no such request any more");
        assert_eq!(in_flight.bytes, 0);
        assert!(admit(&mut in_flight, 1, 1) && admit(&mut in_flight, 2, 1));
        assert!(add(&mut in_flight, 1, 2 * SMALL));
        assert!(add(&mut in_flight, 2, 2 * SMALL), "exactly the limit");
        assert!(!add(&mut in_flight, 2, 1));
        assert_eq!(in_flight.bytes, 4 * SMALL);
        in_flight.remove(&RequestId::from(1));
        assert_eq!(in_flight.bytes, 2 * SMALL);
        assert!(add(&mut in_flight, 2, 40 * SMALL), "it is the only one that counts");
        assert!(admit(&mut in_flight, 3, 1) && add(&mut in_flight, 3, 0), "nothing is added");
        assert!(!add(&mut in_flight, 3, 1));
        in_flight.remove(&RequestId::from(2));
        assert_eq!(in_flight.bytes, 0);
    }
}
