//! The workflow itself, and the project it is run in.

use std::path::Path;

use duologue_client::PeerAgent;
use duologue_client::exchange::work::{WorkContext, WorkPaths, Workflow, WorkflowStep};
use duologue_client::schema::Members;

/// Returns a workflow in which the validator may send the work back to the specifier.
pub(crate) fn workflow(specifier: &PeerAgent, validator: &PeerAgent, project: &Path) -> Workflow {
    let must_cover = Members::from_iter([("must_cover", serde_json::json!(["wrong password", "offline"]))]);
    Workflow::new()
        .step(WorkflowStep::new("specify", specifier.clone()))
        .step(WorkflowStep::new("validate", validator.clone()).params(must_cover).back_to("specify"))
        .apply_to(project)
}

/// Returns the context of all orders.
pub(crate) fn context() -> WorkContext {
    WorkContext::new("login", "specify-validate", 1)
}

/// Returns the paths of all orders, from the root of the project.
pub(crate) fn paths() -> WorkPaths {
    WorkPaths::from([
        ("feature_root", "features/login"),
        ("request", "requests/login.md"),
        ("spec", "features/login/spec.md"),
    ])
}

/// A project with a request in it.
pub(crate) fn prepare(project: &Path) -> std::io::Result<()> {
    std::fs::create_dir(project.join("requests"))?;
    std::fs::write(
        project.join("requests/login.md"),
        "Log in with a password. A wrong password is refused.\n",
    )
}
