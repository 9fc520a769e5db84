//! Paths: the folder a session works in, home and the folder for temporary files, wherever a path
//! begins with them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::LazyLock;

use regex::bytes::Regex;

use super::placeholder_ids::SessionNumber;

/// A folder, spelled in every way it may stand in a text, and its name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KnownFolder {
    spellings: Vec<String>,
    name: String,
}

impl KnownFolder {
    /// None for a folder that is no absolute path, or the root of everything.
    pub(crate) fn new(path: &str, name: impl Into<String>) -> Option<Self> {
        let path = path.trim_end_matches(['/', '\\']);
        let bytes = path.as_bytes();
        let windows = matches!(bytes, [drive, b':', b'/' | b'\\', _, ..] if drive.is_ascii_alphabetic());
        let unix = path.len() > 1 && path.starts_with('/');
        if !windows && !unix {
            return None;
        }
        let mut spellings = spellings(path).to_vec();
        spellings.sort();
        spellings.dedup();
        Some(KnownFolder { spellings, name: name.into() })
    }
}

/// The ways in which a folder may stand in a text: as it is, as in a URI, and for Windows with slashes
/// and as in JSON inside a string. Some may be equal.
pub(crate) fn spellings(path: &str) -> [String; 4] {
    let windows = matches!(path.as_bytes(), [drive, b':', ..] if drive.is_ascii_alphabetic());
    let slashes = |slash| if windows { path.replace('\\', slash) } else { path.to_owned() };
    [path.to_owned(), percent_encoded(path), slashes("/"), slashes("\\\\")]
}

fn percent_encoded(path: &str) -> String {
    use std::fmt::Write as _;
    let mut encoded = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'A'..=b'Z'
            | b'a'..=b'z'
            | b'0'..=b'9'
            | b'/'
            | b'-'
            | b'_'
            | b'.'
            | b'~'
            | b':'
            | b'@'
            | b'+' => {
                encoded.push(char::from(byte));
            }
            byte => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}

/// The folders that are known: those of each session, and those of the machine.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownFolders {
    machine: Vec<KnownFolder>,
    sessions: BTreeMap<SessionNumber, Vec<KnownFolder>>,
}

/// Homes and folders for temporary files on whatever machine the transcript was made.
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
    /// The folders of this machine.
    pub(crate) fn here() -> Self {
        let home = std::env::home_dir().map(|path| (path, "[home]"));
        let tmp = (std::env::temp_dir(), "[tmp]");
        let machine =
            home.into_iter().chain([tmp]).filter_map(|(path, name)| KnownFolder::new(path.to_str()?, name));
        KnownFolders { machine: machine.collect(), sessions: BTreeMap::new() }
    }

    /// One more folder, wherever it stands.
    pub(crate) fn add(&mut self, path: &Path, name: &str) {
        self.machine.extend(path.to_str().and_then(|path| KnownFolder::new(path, name)));
    }

    /// A session works in these folders; the first is the one it is in.
    pub(crate) fn work(&mut self, scope: SessionNumber, folders: impl Iterator<Item = impl AsRef<str>>) {
        let known = self.sessions.entry(scope).or_default();
        for (at, path) in folders.enumerate() {
            let name = if at == 0 { "[cwd]".into() } else { format!("[cwd-{}]", at + 1) };
            known.extend(KnownFolder::new(path.as_ref(), name).filter(|folder| !known.contains(folder)));
        }
    }

    /// Shows each known folder that a path in the text begins with. They may begin at the same place;
    /// the longest counts. A text that belongs to no session may speak of all of them.
    pub(crate) fn find(&self, scope: SessionNumber, text: &[u8], mut found: impl FnMut(Range<usize>, &str)) {
        if memchr::memchr2(b'/', b'\\', text).is_none() {
            return;
        }
        let sessions = self.sessions.iter().filter(|(known, _)| scope.is_none() || **known == scope);
        for folder in sessions.flat_map(|(_, folders)| folders).chain(&self.machine) {
            for spelling in &folder.spellings {
                for start in memchr::memmem::find_iter(text, spelling) {
                    let span = start..start + spelling.len();
                    if stands_alone(text, &span) {
                        found(span, &folder.name);
                    }
                }
            }
        }
        for (pattern, name) in ELSEWHERE.iter() {
            for path in pattern.find_iter(text) {
                // The end of a sentence is no part of a name.
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

/// Whether a folder that stands here is one, and not a part of another name.
pub(crate) fn stands_alone(text: &[u8], span: &Range<usize>) -> bool {
    begins(text, span.start) && ends(text, span.end)
}

/// Whether an absolute path can begin here: not in the middle of another, nor behind a placeholder.
fn begins(text: &[u8], at: usize) -> bool {
    let before = text.get(..at).unwrap_or_default();
    match before {
        [] => true,
        [.., b':', b'/', b'/'] => true,
        // JSON inside a string.
        [.., b'\\', b'n' | b't' | b'r'] => true,
        [.., last] => {
            let joined = matches!(last, b'/' | b'\\' | b'_' | b'-' | b'.' | b'~' | b'*' | b']' | b'}' | b')');
            !joined && !is_letter(*last)
        }
    }
}

/// Whether a component of a path ends here.
fn ends(text: &[u8], at: usize) -> bool {
    match text.get(at..).unwrap_or_default() {
        [b'.', next, ..] => !is_letter(*next) && !matches!(next, b'_' | b'.' | b'-'),
        [next, ..] => !is_letter(*next) && !matches!(next, b'_' | b'-' | b'@' | b'+' | b'~' | b'%'),
        [] => true,
    }
}

/// Letters of all scripts, and digits.
fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte >= 0x80
}

#[cfg(test)]
mod tests {
    use super::super::json_scan::Edits;
    use super::*;

    #[test]
    fn a_folder_is_named_where_a_path_begins_with_it() {
        let mut folders = KnownFolders::default();
        folders.work(Some(1), ["/home/me/my work", "/srv/data/"].iter());
        folders.work(Some(2), ["C:\\Users\\me\\proj"].iter());
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
