//! A little editor: it lends an agent its unsaved buffers and answers its permission questions.
//!
//! It runs the tool agent beside it, which reads a file, asks, and writes it back.
#![allow(clippy::print_stdout, reason = "the editor's stdout is the user's")]

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use duologue_client::schema::{
    ClientCapabilities, Error, FileSystemCapabilities, PermissionOptionKind, ReadTextFileRequest,
    ReadTextFileResponse, RequestPermissionOutcome, RequestPermissionRequest, WriteTextFileRequest,
    WriteTextFileResponse,
};
use duologue_client::{Client, Command, Host, HostResult, SessionUpdate};

/// Text that was typed and not saved.
#[derive(Clone, Default)]
struct Buffers(Arc<Mutex<HashMap<PathBuf, String>>>);

impl Buffers {
    fn set(&self, path: impl Into<PathBuf>, text: impl Into<String>) {
        self.0.lock().expect("no one panics while holding it").insert(path.into(), text.into());
    }

    fn get(&self, path: impl Into<PathBuf>) -> Option<String> {
        self.0.lock().expect("no one panics while holding it").get(&path.into()).cloned()
    }
}

impl Host for Buffers {
    fn capabilities(&self) -> ClientCapabilities {
        let files = FileSystemCapabilities::new().read_text_file(true).write_text_file(true);
        ClientCapabilities::new().fs(files)
    }

    async fn read_text_file(&self, request: ReadTextFileRequest) -> HostResult<ReadTextFileResponse> {
        match self.get(&request.path) {
            Some(text) => Ok(ReadTextFileResponse::new(text)),
            None => Err(Error::resource_not_found(format!("no buffer for {}", request.path.display()))),
        }
    }

    async fn write_text_file(&self, request: WriteTextFileRequest) -> HostResult<WriteTextFileResponse> {
        self.set(request.path, request.content);
        Ok(WriteTextFileResponse::new())
    }

    /// Allows everything once. A real editor asks the user here.
    async fn request_permission(
        &self,
        request: RequestPermissionRequest,
    ) -> HostResult<RequestPermissionOutcome> {
        let allow = request.options.into_iter().find(|option| option.kind == PermissionOptionKind::AllowOnce);
        Ok(match allow {
            Some(option) => RequestPermissionOutcome::selected(option.option_id),
            None => RequestPermissionOutcome::Cancelled,
        })
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let buffers = Buffers::default();
    buffers.set("/home/me/notes.txt", "remember the milk");

    let agent = Command::new(std::env::current_exe()?.with_file_name("tool-agent"));
    let agent = Client::new(buffers.clone()).spawn(agent).await?;
    let session = agent.new_session("/home/me").await?;

    let mut turn = session.prompt("notes.txt").await?;
    while let Some(update) = turn.next().await {
        match update? {
            SessionUpdate::ToolCall(call) => println!("* {}", call.title),
            update => print!("{update}"),
        }
    }
    println!("\n[{}]", turn.outcome().await?.stop_reason);

    println!("notes.txt: {}", buffers.get("/home/me/notes.txt").unwrap_or_default());
    agent.close().await;
    Ok(())
}
