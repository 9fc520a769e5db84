//! Comparison of live messages with recorded ones, except for ids and folders.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::LazyLock;
use std::time::Duration;

use regex::Regex;
use serde_json::Value;

use super::folder_index::{FolderIndex, MappedFolder};
use super::name_map::{NameMap, NamePair, id_at};
use crate::format::Side;
use crate::id_paths::{IdKind, VariableField, field_at};
use crate::ignored_paths::IgnoredPaths;

/// The paths that are never compared. The description of a client says nothing about what it requests, and `_meta`
/// is for the receiver. See `Replay::ignore`.
static NEVER: LazyLock<IgnoredPaths> = LazyLock::new(|| {
    let mut never = IgnoredPaths::default();
    for path in ["$.._meta", "clientInfo", "clientCapabilities"] {
        let _ = never.add(path);
    }
    never
});

/// The value of a member that is left out.
static NULL: Value = Value::Null;

/// A comparison of one recorded value with a live one.
pub(super) struct Comparison<'a> {
    names: &'a NameMap,
    lane: usize,
    /// The side that may choose names: a client those of terminals, messages, folders and sessions from before,
    /// an agent every id.
    live_side: Side,
    /// The placeholders of a redacted recording, which match any text.
    holes: Option<&'static Regex>,
    /// The folders in the live message itself.
    folders: FolderIndex,
    /// The paths that differ, with the recorded values.
    places: Vec<(Vec<String>, Value)>,
    /// The names that would make the rest equal.
    pub(super) pairs: Vec<NamePair>,
    path: Vec<String>,
}

impl<'a> Comparison<'a> {
    pub(super) fn new(
        names: &'a NameMap,
        lane: usize,
        live_side: Side,
        holes: Option<&'static Regex>,
    ) -> Self {
        Comparison {
            names,
            lane,
            live_side,
            holes,
            folders: FolderIndex::default(),
            places: Vec::new(),
            pairs: Vec::new(),
            path: Vec::new(),
        }
    }

    /// Compares two values, except for the ignored paths.
    pub(super) fn run(mut self, ignored: &IgnoredPaths, recorded: &Value, live: &Value) -> Self {
        self.announce(recorded, live);
        let (mut recorded, mut live) = (recorded.clone(), live.clone());
        for value in [&mut recorded, &mut live] {
            NEVER.remove(value);
            ignored.remove(value);
        }
        self.introduce(&recorded, &live);
        self.values(&recorded, &live);
        self
    }

    /// Pairs the ids under which other agents know the live side. It announces its id in `initialize`, and may be
    /// addressed by it at once.
    fn announce(&mut self, recorded: &Value, live: &Value) {
        let place = match self.live_side {
            Side::Client => "/clientCapabilities/_meta/duologue/agentId",
            Side::Agent => "/result/agentCapabilities/_meta/duologue/agentId",
        };
        let id = |value: &Value| value.pointer(place).and_then(Value::as_str).map(str::to_owned);
        if let Some((recorded, live)) = id(recorded).zip(id(live)) {
            self.pairs.push(NamePair::Id { kind: IdKind::Agent, recorded, live });
        }
    }

    /// Pairs the folders that a client names. Each request for a session names them again, and they may differ.
    fn introduce(&mut self, recorded: &Value, live: &Value) {
        if self.live_side != Side::Client {
            return;
        }
        let folders = |value: &Value| {
            let more = value.get("additionalDirectories").and_then(Value::as_array).into_iter().flatten();
            let all = std::iter::once(value.get("cwd")).chain(more.map(Some));
            all.map(|folder| folder.and_then(Value::as_str).map(str::to_owned)).collect::<Vec<_>>()
        };
        for (number, (recorded, live)) in (0..).zip(folders(recorded).into_iter().zip(folders(live))) {
            let (Some(recorded), Some(live)) = (recorded, live) else { continue };
            if let Some(folder) = MappedFolder::new(&recorded, &live) {
                self.folders.add(number, &folder);
            }
            self.pairs.push(NamePair::Folder { recorded, live });
        }
    }

