//! Tests of signatures: every altered message is rejected, and every spelling of the same message
//! is accepted.

use std::sync::Arc;
use std::time::SystemTime;

use duologue_schema::Json;
use duologue_schema::dialogue::DialogueMessage;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::dialogue::canonical::canonical;
use crate::dialogue::verify::{Verifier, VerifyOutcome};
use crate::dialogue::verify_error::VerifyError;
use crate::dialogue::{Key, Keys};

/// Signed by another program: Python's `hmac`, `json.dumps` and `base64`. The secret is the bytes 0
/// to 31.
const MESSAGE: &str = r#"{
    "message_id": "0d9f4c1e-7a52-4b7e-9d43-5b0c8e6f2a10", "session_id": "s1",
    "sender_id": "agent://buyer.example", "recipient_id": "agent://seller.example/sales",
    "timestamp": "2026-03-01T12:00:00Z", "interaction_step": 1,
    "message_type": "propose", "dialogue_act": "propose",
    "content": {
        "previous_context": [], "domain": "automotive.sales", "task": "negotiatePrice",
        "parameters": {"vin": "12345ABCDEFG67890", "offer": 16000, "deposit": 0.5},
        "natural_language": "16,000 € today?",
        "belief_updates": [
            {"entity": "vehicle:12345ABCDEFG67890", "attribute": "price", "value": 16000, "confidence": 1.0}
        ]
    },
    "metadata": {"priority": 4, "ttl": 300}
}"#;
const SIGNATURE: &str = "eyJhbGciOiJIUzI1NiIsImtpZCI6ImJ1eWVyLTEiLCJ0eXAiOiJkaWFsb2d1ZSJ9..pjAjfCQ3ZdrKSPRoxMCUR-lZG3aJdsVOM2ABBi0cX-4";

fn seller() -> Verifier {
    let keys = Keys::new();
    let secret: Vec<u8> = (0..32).collect();
    keys.insert(Key::new("buyer-1", "agent://buyer.example", secret).unwrap()).unwrap();
    Verifier::new("agent://seller.example/sales").since(SystemTime::UNIX_EPOCH).keys(Arc::new(keys))
}

fn now() -> SystemTime {
    "2026-03-01T12:00:30Z".parse::<jiff::Timestamp>().unwrap().into()
}

fn message() -> Value {
    serde_json::from_str(MESSAGE).unwrap()
}

fn signed(mut message: Value) -> Value {
    message["signature"] = SIGNATURE.into();
    message
}

/// Verifies a message with an empty replay cache.
fn verify(text: String) -> Result<VerifyOutcome, VerifyError> {
    seller().verify(&Json::from(serde_json::value::RawValue::from_string(text).unwrap()), 0, now())
}

fn is_taken(message: &Value) -> bool {
    verify(message.to_string()).is_ok()
}

#[test]
fn signatures_match_another_implementation() {
    assert!(is_taken(&signed(message())));
    let sender = Verifier::new("agent://buyer.example").keys({
        let keys = Keys::new();
        let secret: Vec<u8> = (0..32).collect();
        keys.insert(Key::new("buyer-1", "agent://buyer.example", secret).unwrap()).unwrap();
        Arc::new(keys)
    });
    let json = sender.sign(&serde_json::from_str(MESSAGE).unwrap(), now()).unwrap();
    assert_eq!(json.parse::<Value>().unwrap()["signature"], SIGNATURE);
}

/// Adds the signature to a canonical form, which may have been altered.
fn with_signature(canonical: &str) -> Option<String> {
    let open = canonical.strip_suffix('}')?;
    let text = format!("{open},\"signature\":\"{SIGNATURE}\"}}");
    serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok().then_some(text)
}

/// Replaces a byte. Text that is no longer JSON is skipped. Other text must be rejected, unless it
/// is another spelling of the same message, such as `1E+30` for `1e+30`.
fn refused_with(bytes: &[u8], at: usize, byte: u8) {
    let mut altered = bytes.to_owned();
    altered[at] = byte;
    let Ok(altered) = String::from_utf8(altered) else { return };
    let Some(text) = with_signature(&altered) else { return };
    let same = canonical(&altered).is_ok_and(|canonical| canonical.as_bytes() == bytes);
    assert_eq!(verify(text).is_ok(), same, "{altered}");
}

