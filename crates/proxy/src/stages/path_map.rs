//! The stage that maps folders.

use std::borrow::Cow;

use duologue_rpc::raw_message::{is_similar_name, text};
use duologue_rpc::{JsonScanner, JsonTokenKind, Limits};
use duologue_schema::Error as RpcError;
use duologue_transcript::Side;

use crate::link::StageLink;
use crate::message::StageMessage;
use crate::stage::{Decision, ProxyStage};

/// The members whose string is a path.
const PATHS: [&str; 3] = ["cwd", "path", "oldPath"];
/// The members whose strings in a list are paths.
const PATH_LISTS: [&str; 1] = ["additionalDirectories"];
/// The members whose string is a URI.
const URIS: [&str; 1] = ["uri"];
/// The members whose content is opaque.
const OPAQUE: [&str; 6] = ["_meta", "rawInput", "rawOutput", "env", "headers", "requestedSchema"];

/// Replaces folders of the client by folders of the agent in what the client sends, and back in what the agent sends. For
/// an agent in a container or on another machine.
///
/// These members are paths: `cwd`, `path`, `oldPath`, the items of `additionalDirectories`, and `uri` with `file:`. So files,
/// terminals, locations, diffs, links and sessions have them. Text, commands, arguments, variables, raw input and output,
/// `_meta` and extension methods are not changed. Whole components match: `/work` is not the start of `/workshop`. If several
/// folders match, the longest one counts. A path or a folder with `..` matches none.
///
/// ```
/// use duologue_proxy::{PathMap, Proxy};
///
/// let paths = PathMap::new().map("/home/me/project", "/workspace").map(r"C:\data", "/data").strict();
/// let proxy = Proxy::new().stage(paths);
/// # drop(proxy);
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct PathMap {
    /// The folders of the client and of the agent.
    maps: Vec<(Folder, Folder)>,
    is_strict: bool,
}

impl PathMap {
    /// Creates a map without folders.
    pub fn new() -> Self {
        PathMap::default()
    }

    /// Maps a folder of the client to one of the agent. Both are absolute, in the notation of their system.
    pub fn map(mut self, client: impl AsRef<str>, agent: impl AsRef<str>) -> Self {
        self.maps.push((Folder::new(client.as_ref()), Folder::new(agent.as_ref())));
        self
    }

    /// Rejects requests with a path outside of all folders or a relative one, and drops lines that another program may read in
    /// another way ([`is_suspect`](StageMessage::is_suspect)). Responses and notifications pass with such a path.
    ///
    /// A value that is no text counts as a path outside, and so does a member whose name differs from that of a path in its
    /// case only. A message of the protocol whose params are an array does not pass: some programs read its items as members.
    pub fn strict(mut self) -> Self {
        self.is_strict = true;
        self
    }

    /// Returns true for an absolute path of any system.
    #[must_use]
    pub fn is_absolute(path: &str) -> bool {
        path.starts_with('/') || is_windows(path)
    }

