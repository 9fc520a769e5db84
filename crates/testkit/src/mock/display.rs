//! Scenarios that show tools, plans, content and the state of the session.

use duologue_agent::schema::{
    Annotations, AvailableCommand, BlobResourceContents, CompactionStatus, CompactionSummaryChunk,
    CompactionUpdate, ContentBlock, Cost, EmbeddedResource, ImageContent, Notice, NoticeSeverity, PlanEntry,
    PlanEntryPriority, PlanEntryStatus, ResourceLink, Role, SessionInfoUpdate, SessionUpdate, TextContent,
    TextResourceContents, ToolCallContent, ToolCallLocation, ToolCallStatus, ToolCallUpdate,
    UnstructuredCommandInput, UsageUpdate,
};
use duologue_agent::{Result, ToolKind};
use serde_json::json;

use super::scenario::Scenario;
use super::scenario_turn::ScenarioTurn;
use super::settings::MockSettings;

/// An image of one red pixel.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";
/// A sound without samples.
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=";

pub(super) async fn plan(turn: &ScenarioTurn<'_>) -> Result<()> {
    use PlanEntryPriority::{High, Low, Medium};
    use PlanEntryStatus::{Completed, InProgress, Pending};

    let steps = [("Look around", High), ("Change something", Medium), ("Tidy up", Low)];
    for done in 0..=steps.len() {
        let entries = steps.iter().enumerate().map(|(index, (step, priority))| {
            let status = match index.cmp(&done) {
                std::cmp::Ordering::Less => Completed,
                std::cmp::Ordering::Equal => InProgress,
                std::cmp::Ordering::Greater => Pending,
            };
            PlanEntry::new(*step, priority.clone(), status)
        });
        turn.set_plan(entries.collect()).await?;
        turn.wait(turn.pace * 10).await;
    }
    turn.send("The plan is worked off.").await
}

pub(super) async fn tools(turn: &ScenarioTurn<'_>) -> Result<()> {
    let file = turn.cwd().join("src/main.rs");

    let read = turn
        .tool_call("Read src/main.rs")
        .kind(ToolKind::Read)
        .raw_input(json!({ "path": "src/main.rs", "lines": [1, 3] }))
        .with(|call| call.name("read_file").locations(vec![ToolCallLocation::new(&file).line(3)]))
        .start()
        .await?;
    // A second tool call at the same time.
    let search = turn.tool_call("Search for TODO").kind(ToolKind::Search).start().await?;
    turn.wait(turn.pace * 10).await;
    read.content("fn main() {\n    plan()\n}\n").await?;
    read.raw_output(json!({ "bytes": 25 })).await?;
    read.complete().await?;
    search.update(|update| update.title("Search for TODO: 1 match")).await?;
    search.complete().await?;

    let edit = turn.tool_call("Edit src/main.rs").kind(ToolKind::Edit).location(&file).start().await?;
    let old = "fn main() {\n    plan()\n}\n";
    edit.diff(&file, Some(old.into()), "fn main() {\n    run();\n}\n\nfn run() {}\n").await?;
    edit.diff(turn.cwd().join("NEW.md"), None, "# New\n").await?;
    turn.wait(turn.pace * 10).await;
    edit.complete().await?;

    let failing = turn.tool_call("Run the tests").kind(ToolKind::Execute).announce().await?;
    turn.wait(turn.pace * 10).await;
    failing.status(ToolCallStatus::InProgress).await?;
    turn.wait(turn.pace * 10).await;
    failing.fail("1 of 2 tests failed").await?;

    let others = [
        ("Delete old.rs", ToolKind::Delete),
        ("Move a.rs to b.rs", ToolKind::Move),
        ("Think it over", ToolKind::Think),
        ("Fetch https://example.com", ToolKind::Fetch),
        ("Switch to the mode code", ToolKind::SwitchMode),
        ("Do something else", ToolKind::Other),
    ];
    for (title, kind) in others {
        let call = turn.tool_call(title).kind(kind).start().await?;
        turn.pause().await;
        call.complete().await?;
    }

    // Some agents send updates of a tool call that they never announced.
    let late = ToolCallUpdate::new("call-first-heard-of-by-an-update")
        .kind(ToolKind::Other)
        .status(ToolCallStatus::Completed);
    turn.update(SessionUpdate::from(late)).await?;
    turn.send("Those were all tools.").await
}

