//! Scenarios that ask the client for something.

use std::collections::BTreeMap;

use duologue_agent::schema::{
    BooleanPropertySchema, CreateTerminalRequest, ElicitationAction, ElicitationPropertySchema,
    ElicitationSchema, EnumOption, IntegerPropertySchema, MultiSelectPropertySchema, NumberPropertySchema,
    RequestPermissionOutcome, StringFormat, StringMultiSelectItems, StringPropertySchema,
};
use duologue_agent::{PermissionOption, PermissionOptionKind, Result, Terminal, ToolCallHandle, ToolKind};
use serde_json::json;
use serde_json::value::to_raw_value;

use super::colleague;
use super::scene::{Scene, is_refusal};

/// The four answers there are.
pub(super) fn options() -> Vec<PermissionOption> {
    vec![
        PermissionOption::new("allow-once", "Yes", PermissionOptionKind::AllowOnce),
        PermissionOption::new("allow-always", "Yes, always", PermissionOptionKind::AllowAlways),
        PermissionOption::new("reject-once", "No", PermissionOptionKind::RejectOnce),
        PermissionOption::new("reject-always", "No, never", PermissionOptionKind::RejectAlways),
    ]
}

/// Asks whether a tool may run. If not, it fails.
async fn allowed(call: ToolCallHandle) -> Result<Option<ToolCallHandle>> {
    match call.request_permission(options()).await? {
        RequestPermissionOutcome::Selected(chosen) if chosen.option_id.as_str().starts_with("allow") => {
            call.status(duologue_agent::schema::ToolCallStatus::InProgress).await?;
            Ok(Some(call))
        }
        RequestPermissionOutcome::Cancelled => {
            call.fail("The question was cancelled.").await?;
            Ok(None)
        }
        _ => {
            call.fail("The answer was no.").await?;
            Ok(None)
        }
    }
}

pub(super) async fn permission(scene: &Scene<'_>) -> Result<()> {
    let file = scene.turn.cwd().join("notes.txt");
    let call = scene
        .tool_call("Change notes.txt")
        .kind(ToolKind::Edit)
        .location(&file)
        .raw_input(json!({ "path": "notes.txt" }))
        .announce()
        .await?;
    call.diff(&file, Some("milk\n".into()), "milk\nbread\n").await?;
    let Some(call) = allowed(call).await? else { return scene.say("I left it as it was.").await };
    call.complete().await?;
    scene.say("You allowed it. (I only pretended to change anything.)").await
}

pub(super) async fn files(scene: &Scene<'_>) -> Result<()> {
    let path = scene.turn.cwd().join("duologue-mock.txt");
    let text = "one\ntwo\nthree\n";
    let call = scene.tool_call("Write duologue-mock.txt").kind(ToolKind::Edit).location(&path).announce();
    let call = call.await?;
    call.diff(&path, None, text).await?;
    let Some(call) = allowed(call).await? else { return scene.say("I wrote nothing.").await };
    match scene.turn.write_text_file(&path, text).await {
        Ok(()) => call.complete().await?,
        Err(error) if is_refusal(&error) => call.fail(error.to_string()).await?,
        Err(error) => return Err(error),
    }
    let reading = [("Read it", None), ("Read its second line", Some((2, 1)))];
    for (title, lines) in reading {
        let call = scene.tool_call(title).kind(ToolKind::Read).location(&path).start().await?;
        let text = match lines {
            None => scene.turn.read_text_file(&path).await,
            Some((line, limit)) => scene.turn.read_lines(&path, line, limit).await,
        };
        match text {
            Ok(text) => {
                call.content(text).await?;
                call.complete().await?;
            }
            Err(error) if is_refusal(&error) => call.fail(error.to_string()).await?,
            Err(error) => return Err(error),
        }
    }
    let call = scene.tool_call("Read a file that is not there").kind(ToolKind::Read).start().await?;
    match scene.turn.read_text_file(scene.turn.cwd().join("no such file")).await {
        Ok(_) => call.complete().await?,
        Err(error) if is_refusal(&error) => call.fail(error.to_string()).await?,
        Err(error) => return Err(error),
    }
    scene.say("Those were files.").await
}

pub(super) async fn terminal(scene: &Scene<'_>) -> Result<()> {
    let call = scene.tool_call("Run echo and sleep").kind(ToolKind::Execute).announce().await?;
    let Some(call) = allowed(call).await? else { return scene.say("I ran nothing.").await };
    match run_programs(scene, &call).await {
        Ok(()) => call.complete().await?,
        Err(error) if is_refusal(&error) => call.fail(error.to_string()).await?,
        Err(error) => return Err(error),
    }
    scene.say("Those were terminals.").await
}

