//! Messages between agents: redacted, as a script, and replayed.

use std::time::Duration;

use duologue_transcript::{Header, Record, RecordEvent, RecordedLine, Redaction, Side, Transcript};

/// A transcript of lines that begin with `>` (the client) or `<` (the agent).
fn transcript(text: &str) -> Transcript {
    let records = text.trim().lines().enumerate().filter_map(|(at, line)| {
        let (mark, line) = line.trim_start().split_at_checked(2)?;
        let side = if mark == "> " { Side::Client } else { Side::Agent };
        Some(Record::new(
            Duration::from_millis(at as u64),
            RecordEvent::Line(RecordedLine::new(side, line.as_bytes())),
        ))
    });
    Transcript::new(Header::new("a test"), records.collect())
}

fn lines(transcript: &Transcript) -> String {
    let lines = transcript.records().iter().filter_map(|record| {
        let line = record.line()?;
        let mark = if line.from == Side::Client { ">" } else { "<" };
        Some(format!("{mark} {}\n", line.text()?))
    });
    lines.collect()
}

/// An exchange as it is one day: `$name` becomes an id that no other day has, `@` a time.
fn on(day: u64, text: &str) -> Transcript {
    let mut out = String::new();
    let mut parts = text.split('$');
    out.push_str(parts.next().unwrap());
    for part in parts {
        let end = part.find(|char: char| !char.is_ascii_lowercase()).unwrap_or(part.len());
        let (name, rest) = part.split_at(end);
        let hash = name.bytes().fold(day, |hash, byte| hash.wrapping_mul(0x100_0000_01b3) ^ u64::from(byte));
        match name {
            "client" | "agent" => out.push_str(&format!("{hash:016x}{day:016x}")),
            _ => out.push_str(&format!("{:08x}-0000-4000-8000-{:012x}", hash as u32, hash >> 16)),
        }
        out.push_str(rest);
    }
    let time = (1_700_000_000_000 + day * 86_400_000).to_string();
    let date = format!("2026-03-{:02}T12:00:00.5Z", 1 + day);
    transcript(&out.replace("@date", &date).replace('@', &time))
}

const HANDSHAKE: &str = r#"
> {"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{"_meta":{"duologue":{"agentId":"$client","envelope":{"v":[1]},"dialogue":{},"work":{}}}}}}
< {"jsonrpc":"2.0","id":0,"result":{"protocolVersion":1,"agentCapabilities":{"_meta":{"duologue":{"agentId":"$agent","envelope":{"v":[1]},"dialogue":{},"work":{}}}}}}
> {"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/w","mcpServers":[]}}
< {"jsonrpc":"2.0","id":1,"result":{"sessionId":"$session"}}
"#;

const WITHOUT_SESSION: &str = r#"
> {"jsonrpc":"2.0","id":2,"method":"_session/ping","params":{"envelope":{"v":1,"id":"$ping","from":"$client","to":"$agent","ts":@,"kind":"ping","ref":null,"payload":{}}}}
< {"jsonrpc":"2.0","id":2,"result":{"envelope":{"v":1,"id":"$pong","from":"$agent","to":"$client","ts":@,"kind":"pong","ref":"$ping","payload":{"status":"idle","uptime_secs":61,"active_tasks":0,"agent_name":"painter"}}}}
> {"jsonrpc":"2.0","id":7,"method":"_session/discover","params":{"envelope":{"v":1,"id":"$discover","from":"$client","to":"$agent","ts":@,"kind":"discover","ref":null,"payload":null}}}
< {"jsonrpc":"2.0","id":7,"result":{"envelope":{"v":1,"id":"$abilities","from":"$agent","to":"$client","ts":@,"kind":"capabilities","ref":"$discover","payload":{"agent_name":"painter","domains":["work.paint"],"channels":["task.progress"],"tools":["brush"],"max_concurrent_tasks":2,"model":"small"}}}}
"#;