    /// Returns true if the map has no folders.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.maps.is_empty()
    }

    /// Maps the paths of a message, for a program that reads the lines itself. Returns the new line, or `None` if the line
    /// stays as it is. A line that is no message stays so.
    ///
    /// # Errors
    ///
    /// The error of a strict map. A request is answered with it, a response has it in the place of its outcome, and a
    /// notification is dropped.
    pub fn map_line(&self, from: Side, line: &[u8], limits: &Limits) -> Result<Option<Vec<u8>>, RpcError> {
        self.mapped_message(from, &StageMessage::new(line, limits))
    }

    /// Maps the path of a side. Returns `None` if it is in no folder.
    fn mapped(&self, from: Side, path: &str) -> Option<String> {
        let folders = self.maps.iter().map(|(client, agent)| match from {
            Side::Client => (client, agent),
            Side::Agent => (agent, client),
        });
        let matches = folders.filter_map(|(from, to)| Some((from.components.len(), from.rest(path)?, to)));
        let (_, rest, to) = matches.max_by_key(|(length, ..)| *length)?;
        to.joined(&rest)
    }

    /// Maps the path in a `file://` URI.
    fn mapped_uri(&self, from: Side, uri: &str) -> Mapped {
        let Some(rest) = strip_ignoring_case(uri, "file:") else {
            // Programs remove white space and characters without a mark, or not.
            let visible = uri.chars().filter(char::is_ascii_graphic).take(5);
            let is_file = visible.map(|char| char.to_ascii_lowercase()).eq("file:".chars());
            return if is_file { Mapped::Outside } else { Mapped::Other };
        };
        // Without a host, `file:/data` means the same as `file:///data`.
        let rest = rest.strip_prefix("//").unwrap_or(rest);
        let rest = strip_ignoring_case(rest, "localhost").unwrap_or(rest);
        let end = rest.find(['?', '#']).unwrap_or(rest.len());
        let (Some(path), Some(behind)) = (rest.get(..end), rest.get(end..)) else { return Mapped::Other };
        let Some(path) = decoded(path) else { return Mapped::Outside };
        // A reader that knows no `?` and `#` takes all of it for the path.
        if behind.split(['/', '\\']).any(|part| part == "..") {
            return Mapped::Outside;
        }
        // `file:///C:/data` has a slash before the drive.
        let drive = path.strip_prefix('/').filter(|path| is_windows(path));
        // Other hosts have no folders here.
        if !path.starts_with('/') {
            return Mapped::Outside;
        }
        match self.mapped(from, drive.unwrap_or(&path)) {
            None => Mapped::Outside,
            Some(path) => {
                let slashes = if is_windows(&path) { path.replace('\\', "/") } else { path };
                let root = if slashes.starts_with('/') { "" } else { "/" };
                Mapped::To(format!("file://{root}{}{behind}", encoded(&slashes)))
            }
        }
    }

    /// Maps all paths of a line. Returns the line if it changes.
    ///
    /// # Errors
    ///
    /// The fault of the first path outside of all folders, if the map is strict. A relative path is outside too, because it can
    /// lead anywhere. A line that becomes longer than `limit` bytes is a fault of every map.
    fn line(&self, from: Side, line: &[u8], limit: usize) -> Result<Option<Vec<u8>>, LineFault> {
        let (mut changed, mut copied) = (Vec::new(), 0);
        let mut is_changed = false;
        // The name of the member that contains each open object or array.
        let mut open: Vec<Name> = Vec::new();
        let mut name = Name::Other;
        let mut opaque_from = None;
        let mut scanner = JsonScanner::new(line);
        while let Some(token) = scanner.next() {
            let depth = scanner.depth();
            let written = line.get(token.span.clone()).unwrap_or_default();
            let is_opaque = opaque_from.is_some();
            let mut mapped = Mapped::Other;
            match token.kind {
                JsonTokenKind::Key => {
                    let key = text(written);
                    name = key.as_deref().map_or(Name::Other, Name::of);
                    // Only a strict map needs this comparison.
                    if self.is_strict && name == Name::Other && key.is_none_or(|key| is_similar(&key)) {
                        mapped = Mapped::Unreadable;
                    }
                }
                JsonTokenKind::ObjectStart | JsonTokenKind::ArrayStart => {
                    if name == Name::Opaque && !is_opaque {
                        opaque_from = Some(depth);
                    }
                    let is_list = token.kind == JsonTokenKind::ArrayStart;
                    if name.is_path() && !(is_list && name == Name::PathList) {
                        mapped = Mapped::Unreadable;
                    }
                    name = if is_list { name.in_list() } else { Name::Other };
                    open.push(name);
                }
                JsonTokenKind::ObjectEnd | JsonTokenKind::ArrayEnd => {
                    open.pop();
                    name = open.last().copied().unwrap_or(Name::Other);
                    opaque_from = opaque_from.filter(|from| *from <= depth);
                }
                JsonTokenKind::Comma => name = open.last().copied().unwrap_or(Name::Other),
                JsonTokenKind::Scalar if name.is_path() && written != b"null" => mapped = Mapped::Unreadable,
                JsonTokenKind::Scalar => {}
                JsonTokenKind::String if name.is_path() && !is_opaque => {
                    let value = text(written);
                    mapped = value.map_or(Mapped::Unreadable, |value| self.mapped_value(from, name, &value));
                }
                JsonTokenKind::String => {}
            }
            if is_opaque {
                continue;
            }
            match mapped {
                Mapped::To(path) => {
                    changed.extend_from_slice(line.get(copied..token.span.start).unwrap_or_default());
                    let Ok(quoted) = serde_json::to_vec(&path) else { continue };
                    changed.extend_from_slice(&quoted);
                    copied = token.span.end;
                    is_changed = true;
                    // A short path can stand for a long one, many times.
                    if changed.len() > limit.max(line.len()) {
                        return Err(LineFault::TooLong { limit });
                    }
                }
                Mapped::Outside if self.is_strict => {
                    let path = text(written).unwrap_or_default();
                    let fault = format!(
                        "{} is outside of the mapped folders; use one inside, or map it too",
                        shown(&path)
                    );
                    return Err(LineFault::Path(fault));
                }
                Mapped::Unreadable if self.is_strict => {
                    let part = shown(&String::from_utf8_lossy(written));
                    let fault =
                        format!("the proxy cannot read a path at {part}; write it as the schema does");
                    return Err(LineFault::Path(fault));
                }
                Mapped::Outside | Mapped::Unreadable | Mapped::Other => {}
            }
        }
        changed.extend_from_slice(line.get(copied..).unwrap_or_default());
        if changed.len() > limit.max(line.len()) {
            return Err(LineFault::TooLong { limit });
        }
        Ok(is_changed.then_some(changed))
    }

    /// Maps the text of a member with this name.
    fn mapped_value(&self, from: Side, name: Name, value: &str) -> Mapped {
        match name {
            Name::Uri => self.mapped_uri(from, value),
            Name::Path | Name::PathItem if Self::is_absolute(value) => {
                self.mapped(from, value).map_or(Mapped::Outside, Mapped::To)
            }
            Name::Path | Name::PathItem => Mapped::Outside,
            // A text in the place of a list.
            Name::PathList => Mapped::Unreadable,
            Name::Opaque | Name::Other => Mapped::Other,
        }
    }

    fn mapped_message(&self, from: Side, message: &StageMessage<'_>) -> Result<Option<Vec<u8>>, RpcError> {
        if message.is_invalid() {
            return Ok(None);
        }
        if self.is_strict && message.is_suspect() {
            let reason = "the message has a carriage return, a member of JSON-RPC in another case, or a method beside a result or an error; some programs read it in another way";
            return Err(RpcError::invalid_request(reason));
        }
        // The params of an extension are not known.
        if message.method().is_some_and(|method| method.starts_with('_')) {
            return Ok(None);
        }
        if self.is_strict && message.params().is_some_and(|params| params.get().starts_with('[')) {
            let reason = "the proxy maps no paths in params that are an array; send an object";
            return Err(RpcError::invalid_params(reason));
        }
        // A strict map looks at names in another case too.
        if !self.is_strict && !may_have_paths(message.line()) {
            return Ok(None);
        }
        let limit = message.limits().frame_bytes;
        let mapped = match self.line(from, message.line(), limit) {
            // The other paths of the message are mapped.
            Err(LineFault::Path(_)) if !message.is_request() => {
                let lenient = PathMap { maps: self.maps.clone(), is_strict: false };
                lenient.line(from, message.line(), limit)
            }
            mapped => mapped,
        };
        mapped.map_err(|fault| match fault {
            LineFault::Path(fault) => RpcError::invalid_params(fault),
            LineFault::TooLong { limit } => {
                let reason = format!(
                    "the message with its mapped paths has more than {limit} bytes (`Limits::frame_bytes`); send less"
                );
                RpcError::invalid_request(reason).coded("limit_reached", false)
            }
        })
    }

    fn message(&self, from: Side, message: &StageMessage<'_>) -> Decision {
        if self.is_strict && message.is_invalid() && message.is_suspect() {
            return Decision::Drop;
        }
        match self.mapped_message(from, message) {
            Ok(None) => Decision::Pass,
            Ok(Some(line)) => message.with_same_line(line),
            Err(error) => Decision::error(error),
        }
    }
}

