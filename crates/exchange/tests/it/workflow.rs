//! The order of the steps of a workflow, and the notes that each one receives.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex};

use duologue_exchange::envelope::{EnvelopeError, EnvelopeErrorCode};
use duologue_exchange::work::{
    ApplyError, Artifact, ArtifactError, ArtifactWriter, EscalationReason, Recommendation, RunEnd,
    WorkContext, WorkInput, WorkNote, WorkOrder, WorkOutput, Workflow, WorkflowError, WorkflowStep,
};
use duologue_schema::{Members, Meta, TraceContext};
use proptest::prelude::*;

/// The orders that were given, oldest first.
type Seen = Arc<Mutex<Vec<WorkInput>>>;

/// A step that answers with these recommendations, one after the other, and then with `proceed`. It notes
/// which order it was.
fn step(action: &str, seen: &Seen, recommendations: &[&str]) -> WorkflowStep {
    let left: Mutex<VecDeque<Recommendation>> =
        Mutex::new(recommendations.iter().map(|name| Recommendation::from(*name)).collect());
    let seen = seen.clone();
    WorkflowStep::new(action, move |input: WorkOrder| {
        let recommendation = left.lock().unwrap().pop_front().unwrap_or(Recommendation::Proceed);
        let mut seen = seen.lock().unwrap();
        seen.push(input.input);
        let note = format!("note {}", seen.len());
        std::future::ready(Ok(WorkOutput::new(true, "", [], recommendation).notes([note.into()])))
    })
}

/// A step that gives one answer.
fn answering(action: &str, output: WorkOutput) -> WorkflowStep {
    WorkflowStep::new(action, move |_: WorkOrder| std::future::ready(Ok(output.clone())))
}

fn context() -> WorkContext {
    WorkContext::new("login", "feature", 1)
}

fn root() -> [(&'static str, &'static str); 1] {
    [("feature_root", "features/login")]
}

fn told(seen: &Seen) -> Vec<(String, u32, Vec<String>)> {
    let told = |input: &WorkInput| {
        let notes = input.prior_context.iter().map(WorkNote::to_string).collect();
        (input.task.action.clone(), input.context.iteration, notes)
    };
    seen.lock().unwrap().iter().map(told).collect()
}

fn notes(numbers: std::ops::RangeInclusive<usize>) -> Vec<String> {
    numbers.map(|number| format!("note {number}")).collect()
}

#[tokio::test]
async fn a_retry_goes_back_and_the_notes_go_on() {
    let seen = Seen::default();
    let workflow = Workflow::new()
        .prior_context(["before".into()])
        .step(step("specify", &seen, &[]).params(Members::from_iter([("style", serde_json::json!("short"))])))
        .step(step("validate", &seen, &["retry"]).back_to("specify"))
        .step(step("build", &seen, &[]));
    let run = workflow.run(context(), root()).await.unwrap();
    assert_eq!(run.end, RunEnd::Finished);
    let expected: Vec<_> = [("specify", 1), ("validate", 1), ("specify", 2), ("validate", 2), ("build", 2)]
        .into_iter()
        .enumerate()
        .map(|(index, (action, iteration))| {
            let notes = std::iter::once("before".to_owned()).chain(notes(1..=index)).collect();
            (action.to_owned(), iteration, notes)
        })
        .collect();
    assert_eq!(told(&seen), expected);
    assert_eq!((run.notes.len(), run.completed.len()), (6, 5));
    let inputs = seen.lock().unwrap();
    assert!(inputs.iter().all(|input| input.paths.feature_root() == Some("features/login")));
    assert_eq!(inputs[2].task.params.get::<String>("style").as_deref(), Some("short"));
}

#[tokio::test]
async fn without_a_way_back_the_step_is_done_again() {
    let seen = Seen::default();
    let workflow = Workflow::new().step(step("a", &seen, &[])).step(step("b", &seen, &["retry"]));
    workflow.run(context(), root()).await.unwrap();
    let order: Vec<_> = told(&seen).into_iter().map(|(action, iteration, _)| (action, iteration)).collect();
    assert_eq!(order, [("a".into(), 1), ("b".into(), 1), ("b".into(), 2)]);
}

#[tokio::test]
async fn of_steps_with_one_name_the_nearest_is_tried_again() {
    let seen = Seen::default();
    let workflow = Workflow::new()
        .step(step("check", &seen, &[]))
        .step(step("write", &seen, &[]))
        .step(step("check", &seen, &[]))
        .step(step("ship", &seen, &["retry"]).back_to("check"));
    workflow.run(context(), root()).await.unwrap();
    let order: Vec<_> = told(&seen).into_iter().map(|(action, ..)| action).collect();
    assert_eq!(order, ["check", "write", "check", "ship", "check", "ship"]);
}

