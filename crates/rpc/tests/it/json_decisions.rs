//! The JSON parser's decisions over a connection: the inputs of JSONTestSuite as params.
//!
//! All of `y_` are accepted, and all of `n_` rejected. For `i_`, on which parsers may differ, the decisions are written down
//! here and change only on purpose.

use duologue_rpc::{Incoming, Limits, PeerBuilder, Responder, Service};
use duologue_schema::Error;
use serde_json::{Value, json};

use duologue_test_support::{Wire, in_time, measured};

const TABLE: &str = include_str!("../../../../fuzz/seeds/json.jsonl");

/// Of `i_`, these are refused; the others are taken. Numbers that no double holds are taken since they stay text
/// until somebody reads them, halves of surrogate pairs since they become U+FFFD.
const REFUSED: [&str; 15] = [
    "i_string_UTF-16LE_with_BOM",
    "i_string_UTF-8_invalid_sequence",
    "i_string_UTF8_surrogate_U+D800",
    "i_string_invalid_utf-8",
    "i_string_iso_latin_1",
    "i_string_lone_utf8_continuation_byte",
    "i_string_not_in_unicode_range",
    "i_string_overlong_sequence_2_bytes",
    "i_string_overlong_sequence_6_bytes",
    "i_string_overlong_sequence_6_bytes_null",
    "i_string_truncated-utf-8",
    "i_string_utf16BE_no_BOM",
    "i_string_utf16LE_no_BOM",
    "i_structure_500_nested_arrays",
    // As params it does not stand at the beginning of a line, where it would be passed over.
    "i_structure_UTF-8_BOM_empty_object",
];

/// Takes every request, and reads nothing of it: params stay text until somebody knows what they are.
struct Anything;

impl Service for Anything {
    fn request(&self, _: Incoming<'_>, responder: Responder) {
        responder.respond(Ok::<_, Error>("taken"));
    }

    fn notification(&self, _: Incoming<'_>) {}
}

/// The same table as the fuzz targets begin with: text, or a list of text, bytes and `{"times", "of"}`.
fn bytes(input: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in input.as_array().map_or(std::slice::from_ref(input), Vec::as_slice) {
        match part {
            Value::String(text) => bytes.extend(text.bytes()),
            Value::Number(byte) => bytes.push(u8::try_from(byte.as_u64().expect("a byte")).expect("a byte")),
            repeated => {
                let times = usize::try_from(repeated["times"].as_u64().expect("a number")).expect("small");
                bytes.extend(repeated["of"].as_str().expect("text").repeat(times).bytes());
            }
        }
    }
    bytes
}

#[tokio::test]
async fn json_is_taken_and_nothing_else() {
    in_time(async {
        let (transport, mut peer) = Wire::Memory.scripted();
        // Every invalid line gets a response, not only ten in a row.
        let mut limits = Limits::default();
        limits.parse_errors_in_a_row = u32::MAX;
        let _peer = PeerBuilder::new(transport).answer_noise(true).limits(limits).start(|_| Anything);
        let (mut taken, mut refused, mut wrong) = ([0, 0], [0, 0], Vec::new());
        for row in TABLE.lines() {
            let row: Value = serde_json::from_str(row).expect("a row");
            let name = row["name"].as_str().expect("a name");
            let mut input = bytes(&row["input"]);
            if name.starts_with("y_") {
                // A message is one line; in JSON line ends are only ever white space.
                input.iter_mut().filter(|byte| **byte == b'\n').for_each(|byte| *byte = b' ');
            }
            peer.write(
                [br#"{"jsonrpc":"2.0","id":"case","method":"m","params":{"json":"#, &*input, b"}}\n"]
                    .concat(),
            )
            .await;
            peer.send(json!({"jsonrpc": "2.0", "id": "next", "method": "m"})).await;
            let (mut result, mut errors) = (false, 0);
            loop {
                let answer = peer.next_message().await;
                match (answer["id"].as_str(), answer.get("result")) {
                    (Some("next"), _) => break,
                    (Some("case"), Some(_)) => result = true,
                    _ => errors += 1,
                }
            }
            assert_eq!(result, errors == 0, "{name}: one answer, unless it has a line end in it");
            let (wanted, kind) = match name.get(..2).unwrap_or_default() {
                "y_" => (true, 0),
                "n_" => (false, 0),
                _ => (!REFUSED.contains(&name), 1),
            };
            (if result { &mut taken } else { &mut refused })[kind] += 1;
            if result != wanted {
                wrong.push(name.to_owned());
            }
        }
        measured(format_args!(
            "{}/95 y taken, {}/188 n refused, 35 i as written down ({} taken, {} refused)",
            taken[0], refused[0], taken[1], refused[1],
        ));
        assert_eq!(wrong, [""; 0], "decided otherwise");
        assert_eq!((taken[0], refused[0], taken[1] + refused[1]), (95, 188, 35));
    })
    .await;
}
