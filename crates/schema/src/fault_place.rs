//! The place of an error in the text of params.

/// Limit on a name in a place, in bytes. A longer one is not a name of the protocol.
const NAME_BYTES: usize = 64;

/// An object or a list that is open.
enum OpenValue {
    /// The name of the member that was begun last.
    Object(String),
    /// The index of the item that was begun last.
    List(usize),
}

/// Returns the member and the index at which an error was found, such as `mcpServers[1].env[0]`. Empty for the text as a whole.
/// The names are those of the text, in which each that the protocol cannot have is replaced by `…`.
pub(crate) fn fault_place(text: &str, error: &serde_json::Error) -> String {
    let before: usize = text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
    let read = text.get(..before.saturating_add(error.column())).unwrap_or(text);
    let mut open = Vec::new();
    let mut is_name = false;
    let mut rest = read.char_indices();
    while let Some((at, char)) = rest.next() {
        match char {
            '{' => {
                open.push(OpenValue::Object(String::new()));
                is_name = true;
            }
            '[' => open.push(OpenValue::List(0)),
            '}' | ']' => _ = open.pop(),
            ',' => match open.last_mut() {
                Some(OpenValue::List(index)) => *index += 1,
                Some(OpenValue::Object(_)) => is_name = true,
                None => {}
            },
            ':' => is_name = false,
            '"' => {
                let mut end = read.len();
                while let Some((at, char)) = rest.next() {
                    match char {
                        '\\' => _ = rest.next(),
                        '"' => {
                            end = at;
                            break;
                        }
                        _ => {}
                    }
                }
                if let (true, Some(OpenValue::Object(name))) = (is_name, open.last_mut()) {
                    *name = read.get(at + 1..end).map(shown_name).unwrap_or_default();
                }
            }
            _ => {}
        }
    }
    let mut place = String::new();
    for value in open {
        match value {
            OpenValue::Object(name) if place.is_empty() => place = name,
            OpenValue::Object(name) => place.push_str(&format!(".{name}")),
            OpenValue::List(index) => place.push_str(&format!("[{index}]")),
        }
    }
    place
}

fn shown_name(name: &str) -> String {
    let is_known =
        name.len() <= NAME_BYTES && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if is_known { name.to_owned() } else { "…".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NewSessionRequest;

    #[test]
    fn an_error_is_placed_by_member_and_index() {
        let server = r#"{"name":"a","command":"/c","args":[],"env":[]}"#;
        for (servers, place) in [
            (r#"[{"name":"a"}]"#.to_owned(), "mcpServers[0]"),
            (format!("[{server},\n {server}, {{\"name\":\"a,[{{\\\"\",\"args\":[]}}]"), "mcpServers[2]"),
            ("7".to_owned(), "mcpServers"),
            ("[[]]".to_owned(), "mcpServers[0]"),
        ] {
            let text = format!(r#"{{"x":[{{"y":1}}],"mcpServers":{servers},"cwd":"/"}}"#);
            let error = serde_json::from_str::<NewSessionRequest>(&text).unwrap_err();
            assert_eq!(fault_place(&text, &error), place, "{text}: {error}");
        }
        let missing = serde_json::from_str::<NewSessionRequest>(r#"{"mcpServers":[]}"#).unwrap_err();
        assert_eq!(fault_place(r#"{"mcpServers":[]}"#, &missing), "");
        let hostile = format!(r#"{{"cwd":{{"{}":{{"a b":1}}}}}}"#, "k".repeat(100));
        let error = serde_json::from_str::<NewSessionRequest>(&hostile).unwrap_err();
        assert_eq!(fault_place(&hostile, &error), "cwd");
        assert_eq!(shown_name("a b"), "…");
    }
}
