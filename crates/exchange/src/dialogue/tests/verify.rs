//! Tests of the verifier: keys, time, authorization and replays.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use duologue_schema::Json;
use duologue_schema::dialogue::{
    DialogueContent, DialogueErrorCode, DialogueMessage, DialogueMetadata, ErrorContent, MessageType,
};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};

use crate::dialogue::canonical::{CanonicalError, canonical};
use crate::dialogue::verify::{NewMessage, Verifier, VerifyOutcome};
use crate::dialogue::verify_error::VerifyError;
use crate::dialogue::{AllowList, AllowRule, Key, Keys, SignError, sign};
use crate::limits::{MESSAGE_BYTES, SIGNATURE_BYTES};

pub(super) const BUYER: &str = "agent://buyer.example";
pub(super) const SELLER: &str = "agent://seller.example";
pub(super) const SECRET: [u8; 32] = [7; 32];
pub(super) const SECOND: Duration = Duration::from_secs(1);

/// The send time of the messages here.
pub(super) fn start() -> SystemTime {
    "2026-03-01T12:00:00Z".parse::<jiff::Timestamp>().unwrap().into()
}

pub(super) fn key(id: &str) -> Key {
    Key::new(id, BUYER, SECRET).unwrap()
}

pub(super) fn keys(all: impl IntoIterator<Item = Key>) -> Arc<Keys> {
    let keys = Keys::new();
    all.into_iter().for_each(|key| keys.insert(key).unwrap());
    Arc::new(keys)
}

pub(super) fn seller(keys: &Arc<Keys>) -> Verifier {
    Verifier::new(SELLER).since(SystemTime::UNIX_EPOCH).keys(keys.clone())
}

pub(super) fn message(id: &str) -> DialogueMessage {
    DialogueMessage::new(id, "s1", BUYER, SELLER, "2026-03-01T12:00:00Z", 1, MessageType::Request)
        .content(DialogueContent::new().domain("automotive.sales").task("getCarDetails"))
}

fn signed(message: &DialogueMessage) -> Json {
    sign(message, &key("k1")).unwrap()
}

pub(super) fn taken(verdict: Result<VerifyOutcome, VerifyError>) -> NewMessage {
    match verdict {
        Ok(VerifyOutcome::New(verified)) => *verified,
        other => panic!("not new: {other:?}"),
    }
}

/// Signs any value with any header.
pub(super) fn forge(message: &Value, header: &Value, secret: &[u8]) -> Json {
    let header = URL_SAFE_NO_PAD.encode(header.to_string());
    let payload = URL_SAFE_NO_PAD.encode(canonical(&message.to_string()).unwrap());
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(secret).unwrap();
    mac.update(format!("{header}.{payload}").as_bytes());
    let mut message = message.clone();
    message["signature"] =
        format!("{header}..{}", URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes())).into();
    message.into()
}

pub(super) fn value(message: &DialogueMessage) -> Value {
    serde_json::to_value(message).unwrap()
}

#[test]
fn a_signed_message_is_accepted_once() {
    let seller = seller(&keys([key("k1")]));
    let json = signed(&message("m1"));
    let verified = taken(seller.verify(&json, 0, start()));
    assert_eq!(verified.received.message_id, "m1");
    assert_eq!(verified.received.key_id.as_deref(), Some("k1"));
    assert_eq!(verified.received.raw.get(), json.get());
    // Nine years later it is still in the cache, because it never expires.
    for later in [SECOND, 9 * 365 * 86_400 * SECOND] {
        let Ok(VerifyOutcome::Duplicate(receipt)) = seller.verify(&json, 0, start() + later) else {
            panic!("taken twice")
        };
        assert_eq!((receipt.message_id, receipt.session_id), ("m1".into(), "s1".into()));
        assert!(receipt.duplicate);
    }
    // The same content with another id is another message.
    taken(seller.verify(&signed(&message("m2")), 0, start()));
}

