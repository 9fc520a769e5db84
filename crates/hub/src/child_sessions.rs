//! The child sessions of a session (RFD 0019): their ids for clients, and the session ids in the messages of an agent.
//!
//! An agent names its children as it likes. A client sees a child under the id of its session, `~`, and the position of the
//! record that names the child first. So no child has the id of another session, and the id shows its session.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use duologue_rpc::raw_message::{member, member_text, position, text};
use duologue_schema::{CHILD_SESSIONS, SessionId};
use memchr::memmem;
use serde_json::value::RawValue;

/// The children that the agent has named, by their ids at the agent.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChildSessions {
    known: HashMap<String, u64>,
    /// Their ids, the one that was named first at the front.
    order: VecDeque<String>,
}

impl ChildSessions {
    /// Limit on the children whose ids are kept. An older one gets another id when it is named again.
    const KNOWN: usize = CHILD_SESSIONS;
    /// Limit on the id at the agent in bytes. The server passes on no message with a longer one.
    pub(crate) const ID_BYTES: usize = 256;

    /// Returns the position of the record that names a child.
    pub(crate) fn position(&self, agent_id: &str) -> Option<u64> {
        self.known.get(agent_id).copied()
    }

    /// Returns the id at the agent of the child that a record names.
    pub(crate) fn agent_id(&self, position: u64) -> Option<&str> {
        self.known.iter().find(|(_, known)| **known == position).map(|(id, _)| id.as_str())
    }

    pub(crate) fn insert(&mut self, agent_id: String, position: u64) {
        if self.known.insert(agent_id.clone(), position).is_none() {
            self.order.push_back(agent_id);
        }
        if self.order.len() > Self::KNOWN
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}

/// Returns the id of a child for clients.
pub(crate) fn child_id(session: &SessionId, position: u64) -> String {
    format!("{session}~{position}")
}

/// Returns the position of the record that names a child of the session, from its id for clients.
pub(crate) fn child_position(session: &SessionId, id: &str) -> Option<u64> {
    id.strip_prefix(session.as_str())?.strip_prefix('~')?.parse().ok()
}

/// Returns true for the id of the session or of one of its children.
pub(crate) fn is_in_session(session: &SessionId, id: &str) -> bool {
    id == session.as_str() || child_position(session, id).is_some()
}

/// A part of a line, and the text in its place.
type Edit = (Range<usize>, Vec<u8>);

/// Replaces the session ids in a message of an agent: those of its params, of updates about other sessions, and of the data of
/// an error. Returns `None` if none is replaced.
pub(crate) fn with_session_ids(
    line: &[u8],
    mut replace: impl FnMut(&str) -> Option<String>,
) -> Option<Vec<u8>> {
    let mut edits = Vec::new();
    let mut edit = |object: &Range<usize>, name: &str| {
        let Some(id) = member_within(line, object, name) else { return };
        let new = line.get(id.clone()).and_then(text).and_then(|id| replace(&id));
        edits.extend(new.and_then(|new| Some((id, serde_json::to_vec(&new).ok()?))));
    };
    let Some(params) = member(line, "params") else {
        let data = member_within(line, &member(line, "error")?, "data")?;
        edit(&data, "sessionId");
        return edited(line, edits);
    };
    edit(&params, "sessionId");
    // Most messages name one session. Only an escape can write the name in another way.
    let has_others =
        memmem::find_iter(line, b"essionId\"").nth(1).is_some() || memmem::find(line, b"\\u").is_some();
    if has_others {
        if let Some(update) = member_within(line, &params, "update") {
            match update_kind(line, &update).as_deref() {
                Some("subagent_update") => edit(&update, "sessionId"),
                Some("session_message") => {
                    edit(&update, "senderSessionId");
                    edit(&update, "recipientSessionId");
                }
                Some("tool_call" | "tool_call_update") => {
                    session_references(line, &update).iter().for_each(|item| edit(item, "sessionId"));
                }
                _ => {}
            }
        }
        if let Some(call) = member_within(line, &params, "toolCall") {
            session_references(line, &call).iter().for_each(|item| edit(item, "sessionId"));
        }
    }
    edited(line, edits)
}

/// A message of an agent for a client without child sessions.
pub(crate) enum WithoutChildren {
    Same,
    Changed(Vec<u8>),
    /// The message is about a child. Requests are never dropped.
    Dropped,
}

/// Returns a message of the agent for a client that does not show child sessions. A request of a child is one of its session.
pub(crate) fn without_children(session: &SessionId, line: &[u8]) -> WithoutChildren {
    let names_child =
        memmem::find(line, b"~").is_some() && memmem::find(line, session.as_str().as_bytes()).is_some();
    if !names_child && memmem::find(line, b"session_message").is_none() {
        return WithoutChildren::Same;
    }
    let Some(params) = member(line, "params") else { return WithoutChildren::Same };
    let mut edits = Vec::new();
    if let Some(place) = member_within(line, &params, "sessionId")
        && let Some(id) = line.get(place.clone()).and_then(text)
        && child_position(session, &id).is_some()
    {
        if member(line, "id").is_none() {
            return WithoutChildren::Dropped;
        }
        edits.extend(serde_json::to_vec(session).ok().map(|session| (place, session)));
    }
    let update = member_within(line, &params, "update");
    match update.as_ref().and_then(|update| update_kind(line, update)).as_deref() {
        Some("subagent_update" | "session_message" | "session_message_chunk") => {
            return WithoutChildren::Dropped;
        }
        Some("tool_call" | "tool_call_update") => {
            edits.extend(update.and_then(|update| without_references(line, &update)));
        }
        _ => {}
    }
    let call = member_within(line, &params, "toolCall");
    edits.extend(call.and_then(|call| without_references(line, &call)));
    edited(line, edits).map_or(WithoutChildren::Same, WithoutChildren::Changed)
}

fn update_kind<'a>(line: &'a [u8], update: &Range<usize>) -> Option<std::borrow::Cow<'a, str>> {
    member_text(line.get(update.clone())?, "sessionUpdate")
}

