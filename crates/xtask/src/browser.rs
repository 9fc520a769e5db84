//! `cargo xtask browser`: the page of `duologue show --html` in a real browser, which is clicked and typed at.

mod chromium;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::interop::Result;
use chromium::Browser;

/// Events of a large page.
const MANY: usize = 20_000;
/// The time limit until a large page shows anything, and until it shows a search result.
const PATIENCE: Duration = Duration::from_secs(5);

/// Makes the pages and checks them, all in one browser.
#[expect(clippy::print_stdout, reason = "this is the program's output")]
pub(crate) fn run() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let pages = root.join("target/browser");
    std::fs::create_dir_all(&pages)?;
    let duologue = build(&root)?;
    let page = |transcript: &Path, name: &str| -> Result<String> {
        let out = pages.join(name);
        let status = Command::new(&duologue)
            .args(["show", "--html", "--force", "-o"])
            .arg(&out)
            .arg(transcript)
            .status()?;
        if !status.success() {
            return Err(format!("duologue show --html {}: {status}", transcript.display()).into());
        }
        Ok(format!("file://{}", out.display()))
    };
    let tests = root.join("crates/cli/tests");
    let tour = page(&tests.join("transcripts/tour.jsonl"), "tour.html")?;
    let hostile = page(&tests.join("html/hostile.jsonl"), "hostile.html")?;
    let many = pages.join("many.jsonl");
    std::fs::write(&many, long())?;
    let long = page(&many, "many.html")?;

    let mut browser = Browser::start(&pages)?;
    a_transcript_is_read(&mut browser, &tour)?;
    an_address_shows_the_same(&mut browser, &tour)?;
    hostile_text_stays_text(&mut browser, &hostile)?;
    let (first, found) = a_long_one_stays_quick(&mut browser, &long)?;
    println!(
        "the page is good: {MANY} events are there after {first:?}, one of them is found after {found:?}"
    );
    Ok(())
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

fn same(what: &str, found: Value, expected: Value) -> Result<()> {
    if found == expected { Ok(()) } else { Err(format!("{what}: {found}, and not {expected}").into()) }
}

/// The text of the visible items. `innerText` would leave out items beyond the screen.
const SHOWN: &str = "document.querySelector('#items').textContent";

fn a_transcript_is_read(browser: &mut Browser, url: &str) -> Result<()> {
    let mut page = browser.open(url)?;
    same("the title", page.eval("document.title")?, json!("sketcher --acp"))?;
    same("the heading", page.eval("document.querySelector('h1').textContent")?, json!("sketcher --acp"))?;
    same("the sections", page.eval("[...document.querySelectorAll('header,form,main')].length")?, json!(3))?;
    same("the events", page.eval("document.querySelectorAll('.item').length")?, json!(26))?;

    // The session filter.
    page.click("#sessions label:nth-of-type(3)")?;
    page.wait("document.querySelectorAll('.item').length === 5")?;
    same("other sessions", page.eval(&format!("({SHOWN}).includes('moon')"))?, json!(false))?;
    same("the address", page.eval("location.hash")?, json!("#session=sess-mars"))?;
    page.click("#sessions label:nth-of-type(1)")?;
    page.wait("document.querySelectorAll('.item').length === 26")?;

    // The filter of kinds.
    page.click("#kinds input[value=requests]")?;
    page.wait("document.querySelectorAll('.item').length === 16")?;
    page.click("#kinds input[value=requests]")?;
    page.wait("document.querySelectorAll('.item').length === 26")?;

    // A cleared message: its last state at once, its first on request, struck.
    let message = "document.querySelector('.item[data-kind=agent]')";
    let says = |text: &str| format!("{message}.textContent.includes('{text}')");
    same("the last state", page.eval(&says("384,400 km"))?, json!(true))?;
    same("the first state", page.eval(&says("300,000 miles"))?, json!(false))?;
    page.click(".item[data-kind=agent] button.toggle")?;
    same("the last state", page.eval(&says("384,400 km"))?, json!(true))?;
    same("the first state", page.eval(&says("300,000 miles"))?, json!(true))?;
    let style = format!("getComputedStyle({message}.querySelector('del')).textDecorationLine");
    same("the draft", page.eval(&style)?, json!("line-through"))?;

    // The raw frames.
    page.click(".item[data-kind=agent] summary")?;
    page.wait(&format!("{message}.querySelectorAll('pre').length === 5"))?;
    page.click(".item[data-kind=agent] figcaption button")?;
    let raw = format!("{message}.querySelector('pre').textContent.startsWith('{{\"jsonrpc\":\"2.0\"')");
    same("the frame as sent", page.eval(&raw)?, json!(true))?;

    // The search, by keyboard; it finds drafts too.
    page.key("/")?;
    same("the focus", page.eval("document.activeElement.id")?, json!("search"))?;
    page.type_text("300,000 miles")?;
    page.wait("document.querySelectorAll('.item').length === 1")?;
    same("the count", page.eval("document.querySelector('#count').textContent")?, json!("1 event of 26"))?;
    page.eval("document.querySelector('#search').select()")?;
    page.type_text("nothing like it")?;
    page.wait("document.querySelector('#nothing').checkVisibility()")?;
    page.close()
}

