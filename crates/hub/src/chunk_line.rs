//! The most frequent message of an agent, a chunk of text, in the form in which most agents write it. It is parsed once, when it
//! arrives. Everything else is read in the general way, with the same result.

use std::borrow::Cow;
use std::sync::LazyLock;

use duologue_rpc::Limits;
use duologue_rpc::raw_message::plain_params;
use duologue_schema::SessionId;
use memchr::memmem::Finder;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::cleared_messages::{StreamKind, StreamUpdate};

/// The beginning of an update up to its params.
const BEGINNING: &str = r#"{"jsonrpc":"2.0","method":"session/update","params":"#;
/// The beginning of the params up to the id of the session.
const PARAMS: &str = r#"{"sessionId":""#;
/// The members between the id of the session and the kind of a chunk.
const UPDATE: &str = r#"","update":{"sessionUpdate":"agent_"#;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Params<'a> {
    #[serde(rename = "sessionId", borrow)]
    session: Cow<'a, str>,
    #[serde(borrow)]
    update: Chunk<'a>,
    #[serde(default, rename = "_meta")]
    _meta: IgnoredAny,
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(rename = "sessionUpdate")]
    kind: ChunkKind,
    #[serde(rename = "messageId", borrow)]
    id: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum ChunkKind {
    AgentMessageChunk,
    AgentThoughtChunk,
}

/// Returns the chunk in a line of the agent, or `None` if another reader has to read the line.
pub(crate) fn read<'a>(line: &'a [u8], session: &SessionId) -> Option<StreamUpdate<'a>> {
    let params = plain_params(line, BEGINNING, &Limits::default())?;
    behind_kind(params.as_bytes(), session)?;
    let Params { session: named, update, .. } = serde_json::from_str(params).ok()?;
    let kind = match update.kind {
        ChunkKind::AgentMessageChunk => StreamKind::Message,
        ChunkKind::AgentThoughtChunk => StreamKind::Thought,
    };
    Some(StreamUpdate::of_chunk(kind, named, update.id))
}