pub(super) async fn content(turn: &ScenarioTurn<'_>) -> Result<()> {
    turn.send("Every kind of content:").await?;
    let mut message = turn.message();
    for block in blocks() {
        turn.pause().await;
        message.push(block).await?;
    }
    let call = turn.tool_call("The same, as a tool's content").start().await?;
    let all: Vec<ToolCallContent> = blocks().into_iter().map(ToolCallContent::from).collect();
    call.update(|update| update.content(all)).await?;
    call.complete().await
}

fn blocks() -> Vec<ContentBlock> {
    let hints = Annotations::new()
        .audience(vec![Role::User, Role::Assistant])
        .priority(0.5)
        .last_modified("2026-01-02T03:04:05Z");
    vec![
        TextContent::new("Text with hints. ").annotations(Box::new(hints)).into(),
        ImageContent::new(PNG, "image/png").uri("file:///tmp/dot.png").into(),
        ContentBlock::audio(WAV, "audio/wav"),
        ResourceLink::new("main.rs", "file:///tmp/main.rs")
            .title("The program")
            .description("Where it begins")
            .mime_type("text/rust")
            .size(28)
            .into(),
        EmbeddedResource::new(TextResourceContents::new("fn main() {}\n", "file:///tmp/main.rs")).into(),
        EmbeddedResource::new(BlobResourceContents::new(PNG, "file:///tmp/dot.png")).into(),
    ]
}

pub(super) async fn modes(turn: &ScenarioTurn<'_>) -> Result<()> {
    for mode in ["plan", "code"] {
        turn.mode_changed(mode).await?;
        turn.send(&format!("Now the mode is {mode}.")).await?;
    }
    Ok(())
}

pub(super) async fn options(turn: &ScenarioTurn<'_>) -> Result<()> {
    let settings = MockSettings::of(turn);
    let options = settings.change(|settings| {
        settings.model = "large".into();
        settings.effort = "high".into();
        settings.verbose = true;
        settings.options()
    });
    turn.config_changed(options).await?;
    turn.send("Now the model is large, the effort high, and I am verbose.").await
}

pub(super) async fn commands(turn: &ScenarioTurn<'_>) -> Result<()> {
    let mut all = Scenario::commands(turn.client().protocol_version());
    let input = UnstructuredCommandInput::new("what to test");
    all.insert(0, AvailableCommand::new("test", "Runs the tests, or would").input(input));
    turn.set_commands(all).await?;
    turn.send("There is a new command: /test.").await
}

pub(super) async fn usage(turn: &ScenarioTurn<'_>) -> Result<()> {
    for (used, cost) in [(1_200, 0.0036), (52_000, 0.156), (161_000, 0.483)] {
        turn.set_usage(UsageUpdate::new(used, 200_000_u64).cost(Cost::new(cost, "USD"))).await?;
        turn.send(&format!("{used} tokens are used.")).await?;
    }
    Ok(())
}

pub(super) async fn info(turn: &ScenarioTurn<'_>) -> Result<()> {
    let info = SessionInfoUpdate::new().title("A session with a title").updated_at("2026-01-02T03:04:05Z");
    turn.set_info(info).await?;
    turn.send("The session has a title now.").await
}

pub(super) async fn compaction(turn: &ScenarioTurn<'_>) -> Result<()> {
    if !turn.client().capabilities().has_compaction() {
        return turn.send("This client does not show compactions.").await;
    }
    turn.update(CompactionUpdate::new("compaction-1", CompactionStatus::InProgress)).await?;
    for part in ["We said hello, ", "and did a lot."] {
        turn.update(CompactionSummaryChunk::new("compaction-1", part)).await?;
    }
    turn.update(CompactionUpdate::new("compaction-1", CompactionStatus::Completed)).await?;
    turn.update(CompactionUpdate::new("compaction-2", CompactionStatus::InProgress)).await?;
    let failed = CompactionUpdate::new("compaction-2", CompactionStatus::Failed);
    turn.update(failed.error("there is nothing to compact")).await?;
    turn.send("My memory is shorter now.").await
}

pub(super) async fn notices(turn: &ScenarioTurn<'_>) -> Result<()> {
    if !turn.client().capabilities().has_notices() {
        return turn.send("This client does not show notices.").await;
    }
    use NoticeSeverity::{Error, Info, Warning};
    let all = [(Info, "For your information"), (Warning, "Take care"), (Error, "Something failed")];
    for (severity, title) in all {
        let notice = Notice::new(severity, title).description("It is only a notice.");
        turn.notice(notice).await?;
    }
    turn.send("Those were notices.").await
}
