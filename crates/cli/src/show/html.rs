//! The page: one file without external resources.

use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use duologue_transcript::{Redacted, Transcript};
use sha2::{Digest as _, Sha256};

use super::data::PrintableText;
use super::page::{build, duration};
use crate::ui::{plural, printable_json};

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Writes the page of a transcript. `faults` lists the unreadable parts of the file.
pub(crate) fn page(transcript: &Transcript, faults: &[String], out: &mut impl Write) -> io::Result<()> {
    let mut page = build(transcript);
    let header = transcript.header();
    page.title = match header.program.as_slice() {
        [] => "Transcript".into(),
        words => words.join(" ").into(),
    };
    let length = transcript.records().last().map(|record| record.at).unwrap_or_default();
    if page.timed {
        page.about = vec![
            ("recorded", humantime::format_rfc3339_seconds(header.started).to_string().into()),
            ("length", duration(length).into()),
        ];
    }
    page.about.push(("lines", plural(page.frames.len(), "frame").into()));
    page.about.push(("by", header.recorder.as_str().into()));
    page.about.push((
        "redacted",
        match header.redacted {
            Redacted::Nothing => "nothing; it may hold secrets".into(),
            Redacted::Secrets => "secrets".into(),
            _ => PrintableText::from("secrets, ids and paths"),
        },
    ));
    page.faults = faults.iter().map(PrintableText::from).collect();

    let title = escape(page.title.as_str());
    let data = serde_json::to_string(&page)?;
    let policy = format!(
        "default-src 'none'; script-src '{}'; style-src '{}'; base-uri 'none'; form-action 'none'",
        digest(SCRIPT),
        digest(STYLE)
    );
    // The template is split before anything is inserted, so that inserted text is never taken for a
    // mark.
    let parts = [("{policy}", policy), ("{title}", title), ("{style}", STYLE.into())];
    let parts = parts.into_iter().chain([("{data}", embed(&data)), ("{script}", SCRIPT.into())]);
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