#[test]
fn the_same_id_with_other_content_is_a_conflict() {
    let seller = seller(&keys([key("k1")]));
    let first = taken(seller.verify(&signed(&message("m1")), 0, start()));
    let other = signed(&message("m1").content(DialogueContent::new().task("negotiatePrice")));
    assert_eq!(seller.verify(&other, 0, start()), Err(VerifyError::Conflict));
    // Except when the first message was not acted upon.
    seller.forget(&first.replay_key);
    taken(seller.verify(&other, 0, start()));
    assert_eq!(seller.verify(&signed(&message("m1")), 0, start()), Err(VerifyError::Conflict));
}

#[test]
fn a_message_signed_again_after_rotation_is_the_same() {
    let keys = keys([key("k1"), Key::new("k2", BUYER, [8; 32]).unwrap()]);
    let seller = seller(&keys);
    taken(seller.verify(&signed(&message("m1")), 0, start()));
    let again =
        Verifier::new(BUYER).since(SystemTime::UNIX_EPOCH).keys(keys).sign(&message("m1"), start()).unwrap();
    assert_ne!(again.get(), signed(&message("m1")).get());
    assert!(matches!(seller.verify(&again, 0, start()), Ok(VerifyOutcome::Duplicate(_))));
}

#[test]
fn unsigned_messages_are_rejected_if_there_are_keys() {
    let json = Json::new(&message("m1")).unwrap();
    let keys = keys([key("k1")]);
    assert_eq!(seller(&keys).verify(&json, 0, start()), Err(VerifyError::Unsigned));
    // A sender with a key has to sign, even after the key was revoked.
    keys.revoke("k1");
    let lenient = seller(&keys).accept_unsigned(true);
    assert_eq!(lenient.verify(&json, 0, start()), Err(VerifyError::Unsigned));
    let mut stranger = message("m1");
    stranger.sender_id = "agent://stranger.example".into();
    let json = Json::new(&stranger).unwrap();
    assert_eq!(taken(lenient.verify(&json, 0, start())).received.key_id, None);
    assert_eq!(seller(&keys).verify(&json, 0, start()), Err(VerifyError::Unsigned));
}

#[test]
fn signed_messages_are_rejected_without_keys() {
    let seller = Verifier::new(SELLER).since(SystemTime::UNIX_EPOCH);
    assert_eq!(seller.verify(&signed(&message("m1")), 0, start()), Err(VerifyError::NoKeys));
    let unsigned = seller.sign(&message("m1"), start()).unwrap();
    taken(seller.verify(&unsigned, 0, start()));
}

#[test]
fn forged_signatures_are_rejected() {
    let other = Key::new("other", "agent://other.example", SECRET).unwrap();
    let seller = seller(&keys([key("k1"), other]));
    let message = value(&message("m1"));
    let header = |alg: &str, kid: &str| json!({ "alg": alg, "kid": kid, "typ": "dialogue" });
    for (header, secret, refusal) in [
        (header("HS256", "k1"), [8; 32], VerifyError::Forged("k1".into())),
        (header("HS256", "k2"), SECRET, VerifyError::UnknownKey("k2".into())),
        (header("HS256", "other"), SECRET, VerifyError::Owner("other".into())),
        (header("none", "k1"), SECRET, VerifyError::Algorithm("k1".into())),
        (header("HS512", "k1"), SECRET, VerifyError::Algorithm("k1".into())),
        (json!({ "alg": "HS256", "kid": "k1" }), SECRET, VerifyError::SignatureForm),
        (json!({ "alg": "HS256", "kid": "k1", "typ": "JWT" }), SECRET, VerifyError::SignatureForm),
    ] {
        let forged = forge(&message, &header, &secret);
        assert_eq!(seller.verify(&forged, 0, start()), Err(refusal.clone()), "{header}");
        let answer = refusal.content(&forged);
        assert_eq!(answer.error_code, DialogueErrorCode::Unauthorized);
        assert_eq!(answer.error_message, "the signature could not be verified");
        assert_eq!(answer.failed_message_id, Some("m1".into()));
    }
    // No MAC at all, as for the algorithm `none`.
    let mut bare = message.clone();
    let none = URL_SAFE_NO_PAD.encode(header("none", "k1").to_string());
    bare["signature"] = format!("{none}..").into();
    assert_eq!(seller.verify(&bare.into(), 0, start()), Err(VerifyError::Algorithm("k1".into())));
    let right = forge(&message, &header("HS256", "k1"), &SECRET);
    taken(seller.verify(&right, 0, start()));
}

