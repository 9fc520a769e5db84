//! Signed messages: one canonical form, and none other passes for what was signed.

use std::time::{Duration, SystemTime};

use duologue_exchange::dialogue::{Key, fuzzing, sign};
use duologue_schema::Json;
use duologue_schema::dialogue::{DialogueMessage, MessageType};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::input::Input;
use crate::marked::is_marked;

const SENDER: &str = "agent://buyer.example";
const RECIPIENT: &str = "agent://seller.example";

/// A place, what is put there, and JSON for the message to hold.
pub fn check(input: &[u8]) {
    let mut input = Input::new(input);
    let place = usize::from(u16::from_le_bytes([input.byte(), input.byte()]));
    let (byte, length) = (input.byte(), input.below(4));
    let Ok(json) = std::str::from_utf8(input.take(usize::MAX)) else { return };
    has_one_form(json);
    if let Ok(json) = serde_json::from_str::<&RawValue>(json) {
        holds_against_changes(json, place, byte, length);
    }
}

/// The canonical form is its own canonical form, and says what the text says.
fn has_one_form(json: &str) {
    let Ok(canonical) = fuzzing::canonical(json) else { return };
    assert_eq!(fuzzing::canonical(&canonical).as_ref(), Ok(&canonical));
    if is_marked(json) {
        return;
    }
    let value: Value = serde_json::from_str(json).expect("it has a canonical form");
    let same: Value = serde_json::from_str(&canonical).expect("the canonical form is JSON");
    assert!(is_same(&value, &same), "{json} became {canonical}");
}

/// Equal as far as doubles go: the canonical form has no other numbers.
fn is_same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left.as_f64() == right.as_f64(),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| is_same(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left.iter().all(|(key, left)| right.get(key).is_some_and(|right| is_same(left, right)))
        }
        _ => left == right,
    }
}

fn key() -> Key {
    Key::new("k", SENDER, [7; 32]).expect("a key")
}

fn is_taken(text: &str) -> bool {
    let Ok(json) = RawValue::from_string(text.to_owned()) else { return false };
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_772_366_400);
    fuzzing::is_taken(&RECIPIENT.into(), key(), &Json::from(json), now)
}

/// A signed message is taken. Once some bytes of it are others, it is refused, unless it says the same in
/// another spelling and carries the same signature.
fn holds_against_changes(json: &RawValue, place: usize, byte: u8, length: usize) {
    let mut message =
        DialogueMessage::new("m1", "s1", SENDER, RECIPIENT, "2026-03-01T12:00:00Z", 1, MessageType::Inform);
    message.content = message.content.parameter("x", Json::from(json.to_owned()));
    let Ok(signed) = sign(&message, &key()) else { return };
    assert!(is_taken(signed.get()), "{signed} is refused");

    let mut changed = signed.get().as_bytes().to_vec();
    let place = place % changed.len();
    match length {
        0 => changed.insert(place, byte),
        1 => changed[place] = byte,
        2 => {
            changed.remove(place);
        }
        _ => changed[place] ^= 1 << (byte % 8),
    }
    let Ok(changed) = String::from_utf8(changed) else { return };
    if is_taken(&changed) {
        let form = |text: &str| fuzzing::canonical(text).expect("a message that is taken");
        assert_eq!(form(&changed), form(signed.get()), "another message is taken");
    }
}
