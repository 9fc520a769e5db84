//! The folders and programs that the sessions of an agent may use.

use std::path::{Component, Path, PathBuf};

use duologue_rpc::raw_message::{is_similar_name, similar_members};
use duologue_schema::{
    CancelNotification, Notification as _, PromptRequest, Request as _, SetSessionConfigOptionRequest,
    SetSessionModeRequest,
};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::error::Error;
use crate::picture::SET_MODEL;

/// The folders and programs that the sessions of an agent may use.
///
/// It checks the params that open a session. It is no sandbox: the agent itself can use whatever its account may.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SessionPolicy {
    /// The folders that may be the `cwd` or an additional directory, with everything in them. `None` allows all.
    pub roots: Option<Vec<PathBuf>>,
    /// Refuses MCP servers that are programs, because the agent starts them.
    pub refuses_mcp_programs: bool,
    /// The keys of `_meta` that reach the agent when a client opens a session, beside those of a trace (`traceparent`,
    /// `tracestate` and `baggage`). Others are removed: some agents read settings from them, such as programs to run. `None`
    /// passes all.
    pub meta: Option<Vec<String>>,
}

/// The keys of `_meta` with the context of a trace, which the protocol reserves.
const TRACE: [&str; 3] = ["traceparent", "tracestate", "baggage"];

impl SessionPolicy {
    /// Removes the members of `_meta` that do not reach the agent, also from MCP servers.
    pub(crate) fn filter(&self, params: &mut Value) {
        let Some(allowed) = &self.meta else { return };
        let servers = params.get_mut(SERVERS).and_then(Value::as_array_mut);
        servers.into_iter().flatten().for_each(|server| filter(allowed, server));
        filter(allowed, params);
    }

    /// Checks the params of `session/new`, `session/load` or `session/resume`. It reads folders, so it blocks.
    ///
    /// # Errors
    ///
    /// [`Error::NotAllowed`] with the folder, the program, or a member that an agent could read in another way.
    pub(crate) fn check(&self, params: &Value) -> Result<(), Error> {
        if let Some(roots) = &self.roots {
            refuse_similar(params, CWD)?;
            for folder in params.get(CWD).into_iter().chain(list(params, FOLDERS)?) {
                let folder = folder.as_str().unwrap_or_default();
                if !is_inside(Path::new(folder), roots) {
                    let reason = format!(
                        "the folder {folder:?} is outside the folders of the agent; add it to `roots` on the server"
                    );
                    return Err(Error::NotAllowed { reason });
                }
            }
        }
        if self.meta.is_some() {
            refuse_similar(params, META)?;
        }
        if !self.refuses_mcp_programs && self.meta.is_none() {
            return Ok(());
        }
        let servers = list(params, SERVERS)?;
        for server in servers {
            ["command", "type", META].iter().try_for_each(|name| refuse_similar(server, name))?;
        }
        // A server without a type is a program. An agent may look for the command before the type.
        let is_program = |server: &&Value| match server.get("type") {
            _ if server.get("command").is_some() => true,
            None => true,
            Some(kind) => !matches!(kind.as_str(), Some("http" | "sse")),
        };
        match servers.iter().filter(|_| self.refuses_mcp_programs).find(is_program) {
            Some(server) => {
                let reason = format!(
                    "the MCP server {} is a program; this server allows those with an address alone",
                    server["name"]
                );
                Err(Error::NotAllowed { reason })
            }
            None => Ok(()),
        }
    }
}

/// The member of params for extensions.
const META: &str = "_meta";
/// The members of params that name the folders of a session.
const CWD: &str = "cwd";
const FOLDERS: &str = "additionalDirectories";
/// The member of params with MCP servers.
const SERVERS: &str = "mcpServers";

/// Returns the items of a list, which can be absent. A value of another shape would reach the agent unchecked.
fn list<'a>(params: &'a Value, name: &str) -> Result<&'a [Value], Error> {
    refuse_similar(params, name)?;
    match params.get(name) {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(items)) => Ok(items),
        Some(_) => Err(Error::NotAllowed { reason: format!("`{name}` has to be an array") }),
    }
}

/// Refuses an object with a member that some programs take for `name`. It would reach the agent unchecked. In the official
/// Python SDK `_meta` has another name too.
fn refuse_similar(object: &Value, name: &str) -> Result<(), Error> {
    let mut keys = object.as_object().into_iter().flat_map(|object| object.keys());
    let is_meta = |key: &str| name == META && is_similar_name(key, "field_meta");
    match keys.find(|key| *key != name && (is_similar_name(key, name) || is_meta(key))) {
        Some(key) => {
            Err(Error::NotAllowed { reason: format!("the params have {key:?}; the member is `{name}`") })
        }
        None => Ok(()),
    }
}

