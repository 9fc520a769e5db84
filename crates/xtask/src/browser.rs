//! `cargo xtask browser`: the pages of `duologue show --html` in a real browser. `browser/pages.mjs` clicks and types with
//! puppeteer-core.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::interop::{InteropPaths, Result, finish, install};

/// Events of a large page.
const MANY: usize = 100_000;
/// The time limit of all pages.
const LIMIT: Duration = Duration::from_secs(300);

/// Makes the pages and checks them, all in one browser.
pub(crate) fn run() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let pages = std::path::absolute(InteropPaths::new().target.join("browser"))?;
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("browser");
    install::npm(&sources, &pages)?;
    std::fs::copy(sources.join("pages.mjs"), pages.join("pages.mjs"))?;
    let duologue = build(&root)?;
    let page = |transcript: &Path, name: &str| -> Result<String> {
        let out = pages.join(name);
        let mut show = Command::new(&duologue);
        finish(show.args(["show", "--html", "--force", "-o"]).arg(&out).arg(transcript), LIMIT)?;
        Ok(format!("file://{}", out.display()))
    };
    let tests = root.join("crates/cli/tests");
    let tour = page(&tests.join("transcripts/tour.jsonl"), "tour.html")?;
    let hostile = page(&tests.join("html/hostile.jsonl"), "hostile.html")?;
    let many = pages.join("many.jsonl");
    std::fs::write(&many, long())?;
    let many = page(&many, "many.html")?;

    let profile = pages.join("profile");
    let _ = std::fs::remove_dir_all(&profile);
    let mut node = Command::new("node");
    node.arg(pages.join("pages.mjs")).arg(chromium()?).arg(profile).args([tour, hostile, many]);
    finish(node.arg(MANY.to_string()).current_dir(&pages), LIMIT)
}

/// Returns the path of an installed browser.
fn chromium() -> Result<String> {
    for name in ["chromium", "chromium-browser", "google-chrome"] {
        let output = Command::new("sh").args(["-c", "command -v \"$0\"", name]).output()?;
        if output.status.success() {
            return Ok(String::from_utf8(output.stdout)?.trim().to_owned());
        }
    }
    Err("there is no chromium; on Debian: apt-get install -y chromium".into())
}

fn build(root: &Path) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["build", "--quiet", "-p", "duologue-cli", "--message-format=json-render-diagnostics"])
        .current_dir(root)
        .stderr(std::process::Stdio::inherit())
        .output()?;
    let messages = String::from_utf8(output.stdout)?;
    let program = messages.lines().rev().find_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        Some(PathBuf::from(message.get("executable")?.as_str()?))
    });
    program.ok_or_else(|| "duologue-cli does not build".into())
}

/// A transcript of many events, no two chunks of one message.
fn long() -> String {
    let mut text = String::from(
        "{\"format\":\"acp-transcript\",\"version\":1,\"recorder\":\"xtask\",\"protocolVersion\":1,\"started\":\"2026-11-21T15:00:00Z\"}\n\
         {\"at\":0,\"from\":\"client\",\"frame\":{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"session/new\",\"params\":{\"cwd\":\"/\",\"mcpServers\":[]}}}\n\
         {\"at\":0,\"from\":\"agent\",\"frame\":{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{\"sessionId\":\"s\"}}}\n",
    );
    for place in 0..MANY {
        let update = match place % 4 {
            3 => format!(
                r#""sessionUpdate":"tool_call","toolCallId":"t{place}","title":"word{place}.","rawInput":{{"n":{place}}}"#
            ),
            _ => format!(
                r#""sessionUpdate":"agent_message_chunk","messageId":"m{place}","content":{{"type":"text","text":"Some words and word{place}."}}"#
            ),
        };
        // Writing to memory does not fail.
        let _ = writeln!(
            text,
            r#"{{"at":{},"from":"agent","frame":{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s","update":{{{update}}}}}}}}}"#,
            place * 1000
        );
    }
    text
}
