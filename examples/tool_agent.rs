//! An agent with tools: it reads a file through the client, asks whether it may change it, and
//! writes it back. Prompt it with the name of a text file in the session's folder.

use duologue_agent::schema::RequestPermissionOutcome;
use duologue_agent::{
    Agent, Error, PermissionOption, PermissionOptionKind, Prompt, Result, StopReason, ToolKind, Turn,
    serve_stdio,
};

struct Shouter;

impl Agent for Shouter {
    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> Result<StopReason> {
        let path = turn.cwd().join(prompt.text().trim());

        let read = turn.tool_call("Read the file").kind(ToolKind::Read).location(&path).start().await?;
        let old = match turn.read_text_file(&path).await {
            Ok(text) => text,
            // Without files there is nothing to do; the user gets a message instead of an error.
            Err(error @ (Error::NotSupported { .. } | Error::Response(_))) => {
                read.fail(error.to_string()).await?;
                return Ok(StopReason::EndTurn);
            }
            Err(error) => return Err(error),
        };
        read.content(old.as_str()).await?;
        read.complete().await?;

        let new = old.to_uppercase();
        let write = turn.tool_call("Make it loud").kind(ToolKind::Edit).location(&path).announce().await?;
        write.diff(&path, Some(old), new.as_str()).await?;
        let options = vec![
            PermissionOption::new("yes", "Write it", PermissionOptionKind::AllowOnce),
            PermissionOption::new("no", "Leave it", PermissionOptionKind::RejectOnce),
        ];
        match write.request_permission(options).await? {
            RequestPermissionOutcome::Selected(chosen) if chosen.option_id.as_ref() == "yes" => {
                turn.write_text_file(&path, new).await?;
                write.complete().await?;
                turn.message().push("Done. It is LOUD now.").await?;
            }
            _ => {
                write.fail("The user said no.").await?;
                turn.message().push("I left it as it was.").await?;
            }
        }
        Ok(StopReason::EndTurn)
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    serve_stdio(Shouter).await
}