/// The content of a tool call: its position in the line, and its items.
type CallContent<'a> = (Range<usize>, Vec<&'a RawValue>);

fn call_content<'a>(line: &'a [u8], call: &Range<usize>) -> Option<CallContent<'a>> {
    let content = member_within(line, call, "content")?;
    let items = serde_json::from_slice(line.get(content.clone())?).ok()?;
    Some((content, items))
}

fn is_reference(item: &RawValue) -> bool {
    member_text(item.get().as_bytes(), "type").as_deref() == Some("session")
}

/// Returns the places of the references to sessions in the content of a tool call.
fn session_references(line: &[u8], call: &Range<usize>) -> Vec<Range<usize>> {
    let (_, items) = call_content(line, call).unwrap_or_default();
    let references = items.into_iter().filter(|item| is_reference(item));
    references.filter_map(|item| position(line, item.get())).collect()
}

/// Returns the edit that removes the references to sessions from the content of a tool call, if it has any.
fn without_references(line: &[u8], call: &Range<usize>) -> Option<Edit> {
    let (content, items) = call_content(line, call)?;
    let kept: Vec<&str> = items.iter().filter(|item| !is_reference(item)).map(|item| item.get()).collect();
    (kept.len() < items.len()).then(|| (content, format!("[{}]", kept.join(",")).into_bytes()))
}

/// Returns the position of a member's value in a line, from the position of its object.
fn member_within(line: &[u8], object: &Range<usize>, name: &str) -> Option<Range<usize>> {
    let found = member(line.get(object.clone())?, name)?;
    Some(object.start + found.start..object.start + found.end)
}

