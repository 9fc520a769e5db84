//! Redaction of paths that begin with the folder of a session, the home folder or the temporary folder.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::LazyLock;

use regex::bytes::Regex;

use super::placeholder_ids::SessionNumber;
use super::placeholders::{CWD, HOME, TMP};
use crate::path_index::{PathIndex, spellings, stands_alone};

/// Returns the spellings of a folder. `None` for a path that is not absolute, or a root.
fn folder_spellings(path: &str) -> Option<[String; 4]> {
    let path = path.trim_end_matches(['/', '\\']);
    let windows =
        matches!(path.as_bytes(), [drive, b':', b'/' | b'\\', _, ..] if drive.is_ascii_alphabetic());
    let unix = path.len() > 1 && path.starts_with('/');
    (windows || unix).then(|| spellings(path))
}

/// The known folders and their placeholders.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownFolders {
    machine: PathIndex<String>,
    sessions: HashMap<SessionNumber, PathIndex<String>>,
    /// The folders of all sessions. Where several sessions share a folder, the first one names it.
    all_sessions: PathIndex<(SessionNumber, String)>,
}

/// Patterns of home and temporary folders on other machines.
static ELSEWHERE: LazyLock<Vec<(Regex, &'static str)>> = LazyLock::new(|| {
    let patterns = [
        (r"(?-u)/(?:home|Users)/[A-Za-z0-9_\x80-\xff][A-Za-z0-9._\x80-\xff-]*", "[home]"),
        (
            r"(?-u)[A-Za-z]:(?:\\{1,4}|/)Users(?:\\{1,4}|/)[A-Za-z0-9_\x80-\xff][A-Za-z0-9._\x80-\xff-]*",
            "[home]",
        ),
        (r"(?-u)/root", "[home]"),
        (r"(?-u)(?:/private)?(?:/var)?/tmp", "[tmp]"),
        (r"(?-u)(?:/private)?/var/folders/[A-Za-z0-9_+-]+/[A-Za-z0-9_+-]+/T", "[tmp]"),
        (
            r"(?-u)[A-Za-z]:(?:\\{1,4}|/)Users(?:\\{1,4}|/)[A-Za-z0-9._\x80-\xff-]+(?:\\{1,4}|/)AppData(?:\\{1,4}|/)Local(?:\\{1,4}|/)Temp",
            "[tmp]",
        ),
    ];
    patterns.into_iter().filter_map(|(pattern, name)| Some((Regex::new(pattern).ok()?, name))).collect()
});

impl KnownFolders {
    /// Returns the home and temporary folders of this machine.
    pub(crate) fn here() -> Self {
        let mut folders = KnownFolders::default();
        if let Some(home) = std::env::home_dir() {
            folders.add(&home, HOME);
        }
        folders.add(&std::env::temp_dir(), TMP);
        folders
    }

    /// Adds a folder that is known in all sessions.
    pub(crate) fn add(&mut self, path: &Path, name: &str) {
        for spelling in path.to_str().and_then(folder_spellings).into_iter().flatten() {
            self.machine.get_or_insert_with(&spelling, || name.into());
        }
    }

    /// Adds the folders that a session works in; the first is its working directory.
    pub(crate) fn add_session(
        &mut self,
        scope: SessionNumber,
        folders: impl Iterator<Item = impl AsRef<str>>,
    ) {
        let known = self.sessions.entry(scope).or_default();
        for (at, path) in folders.enumerate() {
            let name = if at == 0 { CWD.into() } else { format!("[cwd-{}]", at + 1) };
            for spelling in folder_spellings(path.as_ref()).into_iter().flatten() {
                let name = known.get_or_insert_with(&spelling, || name.clone()).clone();
                let first = self.all_sessions.get_or_insert_with(&spelling, || (scope, name.clone()));
                if scope < first.0 {
                    *first = (scope, name);
                }
            }
        }
    }

    /// Calls `found` with each known folder that a path in the text begins with, and its placeholder.
    /// Folders may begin at the same place; the longest counts. A text that belongs to no session may
    /// name the folders of all sessions.
    pub(crate) fn find(&self, scope: SessionNumber, text: &[u8], mut found: impl FnMut(Range<usize>, &str)) {
        if memchr::memchr2(b'/', b'\\', text).is_none() {
            return;
        }
        match (scope, self.sessions.get(&scope)) {
            (None, _) => self.all_sessions.find(text, |span, (_, name)| found(span, name)),
            (_, Some(session)) => session.find(text, |span, name| found(span, name)),
            _ => {}
        }
        self.machine.find(text, |span, name| found(span, name));
        for (pattern, name) in ELSEWHERE.iter() {
            for path in pattern.find_iter(text) {
                // The full stop of a sentence is not a part of the name.
                let length =
                    path.as_bytes().iter().rposition(|byte| *byte != b'.').map_or(0, |last| last + 1);
                let span = path.start()..path.start() + length;
                if stands_alone(text, &span) {
                    found(span, name);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::json_scan::Edits;
    use super::*;

    /// The first session that has a folder names it in texts of no session.
    #[test]
    fn the_first_session_names_a_shared_folder() {
        let mut folders = KnownFolders::default();
        folders.add_session(Some(2), ["/a", "/srv"].iter());
        folders.add_session(Some(1), ["/srv", "/t"].iter());
        folders.add_session(Some(3), ["/t"].iter());
        for (text, expected) in [("/srv/x", "[cwd]"), ("/t/x", "[cwd-2]")] {
            let mut names = Vec::new();
            folders.find(None, text.as_bytes(), |_, name| names.push(name.to_owned()));
            assert_eq!(names, [expected], "{text}");
        }
    }

    #[test]
    fn a_folder_is_named_where_a_path_begins_with_it() {
        let mut folders = KnownFolders::default();
        folders.add_session(Some(1), ["/home/me/my work", "/srv/data/"].iter());
        folders.add_session(Some(2), ["C:\\Users\\me\\proj"].iter());
        let check = |scope, text: &str, expect: &str| {
            let mut edits = Edits::default();
            folders.find(scope, text.as_bytes(), |span, name| edits.replace(span, name));
            assert_eq!(String::from_utf8(edits.apply(text.as_bytes())).unwrap(), expect);
        };
        check(Some(1), "/home/me/my work/src/lib.rs", "[cwd]/src/lib.rs");
        check(Some(1), "In /home/me/my work. Or '/srv/data':3", "In [cwd]. Or '[cwd-2]':3");
        check(Some(1), "file:///home/me/my%20work/a /home/me/my worker", "file://[cwd]/a [home]/my worker");
        check(
            Some(1),
            "/srv/data2 /srv/data.bak x/srv/data ../tmp",
            "/srv/data2 /srv/data.bak x/srv/data ../tmp",
        );
        check(Some(1), "[cwd]/tmp/x PATH=/root/bin:/tmp", "[cwd]/tmp/x PATH=[home]/bin:[tmp]");
        check(
            Some(1),
            "/private/var/folders/0b/x9_/T/q /Users/al.b/x /home/ /home/me.",
            "[tmp]/q [home]/x /home/ [home].",
        );
        check(
            Some(2),
            r"C:\Users\me\proj\a C:\\Users\\me\\proj\\a C:\Users\you\b",
            r"[cwd]\a [cwd]\\a [home]\b",
        );
        check(Some(2), "/srv/data", "/srv/data");
        check(None, "/srv/data", "[cwd-2]");
    }
}