/// Removes the members of `_meta` that are not allowed.
fn filter(allowed: &[String], value: &mut Value) {
    let Some(meta) = value.get_mut(META) else { return };
    match meta.as_object_mut() {
        Some(meta) => meta.retain(|key, _| {
            let passes = allowed.contains(key) || TRACE.contains(&key.as_str());
            if !passes {
                tracing::info!(
                    ?key,
                    "a member of `_meta` does not reach the agent; `meta` names those that do"
                );
            }
            passes
        }),
        None => *meta = Value::Null,
    }
}

/// The requests and notifications of a client that an agent receives in an open session, beside those with an own name.
/// Every other method is answered by the hub or refused, because later drafts have methods that open sessions.
const PASSED: [&str; 5] = [
    PromptRequest::METHOD,
    CancelNotification::METHOD,
    SetSessionModeRequest::METHOD,
    SetSessionConfigOptionRequest::METHOD,
    SET_MODEL,
];

/// The members of params that [`SessionPolicy`] checks.
const CHECKED: [&str; 3] = [CWD, FOLDERS, SERVERS];

/// Returns true for a message of a client that an agent receives in an open session. One with params that would open
/// another session is not passed on under any name.
pub(crate) fn passes(method: &str, params: Option<&RawValue>) -> bool {
    if !method.starts_with('_') {
        return PASSED.contains(&method);
    }
    let params = params.map(|params| params.get().as_bytes()).unwrap_or_default();
    similar_members(params, &CHECKED).next().is_none()
}

