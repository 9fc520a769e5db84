//! Messages between agents: envelopes of every kind, dialogue messages, work orders.

use std::sync::LazyLock;

use duologue_schema::dialogue::{DialogueRequest, DialogueResponse};
use duologue_schema::envelope::{EnvelopeKind, EnvelopeParams, EnvelopeResult, Payload, PayloadVisitor};
use duologue_schema::work::{WorkParams, WorkResult};
use duologue_schema::{dialogue, envelope, work};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::kept::{method_and_json, survives};

static NAMES: LazyLock<Vec<&str>> = LazyLock::new(|| {
    [envelope::METHODS, dialogue::METHODS, work::METHODS].concat().iter().map(|row| row.method).collect()
});

/// The name of a method and JSON, see [`method_and_json`]: read as its params and as its result.
pub fn check(input: &[u8]) {
    let Some((method, json)) = method_and_json(input, &NAMES) else { return };
    reads::<EnvelopeParams>(json);
    reads::<EnvelopeResult>(json);
    if let Some(kind) = EnvelopeKind::of_method(method) {
        kind.visit(Reads(json)).expect("a known kind");
    }
    reads::<DialogueRequest>(json);
    reads::<DialogueResponse>(json);
    reads::<dialogue::DialogueMessage>(json);
    reads::<WorkParams>(json);
    reads::<WorkResult>(json);
}

struct Reads<'a>(&'a RawValue);

impl PayloadVisitor for Reads<'_> {
    type Output = ();

    fn visit<P: Payload>(self) {
        reads::<EnvelopeParams<P>>(self.0);
        reads::<EnvelopeResult<P>>(self.0);
        opens::<P>(self.0);
    }
}

fn reads<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(json: &RawValue) {
    survives(json, |json| serde_json::from_str::<T>(json.get()).ok());
}

/// Checks that decoding an envelope at once, and decoding its payload later, give the same.
fn opens<P: Payload>(json: &RawValue) {
    let carried = serde_json::from_str::<EnvelopeParams>(json.get());
    let at_once = serde_json::from_str::<EnvelopeParams<P>>(json.get());
    if let (Ok(carried), Ok(at_once)) = (carried, at_once)
        && carried.envelope.kind == P::KIND
    {
        assert_eq!(carried.envelope.open::<P>(), Ok(at_once.envelope));
    }
}