    pub(super) fn is_equal(&self) -> bool {
        self.places.is_empty()
    }

    /// Returns the number of paths that differ.
    pub(super) fn differences(&self) -> usize {
        self.places.len()
    }

    /// Returns the first path that differs.
    pub(super) fn first(&self) -> Option<String> {
        self.places.first().map(|(path, _)| path.join("."))
    }

    /// Returns a diff of the JSON, line by line. Values that are equal except for their names do not appear in it.
    /// Subtracts the compared bytes from `left`; if too few are left, the diff is empty.
    pub(super) fn diff(&self, live: &Value, left: &Cell<usize>) -> String {
        if left.get() == 0 {
            return String::new();
        }
        let mut expected = live.clone();
        // In reverse, since surplus elements of a list are removed.
        for (path, recorded) in self.places.iter().rev() {
            let mut recorded = recorded.clone();
            self.translate(&mut path.iter().map(String::as_str).collect(), &mut recorded);
            put(&mut expected, path, recorded);
        }
        let (expected, live) = (format!("{expected:#}\n"), format!("{live:#}\n"));
        let rest = left.get().checked_sub(expected.len() + live.len());
        left.set(rest.unwrap_or_default());
        rest.map_or_else(String::new, |_| text_diff(&expected, &live))
    }

    fn values(&mut self, recorded: &Value, live: &Value) {
        match (recorded, live) {
            (Value::Object(recorded), Value::Object(live)) => {
                let names: BTreeSet<&String> = recorded.keys().chain(live.keys()).collect();
                for name in names {
                    self.path.push(name.clone());
                    self.values(recorded.get(name).unwrap_or(&NULL), live.get(name).unwrap_or(&NULL));
                    self.path.pop();
                }
            }
            (Value::Array(recorded), Value::Array(live)) => {
                for index in 0..recorded.len().max(live.len()) {
                    self.path.push(index.to_string());
                    self.values(recorded.get(index).unwrap_or(&NULL), live.get(index).unwrap_or(&NULL));
                    self.path.pop();
                }
            }
            (Value::String(_), Value::String(_)) | (Value::Number(_), Value::Number(_))
                if self.is_fleeting() => {}
            (Value::String(recorded), Value::String(live)) => self.texts(recorded, live),
            (Value::String(recorded), _) if self.holes.is_some_and(|holes| is_hole(holes, recorded)) => {}
            (recorded, live) if recorded == live || (is_empty(recorded) && is_empty(live)) => {}
            (recorded, _) => self.differ(recorded),
        }
    }

    fn texts(&mut self, recorded: &str, live: &str) {
        if let Some(kind) = id_at(&self.steps()) {
            match self.names.id(self.lane, kind, recorded) {
                Some(known) if known == live => {}
                None if self.may_pair(kind, recorded, live) => {
                    self.pairs.push(NamePair::Id { kind, recorded: recorded.into(), live: live.into() });
                }
                None if recorded == live => {}
                _ => self.differ(&recorded.into()),
            }
            return;
        }
        if recorded == live || self.is_folder() {
            return;
        }
        let expected = self.names.translate(self.lane, &self.folders, recorded);
        if expected != live && !self.holes.is_some_and(|holes| fits(holes, &expected, live)) {
            self.differ(&recorded.into());
        }
    }

    /// Returns true for a time or signature, which differs in each run.
    fn is_fleeting(&self) -> bool {
        matches!(field_at(&self.steps()), Some(VariableField::Time | VariableField::Signature))
    }

    fn steps(&self) -> Vec<&str> {
        self.path.iter().map(String::as_str).collect()
    }

    fn may_pair(&self, kind: IdKind, recorded: &str, live: &str) -> bool {
        match self.live_side {
            Side::Agent => true,
            Side::Client if kind == IdKind::Option => false,
            // A session from before, unless this client got it from us.
            Side::Client if kind == IdKind::Session => recorded == live || !self.names.knows_session(live),
            Side::Client => true,
        }
    }

