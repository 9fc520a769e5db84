//! A hub with agents for the test of its page.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::interop::Result;

/// A process of `duologue serve`. Dropping it ends the process.
pub(super) struct ServedHub {
    process: Child,
    /// The address, such as `http://127.0.0.1:8931`.
    pub(super) address: String,
    /// The token of the local user.
    pub(super) token: String,
    /// The rest of the output. A server whose output is closed ends.
    output: BufReader<ChildStdout>,
}

impl ServedHub {
    /// Starts a hub in a folder. Its agent `many` sends as many updates as `events` for a prompt.
    pub(super) fn start(duologue: &Path, folder: &Path, events: usize) -> Result<Self> {
        let data = folder.join("hub-data");
        let _ = std::fs::remove_dir_all(&data);
        let config = folder.join("hub.toml");
        let many = folder.join("many_agent.mjs");
        let text = format!(
            r#"
            [[agents]]
            id = "writer"
            cwd = "work-writer"
            command = [{duologue:?}, "mock", "--pace", "0"]

            [[agents]]
            id = "reviewer"
            cwd = "work-reviewer"
            command = [{duologue:?}, "mock", "permission", "--pace", "0"]

            [[agents]]
            id = "many"
            cwd = "work-many"
            command = ["node", {many:?}, "{events}"]
            "#
        );
        std::fs::write(&config, text)?;
        let mut command = Command::new(duologue);
        command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(&config).arg("--data").arg(&data);
        let mut process = command.stdout(Stdio::piped()).spawn()?;
        let output = BufReader::new(process.stdout.take().ok_or("the hub has no output")?);
        let mut hub = ServedHub { process, address: String::new(), token: String::new(), output };
        let mut first = String::new();
        hub.output.read_line(&mut first)?;
        let address = first.split_once(" at ").and_then(|(_, rest)| rest.trim().strip_suffix("/acp"));
        hub.address = address.ok_or_else(|| format!("the hub does not start: {first:?}"))?.to_owned();
        hub.token = std::fs::read_to_string(data.join("token"))?.trim().to_owned();
        Ok(hub)
    }
}

impl Drop for ServedHub {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