const ENVELOPES: &str = r#"
> {"jsonrpc":"2.0","id":3,"method":"_session/query","params":{"sessionId":"$session","envelope":{"v":1,"id":"$query","from":"$client","to":"$agent","ts":@,"kind":"query","ref":null,"payload":{"question":"Who is free?","domain":"family.calendar","max_tokens":200,"deadline_ms":5000}}}}
< {"jsonrpc":"2.0","id":3,"result":{"envelope":{"v":1,"id":"$response","from":"$agent","to":"$client","ts":@,"kind":"response","ref":"$query","payload":{"data":["Ada"],"summary":"Ada, on Friday","tokens_used":12,"truncated":false}}}}
> {"jsonrpc":"2.0","id":4,"method":"_session/delegate","params":{"sessionId":"$session","envelope":{"v":1,"id":"$delegate","from":"$client","to":"$agent","ts":@,"kind":"delegate","ref":null,"payload":{"task":"Paint the kitchen","context":{"colour":"blue"},"priority":"urgent","report_back":true}}}}
< {"jsonrpc":"2.0","id":4,"result":{"envelope":{"v":1,"id":"$ack","from":"$agent","to":"$client","ts":@,"kind":"ack","ref":"$delegate","payload":{"accepted":true,"estimated_ms":9000}}}}
< {"jsonrpc":"2.0","method":"_session/notify","params":{"sessionId":"$session","envelope":{"v":1,"id":"$news","from":"$agent","to":"$client","ts":@,"kind":"notify","ref":"$delegate","payload":{"topic":"task.progress","data":0.5,"importance":"low"}}}}
> {"jsonrpc":"2.0","id":5,"method":"_session/cancel","params":{"sessionId":"$session","envelope":{"v":1,"id":"$cancel","from":"$client","to":"$agent","ts":@,"kind":"cancel","ref":"$delegate","payload":{"reason":"out of paint"}}}}
< {"jsonrpc":"2.0","id":5,"result":{"envelope":{"v":1,"id":"$nack","from":"$agent","to":"$client","ts":@,"kind":"ack","ref":"$cancel","payload":{"accepted":false,"reason":"already_finished"}}}}
< {"jsonrpc":"2.0","method":"_session/result","params":{"sessionId":"$session","envelope":{"v":1,"id":"$result","from":"$agent","to":"$client","ts":@,"kind":"result","ref":"$delegate","payload":{"status":"completed","outcome":"It is blue","data":{"litres":3},"error":null}}}}
< {"jsonrpc":"2.0","id":6,"method":"_session/query","params":{"sessionId":"$session","envelope":{"v":1,"id":"$back","from":"$agent","to":"$client","ts":@,"kind":"query","ref":null,"payload":{"question":"And the ceiling, $agent asks?","max_tokens":0}}}}
> {"jsonrpc":"2.0","id":6,"error":{"code":-31005,"message":"no room","data":{"envelope":{"v":1,"id":"$fault","from":"$client","to":"$agent","ts":@,"kind":"error","ref":"$back","payload":{"code":"overloaded","message":"no room","retryable":true}}}}}
> {"jsonrpc":"2.0","method":"_session/error","params":{"sessionId":"$session","envelope":{"v":1,"id":"$late","from":"$client","to":"$agent","ts":@,"kind":"error","ref":"$news","payload":{"code":"unknown_domain","message":"nobody here knows about task","retryable":false}}}}
"#;

const DIALOGUE: &str = r#"
> {"jsonrpc":"2.0","id":8,"method":"_session/dialogue","params":{"sessionId":"$session","message":{"message_id":"$one","session_id":"$dialogue","sender_id":"agent://home.example/buyer","recipient_id":"agent://cars.example/seller","timestamp":"@date","interaction_step":1,"message_type":"propose","dialogue_act":"propose","content":{"previous_context":[],"domain":"automotive.sales","task":"negotiatePrice","parameters":{"price":16000},"natural_language":"Would you take 16,000?"},"metadata":{"priority":5,"correlation_id":"$thread"},"signature":"eyJhbGciOiJIUzI1NiIsImtpZCI6ImsxIn0..dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"}}}
< {"jsonrpc":"2.0","id":8,"result":{"receipt":{"message_id":"$one","session_id":"$dialogue","duplicate":false,"status":"delivered"}}}
< {"jsonrpc":"2.0","id":9,"method":"_session/dialogue","params":{"sessionId":"$session","message":{"message_id":"$two","session_id":"$dialogue","parent_message_id":"$one","sender_id":"agent://cars.example/seller","recipient_id":"agent://home.example/buyer","timestamp":"@date","interaction_step":2,"message_type":"reject","dialogue_act":"reject","content":{"previous_context":["$one"],"domain":"automotive.sales","task":"negotiatePrice","parameters":{"price":17500},"belief_updates":[{"entity":"vehicle:12345ABCDEFG67890","attribute":"price","value":18000,"confidence":1.0}]},"metadata":{"correlation_id":"$thread","parent_session_id":"$outer"}}}}
> {"jsonrpc":"2.0","id":9,"result":{"error":{"message_id":"$three","session_id":"$dialogue","parent_message_id":"$two","sender_id":"agent://home.example/buyer","recipient_id":"agent://cars.example/seller","timestamp":"@date","interaction_step":3,"message_type":"error","content":{"previous_context":[],"parameters":{},"error_code":"UNAUTHORIZED","error_message":"no signature","details":{},"failed_message_id":"$two","failed_session_id":"$dialogue","failed_sender_id":"agent://cars.example/seller","failed_recipient_id":"agent://home.example/buyer"}}}}
"#;

