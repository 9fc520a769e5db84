//! Ids and folders that have other names in the live conversation than in the recording.
//!
//! It is not the table of redaction, which invents a placeholder for each id. Here both names are given.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::time::SystemTime;

use super::folder_index::{FolderIndex, LaneFolders, MappedFolder};
use super::plan::CONNECTION;
use super::secret_env::SecretEnv;
use crate::classify::id_key;
use crate::format::Redacted;
use crate::id_paths::{IdKind, VariableField, field_at, field_of};
use crate::redact::json_scan::{
    DecodedString, Edits, JsonVisitor, PathStep, QuotedString, escaped, member, scan,
};
use crate::redact::placeholders::{HOME, SECRET, TIME, TMP};

/// Returns the kind of the id at a path, if there is one. `path` starts at the message.
pub(super) fn id_at(path: &[&str]) -> Option<IdKind> {
    let between_agents = field_at(path).and_then(VariableField::id);
    between_agents.or_else(|| path.last().copied().and_then(IdKind::of_acp_member))
}

/// A recorded name and its live name.
#[derive(Debug, PartialEq)]
pub(super) enum NamePair {
    Id { kind: IdKind, recorded: String, live: String },
    Folder { recorded: String, live: String },
}

/// Live names by recorded name, and the reverse for sessions.
#[derive(Debug, Default)]
pub(super) struct NameMap {
    /// Live ids by lane, kind and recorded id.
    ids: HashMap<(usize, IdKind, String), String>,
    /// Recorded sessions by live session.
    sessions: HashMap<String, String>,
    /// The folders of each lane.
    folders: LaneFolders,
    /// The folders of this machine, by placeholder. Played lines need real folders. Live lines are compared with the
    /// placeholder, since their machine has other folders.
    machine: FolderIndex,
    /// True if redaction may have removed the values of variables.
    secrets: bool,
    /// Live ids of JSON-RPC requests, by sender (true if it is us) and recorded id.
    requests: HashMap<(bool, String), String>,
    /// True if any live name differs from the recorded one.
    differ: bool,
}

/// Returns the lane in which an id is known. Sessions and ids between agents mean the same on the whole connection.
fn scope(lane: usize, kind: IdKind) -> usize {
    if kind == IdKind::Session || kind.is_whole() { CONNECTION } else { lane }
}

impl NameMap {
    /// Creates a map for a recording with this redaction.
    pub(super) fn new(redacted: Redacted) -> Self {
        let mut names = NameMap { secrets: redacted != Redacted::Nothing, ..NameMap::default() };
        if redacted == Redacted::Everything {
            let here = [(HOME, std::env::home_dir()), (TMP, Some(std::env::temp_dir()))];
            for (name, path) in here {
                let folder = path.and_then(|path| MappedFolder::new(name, path.to_str()?));
                folder.into_iter().for_each(|folder| names.machine.add(CONNECTION, &folder));
            }
            names.differ = true;
        }
        names
    }

    pub(super) fn learn(&mut self, lane: usize, pair: NamePair) {
        match pair {
            NamePair::Id { kind, recorded, live } => {
                self.differ |= recorded != live;
                if kind == IdKind::Session {
                    self.sessions.insert(live.clone(), recorded.clone());
                }
                self.ids.insert((scope(lane, kind), kind, recorded), live);
            }
            NamePair::Folder { recorded, live } => {
                self.differ |= recorded != live;
                if let Some(folder) = MappedFolder::new(&recorded, &live) {
                    self.folders.learn(lane, &folder);
                }
            }
        }
    }

    pub(super) fn learn_request(&mut self, ours: bool, recorded: &str, live: &str) {
        self.differ |= recorded != live;
        self.requests.insert((ours, id_key(recorded)), live.into());
    }

    /// Returns the live id, if known.
    pub(super) fn id(&self, lane: usize, kind: IdKind, recorded: &str) -> Option<&str> {
        self.ids.get(&(scope(lane, kind), kind, recorded.into())).map(String::as_str)
    }

