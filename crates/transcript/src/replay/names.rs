//! What has another name in the live conversation than in the recording: ids and folders.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use crate::redact::scan::{Edits, Frame, Quoted, Spelled, Visitor, escaped, scan};

/// The member that names a session, wherever one is named.
pub(super) const SESSION: &str = "sessionId";
/// The members that hold other ids. Ids are known by their member, since their text may be anything.
const IDS: [&str; 6] = [SESSION, "terminalId", "toolCallId", "messageId", "elicitationId", "compactionId"];
/// An id too, but one of a short list that a peer offered: only a live agent may choose others.
pub(super) const OPTION: &str = "optionId";
/// The member that names a JSON-RPC request.
const REQUEST: &str = "requestId";

/// Whether values of this member are ids.
pub(super) fn is_id(member: &str) -> bool {
    IDS.contains(&member) || member == OPTION
}

/// A pair of names that was learned from what the other side sent.
#[derive(Debug, PartialEq)]
pub(super) enum Pair {
    Id { member: String, recorded: String, live: String },
    Folder { recorded: String, live: String },
}

/// The names, recorded and live.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Live ids by lane, member and recorded id. Sessions are known to all lanes.
    ids: HashMap<(usize, String, String), String>,
    /// Recorded sessions by live session.
    sessions: HashMap<String, String>,
    /// Lane, recorded folder, live folder.
    folders: Vec<(usize, String, String)>,
    /// Live ids of JSON-RPC requests, by who asked (us?) and the recorded id.
    requests: HashMap<(bool, String), String>,
    /// Whether any live name differs from the recorded one.
    differ: bool,
}

/// Sessions are named by the whole connection.
fn scope(lane: usize, member: &str) -> usize {
    if member == SESSION { super::cues::CONNECTION } else { lane }
}

impl Names {
    pub(super) fn learn(&mut self, lane: usize, pair: Pair) {
        match pair {
            Pair::Id { member, recorded, live } => {
                self.differ |= recorded != live;
                if member == SESSION {
                    self.sessions.insert(live.clone(), recorded.clone());
                }
                self.ids.insert((scope(lane, &member), member, recorded), live);
            }
            Pair::Folder { recorded, live } => {
                self.differ |= recorded != live;
                self.folders.retain(|(known, folder, _)| (*known, folder) != (lane, &recorded));
                self.folders.push((lane, recorded, live));
            }
        }
    }

    pub(super) fn learn_request(&mut self, ours: bool, recorded: &str, live: &str) {
        self.differ |= recorded != live;
        self.requests.insert((ours, recorded.into()), live.into());
    }

    /// The live id, if one is known.
    pub(super) fn id(&self, lane: usize, member: &str, recorded: &str) -> Option<&str> {
        self.ids.get(&(scope(lane, member), member.into(), recorded.into())).map(String::as_str)
    }

    /// The recorded session that the live one plays. Most have the same name.
    pub(super) fn session<'a>(&'a self, live: &'a str) -> &'a str {
        self.sessions.get(live).map_or(live, String::as_str)
    }

    /// Whether a live session plays any recorded one.
    pub(super) fn knows_session(&self, live: &str) -> bool {
        self.sessions.contains_key(live)
    }

    /// Text with recorded folders replaced by live ones.
    pub(super) fn translate<'a>(&self, lane: usize, text: &'a str) -> Cow<'a, str> {
        let places = self.places(lane, text);
        if places.is_empty() {
            return Cow::Borrowed(text);
        }
        let mut edits = Edits::default();
        for (span, live) in places {
            edits.replace(span, live);
        }
        String::from_utf8(edits.apply(text.as_bytes())).map_or(Cow::Borrowed(text), Cow::Owned)
    }

    /// Where recorded folders stand in a text, and what stands there live. The folders of the lane go
    /// before those of other sessions, deeper ones before what holds them.
    fn places(&self, lane: usize, text: &str) -> Vec<(Range<usize>, &str)> {
        let mut folders: Vec<_> = self.folders.iter().filter(|(_, from, to)| from != to).collect();
        folders.sort_by_key(|(known, from, _)| (*known != lane, std::cmp::Reverse(from.len())));
        let mut places: Vec<(Range<usize>, &str)> = Vec::new();
        for (_, from, to) in folders {
            for (at, found) in text.match_indices(from.as_str()) {
                let span = at..at + found.len();
                let taken = places.iter().any(|(other, _)| other.start < span.end && span.start < other.end);
                if !taken && stands_alone(text, &span) {
                    places.push((span, to));
                }
            }
        }
        places
    }

    /// One of our recorded lines in live words. Bytes that name nothing stay as they are. `id` is what
    /// the line's own id becomes.
    pub(super) fn rewrite(&self, lane: usize, line: &str, id: Option<&str>) -> Option<Vec<u8>> {
        if !self.differ && id.is_none() {
            return None;
        }
        let withdraws = line.contains(r#""$/cancel_request""#);
        let mut rewriting = Rewriting { names: self, lane, id, withdraws, edits: Edits::default() };
        scan(line, &mut rewriting);
        (!rewriting.edits.is_empty()).then(|| rewriting.edits.apply(line.as_bytes()))
    }
}