fn edited(line: &[u8], mut edits: Vec<Edit>) -> Option<Vec<u8>> {
    if edits.is_empty() {
        return None;
    }
    edits.sort_by_key(|(place, _)| place.start);
    let (mut changed, mut end) = (Vec::with_capacity(line.len() + 64), 0);
    for (place, new) in edits {
        changed.extend_from_slice(line.get(end..place.start)?);
        changed.extend(new);
        end = place.end;
    }
    changed.extend_from_slice(line.get(end..)?);
    Some(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(line: &str) -> Option<String> {
        let replaced = with_session_ids(line.as_bytes(), |id| (id != "own").then(|| format!("<{id}>")));
        replaced.map(|line| String::from_utf8(line).unwrap())
    }

    fn update(session: &str, update: &str) -> String {
        format!(r#"{{"method":"session/update","params":{{"sessionId":"{session}","update":{{{update}}}}}}}"#)
    }

    #[test]
    fn the_ids_of_sessions_are_replaced_where_the_protocol_has_them() {
        for (session, text, expected) in [
            ("own", r#""sessionUpdate":"x","sessionId":"c""#, None),
            ("c", r#""sessionUpdate":"x","n":1.50"#, Some(("<c>", r#""sessionUpdate":"x","n":1.50"#))),
            (
                "own",
                r#""sessionUpdate":"subagent_update", "sess\u0069onId":"c""#,
                Some(("own", r#""sessionUpdate":"subagent_update", "sess\u0069onId":"<c>""#)),
            ),
            (
                "own",
                r#""sessionUpdate":"session_message","senderSessionId":"c","recipientSessionId":"own""#,
                Some((
                    "own",
                    r#""sessionUpdate":"session_message","senderSessionId":"<c>","recipientSessionId":"own""#,
                )),
            ),
            (
                "own",
                r#""sessionUpdate":"tool_call","content":[{"type":"diff","sessionId":"c"},{"type":"session","sessionId":"c"}]"#,
                Some((
                    "own",
                    r#""sessionUpdate":"tool_call","content":[{"type":"diff","sessionId":"c"},{"type":"session","sessionId":"<c>"}]"#,
                )),
            ),
        ] {
            let expected = expected.map(|(session, text)| update(session, text));
            assert_eq!(replaced(&update(session, text)), expected);
        }
        let permission = |session: &str, id: &str| {
            let content = format!(r#"[{{"type":"session","sessionId":"{id}"}}]"#);
            format!(r#"{{"id":1,"params":{{"toolCall":{{"content":{content}}},"sessionId":"{session}"}}}}"#)
        };
        assert_eq!(replaced(&permission("c", "d")), Some(permission("<c>", "<d>")));
        let error =
            |id: &str| format!(r#"{{"id":1,"error":{{"code":-32002,"data":{{"sessionId":"{id}"}}}}}}"#);
        assert_eq!(replaced(&error("c")), Some(error("<c>")));
        assert_eq!(replaced(r#"{"id":1,"result":{"sessionId":"c"}}"#), None);
    }

    #[test]
    fn a_client_without_children_sees_none() {
        let shown = |line: &str| match without_children(&"s".into(), line.as_bytes()) {
            WithoutChildren::Same => Some(line.to_owned()),
            WithoutChildren::Changed(line) => Some(String::from_utf8(line).unwrap()),
            WithoutChildren::Dropped => None,
        };
        let own = update("s", r#""sessionUpdate":"agent_message_chunk","text":"~ s~4""#);
        assert_eq!(shown(&own), Some(own.clone()));
        assert_eq!(shown(&update("s~4", r#""sessionUpdate":"agent_message_chunk""#)), None);
        assert_eq!(shown(&update("s", r#""sessionUpdate":"subagent_update","sessionId":"s~4""#)), None);
        assert_eq!(shown(&update("s", r#""sessionUpdate":"session_message_chunk""#)), None);
        let call =
            |content: &str| update("s", &format!(r#""sessionUpdate":"tool_call","content":[{content}]"#));
        let reference = r#"{"type":"session","sessionId":"s~4"}"#;
        let others = [r#"{"type":"content","n":1.50}"#, r#"{"type":"diff"}"#];
        let all = [others[0], reference, others[1]].join(",");
        assert_eq!(shown(&call(&all)), Some(call(&others.join(","))));
        let request =
            |session: &str| format!(r#"{{"id":1,"params":{{"sessionId":"{session}","path":"/a"}}}}"#);
        assert_eq!(shown(&request("s~4")), Some(request("s")));
        assert_eq!(shown(&request("s~x")), Some(request("s~x")));
    }

    #[test]
    fn the_oldest_child_is_forgotten_first() {
        let mut children = ChildSessions::default();
        for position in 0..=ChildSessions::KNOWN as u64 {
            children.insert(position.to_string(), position);
        }
        assert_eq!((children.position("0"), children.position("1")), (None, Some(1)));
        assert_eq!((children.agent_id(0), children.agent_id(256)), (None, Some("256")));
        assert_eq!(child_position(&"s".into(), &child_id(&"s".into(), 7)), Some(7));
        assert!(is_in_session(&"s".into(), "s") && !is_in_session(&"s".into(), "st~1"));
    }
}