    /// Returns the recorded session of a live one. Most have the same name.
    pub(super) fn session<'a>(&'a self, live: &'a str) -> &'a str {
        self.sessions.get(live).map_or(live, String::as_str)
    }

    /// Returns true if a live session has a recorded one.
    pub(super) fn knows_session(&self, live: &str) -> bool {
        self.sessions.contains_key(live)
    }

    /// Replaces recorded folders in a text by live ones. `new` contains the folders in the message itself.
    pub(super) fn translate<'a>(&self, lane: usize, new: &FolderIndex, text: &'a str) -> Cow<'a, str> {
        let mut edits = Edits::default();
        for (span, live) in self.folders.find(lane, Some(new), None, text) {
            edits.replace(span, live);
        }
        if edits.is_empty() {
            return Cow::Borrowed(text);
        }
        String::from_utf8(edits.apply(text.as_bytes())).map_or(Cow::Borrowed(text), Cow::Owned)
    }

    /// Returns the places where recorded folders stand in a line of ours, and the live text for each.
    fn live_folders(&self, lane: usize, text: &str) -> Vec<(Range<usize>, &str)> {
        self.folders.find(lane, None, Some(&self.machine), text)
    }

    /// Registers the ids between agents in one of our lines. Ids without a live name are ours and keep their name, so
    /// that the live side cannot use them for anything else.
    pub(super) fn keep(&mut self, lane: usize, line: &str) {
        if !KEPT.iter().any(|key| memchr::memmem::find(line.as_bytes(), key.as_bytes()).is_some()) {
            return;
        }
        let mut ids = AgentIds(Vec::new());
        scan(line, &mut ids);
        for (kind, recorded) in ids.0 {
            if self.id(lane, kind, &recorded).is_none() {
                let live = recorded.clone();
                self.learn(lane, NamePair::Id { kind, recorded, live });
            }
        }
    }

    /// Returns one of our lines with live names, or `None` if nothing changes. All other bytes stay. `id` replaces the
    /// id of the line itself.
    pub(super) fn rewrite(&self, lane: usize, line: &str, id: Option<&str>) -> Option<Vec<u8>> {
        let secrets = self.secrets && line.contains(SECRET);
        if !self.differ && !secrets && id.is_none() {
            return None;
        }
        let withdraws = line.contains(r#""$/cancel_request""#);
        let mut rewriting = Rewriting {
            names: self,
            lane,
            id,
            withdraws,
            env: SecretEnv::default(),
            edits: Edits::default(),
        };
        scan(line, &mut rewriting);
        if secrets {
            rewriting.env.drop_from(&mut rewriting.edits);
        }
        (!rewriting.edits.is_empty()).then(|| rewriting.edits.apply(line.as_bytes()))
    }
}

