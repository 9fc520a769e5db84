//! The wire form of each kind of envelope, and the reading of envelopes from other implementations.

use duologue_schema::envelope::*;
use duologue_schema::export::{Definition, extension_schemas};
use duologue_schema::{ErrorCode, Members, Notification, Request};
use insta::assert_snapshot;
use serde_json::{Value, json};

/// The envelope of every snapshot: only kind, reference and payload differ.
fn envelope<P: Payload>(payload: P) -> Envelope<P> {
    Envelope::new("e1", "a1", "b2", 1_700_000_000_000, payload)
}

fn write<P: Payload>(envelope: &Envelope<P>) -> String {
    let text = serde_json::to_string(envelope).unwrap();
    let read: Envelope<P> = serde_json::from_str(&text).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), text, "it reads what it writes");
    text
}

fn payload(envelope: &Envelope<impl Payload>) -> String {
    serde_json::to_string(&envelope.payload).unwrap()
}

fn definition(name: &str) -> Definition {
    let all = extension_schemas().into_iter().flat_map(|scheme| scheme.definitions());
    all.into_iter().find(|definition| definition.name == name).unwrap()
}

/// Each payload through the envelope of its kind; an error is its message.
fn table(name: &str, payloads: &[&str]) -> String {
    let kind = name.trim_end_matches("Envelope").to_lowercase();
    let line = |payload: &&str| {
        let text = format!(r#"{{"id":"e","from":"a","to":"b","ts":1,"kind":"{kind}","payload":{payload}}}"#);
        match (definition(name).round_trip)(&text) {
            Ok(text) => {
                let value: Value = serde_json::from_str(&text).unwrap();
                let spelled = text.split_once("\"payload\":").unwrap().1.strip_suffix('}').unwrap();
                assert_eq!(serde_json::from_str::<Value>(spelled).unwrap(), value["payload"]);
                format!("{payload}\n  -> {spelled}\n")
            }
            Err(error) => {
                let reason = error.split(" at line ").next().unwrap();
                format!("{payload}\n  -> error: {reason}\n")
            }
        }
    };
    payloads.iter().map(line).collect()
}

#[test]
fn requests() {
    assert_snapshot!(write(&envelope(Ping::new())), @r#"{"v":1,"id":"e1","from":"a1","to":"b2","ts":1700000000000,"kind":"ping","ref":null,"payload":{}}"#);
    let query = Query::new("Who is free?").domain("family.calendar").max_tokens(200);
    assert_snapshot!(write(&envelope(query.deadline_ms(5_000))), @r#"{"v":1,"id":"e1","from":"a1","to":"b2","ts":1700000000000,"kind":"query","ref":null,"payload":{"question":"Who is free?","domain":"family.calendar","max_tokens":200,"deadline_ms":5000}}"#);
    let context: Members = [("room", json!("kitchen"))].into_iter().collect();
    let task = Delegate::new("Order paint").context(context).priority(Priority::Urgent).report_back(true);
    assert_snapshot!(write(&envelope(task.deadline_ms(60_000))), @r#"{"v":1,"id":"e1","from":"a1","to":"b2","ts":1700000000000,"kind":"delegate","ref":null,"payload":{"task":"Order paint","context":{"room":"kitchen"},"priority":"urgent","report_back":true,"deadline_ms":60000}}"#);
    assert_snapshot!(write(&envelope(Cancel::new().reason("too late")).reference("e0")), @r#"{"v":1,"id":"e1","from":"a1","to":"b2","ts":1700000000000,"kind":"cancel","ref":"e0","payload":{"reason":"too late"}}"#);
    assert_snapshot!(write(&envelope(Discover::new())), @r#"{"v":1,"id":"e1","from":"a1","to":"b2","ts":1700000000000,"kind":"discover","ref":null,"payload":{}}"#);
}

#[test]
fn answers() {
    let pong = Pong::new(AgentStatus::Busy).uptime_secs(61).active_tasks(2).agent_name("painter");
    assert_snapshot!(write(&envelope(pong).reference("e0")), @r#"{"v":1,"id":"e1","from":"a1","to":"b2","ts":1700000000000,"kind":"pong","ref":"e0","payload":{"status":"busy","uptime_secs":61,"active_tasks":2,"agent_name":"painter"}}"#);
    let response = QueryResponse::new("Both on Friday").data(json!(["Ada", "Bo"])).tokens_used(12);
    assert_snapshot!(write(&envelope(response).reference("e0")), @r#"{"v":1,"id":"e1","from":"a1","to":"b2","ts":1700000000000,"kind":"response","ref":"e0","payload":{"data":["Ada","Bo"],"summary":"Both on Friday","tokens_used":12,"truncated":false}}"#);
    assert_snapshot!(write(&envelope(Ack::new(true).estimated_ms(9_000)).reference("e0")), @r#"{"v":1,"id":"e1","from":"a1","to":"b2","ts":1700000000000,"kind":"ack","ref":"e0","payload":{"accepted":true,"estimated_ms":9000}}"#);
    let refusal =
        Ack::new(false).reason("no paint").error(EnvelopeError::overloaded("no room for another task"));
    assert_snapshot!(write(&envelope(refusal).reference("e0")), @r#"{"v":1,"id":"e1","from":"a1","to":"b2","ts":1700000000000,"kind":"ack","ref":"e0","payload":{"accepted":false,"reason":"no paint","error":{"code":"overloaded","message":"no room for another task","retryable":true}}}"#);
    let capabilities = Capabilities::new("painter")
        .domains(["work.paint".to_owned()])
        .channels(["imessage".to_owned()])
        .topics(["work.paint.progress".to_owned()])
        .tools(["brush".to_owned()])
        .max_concurrent_tasks(2)
        .model("small");
    assert_snapshot!(write(&envelope(capabilities).reference("e0")), @r#"{"v":1,"id":"e1","from":"a1","to":"b2","ts":1700000000000,"kind":"capabilities","ref":"e0","payload":{"agent_name":"painter","domains":["work.paint"],"channels":["imessage"],"tools":["brush"],"max_concurrent_tasks":2,"model":"small","topics":["work.paint.progress"]}}"#);
}

#[test]
fn notifications() {
    let done =
        DelegationOutcome::new(OutcomeStatus::Completed).outcome("It is blue").data(json!({"litres": 3}));
    assert_snapshot!(write(&envelope(done).reference("e0")), @r#"{"v":1,"id":"e1","from":"a1","to":"b2","ts":1700000000000,"kind":"result","ref":"e0","payload":{"status":"completed","outcome":"It is blue","data":{"litres":3},"error":null}}"#);
    let failed =
        DelegationOutcome::new(OutcomeStatus::Failed).error(json!({"code": "internal", "message": "dry"}));
    assert_snapshot!(write(&envelope(failed).reference("e0")), @r#"{"v":1,"id":"e1","from":"a1","to":"b2","ts":1700000000000,"kind":"result","ref":"e0","payload":{"status":"failed","outcome":"","error":{"code":"internal","message":"dry"}}}"#);
    let news = Notify::new("work.paint.progress").data(json!(0.5)).importance(Importance::High);
    assert_snapshot!(write(&envelope(news)), @r#"{"v":1,"id":"e1","from":"a1","to":"b2","ts":1700000000000,"kind":"notify","ref":null,"payload":{"topic":"work.paint.progress","data":0.5,"importance":"high"}}"#);
    assert_snapshot!(write(&envelope(EnvelopeError::unknown_domain("work.tiles")).reference("e0")), @r#"{"v":1,"id":"e1","from":"a1","to":"b2","ts":1700000000000,"kind":"error","ref":"e0","payload":{"code":"unknown_domain","message":"nobody here knows about work.tiles","retryable":false}}"#);
}

#[test]
fn carriers() {
    let params = EnvelopeParams::new(Some("s1".into()), envelope(Ping::new()));
    assert_snapshot!(serde_json::to_string(&params).unwrap(), @r#"{"sessionId":"s1","envelope":{"v":1,"id":"e1","from":"a1","to":"b2","ts":1700000000000,"kind":"ping","ref":null,"payload":{}}}"#);
    assert_snapshot!(serde_json::to_string(&EnvelopeParams::new(None, envelope(Ping::new()))).unwrap(), @r#"{"envelope":{"v":1,"id":"e1","from":"a1","to":"b2","ts":1700000000000,"kind":"ping","ref":null,"payload":{}}}"#);
    let result = EnvelopeResult::new(envelope(Pong::new(AgentStatus::Idle)).reference("e0"));
    assert_snapshot!(serde_json::to_string(&result).unwrap(), @r#"{"envelope":{"v":1,"id":"e1","from":"a1","to":"b2","ts":1700000000000,"kind":"pong","ref":"e0","payload":{"status":"idle","uptime_secs":0,"active_tasks":0,"agent_name":""}}}"#);
}

/// All twelve, each once: by its method, and for a request by its answer.
#[test]
fn methods() {
    let rows: Vec<String> = METHODS
        .iter()
        .map(|row| match row.result {
            Some(result) => format!("{} {} -> {result}", row.method, row.params),
            None => format!("{} {}", row.method, row.params),
        })
        .collect();
    assert_snapshot!(rows.join("\n"), @r#"
    _session/ping PingParams -> PongResult
    _session/query QueryParams -> ResponseResult
    _session/delegate DelegateParams -> AckResult
    _session/cancel CancelParams -> AckResult
    _session/discover DiscoverParams -> CapabilitiesResult
    _session/result OutcomeParams
    _session/notify NotifyParams
    _session/error FaultParams
    _session/pong PongParams
    _session/response ResponseParams
    _session/ack AckParams
    _session/capabilities CapabilitiesParams
    "#);
    assert_eq!(<EnvelopeParams<Query> as Request>::METHOD, "_session/query");
    assert_eq!(<EnvelopeParams<DelegationOutcome> as Notification>::METHOD, "_session/result");
}

/// The required members of each kind are defined once, and the schemas and all readers agree with that.
#[test]
fn required_members_of_a_kind() {
    let schema = extension_schemas().into_iter().find(|scheme| scheme.name == "envelope").unwrap().document();
    let mut needs = String::new();
    for row in METHODS {
        let kind = EnvelopeKind::from(row.method.trim_start_matches("_session/"));
        let params = &schema["$defs"][row.params];
        let requires = |value: &Value, key: &str| {
            value["required"].as_array().is_some_and(|keys| keys.contains(&json!(key)))
        };
        let (session, envelope) = (requires(params, "sessionId"), &params["properties"]["envelope"]);
        assert_eq!(kind.needs_session(), session, "{kind}");
        assert_eq!(kind.needs_ref(), requires(envelope, "ref"), "{kind}");
        let may_be_null = params["properties"]["sessionId"].get("anyOf").is_some();
        assert_eq!(may_be_null, !session, "{kind}");
        let word = |needs, word| if needs { word } else { "" };
        let (session, reference) = (word(session, " sessionId"), word(kind.needs_ref(), " ref"));
        needs.push_str(&format!("{kind}:{session}{reference}\n"));
    }
    assert_snapshot!(needs, @"
    ping:
    query: sessionId
    delegate: sessionId
    cancel: sessionId ref
    discover:
    result: sessionId ref
    notify: sessionId
    error:
    pong: ref
    response: ref
    ack: ref
    capabilities: ref
    ");
}

#[test]
fn a_payload_without_content_may_be_left_out() {
    for rest in ["", r#","payload":null"#, r#","payload":{}"#] {
        let text = |kind: &str| format!(r#"{{"id":"e","from":"a","to":"b","ts":1,"kind":"{kind}"{rest}}}"#);
        let ping: Envelope<Ping> = serde_json::from_str(&text("ping")).unwrap();
        assert_eq!(ping.payload, Ping::new());
        let opened = serde_json::from_str::<Envelope>(&text("discover")).unwrap().open::<Discover>().unwrap();
        assert_eq!(opened.payload, Discover::new());
        assert_eq!(payload(&opened), "{}");
        let fault = serde_json::from_str::<Envelope>(&text("query")).unwrap().open::<Query>().unwrap_err();
        assert_eq!(fault.to_string(), "query: missing field `question` (invalid_parameter)");
    }
}

#[test]
fn optional_members_of_an_envelope() {
    let envelope: Envelope =
        serde_json::from_str(r#"{"id":"e","from":"a","to":"b","ts":1,"kind":"ping"}"#).unwrap();
    assert_eq!((envelope.v, envelope.reference.as_ref()), (VERSION, None));
    for field in ["id", "from", "to", "ts", "kind"] {
        let mut value = json!({"id": "e", "from": "a", "to": "b", "ts": 1, "kind": "ping"});
        value.as_object_mut().unwrap().remove(field);
        let error = serde_json::from_value::<Envelope>(value).unwrap_err().to_string();
        assert!(error.starts_with(&format!("missing field `{field}`")), "{error}");
    }
    let later: Envelope =
        serde_json::from_str(r#"{"v":2,"id":"e","from":"a","to":"b","ts":1,"kind":"ping"}"#).unwrap();
    assert_eq!(later.v, 2, "whether it is spoken is for others to say");
    for wrong in ["[]", "null", "7", r#"[1,"e","a","b",1,"ping",null,{}]"#] {
        assert!(serde_json::from_str::<Envelope>(wrong).is_err(), "{wrong}");
    }
    let text = serde_json::to_string(&envelope).unwrap();
    assert!(serde_json::from_str::<EnvelopeResult>(&format!("[{text},null]")).is_err(), "members have names");
    let carried: EnvelopeParams =
        serde_json::from_str(&format!(r#"{{"_meta":7,"later":[],"envelope":{text},"sessionId":null}}"#))
            .unwrap();
    assert_eq!(carried, EnvelopeParams::new(None, envelope), "what is malformed beside it costs nothing");
}

#[test]
fn unknown_kinds_are_kept_and_kinds_are_distinguished() {
    let text =
        r#"{"v":1,"id":"e","from":"a","to":"b","ts":1,"kind":"sing","ref":null,"payload":{"song":1.50}}"#;
    let envelope: Envelope = serde_json::from_str(text).unwrap();
    assert_eq!(serde_json::to_string(&envelope).unwrap(), text);
    assert_eq!(envelope.kind, EnvelopeKind::Unknown("sing".into()));
    let fault = envelope.open::<Query>().unwrap_err();
    assert_eq!(fault.to_string(), "this is the method of query, not of sing (kind_mismatch)");
}

#[test]
fn unknown_members_of_a_payload_are_kept() {
    assert_snapshot!(table("QueryEnvelope", &[
        r#"{"question":"Who?","mood":{"tone":"kind","n":1.50},"max_tokens":0}"#,
        r#"{"mood":1}"#,
        r#"{"question":7}"#,
        r#"{"question":"Who?","deadline_ms":-1}"#,
        r#"{"question":"Who?","domain":null,"deadline_ms":null}"#,
        "null",
        r#"["Who?"]"#,
    ]), @r#"
    {"question":"Who?","mood":{"tone":"kind","n":1.50},"max_tokens":0}
      -> {"question":"Who?","max_tokens":0,"mood":{"tone":"kind","n":1.50}}
    {"mood":1}
      -> error: missing field `question`
    {"question":7}
      -> error: `question` must be a text, an object or an array
    {"question":"Who?","deadline_ms":-1}
      -> error: field `deadline_ms` is out of range: -1
    {"question":"Who?","domain":null,"deadline_ms":null}
      -> {"question":"Who?","max_tokens":0}
    null
      -> error: missing field `question`
    ["Who?"]
      -> error: invalid type: sequence, expected an object
    "#);
    assert_snapshot!(table("PingEnvelope", &["null", "{}", r#"{"nonce":"n"}"#, "7"]), @r#"
    null
      -> {}
    {}
      -> {}
    {"nonce":"n"}
      -> {"nonce":"n"}
    7
      -> error: invalid type: integer `7`, expected an object
    "#);
}

#[test]
fn missing_members_have_a_default() {
    assert_snapshot!(table("DelegateEnvelope", &[r#"{"task":"t"}"#]), @r#"
    {"task":"t"}
      -> {"task":"t","context":{},"priority":"normal"}
    "#);
    assert_snapshot!(table("NotifyEnvelope", &[r#"{"topic":"t"}"#, r#"{"data":1}"#]), @r#"
    {"topic":"t"}
      -> {"topic":"t","data":null,"importance":"medium"}
    {"data":1}
      -> error: missing field `topic`
    "#);
    assert_snapshot!(table("CapabilitiesEnvelope", &[r#"{"agent_name":"n"}"#]), @r#"
    {"agent_name":"n"}
      -> {"agent_name":"n","domains":[],"channels":[],"tools":[],"max_concurrent_tasks":0,"model":null}
    "#);
    assert_snapshot!(table("PongEnvelope", &[r#"{"status":"asleep"}"#, "{}"]), @r#"
    {"status":"asleep"}
      -> {"status":"asleep","uptime_secs":0,"active_tasks":0,"agent_name":""}
    {}
      -> error: missing field `status`
    "#);
    let silent: Delegate = serde_json::from_str(r#"{"task":"t"}"#).unwrap();
    assert!(silent.wants_report());
    assert!(!silent.report_back(false).wants_report());
}

#[test]
fn null_is_as_good_as_left_out() {
    assert_snapshot!(table("QueryEnvelope", &[r#"{"question":"q","domain":null,"max_tokens":null,"deadline_ms":null}"#]), @r#"
    {"question":"q","domain":null,"max_tokens":null,"deadline_ms":null}
      -> {"question":"q","max_tokens":0}
    "#);
    let null = r#"{"task":"t","context":null,"priority":null,"report_back":null,"deadline_ms":null}"#;
    assert_snapshot!(table("DelegateEnvelope", &[null, r#"{"task":null}"#]), @r#"
    {"task":"t","context":null,"priority":null,"report_back":null,"deadline_ms":null}
      -> {"task":"t","context":{},"priority":"normal"}
    {"task":null}
      -> error: invalid type: null, expected a string
    "#);
    assert_snapshot!(table("ResponseEnvelope", &[r#"{"data":null,"summary":"s","tokens_used":null,"truncated":null}"#]), @r#"
    {"data":null,"summary":"s","tokens_used":null,"truncated":null}
      -> {"data":null,"summary":"s","tokens_used":0,"truncated":false}
    "#);
}

#[test]
fn an_outcome_says_what_went_wrong_in_any_form() {
    let fault = |error: Value| DelegationOutcome::new(OutcomeStatus::Failed).error(error).fault();
    assert_eq!(fault(json!({"code": "timeout"})).map(|fault| fault.code), Some(EnvelopeErrorCode::Timeout));
    assert_eq!(fault(json!("it broke")), Some(EnvelopeError::internal("it broke")));
    assert_eq!(fault(json!(7)), None);
    let success: DelegationOutcome =
        serde_json::from_str(r#"{"status":"completed","outcome":"o","error":null}"#).unwrap();
    assert_eq!(success.fault(), None);
}

#[test]
fn every_fault_has_a_number_and_the_number_leads_back() {
    use EnvelopeErrorCode::*;
    for code in [
        NotAuthorized,
        UnknownDomain,
        Overloaded,
        Internal,
        Timeout,
        Cancelled,
        UnknownKind,
        UnsupportedVersion,
        InvalidParameter,
        NotFound,
        Unreachable,
        TooManyHops,
        Conflict,
    ] {
        assert_eq!(EnvelopeErrorCode::from_rpc(code.rpc_code()), code);
    }
    assert_eq!(KindMismatch.rpc_code(), ErrorCode::INVALID_PARAMS);
    assert_eq!(Unknown("odd".into()).rpc_code(), ErrorCode::INTERNAL_ERROR);
    assert_eq!(EnvelopeErrorCode::from_rpc(ErrorCode(7)), Internal);
}

#[test]
fn a_raw_envelope_changes_no_byte_of_its_payload() {
    let text =
        r#"{"v":1,"id":"e","from":"a","to":"b","ts":1,"kind":"notify","ref":"r","payload":{ "x" : 1e2 }}"#;
    let envelope: Envelope = serde_json::from_str(text).unwrap();
    assert_eq!(serde_json::to_string(&envelope).unwrap(), text);
    assert_eq!(envelope.payload.get(), r#"{ "x" : 1e2 }"#);
}

#[test]
fn attachments_of_a_payload() {
    let image = Attachment::with_bytes("image/png", [0x89, b'P']).name("a.png").metadata([("width", 2)]);
    let notes = Attachment::with_text("text/markdown", "# Hi");
    let payload_of =
        |attachments: Vec<Attachment>| payload(&envelope(Query::new("q").attachments(attachments)));
    assert_snapshot!(payload_of(vec![image, notes]), @r##"{"question":"q","max_tokens":0,"attachments":[{"mime_type":"image/png","data":"iVA=","name":"a.png","metadata":{"width":2}},{"mime_type":"text/markdown","text":"# Hi"}]}"##);
    let counts = [
        Query::new("q").attachments([Attachment::new("a/b")]).attached().len(),
        QueryResponse::new("s").attachments([Attachment::new("a/b")]).attached().len(),
        Delegate::new("t").attachments([Attachment::new("a/b")]).attached().len(),
        DelegationOutcome::new(OutcomeStatus::Failed).attachments([Attachment::new("a/b")]).attached().len(),
        Notify::new("t").attachments([Attachment::new("a/b")]).attached().len(),
        Ping::new().attached().len(),
    ];
    assert_eq!(counts, [1, 1, 1, 1, 1, 0]);
    assert_snapshot!(table("QueryEnvelope", &[
        r#"{"question":"q","attachments":null}"#,
        r#"{"question":"q","attachments":[{"mime_type":"a/b","name":null,"metadata":null,"later":1.50}]}"#,
        r#"{"question":"q","attachments":[{"text":"no type"}]}"#,
        r#"{"question":"q","attachments":{}}"#,
    ]), @r#"
    {"question":"q","attachments":null}
      -> {"question":"q","max_tokens":0}
    {"question":"q","attachments":[{"mime_type":"a/b","name":null,"metadata":null,"later":1.50}]}
      -> {"question":"q","max_tokens":0,"attachments":[{"mime_type":"a/b","later":1.50}]}
    {"question":"q","attachments":[{"text":"no type"}]}
      -> error: missing field `mime_type`
    {"question":"q","attachments":{}}
      -> error: invalid type: map, expected a sequence
    "#);
}

#[test]
fn base64_of_an_attachment_has_several_spellings() {
    let bytes = |data: &str| Attachment::new("a/b").data(data).bytes().map(|bytes| bytes.into_owned());
    let expected = vec![0xfb, 0xff, 0xfe, 0x00];
    for data in ["+//+AA==", "+//+AA", "-__-AA==", "-__-AA"] {
        assert_eq!(bytes(data).as_ref(), Ok(&expected), "{data}");
    }
    assert_eq!(bytes(""), Ok(Vec::new()));
    let error = bytes("+_").unwrap_err().to_string();
    assert!(error.starts_with("the data of the attachment is not base64: "), "{error}");
    assert!(Attachment::new("a/b").bytes().unwrap().is_empty());
    assert_eq!(Attachment::with_text("a/b", "text").name("n").metadata([("key", 12)]).wire_size(), 13);
}

#[test]
fn a_question_is_text_or_data() {
    assert_snapshot!(table("QueryEnvelope", &[
        r#"{"question":{"free_on":"Friday","n":1.50}}"#,
        r#"{"question":["Ada","Bo"]}"#,
        r#"{"question":"\u0041da"}"#,
        r#"{"question":null}"#,
        r#"{"question":true}"#,
    ]), @r#"
    {"question":{"free_on":"Friday","n":1.50}}
      -> {"question":{"free_on":"Friday","n":1.50},"max_tokens":0}
    {"question":["Ada","Bo"]}
      -> {"question":["Ada","Bo"],"max_tokens":0}
    {"question":"\u0041da"}
      -> {"question":"Ada","max_tokens":0}
    {"question":null}
      -> error: `question` must be a text, an object or an array
    {"question":true}
      -> error: `question` must be a text, an object or an array
    "#);
    for question in [Question::from("Who?"), "Who?".to_owned().into(), json!("Who?").into()] {
        let shown = question.to_string();
        assert!(question == "Who?" && question.data().is_none() && shown == "Who?");
    }
    let data = Question::from(json!({"a": [1]}));
    assert!(data != r#"{"a":[1]}"#, "data is no text");
    assert_eq!(
        (data.as_str(), data.data().map(ToString::to_string)),
        (r#"{"a":[1]}"#, Some(r#"{"a":[1]}"#.into()))
    );
    assert_eq!(Question::from(duologue_schema::Json::from(json!("text"))), Question::Text("text".into()));
}

#[test]
fn priorities_have_levels() {
    let levels = ["low", "normal", "medium", "high", "urgent", "critical", "later"].map(|name| {
        let task: Delegate = serde_json::from_value(json!({"task": "t", "priority": name})).unwrap();
        assert_eq!(task.priority.as_str(), name, "it is written back");
        (task.priority.level(), task.priority.is_urgent())
    });
    let expected = [(1, false), (4, false), (4, false), (6, false), (8, true), (9, true), (4, false)];
    assert_eq!(levels, expected);
}

#[test]
fn a_card_of_an_agent() {
    assert_snapshot!(table("CapabilitiesEnvelope", &[
        r#"{"agent_name":"n","topics":["a.b"],"capabilities":["paint",{"name":"read","description":"d","schema":{"type":"string"},"later":1.50},{"name":"only"}],"provider":"P","version":"1.2","mime_types":["image/png"],"average_response_ms":900,"pricing":{"model":"per_request","rate":0.25,"currency":"EUR","later":[]}}"#,
        r#"{"agent_name":"n","topics":null,"capabilities":null,"provider":null,"mime_types":null,"pricing":{"model":"barter","rate":null}}"#,
        r#"{"agent_name":"n","capabilities":[{"description":"no name"}]}"#,
        r#"{"agent_name":"n","capabilities":[7]}"#,
    ]), @r#"
    {"agent_name":"n","topics":["a.b"],"capabilities":["paint",{"name":"read","description":"d","schema":{"type":"string"},"later":1.50},{"name":"only"}],"provider":"P","version":"1.2","mime_types":["image/png"],"average_response_ms":900,"pricing":{"model":"per_request","rate":0.25,"currency":"EUR","later":[]}}
      -> {"agent_name":"n","domains":[],"channels":[],"tools":[],"max_concurrent_tasks":0,"model":null,"topics":["a.b"],"capabilities":["paint",{"name":"read","description":"d","schema":{"type":"string"},"later":1.50},{"name":"only"}],"provider":"P","version":"1.2","mime_types":["image/png"],"average_response_ms":900,"pricing":{"model":"per_request","rate":0.25,"currency":"EUR","later":[]}}
    {"agent_name":"n","topics":null,"capabilities":null,"provider":null,"mime_types":null,"pricing":{"model":"barter","rate":null}}
      -> {"agent_name":"n","domains":[],"channels":[],"tools":[],"max_concurrent_tasks":0,"model":null,"pricing":{"model":"barter"}}
    {"agent_name":"n","capabilities":[{"description":"no name"}]}
      -> {"agent_name":"n","domains":[],"channels":[],"tools":[],"max_concurrent_tasks":0,"model":null,"capabilities":[{"description":"no name"}]}
    {"agent_name":"n","capabilities":[7]}
      -> {"agent_name":"n","domains":[],"channels":[],"tools":[],"max_concurrent_tasks":0,"model":null,"capabilities":[7]}
    "#);
}

#[test]
fn task_states_and_chunks() {
    let finals = TaskState::Completed;
    assert!(finals.is_final() && !TaskState::Cancelling.is_final() && !TaskState::from("later").is_final());
    let status =
        TaskStatus::new("d1", TaskState::Expired).updated_ms(5).error(EnvelopeError::internal("late"));
    assert_snapshot!(serde_json::to_string(&status).unwrap(), @r#"{"task":"d1","state":"expired","updated_ms":5,"error":{"code":"internal","message":"late","retryable":true}}"#);
    let chunk = OutputChunk::new(0).chunk("Once");
    assert_snapshot!(serde_json::to_string(&chunk).unwrap(), @r#"{"chunk":"Once","position":0,"complete":false}"#);
    assert_eq!(chunk.text().as_deref(), Some("Once"));
    assert_eq!(OutputChunk::new(1).chunk(json!({"a": 1})).complete(true).text(), None);
}