#[test]
fn a_key_signs_only_for_its_owner() {
    let mut stolen = message("m1");
    stolen.sender_id = "agent://buyer.example/other".into();
    assert_eq!(sign(&stolen, &key("k1")), Err(SignError::Owner));
    let header = json!({ "alg": "HS256", "kid": "k1", "typ": "dialogue" });
    let forged = forge(&value(&stolen), &header, &SECRET);
    let keys = keys([key("k1")]);
    assert_eq!(seller(&keys).verify(&forged, 0, start()), Err(VerifyError::Owner("k1".into())));
    // A message for another recipient is rejected, and so is one sent back to its sender.
    let elsewhere = Verifier::new("agent://else.example").since(SystemTime::UNIX_EPOCH).keys(keys.clone());
    assert_eq!(elsewhere.verify(&signed(&message("m1")), 0, start()), Err(VerifyError::Recipient));
    let buyer = Verifier::new(BUYER).since(SystemTime::UNIX_EPOCH).keys(keys);
    assert_eq!(buyer.verify(&signed(&message("m1")), 0, start()), Err(VerifyError::Recipient));
}

#[test]
fn expired_and_revoked_keys_are_rejected() {
    let day = 86_400 * SECOND;
    let keys = keys([key("k1").not_before(start() - day).not_after(start() + day)]);
    let seller = seller(&keys);
    let json = signed(&message("m1"));
    let too_late = start() + day + 61 * SECOND;
    assert_eq!(seller.verify(&json, 0, too_late), Err(VerifyError::KeyTime("k1".into())));
    assert_eq!(seller.verify(&json, 0, start() - day - 61 * SECOND), Err(VerifyError::KeyTime("k1".into())));
    taken(seller.verify(&json, 0, start()));
    // Within the tolerance of clocks the key is still valid.
    taken(seller.verify(&signed(&message("m4")), 0, start() + day + 59 * SECOND));
    // After the revocation nothing that the key signed is accepted.
    assert!(keys.revoke("k1"));
    assert_eq!(seller.verify(&signed(&message("m2")), 0, start()), Err(VerifyError::UnknownKey("k1".into())));
    assert_eq!(seller.verify(&json, 0, start()), Err(VerifyError::UnknownKey("k1".into())));
    assert_eq!(seller.sign(&message("m3"), start()), Err(SignError::NoKey));
}

#[test]
fn old_and_new_keys_are_valid_together() {
    let change = start();
    let keys = keys([
        key("old").not_after(change + 3600 * SECOND),
        Key::new("new", BUYER, [9; 32]).unwrap().not_before(change),
    ]);
    let buyer = Verifier::new(BUYER).keys(keys.clone());
    let seller = seller(&keys);
    for (id, now, signer) in [("m1", change - 10 * SECOND, "old"), ("m2", change, "new")] {
        let json = buyer.sign(&message(id), now).unwrap();
        let verified = taken(seller.verify(&json, 0, change + 10 * SECOND));
        assert_eq!(verified.received.key_id.as_deref(), Some(signer));
    }
}

#[test]
fn expired_messages_are_rejected() {
    let seller = seller(&keys([key("k1")]));
    let with_ttl = |id: &str, ttl| signed(&message(id).metadata(DialogueMetadata::new().ttl(ttl)));
    taken(seller.verify(&with_ttl("m1", 10), 0, start() + 10 * SECOND));
    assert_eq!(seller.verify(&with_ttl("m2", 10), 0, start() + 11 * SECOND), Err(VerifyError::Expired));
    // An accepted message that has expired is rejected like any expired one.
    assert_eq!(seller.verify(&with_ttl("m1", 10), 0, start() + 11 * SECOND), Err(VerifyError::Expired));
    assert_eq!(seller.verify(&with_ttl("m1", 10), 0, start() + 999_999 * SECOND), Err(VerifyError::Expired));
    taken(seller.verify(&with_ttl("m3", u64::MAX >> 11), 0, start() + 99 * 365 * 86_400 * SECOND));
    // Our clock may be slow, within the tolerance.
    taken(seller.verify(&signed(&message("m4")), 0, start() - 60 * SECOND));
    assert_eq!(seller.verify(&signed(&message("m5")), 0, start() - 61 * SECOND), Err(VerifyError::Future));
    // Without a `ttl` a message does not expire.
    taken(seller.verify(&signed(&message("m6")), 0, start() + 30 * 365 * 86_400 * SECOND));
}