    /// Returns true for a folder that a client gives its session.
    fn is_folder(&self) -> bool {
        let named = match self.path.as_slice() {
            [member] => member == "cwd",
            [list, _] => list == "additionalDirectories",
            _ => false,
        };
        named && self.live_side == Side::Client
    }

    /// Returns the number of names that would have to change.
    pub(super) fn renamed(&self) -> usize {
        let renames = |pair: &&NamePair| match pair {
            NamePair::Id { recorded, live, .. } | NamePair::Folder { recorded, live } => recorded != live,
        };
        self.pairs.iter().filter(renames).count()
    }

    fn differ(&mut self, recorded: &Value) {
        self.places.push((self.path.clone(), recorded.clone()));
    }

    /// Gives a recorded value live names, for a diff.
    fn translate<'v>(&self, path: &mut Vec<&'v str>, value: &'v mut Value) {
        match value {
            Value::String(text) => match id_at(path) {
                Some(kind) => {
                    if let Some(live) = self.names.id(self.lane, kind, text) {
                        *text = live.into();
                    }
                }
                None => *text = self.names.translate(self.lane, &self.folders, text).into_owned(),
            },
            Value::Array(list) => {
                for value in list {
                    path.push("");
                    self.translate(path, value);
                    path.pop();
                }
            }
            Value::Object(map) => {
                for (name, value) in map {
                    path.push(name);
                    self.translate(path, value);
                    path.pop();
                }
            }
            _ => {}
        }
    }
}

/// Sets the value at a path; null removes it.
fn put(root: &mut Value, path: &[String], value: Value) {
    let Some((name, rest)) = path.split_first() else {
        *root = value;
        return;
    };
    match root {
        Value::Object(map) if rest.is_empty() && value.is_null() => drop(map.remove(name)),
        Value::Object(map) => put(map.entry(name.clone()).or_insert(Value::Null), rest, value),
        Value::Array(list) => match name.parse::<usize>().unwrap_or(usize::MAX) {
            at if at >= list.len() => list.push(value),
            at if rest.is_empty() && value.is_null() => drop(list.remove(at)),
            at => list.get_mut(at).into_iter().for_each(|element| put(element, rest, value.clone())),
        },
        root => *root = value,
    }
}

/// Returns true for a value that means the same as no value.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.values().all(is_empty),
        _ => false,
    }
}

fn is_hole(holes: &Regex, text: &str) -> bool {
    holes.find(text).is_some_and(|found| found.len() == text.len())
}

/// Returns true if `live` is `pattern` with any text in place of each placeholder.
fn fits(holes: &Regex, pattern: &str, live: &str) -> bool {
    let mut parts = holes.split(pattern);
    let Some(mut rest) = parts.next().and_then(|first| live.strip_prefix(first)) else { return false };
    let mut parts = parts.peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some(after) = rest.find(part).and_then(|at| rest.get(at + part.len()..)) else { return false };
        rest = after;
    }
    rest.is_empty()
}

/// The time after which texts with little in common are compared less exactly, since an exact diff of them takes
/// quadratic time.
const DIFF_TIME: Duration = Duration::from_secs(5);