fn an_address_shows_the_same(browser: &mut Browser, url: &str) -> Result<()> {
    let mut page = browser.open(&format!("{url}#session=sess-moon&hide=requests&q=moon&open=9d"))?;
    same(
        "the session",
        page.eval("document.querySelector('#sessions input:checked').value")?,
        json!("sess-moon"),
    )?;
    same("the search", page.eval("document.querySelector('#search').value")?, json!("moon"))?;
    same("requests", page.eval("document.querySelectorAll('.item[data-kind=request]').length")?, json!(0))?;
    same(
        "the draft",
        page.eval("document.querySelector('del').textContent")?,
        json!("The moon is about 300,000 miles away."),
    )?;
    page.key("j")?;
    page.key("j")?;
    let focus = "[...document.querySelectorAll('.item')].indexOf(document.activeElement)";
    same("the focus", page.eval(focus)?, json!(1))?;
    page.close()
}

fn hostile_text_stays_text(browser: &mut Browser, url: &str) -> Result<()> {
    let mut page = browser.open(url)?;
    page.click(".item[data-kind=agent] button.toggle")?;
    page.eval("document.querySelectorAll('summary').forEach(it => it.click())")?;
    page.wait("document.querySelectorAll('.frame').length > 5")?;
    same("what ran", page.eval("window.hit ?? null")?, Value::Null)?;
    let strays = "document.querySelectorAll('img,svg,iframe,object,embed,link,a[href^=javascript],b,[onerror],[onload]').length";
    same("elements from the transcript", page.eval(strays)?, json!(0))?;
    same("scripts", page.eval("document.scripts.length")?, json!(2))?;
    let text = "document.querySelector('#timeline').textContent";
    for shown in [
        "<img src=x onerror=window.hit=4>",
        "javascript:window.hit=6",
        "\\\\u{202e}gpj.exe",
        "{policy}{title}",
        "</script><script>",
    ] {
        same(shown, page.eval(&format!("{text}.includes('{}')", shown.replace("</", "<\\/")))?, json!(true))?;
    }
    same(
        "directions turned",
        page.eval(&format!("/[\\u202a-\\u202e\\u2066-\\u2069]/.test({text})"))?,
        json!(false),
    )?;
    // The content security policy stops a script even if the escaping fails.
    page.eval(
        "document.body.insertAdjacentHTML('beforeend', '<p onclick=\"window.hit=10\" id=planted>x</p>')",
    )?;
    page.eval("document.querySelector('#planted').click()")?;
    same("what ran", page.eval("window.hit ?? null")?, Value::Null)?;
    page.expect_error("Content Security Policy")?;
    page.close()
}

fn a_long_one_stays_quick(browser: &mut Browser, url: &str) -> Result<(Duration, Duration)> {
    let start = Instant::now();
    let mut page = browser.open(url)?;
    page.wait("document.querySelectorAll('.item').length > 0")?;
    let first = start.elapsed();
    let start = Instant::now();
    page.click("#search")?;
    page.type_text(&format!("word{}.", MANY - 1))?;
    page.wait("document.querySelectorAll('.item').length === 1")?;
    let found = start.elapsed();
    if first.max(found) > PATIENCE {
        return Err(
            format!("{MANY} events are shown after {first:?}, one of them is found after {found:?}").into()
        );
    }
    page.eval("document.querySelector('#search').select()")?;
    page.type_text(" ")?;
    page.wait(&format!("document.querySelectorAll('.item').length === {}", MANY + 2))?;
    page.close()?;
    Ok((first, found))
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