/// Texts of which each line with ids between agents contains one.
const KEPT: [&str; 4] = [r#""envelope""#, r#""agentId""#, r#""message_id""#, r#""session_id""#];

/// The ids between agents in a line.
struct AgentIds(Vec<(IdKind, String)>);

impl<'a> JsonVisitor<'a> for AgentIds {
    fn string(&mut self, frames: &[PathStep<'a>], string: QuotedString<'a>) {
        if let Some(kind) = field_of(frames).and_then(VariableField::id) {
            self.0.push((kind, string.read().text.into_owned()));
        }
    }
}

struct Rewriting<'n> {
    names: &'n NameMap,
    lane: usize,
    id: Option<&'n str>,
    withdraws: bool,
    env: SecretEnv,
    edits: Edits,
}

impl Rewriting<'_> {
    /// Returns the live token of a JSON-RPC id: of the line itself, or of the request that `requestId` names.
    fn request_id(&self, frames: &[PathStep<'_>], token: &str) -> Option<&str> {
        let name = member(frames)?;
        if frames.len() == 1 && name == "id" {
            return self.id;
        }
        if frames.len() == 2 && name == "requestId" {
            // A cancel names one of our requests; any other line names one of theirs.
            return self.names.requests.get(&(self.withdraws, id_key(token))).map(String::as_str);
        }
        None
    }
}

impl<'a> JsonVisitor<'a> for Rewriting<'_> {
    fn name(&mut self, _: &[PathStep<'a>], name: &DecodedString<'a>) {
        for (span, live) in self.names.live_folders(self.lane, &name.text) {
            self.edits.replace(name.span(span), escaped(live));
        }
    }

    fn string(&mut self, frames: &[PathStep<'a>], string: QuotedString<'a>) {
        let token = string.token();
        let spelled = string.read();
        let whole = spelled.whole();
        self.env.string(frames, &spelled.text);
        if let Some(id) = self.request_id(frames, &token) {
            let id = id.to_owned();
            self.edits.replace(whole.start.saturating_sub(1)..whole.end + 1, id);
            return;
        }
        let place = field_of(frames);
        if place == Some(VariableField::Time) && spelled.text == TIME {
            // The original time is unknown, and the receiver has to parse one.
            let now = humantime::format_rfc3339_millis(SystemTime::now());
            self.edits.replace(whole, now.to_string());
            return;
        }
        let between_agents = place.and_then(VariableField::id);
        if let Some(kind) = between_agents.or_else(|| IdKind::of_acp_member(member(frames)?)) {
            let live = self.names.id(self.lane, kind, &spelled.text);
            if let Some(live) = live.filter(|live| *live != spelled.text) {
                self.edits.replace(whole, escaped(live));
            }
            return;
        }
        for (span, live) in self.names.live_folders(self.lane, &spelled.text) {
            self.edits.replace(spelled.span(span), escaped(live));
        }
    }

    fn scalar(&mut self, frames: &[PathStep<'a>], token: &'a str, span: Range<usize>) {
        if let Some(id) = self.request_id(frames, token) {
            let id = id.to_owned();
            self.edits.replace(span, id);
        }
    }

    fn open(&mut self, frames: &[PathStep<'a>], start: usize) {
        self.env.open(frames, start);
    }

    fn close(&mut self, frames: &[PathStep<'a>], end: usize) {
        self.env.close(frames, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> NameMap {
        let mut names = NameMap::default();
        names.learn(1, NamePair::Folder { recorded: "/home/me/p".into(), live: "/x \"y\"".into() });
        names.learn(
            1,
            NamePair::Id { kind: IdKind::Terminal, recorded: "[terminal-1]".into(), live: "t9".into() },
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

    /// Each kind of name alone changes the lines that contain it.
    #[test]
    fn any_name_that_differs_is_replaced() {
        let id = |kind, recorded: &str, live: &str| {
            let mut names = NameMap::default();
            names.learn(1, NamePair::Id { kind, recorded: recorded.into(), live: live.into() });
            names
        };
        let mut folder = NameMap::default();
        folder.learn(1, NamePair::Folder { recorded: "/a".into(), live: "/x".into() });
        let mut request = NameMap::default();
        request.learn_request(false, "7", "8");
        for (names, recorded, live) in [
            (id(IdKind::Terminal, "1", "2"), r#"{"p":{"terminalId":"1"}}"#, r#"{"p":{"terminalId":"2"}}"#),
            (folder, r#"{"p":"/a/b"}"#, r#"{"p":"/x/b"}"#),
            // Only the member of the params itself names a request.
            (
                request,
                r#"{"params":{"requestId":7,"x":{"requestId":7}}}"#,
                r#"{"params":{"requestId":8,"x":{"requestId":7}}}"#,
            ),
        ] {
            let rewritten = names.rewrite(1, recorded, None).expect("it differs");
            assert_eq!(String::from_utf8(rewritten).unwrap(), live);
        }
        // A session has one name on the whole connection, and a terminal one in each session.
        assert_eq!(id(IdKind::Session, "s", "t").id(2, IdKind::Session, "s"), Some("t"));
        assert_eq!(id(IdKind::Terminal, "s", "t").id(2, IdKind::Terminal, "s"), None);
        assert_eq!(id(IdKind::Terminal, "1", "1").rewrite(1, r#"{"terminalId":"1"}"#, None), None);
        // The temporary folder of this machine takes the place of its placeholder.
        let rewritten = NameMap::new(Redacted::Everything).rewrite(1, &format!(r#"{{"p":"{TMP}/a"}}"#), None);
        let rewritten = String::from_utf8(rewritten.expect("it differs")).unwrap();
        assert!(!rewritten.contains(TMP) && rewritten.ends_with(r#"a"}"#), "{rewritten}");
    }

    /// Names of members are replaced too, and each name is spelled as JSON.
    #[test]
    fn live_names_are_escaped() {
        let mut names = names();
        names.learn(1, NamePair::Id { kind: IdKind::Terminal, recorded: "t".into(), live: "a \"b\"".into() });
        let line = r#"{"p":{"/home/me/p/a":1,"terminalId":"t"}}"#;
        let rewritten = names.rewrite(1, line, None).unwrap();
        assert_eq!(String::from_utf8(rewritten).unwrap(), r#"{"p":{"/x \"y\"/a":1,"terminalId":"a \"b\""}}"#);
    }

    /// Only the time of a message is set to the present.
    #[test]
    fn a_time_in_a_text_stays() {
        let names = NameMap::new(Redacted::Everything);
        assert_eq!(
            names.rewrite(1, r#"{"params":{"text":"[time]","message":{"timestamp":"now"}}}"#, None),
            None
        );
        let line = r#"{"params":{"message":{"timestamp":"[time]"}}}"#;
        assert!(names.rewrite(1, line, None).is_some());
    }

    /// A variable whose value was removed goes with one comma. Its name alone does not matter.
    #[test]
    fn removed_variables_leave_a_list() {
        let names = NameMap::new(Redacted::Secrets);
        for secrets in 1..32_u32 {
            let is_secret = |at: &u32| secrets & (1 << at) != 0;
            let variable = |at: u32| {
                let value = if is_secret(&at) { SECRET.to_owned() } else { at.to_string() };
                serde_json::json!({"name": SECRET, "value": value})
            };
            let line = |places: &mut dyn Iterator<Item = u32>| {
                serde_json::json!({"params": {"env": places.map(variable).collect::<Vec<_>>()}}).to_string()
            };
            let rewritten = names.rewrite(1, &line(&mut (0..5)), None).expect("it differs");
            let kept = line(&mut (0..5).filter(|at| !is_secret(at)));
            assert_eq!(String::from_utf8(rewritten).unwrap(), kept, "{secrets:b}");
        }
    }

    /// The folders of a lane go first, then those of others, and in each the deeper one.
    #[test]
    fn the_folder_of_the_own_session_goes_first() {
        let mut names = NameMap::default();
        let mut learn = |lane, recorded: &str, live: &str| {
            names.learn(lane, NamePair::Folder { recorded: recorded.into(), live: live.into() });
        };
        learn(1, "/a/b", "/q");
        learn(1, "/a", "/x");
        learn(2, "/a", "/y");
        learn(2, "/w", r"C:\q");
        learn(4, "/n", "/old");
        learn(4, "/n", "/new");
        for (lane, text, expected) in [
            (1, "/a/b/c", "/q/c"),
            (2, "/a/b/c", "/y/b/c"),
            (3, "/a/b/c", "/q/c"),
            (3, "/a/c", "/x/c"),
            (2, "/w/c", r"C:\q/c"),
            (3, "/n/c", "/new/c"),
        ] {
            assert_eq!(names.translate(lane, &FolderIndex::default(), text), expected, "{lane}");
        }
    }

    #[test]
    fn folders_are_replaced_where_a_path_begins() {
        let names = names();
        for (text, expected) in [
            ("/home/me/p", "/x \"y\""),
            ("in /home/me/p.", "in /x \"y\"."),
            ("(/home/me/p/src:3)", "(/x \"y\"/src:3)"),
            ("file:///home/me/p/a", "file:///x%20%22y%22/a"),
            ("/home/me/project", "/home/me/project"),
            ("/home/me/p.bak", "/home/me/p.bak"),
            ("/mnt/home/me/p", "/mnt/home/me/p"),
        ] {
            assert_eq!(names.translate(1, &FolderIndex::default(), text), expected);
        }
    }
}
