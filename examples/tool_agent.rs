//! An agent with tools: it reads a file through the client, asks whether it may change it, and
//! writes it back. Prompt it with the name of a text file in the session's folder.

use duologue_agent::schema::Implementation;
use duologue_agent::{Agent, Error, Prompt, Result, StopReason, ToolKind, Turn, serve_stdio};

struct Shouter;

impl Agent for Shouter {
    fn info(&self) -> Option<Implementation> {
        Some(Implementation::new("tool-agent", env!("CARGO_PKG_VERSION")).title("Shouter"))
    }

    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> Result<StopReason> {
        let path = turn.cwd().join(prompt.text().trim());

        let read = turn.tool_call("Read the file").kind(ToolKind::Read).location(&path);
        let text = read.run(async |call| {
            let text = turn.read_text_file(&path).await?;
            call.content(text.as_str()).await?;
            Ok(text)
        });
        let old = match text.await {
            Ok(text) => text,
            // Without the file there is nothing to do. The failed tool call shows the reason.
            Err(Error::NotSupported { .. } | Error::Refused { .. }) => return Ok(StopReason::EndTurn),
            Err(error) => return Err(error),
        };

        let new = old.to_uppercase();
        let write = turn.tool_call("Make it loud").kind(ToolKind::Edit).location(&path).announce().await?;
        write.diff(&path, Some(old), new.as_str()).await?;
        if !write.allowed().await? {
            write.fail("The user said no.").await?;
            turn.message().push("I left it as it was.").await?;
            return Ok(StopReason::EndTurn);
        }
        if let Err(error) = turn.write_text_file(&path, new).await {
            write.fail(error.user_message()).await?;
            return Ok(StopReason::EndTurn);
        }
        write.complete().await?;
        turn.message().push("Done. It is LOUD now.").await?;
        Ok(StopReason::EndTurn)
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    serve_stdio(Shouter).await
}
