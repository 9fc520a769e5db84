//! `cargo xtask browser`: the pages of `duologue show --html` and the page of a hub in a real browser. `browser/pages.mjs` and
//! `browser/hub.mjs` click and type with puppeteer-core.

mod served_hub;

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::browser::served_hub::ServedHub;
use crate::interop::{InteropPaths, Result, finish, install};
use crate::target::{cargo, executable};

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
    for script in ["pages.mjs", "hub.mjs", "many_agent.mjs"] {
        std::fs::copy(sources.join(script), pages.join(script))?;
    }
    let mut build = cargo();
    let duologue = executable(build.args(["build", "--quiet", "-p", "duologue-cli"]).current_dir(&root))?;
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

    let browser = chromium()?;
    let profile = pages.join("profile");
    let script = |name: &str| {
        let _ = std::fs::remove_dir_all(&profile);
        let mut node = Command::new("node");
        node.arg(pages.join(name)).arg(&browser).arg(&profile).current_dir(&pages);
        node
    };
    finish(script("pages.mjs").args([tour, hostile, many]).arg(MANY.to_string()), LIMIT)?;
    let hub = ServedHub::start(&duologue, &pages, MANY)?;
    finish(script("hub.mjs").args([&hub.address, &hub.token]).arg(MANY.to_string()), LIMIT)
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
