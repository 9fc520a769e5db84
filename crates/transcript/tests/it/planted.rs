//! Secrets planted in every place of a conversation and in every spelling: none is left.
#![allow(clippy::string_slice)]

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use duologue_transcript::{Header, Record, RecordEvent, RecordedLine, Redaction, Secrets, Side, Transcript};
use serde_json::{Value, json};

/// Generates random characters of the alphabet, other ones in each call.
fn noise(seed: &mut u64, length: usize, alphabet: &str) -> String {
    let letters: Vec<char> = alphabet.chars().collect();
    let mut text: String = (0..length)
        .map(|_| {
            *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            letters[(*seed >> 33) as usize % letters.len()]
        })
        .collect();
    // As real ones do, it holds a digit.
    text.replace_range(1..2, "7");
    text
}

const MIXED: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const UPPER: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const HEX: &str = "0123456789abcdef";

/// A text that holds a secret by its shape, and the part that must go.
pub(crate) fn shapes(seed: &mut u64) -> Vec<(String, String)> {
    let mut mixed = |length| noise(seed, length, MIXED);
    let whole = [
        format!("sk-{}", mixed(48)),
        format!("sk-proj-{}_{}", mixed(40), mixed(40)),
        format!("sk-ant-api03-{}-{}AA", mixed(60), mixed(30)),
        format!("sk-or-v1-{}", mixed(64)),
        format!("sk_live_{}", mixed(24)),
        format!("ghp_{}", mixed(36)),
        format!("gho_{}", mixed(36)),
        format!("ghs_{}", mixed(36)),
        format!("github_pat_{}_{}", mixed(22), mixed(59)),
        format!("glpat-{}", mixed(20)),
        format!("xoxb-{}-{}", "1234567890", mixed(24)),
        format!("xoxp-{}-{}", "1234567890", mixed(32)),
        format!("AIza{}", mixed(35)),
        format!("ya29.{}", mixed(60)),
        format!("GOCSPX-{}", mixed(28)),
        format!("hf_{}", mixed(34)),
        format!("npm_{}", mixed(36)),
        format!("gsk_{}", mixed(52)),
        format!("xai-{}", mixed(80)),
        format!("pypi-{}", mixed(60)),
        format!("SG.{}.{}", mixed(22), mixed(43)),
        format!("hvs.{}", mixed(90)),
        format!("cio{}", mixed(32)),
        format!("1234567890:AA{}", mixed(33)),
        format!("rk_live_{}", mixed(24)),
        format!("whsec_{}", mixed(32)),
        format!("shpat_{}", mixed(32)),
        format!("eyJ{}.eyJ{}.{}", mixed(30), mixed(60), mixed(43)),
        format!(
            "-----BEGIN OPENSSH PRIVATE KEY-----\n{}\n{}\n-----END OPENSSH PRIVATE KEY-----",
            mixed(70),
            mixed(40)
        ),
    ];
    let mut shapes: Vec<(String, String)> =
        whole.into_iter().map(|secret| (secret.clone(), secret)).collect();
    let mut around = |before: &str, length, after: &str| {
        let secret = mixed(length);
        shapes.push((format!("{before}{secret}{after}"), secret));
    };
    around("Authorization: Bearer ", 40, "");
    around("curl -H 'authorization: token ", 40, "' https://example.com");
    around("Cookie: session=", 30, "; theme=dark");
    around("postgres://admin:", 12, "@db.example.com:5432/app");
    around("https://example.com/x?api_key=", 24, "&page=2");
    around("https://hooks.slack.com/services/T0AB/B0CD/", 24, "");
    around("export AWS_SECRET_ACCESS_KEY=", 40, "");
    around("ANTHROPIC_AUTH_TOKEN=\"", 30, "\"");
    around("{\"client_secret\": \"", 30, "\"}");
    around("password = '", 12, "'");
    around("login --api-key ", 20, " --verbose");
    around("the password: ", 14, ", it is");
    around("token: ", 30, "");
    around("api_key=", 24, " x");
    around("DB_PASS=", 12, "");
    around("sshpass -p ", 12, " ssh host");
    around("machine example.com login me password ", 12, "");
    around("curl -u me:", 16, " https://example.com");
    around("https://", 24, "@example.com/x.git");
    around("AccountKey=", 60, "==;EndpointSuffix=core");
    let id = noise(seed, 16, UPPER);
    shapes.push((format!("AKIA{id}"), format!("AKIA{id}")));
    let hex = noise(seed, 64, HEX);
    shapes.push((format!("dop_v1_{hex}"), hex));
    let basic = STANDARD.encode(format!("user:{}", noise(seed, 12, MIXED)));
    shapes.push((format!("Basic {basic}"), basic));
    shapes
}

