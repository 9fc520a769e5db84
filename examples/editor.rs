//! A little editor: it lends an agent its project, its unsaved text before all, and answers its
//! permission questions.
//!
//! It runs the tool agent beside it, which reads a file, asks, and writes it back.
#![allow(clippy::print_stdout, reason = "the editor's stdout is the user's")]

use std::collections::HashMap;
use std::sync::Arc;

use duologue_client::schema::{
    ReadTextFileRequest, ReadTextFileResponse, RequestPermissionOutcome, printable,
};
use duologue_client::{Client, Command, Host, LocalHost, Permissions, SessionUpdate};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let project = std::env::temp_dir().join(format!("duologue-editor-{}", std::process::id()));
    let notes = project.join("notes.txt");
    std::fs::create_dir(&project)?;
    std::fs::write(&notes, "remember the bread")?;
    // Typed and not saved.
    let buffers = Arc::new(HashMap::from([(notes.clone(), "remember the milk")]));

    // A real editor asks the user here. This one takes the first answer, which is a yes.
    let permissions = Permissions::new().ask(async |_, question| match question.options.first() {
        Some(option) => RequestPermissionOutcome::selected(option.option_id.clone()),
        None => RequestPermissionOutcome::Cancelled,
    });
    let host = Arc::new(LocalHost::new(&project).permissions(permissions));
    let client = Client::new(host.clone()).on_with(
        (buffers, host),
        async |(buffers, disk), context, request: ReadTextFileRequest| match buffers.get(&request.path) {
            Some(text) => Ok(ReadTextFileResponse::new(request.lines_of(text))),
            None => disk.read_text_file(&context, request).await,
        },
    );

    let agent = Command::new(std::env::current_exe()?.with_file_name("tool-agent"));
    let agent = client.spawn(agent).await?;
    let session = agent.new_session(&project).await?;
    let mut turn = session.prompt("notes.txt").await?;
    while let Some(update) = turn.next().await {
        match update? {
            SessionUpdate::ToolCall(call) => println!("* {}", printable(&call.title)),
            update => print!("{}", printable(&update.to_string())),
        }
    }
    println!("\n[{}]", printable(turn.outcome().await?.stop_reason.as_str()));
    agent.close().await;

    println!("notes.txt: {}", std::fs::read_to_string(notes)?);
    std::fs::remove_dir_all(project)?;
    Ok(())
}