/// A folder at the beginning of a path, not within another name.
fn stands_alone(text: &str, span: &Range<usize>) -> bool {
    let part_of_name = |char: char| char.is_alphanumeric() || matches!(char, '_' | '-' | '.' | '/' | '\\');
    let before = text.get(..span.start).and_then(|text| text.chars().next_back());
    let mut after = text.get(span.end..).unwrap_or_default().chars();
    let ends = match after.next() {
        None | Some('/' | '\\') => true,
        // The end of a sentence rather than of a name.
        Some('.') => after.next().is_none_or(char::is_whitespace),
        Some(char) => !part_of_name(char),
    };
    let root = text.get(span.clone()).is_none_or(|folder| folder.len() < 2);
    // `file:///home/me` begins with slashes.
    let scheme = text.get(..span.start).is_some_and(|text| text.ends_with("://"));
    !root && ends && (scheme || !before.is_some_and(part_of_name))
}

struct Rewriting<'n> {
    names: &'n Names,
    lane: usize,
    id: Option<&'n str>,
    withdraws: bool,
    edits: Edits,
}

impl Rewriting<'_> {
    /// A whole token of an id of JSON-RPC: the line's own, or one that is named by `requestId`.
    fn request_id(&self, frames: &[Frame<'_>], token: &str) -> Option<&str> {
        let member = frames.last()?.member.as_deref()?;
        if frames.len() == 1 && member == "id" {
            return self.id;
        }
        if frames.len() == 2 && member == REQUEST {
            // What is withdrawn is ours; else it says which question of theirs this is about.
            return self.names.requests.get(&(self.withdraws, token.to_owned())).map(String::as_str);
        }
        None
    }
}

impl<'a> Visitor<'a> for Rewriting<'_> {
    fn name(&mut self, _: &[Frame<'a>], name: &Spelled<'a>) {
        for (span, live) in self.names.places(self.lane, &name.text) {
            self.edits.replace(name.span(span), escaped(live));
        }
    }

    fn string(&mut self, frames: &[Frame<'a>], string: Quoted<'a>) {
        let spelled = string.read();
        let whole = spelled.whole();
        let token = format!("\"{}\"", escaped(&spelled.text));
        if let Some(id) = self.request_id(frames, &token) {
            let id = id.to_owned();
            self.edits.replace(whole.start.saturating_sub(1)..whole.end + 1, id);
            return;
        }
        let member = frames.last().and_then(|frame| frame.member.as_deref()).unwrap_or_default();
        if is_id(member) {
            let live = self.names.id(self.lane, member, &spelled.text);
            if let Some(live) = live.filter(|live| *live != spelled.text) {
                self.edits.replace(whole, escaped(live));
            }
            return;
        }
        for (span, live) in self.names.places(self.lane, &spelled.text) {
            self.edits.replace(spelled.span(span), escaped(live));
        }
    }

    fn scalar(&mut self, frames: &[Frame<'a>], token: &'a str, span: Range<usize>) {
        if let Some(id) = self.request_id(frames, token) {
            let id = id.to_owned();
            self.edits.replace(span, id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        let mut names = Names::default();
        names.learn(1, Pair::Folder { recorded: "/home/me/p".into(), live: "/x \"y\"".into() });
        names.learn(
            1,
            Pair::Id { member: "terminalId".into(), recorded: "[terminal-1]".into(), live: "t9".into() },
        );
        names.learn_request(false, "7", "\"live\"");
        names
    }

    #[test]
    fn only_what_names_something_changes() {
        let line =
            r#" {"id" : 7,"result":{"a":1e2,"path":"\/home/me/p/a\u002ers", "terminalId":"[terminal-1]"} }"#;
        let rewritten = names().rewrite(1, line, Some("\"live\"")).unwrap();
        assert_eq!(
            String::from_utf8(rewritten).unwrap(),
            r#" {"id" : "live","result":{"a":1e2,"path":"/x \"y\"/a\u002ers", "terminalId":"t9"} }"#
        );
        let other = r#"{"method":"x","params":{"terminalId":"other","text":"[terminal-1]","requestId":7}}"#;
        let rewritten = names().rewrite(1, other, None).unwrap();
        assert_eq!(
            String::from_utf8(rewritten).unwrap(),
            r#"{"method":"x","params":{"terminalId":"other","text":"[terminal-1]","requestId":"live"}}"#
        );
        assert_eq!(names().rewrite(1, r#"{"method":"x"}"#, None), None, "nothing to change");
    }

    #[test]
    fn folders_are_replaced_where_a_path_begins() {
        let names = names();
        for (text, expected) in [
            ("/home/me/p", "/x \"y\""),
            ("in /home/me/p.", "in /x \"y\"."),
            ("(/home/me/p/src:3)", "(/x \"y\"/src:3)"),
            ("file:///home/me/p/a", "file:///x \"y\"/a"),
            ("/home/me/project", "/home/me/project"),
            ("/home/me/p.bak", "/home/me/p.bak"),
            ("/mnt/home/me/p", "/mnt/home/me/p"),
        ] {
            assert_eq!(names.translate(1, text), expected);
        }
    }
}