/// The spellings of the characters in a string.
#[derive(Clone, Copy)]
enum Spelling {
    Plain,
    /// `\u0073`
    Escaped,
    /// `\/` and every third letter.
    Mixed,
}

/// Spells each character as an escape of JSON.
pub(crate) fn spell_escaped(text: &str) -> String {
    spell(text, Spelling::Escaped)
}

fn spell(text: &str, spelling: Spelling) -> String {
    let plain = |char: char| {
        let quoted = Value::from(char.to_string()).to_string();
        quoted[1..quoted.len() - 1].to_owned()
    };
    let letters = text.chars().enumerate().map(|(at, char)| match spelling {
        Spelling::Escaped if char.is_ascii_graphic() => format!("\\u{:04x}", char as u32),
        Spelling::Mixed if char == '/' => "\\/".into(),
        Spelling::Mixed if at % 3 == 0 && char.is_ascii_alphanumeric() => format!("\\u{:04X}", char as u32),
        _ => plain(char),
    });
    letters.collect()
}

/// Lines with a place, `@`, for a text within a string.
const PLACES: &[(Side, &str)] = &[
    (
        Side::Client,
        r#"{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"use @ please"}]}}"#,
    ),
    (
        Side::Client,
        r#"{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"resource","resource":{"uri":"file:///e","text":"A=1\n@\nB=2"}}]}}"#,
    ),
    (Side::Client, r#"{"jsonrpc":"2.0","id":3,"result":{"content":"@"}}"#),
    (Side::Client, r#"{"jsonrpc":"2.0","id":3,"result":{"output":"$ env\r\n@\r\n","truncated":false}}"#),
    (
        Side::Agent,
        r#"{"jsonrpc":"2.0","id":4,"error":{"code":-32603,"message":"refused: @","data":{"line":"@"}}}"#,
    ),
    (
        Side::Agent,
        r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"It is `@`."}}}}"#,
    ),
    (
        Side::Agent,
        r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"(@)"}}}}"#,
    ),
    (
        Side::Agent,
        r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"t","title":"@","rawInput":{"command":"echo @"}}}}"#,
    ),
    (
        Side::Agent,
        r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call_update","toolCallId":"t","content":[{"type":"diff","path":"/a","oldText":"@","newText":"x"}],"rawOutput":{"stdout":"@","nested":[["@"]]}}}}"#,
    ),
    (
        Side::Agent,
        r#"{"jsonrpc":"2.0","id":5,"method":"terminal/create","params":{"sessionId":"s","command":"sh","args":["-c","@"]}}"#,
    ),
    (Side::Agent, r#"{"jsonrpc":"2.0","method":"_vendor/log","params":{"@":"@","_meta":{"a":"@"}}}"#),
    (Side::Agent, "WARN could not log in with @, giving up"),
    (Side::Agent, r#"{"damaged":"@""#),
];

fn transcript(events: impl IntoIterator<Item = RecordEvent>) -> Transcript {
    let records = events.into_iter().map(|event| Record::new(Duration::ZERO, event)).collect();
    Transcript::new(Header::new("test"), records)
}

/// The whole file as it would be searched by somebody who looks for the secret: with the lines that
/// are no text, and with escapes read.
fn all_of(transcript: &Transcript) -> String {
    let mut file = Vec::new();
    transcript.write(&mut file).unwrap();
    let mut text = String::from_utf8(file).unwrap();
    let said = text.clone();
    for line in said.lines() {
        let json: Value = serde_json::from_str(line).unwrap();
        strings(&json, &mut text);
    }
    for record in transcript.records() {
        if let Some(line) = record.line() {
            text.push_str(&String::from_utf8_lossy(line.bytes()));
            if let Ok(json) = serde_json::from_slice::<Value>(line.bytes()) {
                strings(&json, &mut text);
            }
        }
    }
    text
}

fn strings(json: &Value, out: &mut String) {
    match json {
        Value::String(text) => out.push_str(text),
        Value::Array(elements) => elements.iter().for_each(|element| strings(element, out)),
        Value::Object(members) => members.iter().for_each(|(name, value)| {
            out.push_str(name);
            strings(value, out);
        }),
        _ => {}
    }
}

#[test]
fn in_every_place_and_spelling() {
    let mut seed = 1;
    let mut planted = 0;
    for (side, place) in PLACES {
        let json = serde_json::from_str::<Value>(place).is_ok();
        let spellings: &[_] =
            if json { &[Spelling::Plain, Spelling::Escaped, Spelling::Mixed] } else { &[Spelling::Plain] };
        for spelling in spellings {
            for (text, secret) in shapes(&mut seed) {
                let text = if json { spell(&text, *spelling) } else { text.replace('\n', "\\n") };
                let line = place.replace('@', &text);
                let secret = if json { secret } else { secret.replace('\n', "\\n") };
                let redacted = Secrets::default().redact(line.as_bytes()).into_owned();
                assert_eq!(Secrets::default().redact(&redacted), redacted);
                assert_eq!(serde_json::from_slice::<Value>(&redacted).is_ok(), json, "{line}");
                let left = all_of(&transcript([RecordEvent::Line(RecordedLine::new(*side, redacted))]));
                assert!(!left.contains(&secret), "{secret} in {left}");
                // The whole pass finds the same in other ways; a part of them is enough here.
                if planted % 3 == 0 {
                    let given = transcript([RecordEvent::Line(RecordedLine::new(*side, line.into_bytes()))]);
                    let left = all_of(&given.redacted());
                    assert!(!left.contains(&secret) && left.contains("[secret]"), "{secret} in {left}");
                }
                planted += 1;
            }
        }
    }
    assert!(planted > 1000, "{planted}");
}

#[test]
fn recordings_have_no_secrets() {
    let mut seed = 2;
    for (_, place) in PLACES {
        for (text, secret) in shapes(&mut seed) {
            let line = place.replace('@', &spell(&text, Spelling::Plain));
            let redacted =
                String::from_utf8(Secrets::default().redact(line.as_bytes()).into_owned()).unwrap();
            assert!(!redacted.contains(&spell(&secret, Spelling::Plain)), "{secret} in {redacted}");
        }
    }
}

#[test]
fn known_by_their_names_only() {
    let mut seed = 3;
    let mut left = 0;
    for name in [
        "authorization",
        "Authorization",
        "Proxy-Authorization",
        "api_key",
        "apiKey",
        "API-KEY",
        "x-api-key",
        "OPENAI_API_KEY",
        "token",
        "access_token",
        "accessToken",
        "refresh_token",
        "id_token",
        "authToken",
        "GITHUB_TOKEN",
        "secret",
        "client_secret",
        "clientSecret",
        "password",
        "db_password",
        "PGPASSWORD",
        "passwd",
        "passphrase",
        "private_key",
        "privateKey",
        "aws_secret_access_key",
        "secretAccessKey",
        "cookie",
        "Set-Cookie",
        "credentials",
        "X-Auth-Token",
    ] {
        let secret = noise(&mut seed, 14, "abcdefghijklmnop");
        for message in [
            json!({"method": "_x", "params": {"deep": [{ name: secret }]}}),
            json!({"method": "_x", "params": {"list": [{"value": secret, "name": name}]}}),
            json!({"result": { name: [secret, secret] }}),
            json!({"params": {"args": [format!("--{name}"), secret]}}),
            json!({"params": {"rawInput": json!({ name: secret }).to_string()}}),
        ] {
            let line = message.to_string();
            let redacted = Secrets::default().redact(line.as_bytes()).into_owned();
            let redacted = String::from_utf8(redacted).unwrap();
            assert!(!redacted.contains(&secret), "{redacted}");
            left += 1;
        }
    }
    assert_eq!(left, 31 * 5);
}

#[test]
fn environment_headers_and_logins() {
    let secret = "plain words";
    for message in [
        json!({"method": "session/new", "params": {"cwd": "/a", "mcpServers": [{"name": "m", "command": "/m", "args": [], "env": [{"name": "MODE", "value": secret}]}]}}),
        json!({"method": "session/load", "params": {"cwd": "/a", "mcpServers": [{"type": "http", "name": "m", "url": "https://m", "headers": [{"name": "X-Mode", "value": secret}]}]}}),
        json!({"method": "terminal/create", "params": {"command": "x", "env": [{"value": secret, "name": "DB_PASS"}]}}),
        json!({"params": {"mcpServers": {"m": {"env": {"MODE": secret}, "headers": {"X-Mode": secret}}}}}),
        json!({"params": {"mcpServers": {"m": {"environment": {"MODE": secret}, "env": [format!("MODE={secret}")]}}}}),
        json!({"params": {"mcpServers": [{"headers": [["X-Mode", secret]]}]}}),
        json!({"method": "authenticate", "params": {"methodId": "key", "_meta": {"answer": [secret, {"a": secret}]}}}),
    ] {
        let redacted = Secrets::default().redact(message.to_string().as_bytes()).into_owned();
        let redacted: Value = serde_json::from_slice(&redacted).unwrap();
        assert!(!redacted.to_string().contains(secret), "{redacted}");
        assert_eq!(redacted["params"]["methodId"], message["params"]["methodId"]);
    }
}

#[test]
fn in_stderr_and_in_what_is_no_text() {
    let mut seed = 4;
    for (text, secret) in shapes(&mut seed) {
        let stderr = text.lines().map(|line| RecordEvent::Stderr(line.to_owned()));
        let mut bytes = b"\xff\xfe {\"a\":\"".to_vec();
        bytes.extend_from_slice(text.replace('\n', "\\n").as_bytes());
        bytes.extend_from_slice(b"\"} \xff");
        let binary = RecordEvent::Line(RecordedLine::new(Side::Agent, bytes));
        let redacted = transcript(stderr.chain([binary])).redacted();
        let left = all_of(&redacted);
        for part in secret.split('\n').filter(|part| !part.starts_with("--")) {
            assert!(!left.contains(part), "{part} in {left}");
        }
    }
}

#[test]
fn cut_into_chunks_at_every_place() {
    let mut seed = 5;
    let chunk = |text: &str| {
        let update = json!({"sessionUpdate": "agent_message_chunk", "messageId": "m", "content": {"type": "text", "text": text}});
        let message = json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": update}});
        RecordEvent::Line(RecordedLine::new(Side::Agent, message.to_string().into_bytes()))
    };
    let said = |transcript: &Transcript| -> String {
        let lines = transcript.records().iter().filter_map(|record| record.line());
        let json = lines.map(|line| serde_json::from_slice::<Value>(line.bytes()).unwrap());
        json.map(|json| json["params"]["update"]["content"]["text"].as_str().unwrap().to_owned()).collect()
    };
    for (text, secret) in shapes(&mut seed) {
        let text = format!("é {text} and on");
        let whole = said(&transcript([chunk(&text)]).redact(&Redaction::secrets_only()));
        assert!(!whole.contains(&secret) && whole.contains("[secret]"), "{whole}");
        for cut in text.char_indices().map(|(at, _)| at).step_by(11) {
            let (one, two) = text.split_at(cut);
            let middle = two.len() / 2;
            let middle = (middle..=two.len()).find(|at| two.is_char_boundary(*at)).unwrap();
            let (two, three) = two.split_at(middle);
            let cut = transcript([chunk(one), chunk(two), chunk(""), chunk(three)]);
            assert_eq!(said(&cut.redact(&Redaction::secrets_only())), whole);
        }
    }
}

#[test]
fn encoded_or_with_invisible_characters() {
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let mut seed = 7;
    let key = noise(&mut seed, 48, MIXED);
    let (start, end) = key.split_at(20);
    let percent = |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
    let texts = [
        percent(&format!("sk-{key}")),
        format!("sk%2D{key}"),
        format!("s%6B-{}", percent(&key)),
        format!("Bearer%20{key}"),
        format!("?next=%2Fx%3Fapi_key%3D{key}"),
        STANDARD.encode(format!("sk-ant-api03-{key}")),
        STANDARD.encode(format!("ghp_{key}")),
        STANDARD.encode(format!("-----BEGIN PRIVATE KEY-----\n{key}\n-----END PRIVATE KEY-----")),
        URL_SAFE_NO_PAD.encode(format!("github_pat_{key}")),
        format!("sk-{start}\u{200b}{end}"),
        format!("s\u{200d}k-{start}\u{2060}\u{feff}{end}"),
        format!("gh\u{ad}p_{start}\u{200c}{end}"),
        format!("s\u{200e}k-{start}\u{2062}\u{180e}{end}"),
        format!("sk\u{fe0f}-{start}\u{34f}{end}\u{e0020}\u{61c}7"),
    ];
    for text in texts {
        for spelling in [Spelling::Plain, Spelling::Escaped] {
            let spelled = spell(&format!("the key {text} of it"), spelling);
            let line = format!(r#"{{"jsonrpc":"2.0","method":"_x","params":{{"text":"{spelled}"}}}}"#);
            let json: Value = serde_json::from_slice(&Secrets::default().redact(line.as_bytes())).unwrap();
            let left = json["params"]["text"].as_str().unwrap();
            assert!(left.starts_with("the key ") && left.ends_with(" of it"), "{text}: {left}");
            assert!(left.contains("[secret]") && left.len() < 60, "{text}: {left}");
            assert_eq!(Secrets::default().redact_text(left), left);
        }
    }
    for harmless in [
        "file:///home/me/my%20work",
        "100%25 of it",
        STANDARD.encode("sk-learn is a library of Python").as_str(),
    ] {
        assert_eq!(Secrets::default().redact_text(harmless), harmless);
    }
}

/// Terminal sequences, such as colours, may stand before, within and behind a secret.
#[test]
fn coloured() {
    let key = "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8";
    let (start, end) = key.split_at(18);
    for (on, off) in [
        ("\x1b[32m", "\x1b[0m"),
        ("\x1b[1;38;5;9m", "\x1b(B\x1b[m"),
        ("\x1b(B", "\x1b[K"),
        ("\x1b]8;;https://example.com\x1b\\", "\x1b]8;;\x07"),
        (r"\u001b[32m", r"\u001b[0m"),
        (r"\x1b[32m", r"\x1B[0m"),
        (r"\033[32m", r"\e[0m"),
        (r"\u{1b}[32m", r"\E[0m"),
        ("%1B[32m", "%1b%5B0m"),
        ("\u{9b}32m", "\u{9b}0m"),
        (r"\u009b32m", r"\u009B0m"),
    ] {
        for text in [
            format!("{on}ghp_{key}{off}"),
            format!("x{on}ghp_{key}{off}"),
            format!("{on}g{off}hp_{start}{on}{end}{off}"),
            format!("{on}password:{off} {key}"),
            format!("export {on}GITHUB_TOKEN{off}={on}'{key}'{off}"),
        ] {
            let line = format!("see {text} and on");
            let message = json!({"method": "_x", "params": {"stdout": line}}).to_string();
            let redact = |line: &str| Secrets::default().redact_text(line).into_owned();
            for left in [redact(&line), redact(&message)] {
                assert!(left.contains("[secret]"), "{left:?}");
                assert!(!left.contains(start) && !left.contains(end), "{left:?}");
                assert!(left.contains("see ") && left.contains(" and on"), "{left:?}");
                assert_eq!(redact(&left), left);
            }
        }
        let plain = format!("see {on}green{off} text");
        assert_eq!(Secrets::default().redact_text(&plain), plain);
    }
    let green = Secrets::default().redact_text("\x1b[32mghp_A1b2C3d4E5f6G7h8I9j0\x1b[0m").into_owned();
    assert_eq!(green, "\x1b[32m[secret]\x1b[0m");
}

/// Shorter text is not joined to what stands beside a secret that was removed before.
#[test]
fn a_placeholder_takes_what_reaches_into_it() {
    let secrets = Secrets::default().pattern(r"cret\]-\d+").unwrap().pattern(r"secre").unwrap();
    assert_eq!(secrets.redact_text("a [secret]-42 b"), "a [secret] b");
    assert_eq!(secrets.redact_text("a [secret] b"), "a [secret] b");
    assert_eq!(secrets.redact_text("no secrets"), "no [secret]ts");
}
