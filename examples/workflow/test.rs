//! The workflow example: what it prints, and what it says to its agents.

use std::path::Path;

use duologue_client::exchange::work::RunEnd;
use duologue_client::{Client, Command, Connection};
use duologue_transcript::{Recorder, Side, Transcript, assert_transcript};

use crate::steps;

const WORKFLOW: &str = env!("CARGO_BIN_EXE_workflow");

#[test]
fn it_prints_what_happened() {
    let output = std::process::Command::new(WORKFLOW).output().expect("it starts");
    let printed = String::from_utf8(output.stdout).expect("text");
    insta::assert_snapshot!(printed, @r#"
    specify, iteration 1: Wrote the specification. [proceed]
      wrote features/login/spec.md
    validate, iteration 1: The specification leaves out 1 of 2 cases. [retry]
      noted missing: offline
    specify, iteration 2: Wrote the specification. [proceed]
      noted added: offline
      wrote features/login/spec.md
    validate, iteration 2: The specification is complete. [proceed]
      wrote features/login/validation.md

    # login

    Log in with a password. A wrong password is refused.

    ## What if: offline

    The person is told, and nothing is lost.
    "#);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn it_gives_orders() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let project = folder.path().join("project");
    std::fs::create_dir(&project)?;
    steps::prepare(&project)?;
    let recordings = ["specify", "validate"].map(|role| folder.path().join(role));
    let (specifier, specifying) = start("specify", &project, &recordings[0]).await?;
    let (validator, validating) = start("validate", &project, &recordings[1]).await?;

    let workflow = steps::workflow(specifier.peer_agent(), validator.peer_agent(), &project);
    let run = workflow.run(steps::context(), steps::paths()).await?;
    assert_eq!(run.end, RunEnd::Finished);
    assert_eq!(
        std::fs::read_to_string(project.join("features/login/validation.md"))?,
        "All 2 cases are covered.\n"
    );

    specifier.close().await;
    validator.close().await;
    specifying.finish().await?;
    validating.finish().await?;
    assert_transcript!(Transcript::load(&recordings[0]), @r#"
    ## connection

    → initialize v1
      can _meta = {"duologue":{"messageClear":true}}
    ← initialize v1 workflow-agent 0.1.0 "Workflow"
      can _meta = {"duologue":{"agentId":"[agent-1]","envelope":{"v":[1]},"work":{}}}
    → _session/work specify for login specify-validate iteration 1
      path feature_root = features/login
      path request = requests/login.md
      path spec = features/login/spec.md
    ← _session/work success proceed "Wrote the specification."
      create features/login/spec.md [62 bytes, d43a718c]
    → _session/work specify for login specify-validate iteration 2
      path feature_root = features/login
      path request = requests/login.md
      path spec = features/login/spec.md
      prior "missing: offline"
    ← _session/work success proceed "Wrote the specification."
      update features/login/spec.md [125 bytes, 2cb98a20]
      note "added: offline"
    "#);
    assert_transcript!(Transcript::load(&recordings[1]), @r#"
    ## connection

    → initialize v1
      can _meta = {"duologue":{"messageClear":true}}
    ← initialize v1 workflow-agent 0.1.0 "Workflow"
      can _meta = {"duologue":{"agentId":"[agent-1]","envelope":{"v":[1]},"work":{}}}
    → _session/work validate {"must_cover":["wrong password","offline"]} for login specify-validate iteration 1
      path feature_root = features/login
      path request = requests/login.md
      path spec = features/login/spec.md
    ← _session/work success retry "The specification leaves out 1 of 2 cases."
      note "missing: offline"
    → _session/work validate {"must_cover":["wrong password","offline"]} for login specify-validate iteration 2
      path feature_root = features/login
      path request = requests/login.md
      path spec = features/login/spec.md
      prior "missing: offline"
      prior "added: offline"
    ← _session/work success proceed "The specification is complete."
      create validation.md [25 bytes, 7359da89]
    "#);
    Ok(())
}

async fn start(
    role: &str,
    project: &Path,
    recording: &Path,
) -> Result<(Connection, Recorder), Box<dyn std::error::Error>> {
    let recorder = Recorder::create(recording)?;
    let command = Command::new(WORKFLOW).arg(role).cwd(project);
    Ok((Client::new(()).tap(recorder.tap(Side::Client)).spawn(command).await?, recorder))
}