/// Returns a diff of two texts: `-` is recorded, `+` is live.
pub(super) fn text_diff(recorded: &str, live: &str) -> String {
    similar::TextDiff::configure()
        .timeout(DIFF_TIME)
        .diff_lines(recorded, live)
        .unified_diff()
        .context_radius(2)
        .header("recorded", "live")
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Redacted;
    use crate::redact::placeholders::placeholders;
    use serde_json::json;

    fn compare(
        live_side: Side,
        holes: bool,
        recorded: &Value,
        live: &Value,
    ) -> (Option<String>, Vec<NamePair>) {
        let names = NameMap::default();
        let holes = holes.then(|| placeholders(Redacted::Everything)).flatten();
        let result =
            Comparison::new(&names, 1, live_side, holes).run(&IgnoredPaths::default(), recorded, live);
        (result.first(), result.pairs)
    }

    #[test]
    fn missing_values_are_empty_and_ignored_values_may_differ() {
        let equal = |recorded, live| compare(Side::Client, false, &recorded, &live).0.is_none();
        assert!(equal(
            json!({"mcpServers": [], "_meta": {"a": 1}, "x": null}),
            json!({"additionalDirectories": [], "a": {"_meta": {"b": 2}}})
        ));
        assert!(equal(
            json!({"clientInfo": {"name": "a"}, "clientCapabilities": {"fs": {}}}),
            json!({"clientInfo": {"name": "b"}})
        ));
        assert!(!equal(json!({"prompt": [{"type": "text", "text": "a"}]}), json!({"prompt": []})));
        assert!(!equal(json!({"a": false}), json!({})));
        assert!(equal(json!({"a": {"b": {"c": null}}}), json!({})));
        assert!(!equal(json!({"a": [{}]}), json!({})));
        assert!(!equal(json!({"list": ["a"]}), json!({"list": ["b"]})));
    }

    #[test]
    fn the_first_place_that_differs_is_named() {
        let (first, _) = compare(
            Side::Client,
            false,
            &json!({"prompt": [{"text": "hello"}]}),
            &json!({"prompt": [{"text": "bye"}]}),
        );
        assert_eq!(first.as_deref(), Some("prompt.0.text"));
    }

    #[test]
    fn a_diff_shows_what_differs_and_nothing_else() {
        let recorded = json!({"cwd": "/a", "_meta": {}, "list": [1, 2], "gone": true});
        let live = json!({"cwd": "/b", "list": [1, 3, 4], "more": {}, "extra": 1});
        let names = NameMap::default();
        let comparison = Comparison::new(&names, 1, Side::Client, None);
        let comparison = comparison.run(&IgnoredPaths::default(), &recorded, &live);
        let left = Cell::new(200);
        let diff = comparison.diff(&live, &left);
        assert!(left.get() > 0, "both texts are shorter");
        assert_eq!(comparison.diff(&live, &left), "", "{left:?}");
        insta::assert_snapshot!(diff, @r#"
        --- recorded
        +++ live
        @@ -1,8 +1,9 @@
         {
           "cwd": "/b",
        -  "gone": true,
        +  "extra": 1,
           "list": [
             1,
        -    2
        +    3,
        +    4
           ],
           "more": {}
        "#);
    }

    /// A diff shows recorded values with live names.
    #[test]
    fn a_diff_has_live_names() {
        let mut names = NameMap::default();
        names.learn(1, NamePair::Folder { recorded: "/a".into(), live: "/x".into() });
        names.learn(1, NamePair::Id { kind: IdKind::Terminal, recorded: "1".into(), live: "2".into() });
        let recorded = json!({"text": "see /a/b", "call": {"terminalId": "1"}, "list": [1, 2]});
        let live = json!({"text": "look", "call": 5, "list": [1]});
        let comparison =
            Comparison::new(&names, 1, Side::Agent, None).run(&IgnoredPaths::default(), &recorded, &live);
        let diff = comparison.diff(&live, &Cell::new(1000));
        let recorded: Vec<_> =
            diff.lines().filter(|line| line.starts_with("-  ")).map(str::trim_end).collect();
        assert_eq!(
            recorded,
            [
                r#"-  "call": {"#,
                r#"-    "terminalId": "2""#,
                "-  },",
                "-    1,",
                "-    2",
                r#"-  "text": "see /x/b""#,
            ],
            "{diff}"
        );
        // The recorded name is not the live one.
        let again = Comparison::new(&names, 1, Side::Agent, None);
        let value = json!({"terminalId": "1"});
        assert!(!again.run(&IgnoredPaths::default(), &value, &value).is_equal());
    }

    /// The first of several folders with one recorded name stands for it.
    #[test]
    fn the_working_directory_goes_first() {
        let recorded = json!({"cwd": "/a", "additionalDirectories": ["/a"], "text": "/a/b"});
        let live = |text: &str| json!({"cwd": "/x", "additionalDirectories": ["/y"], "text": text});
        assert_eq!(compare(Side::Client, false, &recorded, &live("/x/b")).0, None);
        assert_eq!(compare(Side::Client, false, &recorded, &live("/y/b")).0.as_deref(), Some("text"));
    }

    #[test]
    fn names_are_learned() {
        let recorded = json!({"cwd": "/a", "text": "see /a/b", "terminalId": "1"});
        let live = json!({"cwd": "/x", "text": "see /x/b", "terminalId": "2"});
        let (first, pairs) = compare(Side::Client, false, &recorded, &live);
        assert_eq!(first, None);
        assert_eq!(pairs.len(), 2);
        let (first, _) =
            compare(Side::Client, false, &json!({"optionId": "yes"}), &json!({"optionId": "no"}));
        assert_eq!(first.as_deref(), Some("optionId"));
        let (first, _) = compare(Side::Agent, false, &json!({"optionId": "yes"}), &json!({"optionId": "no"}));
        assert_eq!(first, None);
    }

    #[test]
    fn placeholders_stand_for_any_text() {
        let everything = placeholders(Redacted::Everything).unwrap();
        let fits = |pattern, live| fits(everything, pattern, live);
        assert!(fits("at [time] in [cwd]/a", "at 12:30 in /home/a"));
        assert!(fits("[time]", ""));
        assert!(fits("plain", "plain"));
        assert!(!fits("at [time] in", "at 12:30 on"));
        assert!(!fits("plain", "plainer") && !fits("plain", "pla"));
        assert!(!fits("a [time] b [time] c", "a 1 c"));
        assert!(!fits("at [time] in", "at 12:30 in it") && !fits("[time]ab[time]ab", "xab"));
        assert!(!fits("fix a[i] now", "fix a completely different thing now"));
        let holes = |holes| compare(Side::Client, holes, &json!({"t": "[time]"}), &json!({"t": 12})).0;
        assert_eq!(holes(true), None);
        assert!(holes(false).is_some());
        let part = compare(Side::Client, true, &json!({"t": "at [time]"}), &json!({"t": 12})).0;
        assert_eq!(part.as_deref(), Some("t"), "only a placeholder alone stands for a number");
    }

    /// The folders of a client have other names. Those of an agent are the ones that we gave it.
    #[test]
    fn only_a_client_names_folders() {
        let (recorded, live) = (json!({"cwd": "/a", "text": "/a/b"}), json!({"cwd": "/x", "text": "/x/b"}));
        let (first, pairs) = compare(Side::Agent, false, &recorded, &live);
        assert_eq!((first.as_deref(), pairs.len()), (Some("cwd"), 0));
        // A text may keep the recorded folder all the same.
        let live = json!({"cwd": "/x", "text": "/a/b"});
        assert_eq!(compare(Side::Client, false, &recorded, &live).0, None);
    }

    /// A client that names a session which it got from us means that one.
    #[test]
    fn a_known_session_of_a_client_is_no_other_one() {
        let mut names = NameMap::default();
        names.learn(1, NamePair::Id { kind: IdKind::Session, recorded: "first".into(), live: "live".into() });
        for (side, recorded, live, is_equal, learned) in [
            (Side::Client, "first", "live", true, 0),
            (Side::Client, "second", "live", false, 0),
            (Side::Client, "second", "new", true, 1),
            (Side::Client, "live", "live", true, 1),
            (Side::Agent, "second", "live", true, 1),
        ] {
            let result = Comparison::new(&names, 1, side, None).run(
                &IgnoredPaths::default(),
                &json!({"sessionId": recorded}),
                &json!({"sessionId": live}),
            );
            let found = (result.is_equal(), result.pairs.len());
            assert_eq!(found, (is_equal, learned), "{side:?} {recorded} {live}");
        }
    }
}