impl ProxyStage for PathMap {
    fn client_message(&mut self, message: &StageMessage<'_>, _: &mut StageLink<'_>) -> Decision {
        self.message(Side::Client, message)
    }

    fn agent_message(&mut self, message: &StageMessage<'_>, _: &mut StageLink<'_>) -> Decision {
        self.message(Side::Agent, message)
    }
}

/// Returns false for a line without the members that are paths.
fn may_have_paths(line: &[u8]) -> bool {
    let ends: [&[u8]; 5] = [b"ath\"", b"cwd\"", b"uri\"", b"Directories\"", b"\\u"];
    ends.iter().any(|end| memchr::memmem::find(line, end).is_some())
}

/// Returns true for a name that some programs read as that of a path, because they ignore case.
fn is_similar(name: &str) -> bool {
    PATHS.iter().chain(&PATH_LISTS).chain(&URIS).any(|known| is_similar_name(name, known))
}

/// Returns the beginning of a text, for an error.
fn shown(text: &str) -> String {
    let beginning: String = text.chars().take(200).collect();
    duologue_schema::printable(&beginning).to_string()
}

/// The fault of a line.
#[derive(Debug, PartialEq)]
enum LineFault {
    /// A path is outside of all folders, or cannot be read.
    Path(String),
    /// The line with its mapped paths is too long.
    TooLong { limit: usize },
}