#[test]
fn a_timestamp_needs_an_offset() {
    let seller = seller(&keys([key("k1")]));
    let at = |id: &str, timestamp: &str| {
        let mut message = message(id);
        message.timestamp = timestamp.to_owned();
        seller.verify(&signed(&message), 0, start())
    };
    for (id, timestamp) in [("a", "2026-03-01T12:00:00.000Z"), ("b", "2026-03-01T13:00:00+01:00")] {
        taken(at(id, timestamp));
    }
    for timestamp in ["", "now", "2026-03-01", "2026-03-01T12:00:00", "1772366400", "2026-02-30T12:00:00Z"] {
        assert_eq!(at("c", timestamp), Err(VerifyError::Timestamp), "{timestamp}");
    }
}

#[test]
fn the_allow_list_is_checked_after_the_signature() {
    let list = AllowList::new().rule(AllowRule::sender(BUYER).to(SELLER).task("getCarDetails"));
    let seller = seller(&keys([key("k1")])).allow(list);
    taken(seller.verify(&signed(&message("m1")), 0, start()));
    let other = message("m2").content(DialogueContent::new().task("deleteEverything"));
    assert_eq!(seller.verify(&signed(&other), 0, start()), Err(VerifyError::NotAllowed));
    // An unknown sender learns nothing about the list.
    assert_eq!(seller.verify(&Json::new(&other).unwrap(), 0, start()), Err(VerifyError::Unsigned));
}

