//! The ids that the hub chooses.

use std::time::{SystemTime, UNIX_EPOCH};

use uuid::Uuid;

/// Returns a new id that sorts by time, or a random one if the clock is before 1970, which such an id cannot state.
pub(crate) fn new_id() -> Uuid {
    id_at(SystemTime::now())
}

fn id_at(time: SystemTime) -> Uuid {
    match time.duration_since(UNIX_EPOCH) {
        Ok(_) => Uuid::now_v7(),
        Err(_) => Uuid::new_v4(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_id_needs_no_valid_clock() {
        assert_eq!(id_at(UNIX_EPOCH - Duration::from_secs(1)).get_version_num(), 4);
        assert_eq!(new_id().get_version_num(), 7);
    }
}