#[tokio::test]
async fn a_way_back_leads_back() {
    let seen = Seen::default();
    let workflow = Workflow::new().step(step("a", &seen, &[]).back_to("b")).step(step("b", &seen, &[]));
    let error = workflow.run(context(), root()).await.unwrap_err();
    assert_eq!(error.to_string(), r#"the step "a" goes back to "b", but no step up to it has that action"#);
    assert_eq!(told(&seen), []);
}

#[tokio::test]
async fn a_request_that_needs_the_user_stops_the_run() {
    for (recommendations, reason, orders) in [
        (&["escalate"][..], EscalationReason::Requested, 1),
        (&["ponder"], EscalationReason::Unknown("ponder".into()), 1),
        (&[""], EscalationReason::Unknown(String::new()), 1),
        (&["retry", "retry", "retry"], EscalationReason::TooManyIterations, 3),
    ] {
        let (seen, told) = (Seen::default(), Arc::new(Mutex::new(Vec::new())));
        let callback = told.clone();
        let workflow = Workflow::new()
            .step(step("a", &seen, recommendations))
            .step(step("b", &seen, &[]))
            .on_escalate(move |run| callback.lock().unwrap().push(run.clone()));
        let run = workflow.run(context(), root()).await.unwrap();
        assert_eq!(run.end, RunEnd::Escalated(reason));
        assert_eq!(run.completed.len(), orders);
        assert_eq!(*told.lock().unwrap(), [run]);
    }
}

#[tokio::test]
async fn the_limit_is_the_highest_iteration() {
    for (first, limit, orders) in [(1, 1, 1), (1, 5, 5), (4, 5, 2), (7, 5, 1)] {
        let seen = Seen::default();
        let workflow = Workflow::new().max_iterations(limit).step(step("a", &seen, &["retry"; 9]));
        let run = workflow.run(WorkContext::new("f", "w", first), root()).await.unwrap();
        assert_eq!(
            (run.end, run.completed.len()),
            (RunEnd::Escalated(EscalationReason::TooManyIterations), orders)
        );
    }
}

#[tokio::test]
async fn a_step_that_failed_does_not_proceed() {
    let seen = Seen::default();
    let failed = WorkOutput::new(false, "No.", [], Recommendation::Proceed);
    let workflow = Workflow::new().step(answering("a", failed)).step(step("b", &seen, &[]));
    let run = workflow.run(context(), root()).await.unwrap();
    assert_eq!((run.end, run.completed.len()), (RunEnd::Escalated(EscalationReason::Contradiction), 1));
    assert_eq!(told(&seen), []);
    // It may be tried again, and a success may.
    for success in [true, false] {
        let again = WorkOutput::new(success, "", [], Recommendation::Retry);
        let run = Workflow::new().step(answering("a", again)).run(context(), root()).await.unwrap();
        assert_eq!(
            (run.end, run.completed.len()),
            (RunEnd::Escalated(EscalationReason::TooManyIterations), 3)
        );
    }
}

#[tokio::test]
async fn notes_are_limited() {
    let note = |length: usize| "x".repeat(length).into();
    let output =
        WorkOutput::new(true, "", [Artifact::create("a.md", "")], Recommendation::Retry).notes([note(8)]);
    // Each note has quotation marks around it.
    for (limit, completed) in [(9, 1), (10, 2), (29, 3), (30, 3)] {
        let project = tempfile::tempdir().unwrap();
        let workflow = Workflow::new()
            .max_note_bytes(limit)
            .artifacts(ArtifactWriter::new().allow_version_control(true))
            .step(answering("a", output.clone()));
        let run = workflow.run(context(), root()).await.unwrap();
        let full = RunEnd::Escalated(EscalationReason::TooManyNotes { bytes: completed * 10, limit });
        let end = if limit < 30 { full } else { RunEnd::Escalated(EscalationReason::TooManyIterations) };
        assert_eq!((&run.end, run.completed.len(), run.notes.len()), (&end, completed, limit / 10));
        assert_eq!(run.completed[completed - 1].output.notes, [note(8)]);
        drop(project);
    }
    // Those of an earlier run count, and the files of a step that is too long are not written.
    let project = tempfile::tempdir().unwrap();
    let workflow = Workflow::new()
        .max_note_bytes(19)
        .prior_context([note(8)])
        .apply_to(project.path())
        .step(answering("a", output));
    let run = workflow.run(context(), root()).await.unwrap();
    assert!(matches!(run.end, RunEnd::Escalated(EscalationReason::TooManyNotes { bytes: 20, limit: 19 })));
    assert!(!project.path().join("features").exists());
}

#[tokio::test]
async fn a_workflow_has_the_settings_of_its_artifacts() {
    let hook =
        WorkOutput::new(true, "", [Artifact::create(".git/hooks/pre-commit", "")], Recommendation::Proceed);
    for allowed in [false, true] {
        let project = tempfile::tempdir().unwrap();
        let workflow = Workflow::new()
            .apply_to(project.path())
            .artifacts(ArtifactWriter::new().allow_version_control(allowed))
            .step(answering("a", hook.clone()));
        assert_eq!(workflow.run(context(), [("feature_root", ".")]).await.is_ok(), allowed);
        assert_eq!(project.path().join(".git").exists(), allowed);
    }
}

#[tokio::test]
async fn an_order_that_could_not_be_tried_is_an_error() {
    let seen = Seen::default();
    let nobody = |_: WorkOrder| {
        std::future::ready(Err(EnvelopeError::of(EnvelopeErrorCode::NotFound, "nobody knows how")))
    };
    let workflow = Workflow::new()
        .step(step("a", &seen, &["retry"]))
        .step(WorkflowStep::new("b", nobody))
        .step(step("c", &seen, &[]));
    let error = workflow.run(context(), root()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"the step "b", iteration 2, could not be attempted: nobody knows how (not_found)"#
    );
    assert_eq!(told(&seen).len(), 2);
    // The results of the steps before are kept.
    let run = error.run().unwrap();
    assert_eq!((&run.end, run.completed.len(), run.notes.len()), (&RunEnd::Failed, 2, 2));
}

#[tokio::test]
async fn artifacts_are_written_before_the_next_step() {
    let project = tempfile::tempdir().unwrap();
    let spec = project.path().join("features/login/spec.md");
    let there = spec.clone();
    let proceed = Recommendation::Proceed;
    let draft =
        |recommendation| WorkOutput::new(true, "", [Artifact::create("spec.md", "v1")], recommendation);
    let update = move |_: WorkOrder| {
        assert!(there.exists());
        std::future::ready(Ok(WorkOutput::new(
            true,
            "",
            [Artifact::update("spec.md", "v2")],
            Recommendation::Proceed,
        )))
    };
    let seen = Arc::new(Mutex::new(Vec::new()));
    let callback = seen.clone();
    let workflow = Workflow::new()
        .apply_to(project.path())
        .on_step(move |done| callback.lock().unwrap().push(done.written.clone()))
        .step(answering("specify", draft(proceed.clone())))
        .step(WorkflowStep::new("refine", update));
    let run = workflow.run(context(), root()).await.unwrap();
    assert_eq!(std::fs::read_to_string(&spec).unwrap(), "v2");
    let written: Vec<_> = run.completed.into_iter().map(|done| done.written).collect();
    assert_eq!(
        written,
        [["features/login/spec.md".into()], ["features/login/spec.md".into()]]
            as [[std::path::PathBuf; 1]; 2]
    );
    assert_eq!(*seen.lock().unwrap(), written);

    // It is there now, so what creates it is refused, and nothing comes after.
    let after = Seen::default();
    let workflow = Workflow::new()
        .apply_to(project.path())
        .step(answering(
            "plan",
            WorkOutput::new(true, "", [Artifact::create("plan.md", "")], proceed.clone()),
        ))
        .step(answering("specify", draft(proceed)))
        .step(step("b", &after, &[]));
    match workflow.run(context(), root()).await {
        Err(WorkflowError::Artifacts { action, iteration: 1, error, run }) if action == "specify" => {
            assert!(matches!(*error, ApplyError::Artifact { fault: ArtifactError::Exists, .. }));
            // The written files and the rejected artifacts are available.
            assert_eq!((&run.end, run.completed.len()), (&RunEnd::Failed, 2));
            assert_eq!(run.completed[0].written, [Path::new("features/login/plan.md")]);
            assert!(run.completed[1].written.is_empty());
            assert_eq!(run.completed[1].output.artifacts, [Artifact::create("spec.md", "v1")]);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(told(&after), []);
}

#[tokio::test]
async fn files_that_the_user_must_review_are_not_written() {
    let artifacts = [Artifact::create("report.md", "")];
    for (success, recommendation, written) in [
        (true, "proceed", true),
        (true, "retry", true),
        (true, "escalate", false),
        (true, "ponder", false),
        (false, "proceed", false),
        (false, "retry", false),
    ] {
        let project = tempfile::tempdir().unwrap();
        let output = WorkOutput::new(success, "", artifacts.clone(), recommendation);
        let workflow =
            Workflow::new().apply_to(project.path()).max_iterations(1).step(answering("validate", output));
        let run = workflow.run(context(), root()).await.unwrap();
        assert_eq!(run.completed[0].output.artifacts, artifacts);
        assert_eq!(
            project.path().join("features/login/report.md").exists(),
            written,
            "{success} {recommendation}"
        );
    }
}

#[tokio::test]
async fn notes_name_steps_instead_of_agents() {
    let seen = Seen::default();
    let said = WorkOutput::new(true, "", [], Recommendation::Proceed).notes([
        "strict-agent asks writer: what if offline?".into(),
        serde_json::json!({ "by": "strict-agent" }).into(),
    ]);
    let workflow = Workflow::new()
        .step(answering("validate", said).agent("strict-agent"))
        .step(step("specify", &seen, &[]).agent("writer"));
    let run = workflow.run(context(), root()).await.unwrap();
    assert_eq!(told(&seen)[0].2, ["validate asks specify: what if offline?", r#"{"by":"validate"}"#]);
    // The output has the original notes.
    assert_eq!(run.completed[0].output.notes[0].to_string(), "strict-agent asks writer: what if offline?");
}

#[tokio::test]
async fn orders_and_outputs_carry_metadata() {
    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let worker = |order: WorkOrder| {
        assert!(!order.is_cancelled() && order.peer.is_none() && order.session_id().is_none());
        let cost = order.meta().and_then(|meta| meta.get::<u32>("cost")).unwrap_or_default();
        order.set_answer_meta(order.trace_context().expect("a trace"));
        std::future::ready(Ok(WorkOutput::new(true, cost.to_string(), [], Recommendation::Proceed)))
    };
    let workflow = Workflow::new()
        .trace_context(TraceContext::new(PARENT))
        .trace_context(None)
        .meta(Meta::from_iter([("cost", 7)]))
        .step(WorkflowStep::new("a", Arc::new(worker)));
    let run = workflow.run(context(), root()).await.unwrap();
    let done = &run.completed[0];
    assert_eq!(done.output.summary, "7");
    assert_eq!(done.meta.as_ref().unwrap().trace_context().unwrap().traceparent(), PARENT);
}

#[tokio::test]
async fn no_steps_is_nothing_to_do() {
    let run = Workflow::new().run(context(), root()).await.unwrap();
    assert_eq!((run.end, run.completed.len()), (RunEnd::Finished, 0));
}

proptest! {
    /// A run always ends. Its iterations only rise and stay within the limit. Each step receives all
    /// notes so far, and no step is skipped.
    #[test]
    fn any_recommendations(
        recommendations in proptest::collection::vec(
            proptest::collection::vec(proptest::sample::select(vec!["proceed", "retry", "escalate", "?"]), 0..4),
            1..5,
        ),
        back in proptest::collection::vec(0usize..5, 5),
        limit in 1u32..5,
    ) {
        let seen = Seen::default();
        let mut workflow = Workflow::new().max_iterations(limit);
        for (at, recommendations) in recommendations.iter().enumerate() {
            let step = step(&at.to_string(), &seen, recommendations).back_to((back[at] % (at + 1)).to_string());
            workflow = workflow.step(step);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let run = runtime.block_on(workflow.run(context(), root())).unwrap();
        let told = told(&seen);
        prop_assert_eq!(told.len(), run.completed.len());
        let (mut at, mut iteration) = (0, 1);
        for (index, (done, (action, told_iteration, told_notes))) in run.completed.iter().zip(told).enumerate() {
            prop_assert_eq!((&action, told_iteration), (&at.to_string(), iteration));
            prop_assert_eq!((&done.action, done.iteration), (&action, iteration));
            prop_assert_eq!(told_notes, notes(1..=index));
            prop_assert!(iteration <= limit);
            let last = index + 1 == run.completed.len();
            match done.output.recommendation {
                Recommendation::Proceed => at += 1,
                Recommendation::Retry if iteration < limit => {
                    at = back[at] % (at + 1);
                    iteration += 1;
                }
                _ => prop_assert!(last && matches!(run.end, RunEnd::Escalated(_))),
            }
        }
        prop_assert_eq!(run.end == RunEnd::Finished, at == recommendations.len());
    }
}