#[test]
fn ambiguous_json_is_rejected() {
    let seller = seller(&keys([key("k1")]));
    let json = signed(&message("m1"));
    let with = |member: &str| -> Json {
        let open = json.get().strip_suffix('}').unwrap();
        serde_json::from_str(&format!("{open},{member}}}")).unwrap()
    };
    let malformed = |fault| Err(VerifyError::Malformed(fault));
    for (member, fault) in [
        (r#""message_type":"accept""#, CanonicalError::DuplicateKey("message_type".into())),
        (r#""message\u005ftype":"accept""#, CanonicalError::DuplicateKey("message_type".into())),
        (r#""x":[{"a":1,"a":1}]"#, CanonicalError::DuplicateKey("a".into())),
        (r#""x":9007199254740993"#, CanonicalError::BigInteger("9007199254740993".into())),
        (r#""x":1e18"#, CanonicalError::BigInteger("1000000000000000000".into())),
    ] {
        assert_eq!(seller.verify(&with(member), 0, start()), malformed(fault), "{member}");
    }
    let deep = format!(r#""x":{}{}"#, "[".repeat(64), "]".repeat(64));
    assert_eq!(seller.verify(&with(&deep), 0, start()), malformed(CanonicalError::TooDeep));
    // Such a message cannot be signed either.
    for number in [json!(u64::MAX), json!(1e18)] {
        let mut big = message("m2");
        big.content.parameters.insert("n", number);
        assert!(matches!(sign(&big, &key("k1")), Err(SignError::Message(CanonicalError::BigInteger(_)))));
    }
}

#[test]
fn the_size_is_checked_first() {
    let seller = seller(&keys([key("k1")]));
    let large = |json: Json| {
        let refusal = VerifyError::TooLarge { bytes: json.get().len(), limit: MESSAGE_BYTES };
        assert_eq!(seller.verify(&json, 0, start()), Err(refusal));
    };
    large(signed(&message("m1").content(DialogueContent::from("x".repeat(MESSAGE_BYTES).as_str()))));
    large(Json::from(json!("x".repeat(MESSAGE_BYTES))));
}

#[test]
fn a_message_may_have_the_largest_size_and_a_signature_too() {
    let seller = seller(&keys([key("k1")]));
    let sized =
        |fill: usize| signed(&message("m1").content(DialogueContent::from("x".repeat(fill).as_str())));
    let json = sized(MESSAGE_BYTES - sized(0).get().len());
    assert_eq!(json.get().len(), MESSAGE_BYTES);
    taken(seller.verify(&json, 0, start()));
    // A key id as long as the signature may be.
    let header = |kid: &str| json!({ "alg": "HS256", "kid": kid, "typ": "dialogue" });
    let length = |kid: &str| {
        forge(&value(&message("m2")), &header(kid), &SECRET).parse::<Value>().unwrap()["signature"]
            .as_str()
            .unwrap()
            .len()
    };
    let fill = (1..2_000).find(|fill| length(&"k".repeat(*fill)) == SIGNATURE_BYTES).expect("a length");
    for (more, refusal) in [(0, VerifyError::UnknownKey("k".repeat(128))), (1, VerifyError::SignatureForm)] {
        let forged = forge(&value(&message("m2")), &header(&"k".repeat(fill + more)), &SECRET);
        assert_eq!(seller.verify(&forged, 0, start()), Err(refusal));
    }
}

/// A check is made before those that would use what it has not covered yet.
#[test]
fn the_first_failing_check_decides() {
    let list = AllowList::new().rule(AllowRule::sender(BUYER).task("getCarDetails"));
    let seller = seller(&keys([key("k1")])).allow(list);
    let header = json!({ "alg": "HS256", "kid": "k1", "typ": "dialogue" });
    let mut bad = value(&message("m1"));
    bad["content"]["task"] = "deleteEverything".into();
    bad["timestamp"] = "2030-03-01T12:00:00Z".into();
    bad["recipient_id"] = "agent://else.example".into();
    bad["message_id"] = "".into();
    let verify = |bad: &Value| seller.verify(&forge(bad, &header, &SECRET), 0, start()).unwrap_err();
    assert!(matches!(verify(&bad), VerifyError::Field(field) if field.field == "message_id"));
    bad["message_id"] = "m1".into();
    assert_eq!(verify(&bad), VerifyError::Recipient);
    bad["recipient_id"] = SELLER.into();
    assert_eq!(verify(&bad), VerifyError::Future);
    bad["timestamp"] = message("m1").timestamp.into();
    assert_eq!(verify(&bad), VerifyError::NotAllowed);
    bad["content"]["task"] = "getCarDetails".into();
    taken(seller.verify(&forge(&bad, &header, &SECRET), 0, start()));
}

#[test]
fn a_rejection_after_the_receipt_is_repeated() {
    let error = ErrorContent::of(DialogueErrorCode::Conflict, "used");
    let refused = |seller: &Verifier, json: &Json| {
        let first = taken(seller.verify(json, 1, start())).received;
        seller.refuse(&first, 1, &error);
        assert_eq!(seller.verify(json, 1, start()), Ok(VerifyOutcome::Refused(Box::new(error.clone()))));
    };
    refused(&seller(&keys([key("k1")])), &signed(&message("m1")));
    refused(&Verifier::new(SELLER).since(SystemTime::UNIX_EPOCH), &Json::new(&message("m1")).unwrap());
}

/// A message without a signature is sent only where its recipient may accept it.
#[test]
fn unsigned_messages_are_sent_only_without_keys_of_their_sender() {
    let keys = keys([key("k1")]);
    let strict = seller(&keys);
    let lenient = seller(&keys).accept_unsigned(true);
    let mut stranger = message("m1");
    stranger.sender_id = "agent://stranger.example".into();
    assert_eq!(strict.sign(&stranger, start()), Err(SignError::NoKey));
    let sent = lenient.sign(&stranger, start()).unwrap();
    assert_eq!(sent.parse::<DialogueMessage>().unwrap().signature, None);
    // An old signature is not sent either.
    stranger.signature = Some("old".to_owned());
    assert_eq!(lenient.sign(&stranger, start()).unwrap().get(), sent.get());
    keys.revoke("k1");
    assert_eq!(lenient.sign(&message("m1"), start()), Err(SignError::NoKey));
}

#[test]
fn signed_messages_with_invalid_fields_are_rejected() {
    let seller = seller(&keys([key("k1")]));
    let header = json!({ "alg": "HS256", "kid": "k1", "typ": "dialogue" });
    let changed = |change: fn(&mut Value)| {
        let mut message = value(&message("m1"));
        change(&mut message);
        let forged = forge(&message, &header, &SECRET);
        let refusal = seller.verify(&forged, 0, start()).unwrap_err();
        (refusal.code(), refusal.content(&forged))
    };
    type Change = fn(&mut Value);
    let changes: [(Change, &str); 4] = [
        (|message| message["message_id"] = "".into(), "message_id"),
        (|message| message["session_id"] = "x".repeat(129).into(), "session_id"),
        (|message| message["recipient_id"] = "agent://".into(), "recipient_id"),
        (|message| message["interaction_step"] = 0.into(), "interaction_step"),
    ];
    for (change, field) in changes {
        let (code, answer) = changed(change);
        assert_eq!(code, DialogueErrorCode::InvalidParameter);
        assert!(answer.error_message.starts_with(field), "{answer:?}");
        assert_eq!(answer.details.get::<String>("field").as_deref(), Some(field));
    }
    let (code, answer) = changed(|message| {
        message.as_object_mut().unwrap().remove("interaction_step");
    });
    assert_eq!(code, DialogueErrorCode::InvalidParameter);
    assert!(answer.error_message.contains("missing field `interaction_step`"), "{answer:?}");
    assert_eq!(answer.failed_session_id, Some("s1".into()));
}

#[test]
fn signed_integers_may_be_respelled() {
    let seller = seller(&keys([key("k1")]));
    let metadata = DialogueMetadata::new().ttl(60).priority(10);
    let json = signed(&message("m1").metadata(metadata));
    let respelled = json
        .get()
        .replace("\"interaction_step\":1", "\"interaction_step\":1.0")
        .replace("\"ttl\":60", "\"ttl\":6e1")
        .replace("\"priority\":10", "\"priority\":10.0");
    assert_eq!(respelled.len(), json.get().len() + 5);
    let respelled: Json = serde_json::from_str(&respelled).unwrap();
    let NewMessage { received, .. } = taken(seller.verify(&respelled, 0, start()));
    assert_eq!((received.interaction_step, received.metadata.ttl), (1, Some(60)));
    assert_eq!(received.metadata.priority, Some(10));
    // Both spellings are the same message.
    assert!(matches!(seller.verify(&json, 0, start()), Ok(VerifyOutcome::Duplicate(_))));

    let header = json!({ "alg": "HS256", "kid": "k1", "typ": "dialogue" });
    let mut half = value(&message("m2"));
    half["interaction_step"] = json!(1.5);
    let error = seller.verify(&forge(&half, &header, &SECRET), 0, start()).unwrap_err();
    assert!(error.to_string().contains("`interaction_step` must be an integer"), "{error}");
}

#[test]
fn unsigned_messages_belong_to_their_connection_and_signed_ones_to_their_sender() {
    let plain = Verifier::new(SELLER).since(SystemTime::UNIX_EPOCH);
    let json = Json::new(&message("m1")).unwrap();
    let again =
        |connection| matches!(plain.verify(&json, connection, start()), Ok(VerifyOutcome::Duplicate(_)));
    taken(plain.verify(&json, 1, start()));
    assert!(again(1));
    taken(plain.verify(&json, 2, start()));
    plain.leave(1);
    taken(plain.verify(&json, 1, start()));
    assert!(again(1) && again(2));

    let seller = seller(&keys([key("k1")]));
    let json = signed(&message("m1"));
    taken(seller.verify(&json, 1, start()));
    assert_eq!(seller.verify(&json, 2, start()), Err(VerifyError::Elsewhere));
    seller.leave(1);
    assert_eq!(seller.verify(&json, 2, start()), Err(VerifyError::Elsewhere));
}

#[test]
fn a_full_replay_cache_rejects_old_messages() {
    let keys = keys([key("k1")]);
    let seller = seller(&keys).memory(2);
    let at = |id: &str, second: u32| {
        let mut message = message(id);
        message.timestamp = format!("2026-03-01T12:00:{second:02}Z");
        seller.verify(&signed(&message), 0, start() + 60 * SECOND)
    };
    for second in 1..=3 {
        taken(at(&format!("m{second}"), second));
    }
    assert_eq!(at("m1", 1), Err(VerifyError::TooOld));
    assert!(matches!(at("m3", 3), Ok(VerifyOutcome::Duplicate(_))));
}

#[test]
fn messages_from_before_the_start_are_rejected() {
    let keys = keys([key("k1")]);
    let restarted = Verifier::new(SELLER).keys(keys.clone());
    let year = SystemTime::now() + 365 * 86_400 * SECOND;
    let at = |id: &str, ago| {
        let mut message = message(id);
        message.timestamp = (jiff::Timestamp::now() - jiff::SignedDuration::from_secs(ago)).to_string();
        signed(&message)
    };
    assert_eq!(restarted.verify(&at("old", 120), 0, year), Err(VerifyError::TooOld));
    // Within the tolerance of clocks.
    taken(restarted.verify(&at("recent", 30), 0, SystemTime::now()));
    let answer = Verifier::new(SELLER).keys(keys).since(start());
    assert_eq!(answer.verify(&signed(&message("m1")), 0, start() + SECOND), Err(VerifyError::TooOld));
}

#[test]
fn messages_in_our_own_name_are_rejected() {
    let own = Key::new("own", SELLER, SECRET).unwrap();
    let mut ours = message("m1");
    ours.sender_id = SELLER.into();
    let json = sign(&ours, &own).unwrap();
    assert_eq!(seller(&keys([own])).verify(&json, 0, start()), Err(VerifyError::Ourselves));
}

#[test]
fn keys_are_bound_to_a_recipient() {
    // The seller has a key for each recipient, and each recipient has its key.
    let pair = |id, owner, peer, secret: u8| Key::new(id, owner, [secret; 32]).unwrap().with(peer).unwrap();
    let (to_buyer, other) = (pair("b", SELLER, BUYER, 1), "agent://other.example");
    assert_eq!(sign(&message("m1"), &pair("b", BUYER, other, 2)), Err(SignError::Peer));
    let mut answer = message("m1");
    (answer.sender_id, answer.recipient_id) = (SELLER.into(), BUYER.into());
    let sellers =
        keys([pair("o", SELLER, other, 3), pair("b", SELLER, BUYER, 1), pair("p", SELLER, other, 4)]);
    let json = seller(&sellers).sign(&answer, start()).unwrap();
    let buyer = |keys| Verifier::new(BUYER).since(SystemTime::UNIX_EPOCH).keys(keys);
    let verified = taken(buyer(keys([to_buyer])).verify(&json, 0, start()));
    assert_eq!(verified.received.key_id.as_deref(), Some("b"));
    // With its copy of the seller's key, the buyer cannot forge a message to another recipient.
    let header = json!({ "alg": "HS256", "kid": "b", "typ": "dialogue" });
    answer.recipient_id = other.into();
    let forged = forge(&value(&answer), &header, &[1; 32]);
    let others = Verifier::new(other).since(SystemTime::UNIX_EPOCH).keys(sellers);
    assert_eq!(others.verify(&forged, 0, start()), Err(VerifyError::Peer("b".into())));
}

#[test]
fn one_of_many_threads_accepts_a_message() {
    let seller = seller(&keys([key("k1")]));
    let json = signed(&message("m1"));
    let new = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| seller.verify(&json, 0, start()))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .filter(|verdict| matches!(verdict, Ok(VerifyOutcome::New(_))))
            .count()
    });
    assert_eq!(new, 1);
}