/// The result of mapping a string.
enum Mapped {
    /// The new string.
    To(String),
    /// A path in no folder.
    Outside,
    /// A value that may be a path for another program, and is none here.
    Unreadable,
    /// No path.
    Other,
}

/// The meaning of a member's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    Path,
    PathList,
    /// An item of a list of paths.
    PathItem,
    Uri,
    Opaque,
    Other,
}

impl Name {
    fn of(name: &str) -> Self {
        match name {
            _ if PATHS.contains(&name) => Name::Path,
            _ if PATH_LISTS.contains(&name) => Name::PathList,
            _ if URIS.contains(&name) => Name::Uri,
            _ if OPAQUE.contains(&name) => Name::Opaque,
            _ => Name::Other,
        }
    }

    /// Returns true if the value is a path, a link or a list of paths.
    fn is_path(self) -> bool {
        !matches!(self, Name::Opaque | Name::Other)
    }

    /// Returns the meaning of the items of a list with this name.
    fn in_list(self) -> Self {
        match self {
            Name::PathList => Name::PathItem,
            _ => Name::Other,
        }
    }
}

/// A folder of one side.
#[derive(Clone, Debug)]
struct Folder {
    path: String,
    components: Vec<String>,
    is_windows: bool,
}

impl Folder {
    fn new(path: &str) -> Self {
        let is_windows = is_windows(path);
        let components = components(path, is_windows).map(str::to_owned).collect();
        let separators: &[char] = if is_windows { &['/', '\\'] } else { &['/'] };
        Folder { path: path.trim_end_matches(separators).to_owned(), components, is_windows }
    }