#[test]
fn every_changed_byte_of_the_canonical_form_is_rejected() {
    let bytes = canonical(MESSAGE).unwrap().into_bytes();
    assert!(verify(with_signature(std::str::from_utf8(&bytes).unwrap()).unwrap()).is_ok());
    for at in 0..bytes.len() {
        // Every bit once, and bytes that keep the text plausible.
        for byte in (0..8).map(|bit| bytes[at] ^ (1 << bit)).chain(*b"019aZ \"\\,:}]") {
            if byte != bytes[at] {
                refused_with(&bytes, at, byte);
            }
        }
    }
}

#[test]
fn every_added_or_removed_byte_is_rejected() {
    let form = canonical(MESSAGE).unwrap();
    for at in 0..form.len() {
        if !form.is_char_boundary(at) {
            continue;
        }
        let (before, after) = form.split_at(at);
        let mut shorter = after.chars();
        shorter.next();
        let inserted = b"0a ,\"".iter().map(|byte| format!("{before}{}{after}", char::from(*byte)));
        for altered in inserted.chain([format!("{before}{}", shorter.as_str())]) {
            let Some(text) = with_signature(&altered) else { continue };
            let same = canonical(&altered).as_ref() == Ok(&form);
            assert_eq!(verify(text).is_ok(), same, "{altered}");
        }
    }
}

#[test]
fn every_changed_byte_of_the_signature_is_rejected() {
    for at in 0..SIGNATURE.len() {
        for byte in *b"AQgw019-_.= \"" {
            let mut altered = SIGNATURE.as_bytes().to_owned();
            if altered[at] == byte {
                continue;
            }
            altered[at] = byte;
            let mut message = message();
            message["signature"] = String::from_utf8(altered).unwrap().into();
            assert!(!is_taken(&message), "{message}");
        }
    }
    for signature in
        [json!(""), json!(null), json!(7), json!([SIGNATURE]), json!(SIGNATURE.trim_end_matches("-4"))]
    {
        let mut message = message();
        message["signature"] = signature;
        assert!(!is_taken(&message), "{message}");
    }
}

/// Calls `alter` with the path of every value in the message.
fn everywhere(at: &Value, path: &str, alter: &mut impl FnMut(&str)) {
    alter(path);
    match at {
        Value::Object(members) => {
            members.iter().for_each(|(key, value)| everywhere(value, &format!("{path}/{key}"), alter));
        }
        Value::Array(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(at, value)| everywhere(value, &format!("{path}/{at}"), alter));
        }
        _ => {}
    }
}

#[test]
fn every_changed_removed_or_added_value_is_rejected() {
    let original = message();
    let mut cases = 0;
    everywhere(&original, "", &mut |path| {
        let mut altered = Vec::new();
        for other in [json!(null), json!("x"), json!(15_999), json!([]), json!({}), json!(true)] {
            let mut message = signed(message());
            if *path != *"" && message.pointer(path) != Some(&other) {
                *message.pointer_mut(path).unwrap() = other;
                altered.push(message);
            }
        }
        let mut added = signed(message());
        match added.pointer_mut(path).unwrap() {
            Value::Object(members) => {
                members.insert("and".to_owned(), json!(1));
            }
            Value::Array(items) => items.push(json!(1)),
            Value::String(text) => text.push('.'),
            Value::Number(number) => *number = (number.as_f64().unwrap() as i64 + 1).into(),
            _ => unreachable!("there is none in the message"),
        }
        altered.push(added);
        let mut gone = signed(message());
        if let Some(Value::Object(members)) = gone.pointer_mut(path) {
            for key in members.keys().cloned().collect::<Vec<_>>() {
                if key != "signature" {
                    let mut message = signed(message());
                    message.pointer_mut(path).unwrap().as_object_mut().unwrap().remove(&key);
                    altered.push(message);
                }
            }
        }
        for message in altered {
            assert!(!is_taken(&message), "{path}: {message}");
            cases += 1;
        }
    });
    assert!(cases > 100);
}