async fn run_programs(scene: &Scene<'_>, call: &ToolCallHandle) -> Result<()> {
    let mut request = CreateTerminalRequest::new(scene.turn.id().clone(), "echo");
    request.args = vec!["hello from a terminal".into()];
    request.cwd = Some(scene.turn.cwd().to_owned());
    request.output_byte_limit = Some(64 * 1024);
    let echo = scene.turn.create_terminal_with(request).await?;
    call.terminal(&echo).await?;
    let status = echo.wait_for_exit().await?;
    let output = echo.output().await?;
    echo.release().await?;
    call.content(format!("echo ended with {:?} and said {:?}", status.exit_code, output.output)).await?;

    let sleep: Terminal = scene.turn.create_terminal("sleep", ["60"]).await?;
    sleep.kill().await?;
    let status = sleep.wait_for_exit().await?;
    call.content(format!("sleep was killed by {:?}", status.signal)).await?;
    sleep.release().await
}

pub(super) async fn elicitation(scene: &Scene<'_>) -> Result<()> {
    match scene.turn.elicit_form("Tell me about your project.", form()).await {
        Ok(answer) => match answer.action {
            ElicitationAction::Accept(form) => {
                let fields = serde_json::to_string(&form.content).unwrap_or_default();
                scene.say(&format!("You filled in {fields}.")).await?;
            }
            ElicitationAction::Decline => scene.say("You declined.").await?,
            _ => scene.say("You cancelled.").await?,
        },
        Err(error) if is_refusal(&error) => scene.say(&format!("No form: {error}.")).await?,
        Err(error) => return Err(error),
    }
    match scene.turn.elicit_url("Log in over there.", "elicitation-1", "https://example.com/login").await {
        Ok(_) => {
            scene.turn.elicitation_complete("elicitation-1").await?;
            scene.say("The link is done with.").await
        }
        Err(error) if is_refusal(&error) => scene.say(&format!("No link: {error}.")).await,
        Err(error) => Err(error),
    }
}

/// A field of every type.
fn form() -> ElicitationSchema {
    let titled = [("mit", "MIT"), ("apache", "Apache 2.0")].map(|(id, title)| EnumOption::new(id, title));
    let fields: [(&str, ElicitationPropertySchema); 8] = [
        ("name", StringPropertySchema::new().title("Name").min_length(1_u32).into()),
        ("mail", StringPropertySchema::new().title("Mail").format(StringFormat::Email).into()),
        (
            "licence",
            StringPropertySchema::new().title("Licence").one_of(titled.to_vec()).default("mit").into(),
        ),
        ("language", StringPropertySchema::new().r#enum(vec!["rust".into(), "python".into()]).into()),
        ("members", IntegerPropertySchema::new().title("Members").minimum(1).maximum(99).default(1).into()),
        ("budget", NumberPropertySchema::new().title("Budget").into()),
        ("public", BooleanPropertySchema::new().title("Public?").default(true).into()),
        (
            "systems",
            MultiSelectPropertySchema::new(StringMultiSelectItems::new(vec![
                "linux".into(),
                "macos".into(),
                "windows".into(),
            ]))
            .title("Systems")
            .into(),
        ),
    ];
    let mut form = ElicitationSchema::new().title("A project").required(vec!["name".into()]);
    form.properties =
        fields.map(|(name, field)| (name.to_owned(), field)).into_iter().collect::<BTreeMap<_, _>>();
    form
}

pub(super) async fn extension(scene: &Scene<'_>) -> Result<()> {
    let peer = scene.turn.client().peer();
    peer.notify_raw("_duologue.dev/notified", &json!({ "by": "the mock" })).await?;
    let params = to_raw_value(&json!({ "question": "Do you know this method?" }))?;
    match peer.request_raw("_duologue.dev/asked", Some(&params)).await {
        Ok(answer) => scene.say(&format!("You answered {}.", answer.get())).await,
        Err(error) if error.as_response().is_some() => {
            scene.say(&format!("You answered with an error, which is fine: {error}.")).await
        }
        Err(error) => Err(error.into()),
    }
}

pub(super) async fn colleague(scene: &Scene<'_>) -> Result<()> {
    let peer = scene.turn.peer_agent();
    if !peer.offers().speaks_envelopes() {
        return scene
            .say("This client does not say that it speaks to agents: no _meta.duologue.envelope.")
            .await;
    }
    for line in colleague::turn_to(&peer).await {
        scene.say(&line).await?;
    }
    Ok(())
}