    /// Returns the components of a path behind this folder, if it is in it.
    fn rest<'p>(&self, path: &'p str) -> Option<Vec<&'p str>> {
        if is_windows(path) != self.is_windows {
            return None;
        }
        let mut parts = components(path, self.is_windows);
        for expected in &self.components {
            let part = parts.next()?;
            let is_equal =
                if self.is_windows { part.eq_ignore_ascii_case(expected) } else { part == expected };
            if !is_equal {
                return None;
            }
        }
        let rest: Vec<&str> = parts.collect();
        // For some programs a path ends at a NUL.
        if path.contains('\0') {
            return None;
        }
        (!rest.contains(&"..") && !self.components.iter().any(|part| part == "..")).then_some(rest)
    }

    /// Returns a path in this folder, or `None` if a component has another meaning on the system of this folder: a
    /// backslash separates there, a colon names a drive or a stream, dots and spaces at the end are dropped, and some names are
    /// devices. `..` leads out of the folder.
    fn joined(&self, rest: &[&str]) -> Option<String> {
        if self.components.iter().any(|part| part == "..") {
            return None;
        }
        if self.is_windows && rest.iter().any(|part| is_odd_on_windows(part)) {
            return None;
        }
        let separator = if self.is_windows && self.path.contains('\\') { "\\" } else { "/" };
        let mut path = self.path.clone();
        for part in rest {
            path.push_str(separator);
            path.push_str(part);
        }
        if path.is_empty() || (rest.is_empty() && path.ends_with(':')) {
            path.push_str(separator);
        }
        Some(path)
    }
}

/// Returns the components of a path. Empty ones and `.` have no meaning.
fn components(path: &str, is_windows: bool) -> impl Iterator<Item = &str> {
    path.split(move |char| char == '/' || is_windows && char == '\\')
        .filter(|part| !matches!(*part, "" | "."))
}

/// Returns true for a component that is no plain name on Windows.
fn is_odd_on_windows(part: &str) -> bool {
    const DEVICES: [&str; 6] = ["con", "prn", "aux", "nul", "conin$", "conout$"];
    let name = part.split('.').next().unwrap_or_default().trim_end_matches(' ').to_ascii_lowercase();
    let is_port = ["com", "lpt"].iter().any(|port| {
        let mut rest = name.strip_prefix(port).unwrap_or_default().chars();
        matches!((rest.next(), rest.next()), (Some('0'..='9' | '¹' | '²' | '³'), None))
    });
    part.contains(['\\', ':']) || part.ends_with(['.', ' ']) || is_port || DEVICES.contains(&name.as_str())
}

/// Returns true for an absolute path of Windows: `C:\data`, `C:/data` or `\\server\share`.
fn is_windows(path: &str) -> bool {
    match path.as_bytes() {
        [b'\\', b'\\', ..] => true,
        [drive, b':'] | [drive, b':', b'/' | b'\\', ..] => drive.is_ascii_alphabetic(),
        _ => false,
    }
}

fn strip_ignoring_case<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let (start, rest) = text.split_at_checked(prefix.len())?;
    start.eq_ignore_ascii_case(prefix).then_some(rest)
}

/// Decodes the percent signs of a URI. Returns `None` if they hide a separator or are not valid.
fn decoded(path: &str) -> Option<Cow<'_, str>> {
    if !path.contains('%') {
        return Some(Cow::Borrowed(path));
    }
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        let code = digit(rest.next())? * 16 + digit(rest.next())?;
        let byte = u8::try_from(code).ok()?;
        if matches!(byte, b'/' | b'\\' | 0) {
            return None;
        }
        bytes.push(byte);
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