/// Returns a line of the agent with another id of its session, if it names no other session.
pub(crate) fn with_session(line: &[u8], from: &str, to: &SessionId) -> Option<Vec<u8>> {
    /// The name of a session in any member, and names with escapes. Made once, because each line is searched.
    static SESSIONS: LazyLock<[Finder<'static>; 2]> =
        LazyLock::new(|| ["essionId\"", "\\u"].map(Finder::new));
    let rest = line.strip_prefix(BEGINNING.as_bytes())?.strip_prefix(PARAMS.as_bytes())?;
    let rest = rest.strip_prefix(from.as_bytes()).filter(|_| is_plain(from) && is_plain(to.as_str()))?;
    let names_others = || SESSIONS.iter().any(|name| name.find(rest).is_some());
    (rest.starts_with(b"\",") && !names_others())
        .then(|| [BEGINNING.as_bytes(), PARAMS.as_bytes(), to.as_str().as_bytes(), rest].concat())
}

/// Writes the record of a chunk.
pub(crate) fn record(at: u64, line: &[u8]) -> Vec<u8> {
    let mut record = Vec::with_capacity(line.len() + 64);
    record.extend_from_slice(format!(r#"{{"at":{at},"from":"agent","frame":"#).as_bytes());
    record.extend_from_slice(line);
    record.push(b'}');
    record
}

/// Returns the chunk in a record without an event, which is JSON, or `None` if another reader has to read the record.
pub(crate) fn of_record<'a>(record: &'a [u8], session: &SessionId) -> Option<&'a [u8]> {
    /// Members that a record with a chunk alone does not have: another kind, a tool call, the id of a request, an event, and names
    /// with escapes. Made once, because each record is searched.
    static OTHERS: LazyLock<[Finder<'static>; 5]> =
        LazyLock::new(|| ["\"sessionUpdate\"", "\"toolCall\"", "\"id\"", "\"hub\"", "\\u"].map(Finder::new));
    let rest = record.strip_prefix(br#"{"at":"#)?;
    let digits = rest.iter().position(|byte| !byte.is_ascii_digit())?;
    let frame = rest.get(digits..)?.strip_prefix(br#","from":"agent","frame":"#)?.strip_suffix(b"}")?;
    let rest = behind_kind(frame.strip_prefix(BEGINNING.as_bytes())?, session)?;
    OTHERS.iter().all(|other| other.find(rest).is_none()).then_some(frame)
}

/// Returns the rest of the params behind the kind, if they begin as those of a chunk of the session.
fn behind_kind<'a>(params: &'a [u8], session: &SessionId) -> Option<&'a [u8]> {
    let session = Some(session.as_str()).filter(|session| is_plain(session))?;
    let rest = params.strip_prefix(PARAMS.as_bytes())?.strip_prefix(session.as_bytes())?;
    let kind = rest.strip_prefix(UPDATE.as_bytes())?;
    kind.strip_prefix(b"message_chunk\"").or_else(|| kind.strip_prefix(b"thought_chunk\""))
}

/// Returns true for an id that JSON writes without escapes.
fn is_plain(id: &str) -> bool {
    id.bytes().all(|byte| byte >= b' ' && !matches!(byte, b'"' | b'\\'))
}

#[cfg(test)]
pub(crate) mod tests {
    use duologue_rpc::Limits;

    use super::*;
    use crate::input::{OwnerAction, OwnerInput};
    use crate::owner::{OwnerSettings, SessionOwner};

    /// Returns updates in the usual text, and others that look like them.
    pub(crate) fn updates() -> impl Iterator<Item = String> {
        let deep = format!(
            r#","content":{}1{}"#,
            "[".repeat(Limits::default().depth),
            "]".repeat(Limits::default().depth)
        );
        let heads = [
            BEGINNING,
            r#"{"method":"session/update","jsonrpc":"2.0","params":"#,
            r#"{"jsonrpc":"2.0","id":5,"method":"session/update","params":"#,
            r#"{"jsonrpc":"2.0","method":"session/\u0075pdate","params":"#,
        ];
        let sessions = [
            r#"{"sessionId":"s","#,
            r#"{"sessionId":"t","#,
            r#"{"sessionId":"s","sessionId":"t","#,
            r#"{"SessionId":"t","sessionId":"s","#,
            r#"{"requestId":1,"sessionId":"s","#,
            "{",
        ];
        let kinds = [
            "agent_message_chunk",
            "agent_thought_chunk",
            "user_message_chunk",
            "agent_message_clear",
            "plan",
        ];
        let members = [
            "".to_owned(),
            r#","messageId":"m","content":{"type":"text","text":"a"}"#.to_owned(),
            r#","messageId":null"#.to_owned(),
            r#","messageId":7"#.to_owned(),
            r#","messageId":"m","messageId":"n""#.to_owned(),
            r#","content":{"type":"text","text":"\u00e9"}"#.to_owned(),
            r#","content":{"type":"text","text":"\ud800"}"#.to_owned(),
            r#","content":{"text":"~ s~1 \"id\" \"hub\" notice"}"#.to_owned(),
            r#","_meta":{"id":1,"hub":{"event":"turn_ended"}}"#.to_owned(),
            r#","sessionUpdate":"plan""#.to_owned(),
            r#","senderSessionId":"t","sessionId":"u""#.to_owned(),
            r#","x":"#.to_owned(),
            deep,
        ];
        let tails = [
            "}}}",
            r#"},"_meta":{"a":1}}}"#,
            r#"},"id":7}}"#,
            r#"}},"id":9}"#,
            r#"}},"ID":9}"#,
            "}}} x",
            r#"}},"method":"a"}"#,
            r#"},"update":{}}}"#,
            r#"},"toolCall":{"content":[{"type":"session","sessionId":"s~1"}]}}}"#,
        ];
        heads.into_iter().flat_map(move |head| {
            let members = members.clone();
            sessions.into_iter().flat_map(move |session| {
                let members = members.clone();
                kinds.into_iter().flat_map(move |kind| {
                    members.clone().into_iter().flat_map(move |member| {
                        tails.map(|tail| {
                            format!(r#"{head}{session}"update":{{"sessionUpdate":"{kind}"{member}{tail}"#)
                        })
                    })
                })
            })
        })
    }

    #[test]
    fn a_chunk_has_the_effect_that_it_has_in_the_general_way() {
        let update = |kind: &str| {
            let update = format!(r#"{{"sessionUpdate":"{kind}","messageId":"m"}}"#);
            format!(r#"{BEGINNING}{{"sessionId":"s","update":{update}}}}}"#)
        };
        let mut count = 0;
        for line in updates() {
            for is_cleared in [false, true] {
                let owner = || {
                    let mut owner = SessionOwner::new("s".into(), OwnerSettings::default(), 0);
                    for kind in
                        ["agent_message_chunk", "agent_message_clear"].into_iter().filter(|_| is_cleared)
                    {
                        owner.handle(
                            std::time::Duration::ZERO,
                            OwnerInput::FromAgent(update(kind).as_bytes()),
                        );
                    }
                    owner
                };
                let (mut fast, mut general) = (owner(), owner());
                let mut actions =
                    fast.handle(std::time::Duration::ZERO, OwnerInput::FromAgent(line.as_bytes()));
                assert_eq!(actions, general.handle_in_the_general_way(line.as_bytes()), "{line}");
                count += usize::from(read(line.as_bytes(), &"s".into()).is_some());
                // The state is the same.
                for kind in ["agent_message_clear", "agent_message_chunk", "agent_thought_clear"] {
                    let input = update(kind);
                    actions = fast.handle(std::time::Duration::ZERO, OwnerInput::FromAgent(input.as_bytes()));
                    assert_eq!(actions, general.handle_in_the_general_way(input.as_bytes()), "{line}");
                }
                assert!(actions.iter().all(|action| matches!(action, OwnerAction::Append(_))));
            }
        }
        assert!(count > 50, "{count} chunks");
    }

    #[test]
    fn the_id_of_the_session_is_replaced_as_in_the_general_way() {
        let mut count = 0;
        for line in updates() {
            let general = crate::child_sessions::with_session_ids(line.as_bytes(), |id| {
                (id == "t").then(|| "u".to_owned())
            });
            if let Some(fast) = with_session(line.as_bytes(), "t", &"u".into()) {
                assert_eq!(Some(fast), general, "{line}");
                count += 1;
            }
        }
        assert!(count > 50, "{count} lines");
    }
}