const WORK: &str = r##"
> {"jsonrpc":"2.0","id":10,"method":"_session/work","params":{"sessionId":"$session","input":{"context":{"feature_id":"login","workflow":"feature","iteration":2},"paths":{"feature_root":"/w/features/login","spec":"features/login/spec.md"},"task":{"action":"validate","params":{"strict":true}},"prior_context":["Nobody said what happens offline.",{"open":2}]}}}
< {"jsonrpc":"2.0","id":10,"result":{"output":{"success":false,"summary":"Two cases are missing.","artifacts":[{"path":"report.md","operation":"create","content":"# Report\nTwo cases.\n"}],"notes":["offline"],"recommendation":"retry"}}}
"##;

fn everything(day: u64) -> Transcript {
    on(day, &[HANDSHAKE, WITHOUT_SESSION, ENVELOPES, DIALOGUE, WORK].concat())
}

#[test]
fn ids_times_and_signatures_are_named() {
    insta::assert_snapshot!(lines(&on(3, &[HANDSHAKE, WITHOUT_SESSION, ENVELOPES].concat()).redacted()), @r#"
    > {"jsonrpc":"2.0","id":"[request-1]","method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{"_meta":{"duologue":{"agentId":"[agent-1]","envelope":{"v":[1]},"dialogue":{},"work":{}}}}}}
    < {"jsonrpc":"2.0","id":"[request-1]","result":{"protocolVersion":1,"agentCapabilities":{"_meta":{"duologue":{"agentId":"[agent-2]","envelope":{"v":[1]},"dialogue":{},"work":{}}}}}}
    > {"jsonrpc":"2.0","id":"[session-1.request-1]","method":"session/new","params":{"cwd":"[cwd]","mcpServers":[]}}
    < {"jsonrpc":"2.0","id":"[session-1.request-1]","result":{"sessionId":"[session-1]"}}
    > {"jsonrpc":"2.0","id":"[request-2]","method":"_session/ping","params":{"envelope":{"v":1,"id":"[envelope-1]","from":"[agent-1]","to":"[agent-2]","ts":0,"kind":"ping","ref":null,"payload":{}}}}
    < {"jsonrpc":"2.0","id":"[request-2]","result":{"envelope":{"v":1,"id":"[envelope-2]","from":"[agent-2]","to":"[agent-1]","ts":0,"kind":"pong","ref":"[envelope-1]","payload":{"status":"idle","uptime_secs":0,"active_tasks":0,"agent_name":"painter"}}}}
    > {"jsonrpc":"2.0","id":"[request-3]","method":"_session/discover","params":{"envelope":{"v":1,"id":"[envelope-3]","from":"[agent-1]","to":"[agent-2]","ts":0,"kind":"discover","ref":null,"payload":null}}}
    < {"jsonrpc":"2.0","id":"[request-3]","result":{"envelope":{"v":1,"id":"[envelope-4]","from":"[agent-2]","to":"[agent-1]","ts":0,"kind":"capabilities","ref":"[envelope-3]","payload":{"agent_name":"painter","domains":["work.paint"],"channels":["task.progress"],"tools":["brush"],"max_concurrent_tasks":2,"model":"small"}}}}
    > {"jsonrpc":"2.0","id":"[session-1.request-2]","method":"_session/query","params":{"sessionId":"[session-1]","envelope":{"v":1,"id":"[session-1.envelope-1]","from":"[agent-1]","to":"[agent-2]","ts":0,"kind":"query","ref":null,"payload":{"question":"Who is free?","domain":"family.calendar","max_tokens":200,"deadline_ms":5000}}}}
    < {"jsonrpc":"2.0","id":"[session-1.request-2]","result":{"envelope":{"v":1,"id":"[session-1.envelope-2]","from":"[agent-2]","to":"[agent-1]","ts":0,"kind":"response","ref":"[session-1.envelope-1]","payload":{"data":["Ada"],"summary":"Ada, on Friday","tokens_used":12,"truncated":false}}}}
    > {"jsonrpc":"2.0","id":"[session-1.request-3]","method":"_session/delegate","params":{"sessionId":"[session-1]","envelope":{"v":1,"id":"[session-1.envelope-3]","from":"[agent-1]","to":"[agent-2]","ts":0,"kind":"delegate","ref":null,"payload":{"task":"Paint the kitchen","context":{"colour":"blue"},"priority":"urgent","report_back":true}}}}
    < {"jsonrpc":"2.0","id":"[session-1.request-3]","result":{"envelope":{"v":1,"id":"[session-1.envelope-4]","from":"[agent-2]","to":"[agent-1]","ts":0,"kind":"ack","ref":"[session-1.envelope-3]","payload":{"accepted":true,"estimated_ms":9000}}}}
    < {"jsonrpc":"2.0","method":"_session/notify","params":{"sessionId":"[session-1]","envelope":{"v":1,"id":"[session-1.envelope-5]","from":"[agent-2]","to":"[agent-1]","ts":0,"kind":"notify","ref":"[session-1.envelope-3]","payload":{"topic":"task.progress","data":0.5,"importance":"low"}}}}
    > {"jsonrpc":"2.0","id":"[session-1.request-4]","method":"_session/cancel","params":{"sessionId":"[session-1]","envelope":{"v":1,"id":"[session-1.envelope-6]","from":"[agent-1]","to":"[agent-2]","ts":0,"kind":"cancel","ref":"[session-1.envelope-3]","payload":{"reason":"out of paint"}}}}
    < {"jsonrpc":"2.0","id":"[session-1.request-4]","result":{"envelope":{"v":1,"id":"[session-1.envelope-7]","from":"[agent-2]","to":"[agent-1]","ts":0,"kind":"ack","ref":"[session-1.envelope-6]","payload":{"accepted":false,"reason":"already_finished"}}}}
    < {"jsonrpc":"2.0","method":"_session/result","params":{"sessionId":"[session-1]","envelope":{"v":1,"id":"[session-1.envelope-8]","from":"[agent-2]","to":"[agent-1]","ts":0,"kind":"result","ref":"[session-1.envelope-3]","payload":{"status":"completed","outcome":"It is blue","data":{"litres":3},"error":null}}}}
    < {"jsonrpc":"2.0","id":"[session-1.request-1]","method":"_session/query","params":{"sessionId":"[session-1]","envelope":{"v":1,"id":"[session-1.envelope-9]","from":"[agent-2]","to":"[agent-1]","ts":0,"kind":"query","ref":null,"payload":{"question":"And the ceiling, [agent-2] asks?","max_tokens":0}}}}
    > {"jsonrpc":"2.0","id":"[session-1.request-1]","error":{"code":-31005,"message":"no room","data":{"envelope":{"v":1,"id":"[session-1.envelope-10]","from":"[agent-1]","to":"[agent-2]","ts":0,"kind":"error","ref":"[session-1.envelope-9]","payload":{"code":"overloaded","message":"no room","retryable":true}}}}}
    > {"jsonrpc":"2.0","method":"_session/error","params":{"sessionId":"[session-1]","envelope":{"v":1,"id":"[session-1.envelope-11]","from":"[agent-1]","to":"[agent-2]","ts":0,"kind":"error","ref":"[session-1.envelope-5]","payload":{"code":"unknown_domain","message":"nobody here knows about task","retryable":false}}}}
    "#);
    insta::assert_snapshot!(lines(&on(3, DIALOGUE).redacted()), @r#"
    > {"jsonrpc":"2.0","id":"[session-1.request-1]","method":"_session/dialogue","params":{"sessionId":"[session-1]","message":{"message_id":"[session-1.message-1]","session_id":"[session-1.dialogue-1]","sender_id":"agent://home.example/buyer","recipient_id":"agent://cars.example/seller","timestamp":"[time]","interaction_step":1,"message_type":"propose","dialogue_act":"propose","content":{"previous_context":[],"domain":"automotive.sales","task":"negotiatePrice","parameters":{"price":16000},"natural_language":"Would you take 16,000?"},"metadata":{"priority":5,"correlation_id":"[id-1]"},"signature":"[signature]"}}}
    < {"jsonrpc":"2.0","id":"[session-1.request-1]","result":{"receipt":{"message_id":"[session-1.message-1]","session_id":"[session-1.dialogue-1]","duplicate":false,"status":"delivered"}}}
    < {"jsonrpc":"2.0","id":"[session-1.request-1]","method":"_session/dialogue","params":{"sessionId":"[session-1]","message":{"message_id":"[session-1.message-2]","session_id":"[session-1.dialogue-1]","parent_message_id":"[session-1.message-1]","sender_id":"agent://cars.example/seller","recipient_id":"agent://home.example/buyer","timestamp":"[time]","interaction_step":2,"message_type":"reject","dialogue_act":"reject","content":{"previous_context":["[session-1.message-1]"],"domain":"automotive.sales","task":"negotiatePrice","parameters":{"price":17500},"belief_updates":[{"entity":"vehicle:12345ABCDEFG67890","attribute":"price","value":18000,"confidence":1.0}]},"metadata":{"correlation_id":"[id-1]","parent_session_id":"[session-1.dialogue-2]"}}}}
    > {"jsonrpc":"2.0","id":"[session-1.request-1]","result":{"error":{"message_id":"[session-1.message-3]","session_id":"[session-1.dialogue-1]","parent_message_id":"[session-1.message-2]","sender_id":"agent://home.example/buyer","recipient_id":"agent://cars.example/seller","timestamp":"[time]","interaction_step":3,"message_type":"error","content":{"previous_context":[],"parameters":{},"error_code":"UNAUTHORIZED","error_message":"no signature","details":{},"failed_message_id":"[session-1.message-2]","failed_session_id":"[session-1.dialogue-1]","failed_sender_id":"agent://cars.example/seller","failed_recipient_id":"agent://home.example/buyer"}}}}
    "#);
    insta::assert_snapshot!(lines(&on(3, WORK).redacted()), @r##"
    > {"jsonrpc":"2.0","id":"[session-1.request-1]","method":"_session/work","params":{"sessionId":"[session-1]","input":{"context":{"feature_id":"login","workflow":"feature","iteration":2},"paths":{"feature_root":"/w/features/login","spec":"features/login/spec.md"},"task":{"action":"validate","params":{"strict":true}},"prior_context":["Nobody said what happens offline.",{"open":2}]}}}
    < {"jsonrpc":"2.0","id":"[session-1.request-1]","result":{"output":{"success":false,"summary":"Two cases are missing.","artifacts":[{"path":"report.md","operation":"create","content":"# Report\nTwo cases.\n"}],"notes":["offline"],"recommendation":"retry"}}}
    "##);
}

#[test]
fn the_same_exchange_on_two_days_is_the_same_redacted() {
    let (one, other) = (everything(1).redacted(), everything(7).redacted());
    assert_ne!(lines(&everything(1)), lines(&everything(7)));
    assert_eq!(lines(&one), lines(&other));
    assert_eq!(one.redacted(), one);
}

/// Two sessions of one connection say nothing of each other's ids, but the agents in them are the same.
#[test]
fn sessions_count_for_themselves_and_agents_for_all() {
    let line = |session: &str, id: &str| {
        format!(
            r#"> {{"jsonrpc":"2.0","method":"_session/notify","params":{{"sessionId":"{session}","envelope":{{"id":"{id}","from":"aa11","to":"bb22","ts":1,"kind":"notify","payload":{{"topic":"t"}}}}}}}}"#
        )
    };
    let redacted = transcript(&[line("s1", "n1"), line("s2", "n2"), line("s1", "n3")].join("\n")).redacted();
    insta::assert_snapshot!(lines(&redacted), @r#"
    > {"jsonrpc":"2.0","method":"_session/notify","params":{"sessionId":"[session-1]","envelope":{"id":"[session-1.envelope-1]","from":"[agent-1]","to":"[agent-2]","ts":1,"kind":"notify","payload":{"topic":"t"}}}}
    > {"jsonrpc":"2.0","method":"_session/notify","params":{"sessionId":"[session-2]","envelope":{"id":"[session-2.envelope-1]","from":"[agent-1]","to":"[agent-2]","ts":1,"kind":"notify","payload":{"topic":"t"}}}}
    > {"jsonrpc":"2.0","method":"_session/notify","params":{"sessionId":"[session-1]","envelope":{"id":"[session-1.envelope-2]","from":"[agent-1]","to":"[agent-2]","ts":1,"kind":"notify","payload":{"topic":"t"}}}}
    "#);
}

#[test]
fn envelopes_as_a_script() {
    insta::assert_snapshot!(on(3, &[HANDSHAKE, WITHOUT_SESSION, ENVELOPES].concat()).redacted().render(), @r#"
    ## connection

    → initialize v1
      can _meta = {"duologue":{"agentId":"[agent-1]","dialogue":{},"envelope":{"v":[1]},"work":{}}}
    ← initialize v1
      can _meta = {"duologue":{"agentId":"[agent-2]","dialogue":{},"envelope":{"v":[1]},"work":{}}}
    → _session/ping
    ← _session/ping idle "painter"
    → _session/discover
    ← _session/discover small "painter" 2 tasks at once
      domains work.paint
      channels task.progress
      tools brush

    ## session [session-1]

    → session/new [cwd]
    ← session/new ok
    → _session/query family.calendar "Who is free?" 200 tokens at most within 5000 ms
    ← _session/query "Ada, on Friday" 12 tokens
      data ["Ada"]
    → _session/delegate [session-1.envelope-3] "Paint the kitchen" urgent
      context {"colour":"blue"}
    ← _session/delegate accepted 9000 ms to go
    ← _session/notify [session-1.envelope-5] re [session-1.envelope-3] task.progress low
      data 0.5
    → _session/cancel re [session-1.envelope-3] "out of paint"
    ← _session/cancel refused "already_finished"
    ← _session/result re [session-1.envelope-3] completed "It is blue"
      data {"litres":3}
    ← _session/query "And the ceiling, [agent-2] asks?"
    → _session/query error -31005 "no room" overloaded "no room" retryable
    → _session/error re [session-1.envelope-5] unknown_domain "nobody here knows about task"
    "#);
}

/// An id is that of the same message on the whole connection, whether the session is named or not.
#[test]
fn an_id_has_one_name_on_a_connection() {
    let text = r#"
> {"jsonrpc":"2.0","id":1,"method":"_session/delegate","params":{"sessionId":"$session","envelope":{"v":1,"id":"$delegate","from":"$client","to":"$agent","ts":@,"kind":"delegate","ref":null,"payload":{"task":"Paint"}}}}
> {"jsonrpc":"2.0","method":"_session/notify","params":{"sessionId":"$other","envelope":{"v":1,"id":"$news","from":"$client","to":"$agent","ts":@,"kind":"notify","ref":"$delegate","payload":{"topic":"work.paint"}}}}
< {"jsonrpc":"2.0","method":"_session/error","params":{"envelope":{"v":1,"id":"$fault","from":"$agent","to":"$client","ts":@,"kind":"error","ref":"$delegate","payload":{"code":"internal","message":"$delegate broke, $news too"}}}}
> {"jsonrpc":"2.0","id":3,"method":"_session/dialogue","params":{"sessionId":"$session","message":{"message_id":"$one","session_id":"$dialogue"}}}
> {"jsonrpc":"2.0","id":4,"method":"_session/dialogue","params":{"sessionId":"$other","message":{"message_id":"$two","session_id":"$nested","parent_message_id":"$one","metadata":{"parent_session_id":"$dialogue"}}}}
"#;
    insta::assert_snapshot!(lines(&on(3, text).redacted()), @r#"
    > {"jsonrpc":"2.0","id":"[session-1.request-1]","method":"_session/delegate","params":{"sessionId":"[session-1]","envelope":{"v":1,"id":"[session-1.envelope-1]","from":"[agent-1]","to":"[agent-2]","ts":0,"kind":"delegate","ref":null,"payload":{"task":"Paint"}}}}
    > {"jsonrpc":"2.0","method":"_session/notify","params":{"sessionId":"[session-2]","envelope":{"v":1,"id":"[session-2.envelope-1]","from":"[agent-1]","to":"[agent-2]","ts":0,"kind":"notify","ref":"[session-1.envelope-1]","payload":{"topic":"work.paint"}}}}
    < {"jsonrpc":"2.0","method":"_session/error","params":{"envelope":{"v":1,"id":"[envelope-1]","from":"[agent-2]","to":"[agent-1]","ts":0,"kind":"error","ref":"[session-1.envelope-1]","payload":{"code":"internal","message":"[session-1.envelope-1] broke, [session-2.envelope-1] too"}}}}
    > {"jsonrpc":"2.0","id":"[session-1.request-2]","method":"_session/dialogue","params":{"sessionId":"[session-1]","message":{"message_id":"[session-1.message-1]","session_id":"[session-1.dialogue-1]"}}}
    > {"jsonrpc":"2.0","id":"[session-2.request-1]","method":"_session/dialogue","params":{"sessionId":"[session-2]","message":{"message_id":"[session-2.message-1]","session_id":"[session-2.dialogue-1]","parent_message_id":"[session-1.message-1]","metadata":{"parent_session_id":"[session-1.dialogue-1]"}}}}
    "#);
}

#[test]
fn dialogues_as_a_script() {
    insta::assert_snapshot!(on(3, DIALOGUE).redacted().render(), @r#"
    ## session [session-1]

    → _session/dialogue step 1 propose [session-1.message-1] signed
      agent://home.example/buyer to agent://cars.example/seller in [session-1.dialogue-1]
      automotive.sales negotiatePrice {"price":16000}
      "Would you take 16,000?"
      metadata {"correlation_id":"[id-1]","priority":5}
    ← _session/dialogue delivered [session-1.message-1] in [session-1.dialogue-1]
    ← _session/dialogue step 2 reject [session-1.message-2] re [session-1.message-1]
      agent://cars.example/seller to agent://home.example/buyer in [session-1.dialogue-1]
      automotive.sales negotiatePrice {"price":17500}
      after [session-1.message-1]
      believes vehicle:12345ABCDEFG67890 price = 18000 (1.0)
      metadata {"correlation_id":"[id-1]","parent_session_id":"[session-1.dialogue-2]"}
    → _session/dialogue step 3 error [session-1.message-3] re [session-1.message-2]
      agent://home.example/buyer to agent://cars.example/seller in [session-1.dialogue-1]
      UNAUTHORIZED "no signature"
      about [session-1.message-2] of agent://cars.example/seller to agent://home.example/buyer in [session-1.dialogue-1]
    "#);
}

#[test]
fn work_orders_as_a_script() {
    insta::assert_snapshot!(on(3, WORK).redacted().render(), @r#"
    ## session [session-1]

    → _session/work validate {"strict":true} for login feature iteration 2
      path feature_root = /w/features/login
      path spec = features/login/spec.md
      prior "Nobody said what happens offline."
      prior {"open":2}
    ← _session/work failure retry "Two cases are missing."
      create report.md [20 bytes, aae1ed3d]
      note "offline"
    "#);
}

/// Messages of an unknown form are shown unchanged.
#[test]
fn odd_ones_as_a_script() {
    let odd = r#"
> {"jsonrpc":"2.0","id":1,"method":"_session/query","params":{"sessionId":"s","envelope":{"v":2,"id":7,"from":["a"],"ts":1,"kind":"ping","ref":4,"payload":{"question":["?"],"mood":"kind"}},"_meta":{"a":1}}}
< {"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no","data":{"envelope":7,"more":1}}}
> {"jsonrpc":"2.0","id":2,"method":"_session/delegate","params":{"sessionId":"s","envelope":{"id":"d","from":"a","to":"b","ts":1,"kind":"delegate","payload":{"task":"Paint:\n- walls\n- doors","report_back":false,"deadline_ms":10,"context":[]}}}}
< {"jsonrpc":"2.0","id":2,"result":{"envelope":{"id":"f","from":"b","to":"a","ts":1,"kind":"ack","payload":{"accepted":false,"reason":"busy","error":{"code":"overloaded","message":"full","retryable":true}}}}}
< {"jsonrpc":"2.0","method":"_session/result","params":{"sessionId":"s","envelope":{"id":"g","from":"b","to":"a","ts":1,"kind":"result","ref":"d","payload":{"status":"failed","outcome":"","error":"dry"}}}}
< {"jsonrpc":"2.0","method":"_session/sing","params":{"sessionId":"s","song":"la"}}
< {"jsonrpc":"2.0","method":"_session/pong","params":{"envelope":{"id":"h","from":"b","to":"a","ts":1,"kind":"pong","ref":"i","payload":{"status":"busy","active_tasks":2,"uptime_secs":61,"agent_name":"b"}}}}
> {"jsonrpc":"2.0","id":3,"method":"_session/dialogue","params":{"sessionId":"s","message":7}}
< {"jsonrpc":"2.0","id":3,"result":{"receipt":{"message_id":"m","session_id":"d","duplicate":true,"status":"held","n":1}}}
> {"jsonrpc":"2.0","id":4,"method":"_session/work","params":{"input":{"context":{},"paths":{"a":1},"task":{"action":"a","params":{}},"prior_context":"none"}}}
< {"jsonrpc":"2.0","id":4,"result":{"output":{"success":"yes","summary":"a\nb","artifacts":[],"recommendation":"sing"}}}
"#;
    insta::assert_snapshot!(transcript(odd).render(), @r#"
    ## connection

    ← _session/pong re i busy "b" 2 tasks 61 s up
    → _session/work a for {"prior_context":"none"}
      path a = 1
    ← _session/work sing {"success":"yes"}
      | a
      | b

    ## session s

    → _session/query of the kind ping {"mood":"kind","question":["?"]} {"from":["a"],"id":7,"ref":4,"v":2} {"_meta":{"a":1}}
    ← _session/query error -32602 "no" {"data":{"envelope":7,"more":1}}
    → _session/delegate d no report within 10 ms
      | Paint:
      | - walls
      | - doors
      context []
    ← _session/delegate refused "busy" error overloaded "full" retryable
    ← _session/result re d failed "" error "dry"
    ← _session/sing {"song":"la"}
    → _session/dialogue {"message":7}
    ← _session/dialogue held m in d again {"n":1}
    "#);
}

/// A recorder takes out secrets, which none of this is: a signature that is taken out cannot be replayed.
#[test]
fn nothing_of_it_is_secret() {
    let recorded = everything(5);
    assert_eq!(lines(&recorded.redact(&Redaction::secrets_only())), lines(&recorded));
}

const ATTACHMENTS: &str = r##"
> {"jsonrpc":"2.0","id":1,"method":"_session/dialogue","params":{"sessionId":"s","message":{"message_id":"m1","session_id":"d1","sender_id":"agent://a","recipient_id":"agent://b","timestamp":"2026-03-01T12:00:00Z","interaction_step":1,"message_type":"inform","content":{"parameters":{},"attachments":[{"mime_type":"image/png","data":"iVBORw0KGgo=","name":"front.png","metadata":{"width":640}},{"mime_type":"text/plain","text":"the key is sk-proj-$secret","name":"/home/ada/keys.txt","metadata":{"token":"ghp_$secret"}}]}}}}
< {"jsonrpc":"2.0","id":1,"result":{"receipt":{"message_id":"m1","session_id":"d1","duplicate":false,"status":"delivered"}}}
> {"jsonrpc":"2.0","id":2,"method":"_session/dialogue","params":{"sessionId":"s","message":{"message_id":"m2","session_id":"d1","sender_id":"agent://a","recipient_id":"agent://b","timestamp":"2026-03-01T12:00:00Z","interaction_step":2,"message_type":"inform","content":{"parameters":{},"attachments":"see the mail, password=$secret"}}}}
"##;

/// The script has the kind and the size of each attachment, and the text of a short one.
#[test]
fn attachments_of_a_dialogue_are_shown() {
    let shown = |text: &str| transcript(&text.replace("$secret", "0")).render();
    insta::assert_snapshot!(shown(ATTACHMENTS), @r#"
    ## session s

    → _session/dialogue step 1 inform m1
      agent://a to agent://b in d1
      attachment image/png "front.png" iVBORw0KGgo= {"width":640}
      attachment text/plain "/home/ada/keys.txt" "the key is sk-proj-0" {"token":"ghp_0"}
    ← _session/dialogue delivered m1 in d1
    → _session/dialogue step 2 inform m2 (no answer)
      agent://a to agent://b in d1
      {"attachments":"see the mail, password=0"}
    "#);
    let image = "QUJD".repeat(500);
    let large = shown(&ATTACHMENTS.replace("iVBORw0KGgo=", &image));
    assert!(large.contains("image/png \"front.png\" [") && large.len() < 1_000, "{large}");
}

/// Secrets in a text, in the metadata and in attachments of another form are removed. The rest is kept.
#[test]
fn secrets_in_attachments_of_a_dialogue_are_redacted() {
    let secret = "7Qx9bT2mLr4Vn8Kp1Zs6Wd3Yf5Hc0JgAeUi2Oo7Xy";
    let recorded = transcript(&ATTACHMENTS.replace("$secret", secret));
    for redaction in [Redaction::secrets_only(), Redaction::default()] {
        let redacted = recorded.redact(&redaction);
        for text in [lines(&redacted), redacted.render()] {
            assert!(!text.contains(secret) && !text.contains(secret.get(8..24).unwrap()), "{text}");
        }
        let text = lines(&redacted);
        for kept in
            ["iVBORw0KGgo=", "front.png", "image/png", r#""width":640"#, "the key is ", "see the mail"]
        {
            assert!(text.contains(kept), "{kept}: {text}");
        }
    }
}

/// The lines of an exchange in a session of its own, on a connection that it shares. Only the agents are the same.
fn session(letter: char) -> Vec<String> {
    let text = [ENVELOPES, DIALOGUE, WORK].concat().replace(r#""id":"#, &format!(r#""id":{}"#, letter as u8));
    let text = text.replace(&format!(r#""id":{}"$"#, letter as u8), r#""id":"$"#);
    let mut names = text.split('$');
    let mut own = names.next().unwrap().to_owned();
    for rest in names {
        let agent = rest.starts_with("client") || rest.starts_with("agent");
        own.push('$');
        own.extend(Some(letter).filter(|_| !agent));
        own.push_str(rest);
    }
    own.trim().lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

proptest::proptest! {
    #![proptest_config(crate::random_cases(16))]

    /// Exchanges in two sessions have the same script however they run into each other, and on whatever day.
    #[test]
    fn sessions_do_not_change_each_others_script(
        turns in proptest::collection::vec(proptest::bool::ANY, 40),
        day in 0..20_u64,
    ) {
        let (one, other) = (session('a'), session('b'));
        let (mut one, mut other) = (one.into_iter(), other.into_iter());
        // The sessions are numbered by who is first.
        let mut mixed: Vec<String> = one.next().into_iter().chain(other.next()).collect();
        for turn in turns {
            mixed.extend(if turn { one.next() } else { other.next() });
        }
        mixed.extend(one.chain(other));
        let script = |day, lines: &[String]| on(day, &[HANDSHAKE, &lines.join("\n")].concat()).redacted().render();
        let apart = [session('a'), session('b')].concat();
        proptest::prop_assert_eq!(script(day, &mixed), script(21, &apart));
    }
}