/// Encodes a path for a URI.
fn encoded(path: &str) -> String {
    let mut uri = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~!$&'()*+,;=:@".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            uri.push_str(&format!("%{byte:02X}"));
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use duologue_schema::ErrorCode;
    use serde_json::json;

    use super::*;

    const LIMIT: usize = 1 << 20;

    fn text_of(fault: LineFault) -> String {
        match fault {
            LineFault::Path(text) => text,
            LineFault::TooLong { .. } => panic!("too long"),
        }
    }

    #[test]
    fn a_line_does_not_grow_beyond_the_limit() {
        let long = format!("/{}", "x".repeat(LIMIT / 100));
        for map in [PathMap::new().map(&long, "/r"), PathMap::new().map(&long, "/r").strict()] {
            for (count, is_short) in [(90, true), (1000, false)] {
                let paths = vec![json!({"path": "/r"}); count];
                for line in [
                    json!({"jsonrpc": "2.0", "method": "session/update", "params": {"locations": paths}}),
                    json!({"jsonrpc": "2.0", "id": 1, "result": {"locations": paths}}),
                ] {
                    let line = line.to_string();
                    let mapped = map.line(Side::Agent, line.as_bytes(), LIMIT);
                    assert_eq!(mapped.is_ok(), is_short, "{count}");
                    let mut limits = Limits::default();
                    limits.frame_bytes = LIMIT;
                    let error = map.map_line(Side::Agent, line.as_bytes(), &limits).err();
                    let code = error.map(|error| error.data_member::<String>("code"));
                    assert_eq!(code, (!is_short).then(|| Some("limit_reached".to_owned())), "{line:.60}");
                }
            }
        }
    }

    fn paths() -> PathMap {
        PathMap::new()
            .map("/home/me/project/", "/workspace")
            .map("/home/me/project/vendor", "/vendor")
            .map(r"C:\data", "/data")
            .map("/", "/host")
    }

    #[test]
    fn whole_components_are_mapped_and_back() {
        let paths = paths();
        for (client, agent) in [
            ("/home/me/project", "/workspace"),
            ("/home/me/project/src/a.rs", "/workspace/src/a.rs"),
            ("/home/me/project/vendor/b", "/vendor/b"),
            ("/home/me/projects", "/host/home/me/projects"),
            ("/", "/host"),
            (r"C:\data\x\y", "/data/x/y"),
            (r"C:\data", "/data"),
        ] {
            assert_eq!(paths.mapped(Side::Client, client).as_deref(), Some(agent), "{client}");
            assert_eq!(paths.mapped(Side::Agent, agent).as_deref(), Some(client), "{agent}");
        }
        assert_eq!(paths.mapped(Side::Client, "c:/DATA/x").as_deref(), Some("/data/x"));
        assert_eq!(paths.mapped(Side::Client, "/home//me/./project/x").as_deref(), Some("/workspace/x"));
        for outside in ["/workspace2", "/workspace/../etc", "/dat"] {
            assert_eq!(paths.mapped(Side::Agent, outside), None, "{outside}");
        }
        assert_eq!(paths.mapped(Side::Client, r"D:\data"), None);
        // A backslash is a part of a name for the agent.
        for outside in [r"/data/..\..\Windows", "/data/a:b", "/data/C:/x"] {
            assert_eq!(paths.mapped(Side::Agent, outside), None, "{outside}");
        }
        // So are names of devices, and dots and spaces at the end, but not on Windows.
        for name in
            ["CON", "nul.txt", "aux .a/x", "COM1.txt", "lpt¹", "conout$", ".. ", "...", "a.", "a ", "a./b"]
        {
            assert_eq!(paths.mapped(Side::Agent, &format!("/data/{name}")), None, "{name}");
            assert!(paths.mapped(Side::Agent, &format!("/workspace/{name}")).is_some(), "{name}");
        }
        for name in ["CONS", "com", "com10", "lpt", ".a", "a.b", "console.log"] {
            assert!(paths.mapped(Side::Agent, &format!("/data/{name}")).is_some(), "{name}");
        }
        assert_eq!(paths.mapped(Side::Agent, "/workspace/..\0"), None);
        assert_eq!(paths.mapped(Side::Agent, r"/workspace/a\b").as_deref(), Some(r"/home/me/project/a\b"));
    }

    #[test]
    fn links_are_mapped_and_their_escapes_kept() {
        let uri = |side, uri: &str| match paths().mapped_uri(side, uri) {
            Mapped::To(uri) => uri,
            Mapped::Outside => "outside".into(),
            Mapped::Unreadable | Mapped::Other => "other".into(),
        };
        assert_eq!(
            uri(Side::Client, "file:///home/me/project/a%20b.rs#L10"),
            "file:///workspace/a%20b.rs#L10"
        );
        assert_eq!(
            uri(Side::Client, "FILE://localhost/home/me/project?x=/home/me"),
            "file:///workspace?x=/home/me"
        );
        assert_eq!(uri(Side::Agent, "file:///data/%C3%A4"), "file:///C:/data/%C3%A4");
        assert_eq!(uri(Side::Client, "file:///C:/data/x"), "file:///data/x");
        assert_eq!(uri(Side::Agent, "file:///workspace%2f..%2fetc"), "outside");
        for behind in ["?/../../x", "#/..", r"?a\..\x"] {
            assert_eq!(uri(Side::Agent, &format!("file:///workspace/{behind}")), "outside", "{behind}");
        }
        assert_eq!(uri(Side::Agent, "file:/workspace/a"), "file:///home/me/project/a");
        for outside in [
            "file:/etc/passwd",
            "file:x",
            "file://server/workspace",
            "file://workspace/x",
            " file:///workspace/a",
            "\u{0}\u{200b}file:///workspace/a",
            "\u{a0}F\ti\nle\r:/workspace",
        ] {
            assert_eq!(uri(Side::Agent, outside), "outside", "{outside}");
        }
        for other in ["", "profile:x", "file", "x file:///workspace"] {
            assert_eq!(uri(Side::Agent, other), "other", "{other}");
        }
        assert_eq!(uri(Side::Agent, "https://example.com/workspace"), "other");
    }

    #[test]
    fn only_paths_of_a_line_are_mapped() {
        let map = PathMap::new().map("/c", "/a");
        let line = r#"{"cwd":"/c/x","additionalDirectories":["/c",{"path":"/c/y"},"/b"],"text":"/c","path":["/c"],
            "locations":[{"path":"\/c\/z","line":1},{"title":"/c","path":"/c"}],"_meta":{"path":"/c","a":[{"cwd":"/c"}]},
            "rawInput":{"path":"/c"},"content":{"uri":"file:///c","text":"{\"path\":\"/c\"}"},"\u0063wd":"/c/v"}"#;
        let expected = line
            .replace(
                r#""cwd":"/c/x","additionalDirectories":["/c",{"path":"/c/y"}"#,
                r#""cwd":"/a/x","additionalDirectories":["/a",{"path":"/a/y"}"#,
            )
            .replace(r#""path":"\/c\/z""#, r#""path":"/a/z""#)
            .replace(r#""title":"/c","path":"/c""#, r#""title":"/c","path":"/a""#)
            .replace("file:///c", "file:///a")
            .replace("\"/c/v\"", "\"/a/v\"");
        let mapped = map.line(Side::Client, line.as_bytes(), LIMIT).unwrap().unwrap();
        assert_eq!(String::from_utf8(mapped).unwrap(), expected);
        let strict =
            |line: &str| map.clone().strict().line(Side::Client, line.as_bytes(), LIMIT).map_err(text_of);
        assert!(strict(line).is_err());
        for relative in ["c", "", "../c", r"\c", "C:c", " /c", "~/c"] {
            for line in [json!({"path": relative}), json!({"additionalDirectories": ["/c", relative]})] {
                let line = line.to_string();
                assert!(map.line(Side::Client, line.as_bytes(), LIMIT).is_ok(), "{line}");
                assert!(
                    strict(&line).is_err_and(|fault| fault.starts_with(&format!("{relative} is outside")))
                );
            }
        }
        // No paths.
        for line in [r#"{"path":null,"uri":"https://a","cwd":null}"#, r#"{"name":"cwd","text":"a"}"#] {
            assert_eq!(strict(line), Ok(None));
        }
    }

    #[test]
    fn a_strict_map_passes_no_value_that_another_program_may_read_as_a_path() {
        let map = PathMap::new().map("/c", "/a");
        for (line, part) in [
            (r#"{"path":["/etc"]}"#, "["),
            (r#"{"oldPath":{"a":"/etc"}}"#, "{"),
            (r#"{"cwd":7}"#, "7"),
            (r#"{"uri":["file:///etc"]}"#, "["),
            (r#"{"path":"/a/\ud800"}"#, r#""/a/\ud800""#),
            (r#"{"additionalDirectories":"/etc"}"#, r#""/etc""#),
            (r#"{"additionalDirectories":["/a",["/etc"]]}"#, "["),
            (r#"{"additionalDirectories":["/a",{"path":"/a"}]}"#, "{"),
            // Names in another case, with the long s, and with half of a pair.
            (r#"{"a":[{"PATH":"/a"}]}"#, r#""PATH""#),
            (r#"{"\u0043wd":"/a"}"#, r#""\u0043wd""#),
            (r#"{"additionalDirectorieſ":["/a"]}"#, r#""additionalDirectorieſ""#),
            (r#"{"pa\ud800th":"/a"}"#, r#""pa\ud800th""#),
        ] {
            let fault =
                text_of(map.clone().strict().line(Side::Agent, line.as_bytes(), LIMIT).expect_err(line));
            assert!(fault.starts_with(&format!("the proxy cannot read a path at {part};")), "{fault}");
            assert!(map.line(Side::Agent, line.as_bytes(), LIMIT).is_ok(), "{line}");
            let opaque = format!(r#"{{"_meta":{line},"rawInput":[{line}]}}"#);
            assert_eq!(map.clone().strict().line(Side::Agent, opaque.as_bytes(), LIMIT), Ok(None));
        }
    }

    #[test]
    fn a_message_is_mapped_or_refused_without_a_chain() {
        let strict = PathMap::new().map("/c", "/a").strict();
        let map = |line: &str| {
            let mapped = strict.map_line(Side::Agent, line.as_bytes(), &Limits::default());
            mapped.map(|line| line.map(|line| String::from_utf8(line).unwrap())).map_err(|error| error.code)
        };
        let read = |params: &str| {
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"fs/read_text_file","params":{params}}}"#)
        };
        assert_eq!(map(&read(r#"{"path":"/a/x"}"#)), Ok(Some(read(r#"{"path":"/c/x"}"#))));
        for params in [r#"["s","/etc/passwd"]"#, r#"{"path":"/etc/passwd"}"#] {
            assert_eq!(map(&read(params)), Err(ErrorCode::INVALID_PARAMS));
        }
        // A notification with such params is dropped, and the path of another one stays as it is.
        let notification = |params: &str| read(params).replace(r#""id":1,"#, "");
        assert!(map(&notification("[]")).is_err());
        assert_eq!(map(&notification(r#"{"path":"/etc"}"#)), Ok(None));
        assert_eq!(map(&read("{\r}")), Err(ErrorCode::INVALID_REQUEST));
        let doubled = read("{}").replace(r#""id""#, r#""Method":"a","id""#);
        let error = strict.map_line(Side::Agent, doubled.as_bytes(), &Limits::default()).unwrap_err();
        assert!(error.message.contains("in another case"), "{error}");
        for line in ["no message", "[]", "", &read("[]").replace("fs/", "_fs/")] {
            assert_eq!(map(line), Ok(None));
        }
    }

    #[test]
    fn a_folder_that_leads_out_of_itself_is_not_mapped() {
        let map = PathMap::new().map("/c", "/a/../..").map("/b/..", "/d");
        for (from, path) in [(Side::Client, "/c/x"), (Side::Agent, "/a/../../x"), (Side::Agent, "/d/x")] {
            assert_eq!(map.mapped(from, path), None, "{path}");
        }
    }
}