/// Returns true for a folder that is in one of the roots after its links are resolved. One that does not exist is in none.
fn is_inside(folder: &Path, roots: &[PathBuf]) -> bool {
    if !folder.is_absolute() || folder.components().any(|component| component == Component::ParentDir) {
        return false;
    }
    let Ok(folder) = folder.canonicalize() else { return false };
    folder.is_dir() && roots.iter().any(|root| root.canonicalize().is_ok_and(|root| folder.starts_with(root)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn members_of_meta_pass_by_name() {
        let params =
            json!({"cwd": "/", "_meta": {"traceparent": "00", "theme": 1, "agent": {"command": "sh"}}});
        let filtered = |policy: &SessionPolicy, params: &Value| {
            let mut params = params.clone();
            policy.filter(&mut params);
            params["_meta"].clone()
        };
        let named = |names: &[&str]| SessionPolicy {
            meta: Some(names.iter().map(|name| (*name).to_owned()).collect()),
            ..SessionPolicy::default()
        };
        assert_eq!(filtered(&SessionPolicy::default(), &params), params["_meta"]);
        assert_eq!(filtered(&named(&[]), &params), json!({"traceparent": "00"}));
        assert_eq!(filtered(&named(&["theme"]), &params), json!({"traceparent": "00", "theme": 1}));
        assert_eq!(filtered(&named(&[]), &json!({"_meta": "sh"})), Value::Null);
        assert_eq!(filtered(&named(&[]), &json!({})), Value::Null);
    }

    #[test]
    fn folders_are_inside_the_roots_after_links() {
        let root = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let inner = root.path().join("a");
        std::fs::create_dir(&inner).unwrap();
        std::fs::write(root.path().join("file"), "").unwrap();
        #[cfg(unix)]
        std::os::unix::fs::symlink(outside.path(), root.path().join("link")).unwrap();
        let policy = SessionPolicy { roots: Some(vec![root.path().into()]), ..SessionPolicy::default() };
        let sibling = format!("{}-more", root.path().display());
        std::fs::create_dir(&sibling).unwrap();
        let dotted = format!("{}/..", inner.display());
        for (cwd, is_allowed) in [
            (root.path().to_str().unwrap(), true),
            (inner.to_str().unwrap(), true),
            (outside.path().to_str().unwrap(), false),
            (root.path().join("link").to_str().unwrap(), false),
            (root.path().join("missing").to_str().unwrap(), false),
            (root.path().join("file").to_str().unwrap(), false),
            (&sibling, false),
            (&dotted, false),
            ("a", false),
            ("", false),
        ] {
            assert_eq!(policy.check(&json!({"cwd": cwd})).is_ok(), is_allowed, "{cwd}");
            let additional = json!({"cwd": root.path(), "additionalDirectories": [cwd]});
            assert_eq!(policy.check(&additional).is_ok(), is_allowed, "{cwd}");
        }
        std::fs::remove_dir(&sibling).unwrap();
        assert!(policy.check(&json!({"cwd": 7})).is_err());
    }

    /// Some agents read names without case, or the members of an object where an array is expected.
    #[test]
    fn nothing_reaches_an_agent_under_a_similar_name() {
        let root = tempfile::tempdir().unwrap();
        let roots = SessionPolicy { roots: Some(vec![root.path().into()]), ..SessionPolicy::default() };
        let programs = SessionPolicy { refuses_mcp_programs: true, ..SessionPolicy::default() };
        let meta = SessionPolicy { meta: Some(Vec::new()), ..SessionPolicy::default() };
        let cwd = root.path();
        for (policy, params) in [
            (&roots, json!({"Cwd": "/"})),
            (&roots, json!({"cwd": cwd, "additionaldirectories": ["/"]})),
            (&roots, json!({"cwd": cwd, "additionalDirectories": "/"})),
            (&roots, json!({"cwd": cwd, "additionalDirectories": {"a": "/"}})),
            (&programs, json!({"mcpservers": [{"name": "a", "command": "sh"}]})),
            (&programs, json!({"mcpServers": {"a": {"command": "sh"}}})),
            (&programs, json!({"mcp_servers": [{"command": "sh"}]})),
            (&roots, json!({"cwd": cwd, "additional_directories": ["/"]})),
            (&meta, json!({"field_meta": {"agent": {"command": "sh"}}})),
            (
                &programs,
                json!({"mcpServers": [{"type": "http", "url": "https://example.com", "Command": "sh"}]}),
            ),
            (&meta, json!({"_Meta": {"agent": {"command": "sh"}}})),
            (&meta, json!({"mcpServers": [{"type": "http", "url": "https://example.com", "_META": {}}]})),
        ] {
            assert!(policy.check(&params).is_err(), "{params}");
            assert!(SessionPolicy::default().check(&params).is_ok(), "{params}");
        }
        let null = json!({"cwd": cwd, "additionalDirectories": null, "mcpServers": null, "_meta": null});
        assert!([&roots, &programs, &meta].iter().all(|policy| policy.check(&null).is_ok()));
    }

    #[test]
    fn methods_that_could_open_a_session_are_not_passed_on() {
        let params = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        for (method, text, expected) in [
            ("session/prompt", "{}", true),
            ("session/cancel", "{}", true),
            ("session/set_mode", "{}", true),
            ("session/set_config_option", "{}", true),
            ("session/set_model", "{}", true),
            ("session/fork", "{}", false),
            ("session/later", "{}", false),
            ("later/method", "{}", false),
            ("_session/query", r#"{"sessionId":"s"}"#, true),
            ("_example/open", r#"{"cwd":"/"}"#, false),
            ("_example/open", r#"{"additional\u0044irectories":[]}"#, false),
            ("_example/open", r#"{"mcpServers":[]}"#, false),
            ("_example/open", r#"{"Cwd":"/"}"#, false),
            ("_example/open", r#"{"mcp_servers":[]}"#, false),
            ("_example/open", r#"{"mcp\u017fervers":[]}"#, false),
        ] {
            assert_eq!(passes(method, Some(&params(text))), expected, "{method} {text}");
        }
        assert!(passes("_example/ping", None));
    }

    #[test]
    fn programs_as_mcp_servers_can_be_refused() {
        let policy = SessionPolicy { refuses_mcp_programs: true, ..SessionPolicy::default() };
        for (server, is_allowed) in [
            (json!({"name": "a", "command": "/bin/sh", "args": [], "env": []}), false),
            (json!({"type": "stdio", "name": "a", "command": "/bin/sh"}), false),
            (json!({"type": "later", "name": "a", "command": "/bin/sh"}), false),
            (json!({"type": null, "name": "a", "command": "/bin/sh"}), false),
            (json!({"type": "http", "name": "a", "url": "https://example.com", "command": "/bin/sh"}), false),
            (json!({"type": "http", "name": "a", "url": "https://example.com", "headers": []}), true),
            (json!({"type": "sse", "name": "a", "url": "https://example.com", "headers": []}), true),
        ] {
            assert_eq!(policy.check(&json!({"mcpServers": [server]})).is_ok(), is_allowed, "{server}");
            assert!(SessionPolicy::default().check(&json!({"mcpServers": [server]})).is_ok());
        }
    }
}
