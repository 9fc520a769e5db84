//! The schema of work orders.

use serde_json::json;

use super::registry::{Definition, define, round_trip};
use super::schemes::Scheme;
use crate::SessionId;
use crate::work::{
    Artifact, Context, Input, METHODS, Note, Operation, Output, Recommendation, Task, WorkParams, WorkResult,
};

pub(super) const SCHEME: Scheme = Scheme {
    name: "work",
    methods: METHODS,
    title: "Work orders of Duologue: what `_session/work` carries",
    definitions,
    refine: |all| {
        if let Some(context) = all.get_mut("Context") {
            context["properties"]["iteration"]["minimum"] = json!(1);
        }
    },
};

fn definitions() -> Vec<Definition> {
    define! {
        Artifact, Context, Input, Note, Operation, Output, Recommendation, SessionId, Task, WorkParams,
        WorkResult,
    }
    .into()
}
