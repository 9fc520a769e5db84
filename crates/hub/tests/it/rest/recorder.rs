//! The `tracing` events of all tests, as a subscriber writes them.

use std::fmt::{Debug, Write as _};
use std::sync::{Mutex, Once};

use duologue_rpc::Lock as _;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::remote_agents::until_true;

/// The target of events about logs and the list of sessions.
pub(crate) const LOGS: &str = "duologue_hub::hub::session_records";

/// The targets of events about agents elsewhere.
pub(crate) const ELSEWHERE: [&str; 2] =
    ["duologue_hub::gateway::remote", "duologue_hub::gateway::rest_agent"];

static EVENTS: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

/// Begins to record events. Tests of one program share the recorder, so they look for ids of their own.
pub(crate) fn record() {
    static BEGIN: Once = Once::new();
    BEGIN.call_once(|| tracing::subscriber::set_global_default(Recorder).expect("the only subscriber"));
}

/// Returns the events of a target so far.
pub(crate) fn recorded(target: &str) -> Vec<String> {
    let events = EVENTS.lock_unpoisoned();
    events.iter().filter(|(of, _)| of == target).map(|(_, line)| line.clone()).collect()
}

/// Waits for an event of a target that has all parts.
pub(crate) async fn recorded_line(target: &str, parts: &[impl AsRef<str>]) {
    let has_parts = |line: &String| parts.iter().all(|part| line.contains(part.as_ref()));
    until_true(async || recorded(target).iter().any(has_parts)).await;
}

struct Recorder;

/// Writes fields as `tracing_subscriber::fmt` does: strings quoted, and `Display` as it is.
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let separator = if self.0.is_empty() { "" } else { " " };
        write!(self.0, "{separator}{}={value:?}", field.name()).expect("a text");
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let target = metadata.target();
        target.starts_with("duologue::") || target == LOGS || ELSEWHERE.contains(&target)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        EVENTS.lock_unpoisoned().push((event.metadata().target().to_owned(), line.0));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
