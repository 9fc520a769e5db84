//! Envelopes as other implementations write them: other orders of keys, unknown members, other spellings of numbers,
//! and ids of every shape.

use duologue_schema::envelope::*;
use insta::assert_snapshot;
use serde_json::{Value, json};

const LINES: &str = include_str!("../fixtures/foreign_envelopes.jsonl");

/// Decodes and encodes the payload as the type of its kind.
struct Recode(Envelope);

impl PayloadVisitor for Recode {
    type Output = String;

    fn visit<P: Payload>(self) -> String {
        let Recode(envelope) = self;
        let raw: Value = envelope.payload.parse().unwrap();
        let opened = envelope.open::<P>().unwrap();
        let text = serde_json::to_string(&opened.payload).unwrap();
        // Unknown members are kept, with their spelling.
        let written: Value = serde_json::from_str(&text).unwrap();
        for key in raw.as_object().into_iter().flat_map(|members| members.keys()) {
            assert!(written.get(key).is_some() || raw[key].is_null(), "{key} is lost: {text}");
        }
        format!("{} {} {text}", opened.kind, opened.ts)
    }
}

#[test]
fn foreign_envelopes_are_read_and_written_back() {
    let mut kinds: Vec<EnvelopeKind> = Vec::new();
    let mut lines = Vec::new();
    for line in LINES.lines() {
        let envelope: Envelope = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert_eq!(envelope.v, VERSION);
        kinds.push(envelope.kind.clone());
        lines.push(envelope.kind.clone().visit(Recode(envelope)).unwrap());
    }
    assert!(EnvelopeKind::ALL.iter().all(|kind| kinds.contains(kind)), "every kind is there");
    assert_snapshot!(lines.join("\n"), @r#"
    ping 1700000000000 {}
    query 1700000000000 {"question":"Who is free?","max_tokens":200,"deadline_ms":1000,"mood":{"tone":"kind"}}
    query 1700000000000 {"question":{"who":["Ada"],"when":"Friday"},"max_tokens":0,"attachments":[{"mime_type":"image/png","data":"iVA","dpi":72.0}]}
    delegate 0 {"task":"paint","context":{"colour":"blue","coats":2.0},"priority":"critical","report_back":false,"deadline_ms":60000,"budget":{"eur":1.50}}
    cancel 1000 {"reason":"","by":"user"}
    discover 1 {}
    notify 1 {"topic":"family.dinner","data":{"at":19.0},"importance":"urgent","sound":true}
    result 1 {"status":"abandoned","outcome":"","error":"out of paint","litres":3.0}
    error 1 {"code":"out_of_paint","message":"no blue","retryable":false,"stock":0.0}
    pong 1 {"status":"dreaming","uptime_secs":61,"active_tasks":2,"agent_name":""}
    response 1 {"data":[1.50],"summary":"Ada","tokens_used":10,"truncated":false,"sources":["calendar"]}
    ack 1 {"accepted":true,"estimated_ms":9000,"queue":4.0}
    capabilities 1 {"agent_name":"Bob","domains":[],"channels":["imessage"],"tools":[],"max_concurrent_tasks":2,"model":null,"capabilities":["paint",{"name":"sing","pitch":440.0}],"pricing":{"model":"per_song","rate":1.0}}
    "#);
}

/// Another program may use the names of descriptive members for something else.
#[test]
fn capabilities_of_another_shape_are_kept() {
    for (member, value) in [
        ("topics", r#"{"work":true}"#),
        ("capabilities", r#"{"streaming":true,"pushNotifications":1.50}"#),
        ("capabilities", r#"["paint",7]"#),
        ("provider", r#"{"organization":"A","url":"https://a.example"}"#),
        ("version", "2.0"),
        ("mime_types", r#""text/plain""#),
        ("average_response_ms", "12.5"),
        ("average_response_ms", "-1"),
        ("pricing", r#""free""#),
    ] {
        let text = format!(r#"{{"agent_name":"Bob","{member}":{value}}}"#);
        let read: Capabilities =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert_eq!(read.agent_name, "Bob");
        assert_eq!(read.extra.get::<Value>(member), Some(serde_json::from_str(value).unwrap()), "{member}");
        let written = serde_json::to_string(&read).unwrap();
        assert!(written.contains(&format!(r#""{member}":{value}"#)), "{written}");
        let twice = format!(r#"{{"agent_name":"Bob","{member}":{value},"{member}":{value}}}"#);
        let error = serde_json::from_str::<Capabilities>(&twice).unwrap_err();
        assert!(error.to_string().contains("duplicate field"), "{error}");
    }
    // A value of ours replaces the foreign one.
    let read: Capabilities = serde_json::from_str(r#"{"agent_name":"Bob","version":2}"#).unwrap();
    let ours = serde_json::to_string(&read.version("3")).unwrap();
    assert_eq!(ours.matches("version").count(), 1, "{ours}");
    // So does one that is assigned.
    let text = r#"{"agent_name":"Bob","topics":7,"version":2,"average_response_ms":-1,"colour":"blue"}"#;
    let mut read: Capabilities = serde_json::from_str(text).unwrap();
    read.topics = vec!["work".into()];
    read.version = Some("3".into());
    read.average_response_ms = Some(9);
    let ours: Capabilities = serde_json::from_str(&serde_json::to_string(&read).unwrap()).unwrap();
    let mut expected =
        Capabilities::new("Bob").topics(["work".to_owned()]).version("3").average_response_ms(9);
    expected.extra.insert("colour", json!("blue"));
    assert_eq!(ours, expected);
}

#[test]
fn lists_may_be_null() {
    let query: Query = serde_json::from_str(r#"{"question":"Who?","attachments":null}"#).unwrap();
    assert!(query.attachments.is_empty());
    let text = r#"{"agent_name":"Bob","topics":null,"capabilities":null,"provider":null,"mime_types":null}"#;
    let capabilities: Capabilities = serde_json::from_str(text).unwrap();
    assert_eq!(capabilities, Capabilities::new("Bob"));
}

#[test]
fn a_repeated_member_is_an_error() {
    for (text, key) in [
        (r#"{"id":"e","id":"f","from":"a","to":"b","ts":1,"kind":"ping"}"#, "id"),
        (r#"{"id":"e","from":"a","to":"b","ts":1,"kind":"ping","ts":2}"#, "ts"),
        (r#"{"id":"e","from":"a","to":"b","ts":1,"kind":"ping","payload":{},"payload":{}}"#, "payload"),
    ] {
        let error = serde_json::from_str::<Envelope>(text).unwrap_err().to_string();
        assert!(error.starts_with(&format!("duplicate field `{key}`")), "{error}");
    }
    let error = serde_json::from_str::<Query>(r#"{"question":"a","question":"b"}"#).unwrap_err().to_string();
    assert!(error.starts_with("duplicate field `question`"), "{error}");
    let envelope = r#"{"id":"e","from":"a","to":"b","ts":1,"kind":"ping"}"#;
    let text = format!(r#"{{"envelope":{envelope},"envelope":{envelope}}}"#);
    assert!(serde_json::from_str::<EnvelopeParams>(&text).is_err());
    assert!(serde_json::from_str::<EnvelopeResult>(&text).is_err());
}

#[test]
fn a_number_that_is_no_integer_is_an_error() {
    for number in ["1.5", "-1", "1e40", "\"1\"", "null"] {
        let text = format!(r#"{{"id":"e","from":"a","to":"b","ts":{number},"kind":"ping"}}"#);
        let error = serde_json::from_str::<Envelope>(&text).unwrap_err().to_string();
        assert!(error.contains("`ts`"), "{error}");
    }
}