#[test]
fn unknown_fields_are_signed() {
    let key = Key::new("k", "agent://buyer.example", [3; 32]).unwrap();
    let keys = Arc::new(Keys::new());
    keys.insert(key).unwrap();
    let mut later = message();
    later["mood"] = json!({ "of": "the buyer" });
    later["metadata"]["hops"] = json!([1]);
    later["content"]["belief_updates"][0]["since"] = json!("today");
    let verifier =
        || Verifier::new("agent://seller.example/sales").since(SystemTime::UNIX_EPOCH).keys(keys.clone());
    let signed = verifier().sign(&serde_json::from_value(later).unwrap(), now()).unwrap();
    let text = signed.get().to_owned();
    assert!(verifier().verify(&signed, 0, now()).is_ok());
    for (part, other) in [("the buyer", "the seller"), ("[1]", "[1,2]"), ("\"today\"", "\"1900\"")] {
        assert!(text.contains(part));
        let altered = serde_json::from_str(&text.replace(part, other)).unwrap();
        assert_eq!(verifier().verify(&altered, 0, now()), Err(VerifyError::Forged("k".into())), "{other}");
    }
}

/// Writes `value` with its keys in an order chosen by `pick`, and with white space.
fn respelled(value: &Value, pick: &mut impl FnMut(usize) -> usize) -> String {
    let space = [" ", "", "\n\t", "\r\n "][pick(4)];
    let body = match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            let mut parts = Vec::new();
            while !members.is_empty() {
                let (key, value) = members.remove(pick(members.len()));
                parts.push(format!("{space}{}:{}", respelled_text(key, pick), respelled(value, pick)));
            }
            format!("{{{}{space}}}", parts.join(","))
        }
        Value::Array(items) => {
            let parts: Vec<_> = items.iter().map(|item| respelled(item, pick)).collect();
            format!("[{}]", parts.join(","))
        }
        Value::String(text) => respelled_text(text, pick),
        Value::Number(number) if pick(2) == 0 => format!("{:e}", number.as_f64().unwrap()),
        other => other.to_string(),
    };
    format!("{space}{body}{space}")
}

fn respelled_text(text: &str, pick: &mut impl FnMut(usize) -> usize) -> String {
    let units = |c: char| c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect();
    let text: String = text.chars().map(|c| if pick(9) == 0 { units(c) } else { c.to_string() }).collect();
    format!("\"{text}\"")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn every_random_change_is_rejected(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let bytes = canonical(MESSAGE).unwrap().into_bytes();
        let at = at.index(bytes.len());
        if bytes[at] != byte {
            refused_with(&bytes, at, byte);
        }
    }

    #[test]
    fn random_messages_cannot_be_altered(
        words in any_json(), at in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let mut message: DialogueMessage = serde_json::from_str(MESSAGE).unwrap();
        message.content.parameters.insert("words", words);
        let sent = seller().sign(&message, now()).unwrap();
        prop_assert!(seller().verify(&sent, 0, now()).is_ok());
        let mut bytes = sent.get().as_bytes().to_owned();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(altered) = serde_json::from_slice::<Json>(&bytes) {
            let same = canonical(altered.get()) == canonical(sent.get());
            prop_assert_eq!(seller().verify(&altered, 0, now()).is_ok(), same, "{}", altered);
        }
    }

    #[test]
    fn every_spelling_is_accepted(seed in any::<u64>()) {
        let mut state = seed;
        let mut pick = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below.max(1)
        };
        let mut text = respelled(&signed(message()), &mut pick);
        // A member has no white space around its value.
        text = text.trim().to_owned();
        // Only integer fields must be written as integers.
        let exact = |text: &str| text.replace("1e0", "1").replace("4e0", "4").replace("3e2", "300");
        let text = exact(&text);
        prop_assert!(verify(text.clone()).is_ok(), "{text}");
    }

    #[test]
    fn only_equal_values_share_a_canonical_form(left in any_json(), right in any_json()) {
        let form = |value: &Value| canonical(&value.to_string());
        if let (Ok(left_form), Ok(right_form)) = (form(&left), form(&right)) {
            prop_assert_eq!(left_form == right_form, left == right);
            // The canonical form is JSON for the same value, and its own canonical form.
            prop_assert_eq!(&serde_json::from_str::<Value>(&left_form).unwrap(), &left);
            prop_assert_eq!(canonical(&left_form), Ok(left_form));
        }
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-(1_i64 << 53) + 1..1 << 53).prop_map(Value::from),
        "[a-c\"\\\\\u{1}é😀]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 3, |state| {
        prop_oneof![
            proptest::collection::vec(state.clone(), 0..3).prop_map(Value::from),
            proptest::collection::btree_map("[a-c😀\u{fb33}]{0,2}", state, 0..3)
                .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}
