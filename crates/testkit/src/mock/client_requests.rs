//! Scenarios that send requests to the client: permissions, files, terminals, forms and extensions.

use std::time::Duration;

use duologue_agent::schema::{
    BooleanPropertySchema, CreateTerminalRequest, ElicitationAction, ElicitationPropertySchema,
    ElicitationSchema, EnumOption, IntegerPropertySchema, MultiSelectPropertySchema, NumberPropertySchema,
    RequestPermissionOutcome, StringFormat, StringMultiSelectItems, StringPropertySchema,
};
use duologue_agent::{
    PermissionOption, PermissionOptionKind, RemoteTerminal, Result, ToolCallHandle, ToolKind,
};
use serde_json::json;
use serde_json::value::to_raw_value;

use super::envelopes;
use super::scenario_turn::{ScenarioTurn, is_refusal};

/// The time for the response to the extension request. Some clients never answer one that they do not know.
const EXTENSION_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns an option of each kind.
pub(super) fn options() -> Vec<PermissionOption> {
    vec![
        PermissionOption::new("allow-once", "Yes", PermissionOptionKind::AllowOnce),
        PermissionOption::new("allow-always", "Yes, always", PermissionOptionKind::AllowAlways),
        PermissionOption::new("reject-once", "No", PermissionOptionKind::RejectOnce),
        PermissionOption::new("reject-always", "No, never", PermissionOptionKind::RejectAlways),
    ]
}

