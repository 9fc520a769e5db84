//! The schema of work orders.

use serde_json::json;

use super::extension_schemas::ExtensionSchema;
use super::registry::{Definition, define};
use crate::SessionId;
use crate::work::{
    Artifact, ArtifactOperation, METHODS, Recommendation, WorkContext, WorkInput, WorkNote, WorkOutput,
    WorkParams, WorkResult, WorkTask,
};

pub(super) const SCHEME: ExtensionSchema = ExtensionSchema {
    name: "work",
    methods: METHODS,
    title: "Work orders of Duologue: the messages of `_session/work`",
    definitions,
    refine: |all| {
        if let Some(context) = all.get_mut("Context") {
            context["properties"]["iteration"]["minimum"] = json!(1);
        }
    },
};

fn definitions() -> Vec<Definition> {
    define! {
        Artifact, WorkContext, WorkInput, WorkNote, ArtifactOperation, WorkOutput, Recommendation, SessionId, WorkTask, WorkParams,
        WorkResult,
    }
}
