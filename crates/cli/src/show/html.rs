//! The page: one file without external resources.

use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use duologue_transcript::view::{PrintableText, TranscriptView, VIEW_SCRIPT, VIEW_STYLE, duration};
use duologue_transcript::{Redacted, Transcript};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::ui::{plural, printable_json};

const PAGE: &str = include_str!("page.html");
/// The style around the items.
const STYLE: &str = include_str!("page.css");
/// The script around the items.
const SCRIPT: &str = include_str!("page.js");

/// The data of a page.
#[derive(Serialize)]
struct PageData {
    /// The agent's command, or a default.
    title: PrintableText,
    /// Facts about the recording, as names and values.
    about: Vec<(&'static str, PrintableText)>,
    /// The missing or damaged parts of the file.
    faults: Vec<PrintableText>,
    #[serde(flatten)]
    view: TranscriptView,
}

/// Writes the page of a transcript. `faults` lists the unreadable parts of the file.
pub(crate) fn page(transcript: &Transcript, faults: &[String], out: &mut impl Write) -> io::Result<()> {
    let view = TranscriptView::of(transcript);
    let header = transcript.header();
    let title = match header.program.as_slice() {
        [] => "Transcript".into(),
        words => words.join(" ").into(),
    };
    let length = transcript.records().last().map(|record| record.at).unwrap_or_default();
    let mut about = Vec::new();
    if view.timed {
        about = vec![
            ("recorded", humantime::format_rfc3339_seconds(header.started).to_string().into()),
            ("length", duration(length).into()),
        ];
    }
    about.push(("lines", plural(view.frames.len(), "frame").into()));
    about.push(("by", header.recorder.as_str().into()));
    about.push((
        "redacted",
        match header.redacted {
            Redacted::Nothing => "nothing; it may hold secrets".into(),
            Redacted::Secrets => "secrets".into(),
            _ => PrintableText::from("secrets, ids and paths"),
        },
    ));
    let faults = faults.iter().map(PrintableText::from).collect();
    let page = PageData { title, about, faults, view };

    let title = escape(page.title.as_str());
    let data = serde_json::to_string(&page)?;
    let (style, script) = ([VIEW_STYLE, STYLE].concat(), [VIEW_SCRIPT, SCRIPT].concat());
    let policy = format!(
        "default-src 'none'; script-src '{}'; style-src '{}'; base-uri 'none'; form-action 'none'",
        digest(&script),
        digest(&style)
    );
    // The template is split before anything is inserted, so that inserted text is never taken for a
    // mark.
    let parts = [("{policy}", policy), ("{title}", title), ("{style}", style)];
    let parts = parts.into_iter().chain([("{data}", embed(&data)), ("{script}", script)]);
    let mut rest = PAGE;
    for (mark, part) in parts {
        let (before, after) = rest.split_once(mark).unwrap_or((rest, ""));
        out.write_all(before.as_bytes())?;
        out.write_all(part.as_bytes())?;
        rest = after;
    }
    out.write_all(rest.as_bytes())
}

/// Escapes JSON for a script element: nothing in it ends the element or begins a comment.
fn embed(json: &str) -> String {
    printable_json(json).replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Returns the hash by which the policy allows this script or style and no other.
fn digest(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_the_data_ends_its_element() {
        let json = embed(r#"{"a":"</script><!--<script>&"}"#);
        assert!(!json.contains(['<', '>', '&']), "{json}");
        let value: serde_json::Value = serde_json::from_str(&json).expect("JSON still");
        assert_eq!(value["a"], "</script><!--<script>&");
    }

    #[test]
    fn the_template_has_its_marks_in_order() {
        let places = ["{policy}", "{title}", "{style}", "{data}", "{script}"].map(|mark| PAGE.find(mark));
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}");
    }
}