/// Requests a permission. Returns the tool call if it is granted; otherwise the call has failed.
async fn request_permission_for(call: ToolCallHandle) -> Result<Option<ToolCallHandle>> {
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

pub(super) async fn permission(turn: &ScenarioTurn<'_>) -> Result<()> {
    let file = turn.cwd().join("notes.txt");
    let call = turn
        .tool_call("Change notes.txt")
        .kind(ToolKind::Edit)
        .location(&file)
        .raw_input(json!({ "path": "notes.txt" }))
        .announce()
        .await?;
    call.diff(&file, Some("milk\n".into()), "milk\nbread\n").await?;
    let Some(call) = request_permission_for(call).await? else {
        return turn.send("I left it as it was.").await;
    };
    call.complete().await?;
    turn.send("You allowed it. (I only pretended to change anything.)").await
}

pub(super) async fn files(turn: &ScenarioTurn<'_>) -> Result<()> {
    let path = turn.cwd().join("duologue-mock.txt");
    let text = "one\ntwo\nthree\n";
    let call = turn.tool_call("Write duologue-mock.txt").kind(ToolKind::Edit).location(&path).announce();
    let call = call.await?;
    call.diff(&path, None, text).await?;
    let Some(call) = request_permission_for(call).await? else { return turn.send("I wrote nothing.").await };
    match turn.write_text_file(&path, text).await {
        Ok(()) => call.complete().await?,
        Err(error) if is_refusal(&error) => call.fail(error.user_message()).await?,
        Err(error) => return Err(error),
    }
    let reading = [("Read it", None), ("Read its second line", Some((2, 1)))];
    for (title, lines) in reading {
        let call = turn.tool_call(title).kind(ToolKind::Read).location(&path).start().await?;
        let text = match lines {
            None => turn.read_text_file(&path).await,
            Some((line, limit)) => turn.read_lines(&path, line, limit).await,
        };
        match text {
            Ok(text) => {
                call.content(text).await?;
                call.complete().await?;
            }
            Err(error) if is_refusal(&error) => call.fail(error.user_message()).await?,
            Err(error) => return Err(error),
        }
    }
    let call = turn.tool_call("Read a file that is not there").kind(ToolKind::Read).start().await?;
    match turn.read_text_file(turn.cwd().join("no such file")).await {
        Ok(_) => call.complete().await?,
        Err(error) if is_refusal(&error) => call.fail(error.user_message()).await?,
        Err(error) => return Err(error),
    }
    turn.send("Those were files.").await
}

pub(super) async fn terminal(turn: &ScenarioTurn<'_>) -> Result<()> {
    let call = turn.tool_call("Run echo and sleep").kind(ToolKind::Execute).announce().await?;
    let Some(call) = request_permission_for(call).await? else { return turn.send("I ran nothing.").await };
    match run_programs(turn, &call).await {
        Ok(()) => call.complete().await?,
        Err(error) if is_refusal(&error) => call.fail(error.user_message()).await?,
        Err(error) => return Err(error),
    }
    turn.send("Those were terminals.").await
}

async fn run_programs(turn: &ScenarioTurn<'_>, call: &ToolCallHandle) -> Result<()> {
    let mut request = CreateTerminalRequest::new(turn.id().clone(), "echo");
    request.args = vec!["hello from a terminal".into()];
    request.cwd = Some(turn.cwd().to_owned());
    request.output_byte_limit = Some(64 * 1024);
    let echo = turn.create_terminal_with(request).await?;
    call.terminal(&echo).await?;
    let status = echo.wait_for_exit().await?;
    let output = echo.output().await?;
    echo.release().await?;
    let ended = status.exit_code.map_or_else(|| "no code".to_owned(), |code| format!("code {code}"));
    call.content(format!("echo ended with {ended} and said {:?}", output.output)).await?;

    let sleep: RemoteTerminal = turn.create_terminal("sleep", ["60"]).await?;
    sleep.kill().await?;
    let status = sleep.wait_for_exit().await?;
    let signal = status.signal.as_deref().unwrap_or("no signal");
    call.content(format!("sleep was killed by {signal}")).await?;
    sleep.release().await
}

pub(super) async fn elicitation(turn: &ScenarioTurn<'_>) -> Result<()> {
    match turn.elicit_form("Tell me about your project.", form()).await {
        Ok(answer) => match answer.action {
            ElicitationAction::Accept(form) => {
                let fields = serde_json::to_string(&form.content).unwrap_or_default();
                turn.send(&format!("You filled in {fields}.")).await?;
            }
            ElicitationAction::Decline => turn.send("You declined.").await?,
            _ => turn.send("You cancelled.").await?,
        },
        Err(error) if is_refusal(&error) => turn.send(&format!("No form: {}", error.user_message())).await?,
        Err(error) => return Err(error),
    }
    match turn.elicit_url("Log in over there.", "elicitation-1", "https://example.com/login").await {
        Ok(_) => {
            turn.elicitation_complete("elicitation-1").await?;
            turn.send("The link is done with.").await
        }
        Err(error) if is_refusal(&error) => turn.send(&format!("No link: {}", error.user_message())).await,
        Err(error) => Err(error),
    }
}

/// Returns a form with a field of every type.
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
    ElicitationSchema::new().title("A project").properties(fields).required(vec!["name".into()])
}

pub(super) async fn extension(turn: &ScenarioTurn<'_>) -> Result<()> {
    let peer = turn.client().peer();
    peer.notify_raw("_duologue.dev/notified", &json!({ "by": "the mock" })).await?;
    let params = to_raw_value(&json!({ "question": "Do you know this method?" }))?;
    let request = peer.request_raw("_duologue.dev/asked", Some(&params));
    match tokio::time::timeout(EXTENSION_TIMEOUT, request).await {
        Ok(Ok(answer)) => turn.send(&format!("You answered {}.", answer.get())).await,
        Ok(Err(error)) if error.as_response().is_some() => {
            turn.send(&format!("You answered with an error, which is fine: {error}.")).await
        }
        Ok(Err(error)) => Err(error.into()),
        Err(_) => {
            let seconds = EXTENSION_TIMEOUT.as_secs();
            turn.send(&format!("You did not answer within {seconds} s. Every request needs an answer.")).await
        }
    }
}

pub(super) async fn peer_agent(turn: &ScenarioTurn<'_>) -> Result<()> {
    let peer = turn.peer_agent();
    if !peer.offers().speaks_envelopes() {
        return turn
            .send("This client does not say that it speaks to agents: no _meta.duologue.envelope.")
            .await;
    }
    for line in envelopes::contact(&peer).await {
        turn.send(&line).await?;
    }
    Ok(())
}
