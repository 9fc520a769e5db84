//! `duologue serve` and `duologue connect` as processes.
#![cfg(all(unix, feature = "serve"))]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::process::{DUOLOGUE, run, shown};
use crate::served::{RawClient, Server, prompt, text};

#[test]
fn a_prompt_runs_on_a_server() {
    let data = tempfile::tempdir().expect("a folder");
    let server = Server::start(data.path(), "0");
    let hello = server.prompt("hello");
    assert!(hello.contains("Hello!") && hello.ends_with("exit 0"), "{hello}");
    let allowed = server.prompt("permission");
    assert!(allowed.contains("You allowed it."), "{allowed}");
}

/// The agent of the checks is the mock behind a server.
#[test]
fn a_server_passes_the_checks_of_an_agent() {
    let data = tempfile::tempdir().expect("a folder");
    let server = Server::start(data.path(), "0");
    let (token, url) = (&server.token, &server.url);
    std::thread::scope(|scope| {
        for transport in ["ws", "sse"] {
            scope.spawn(move || {
                let mut command = Command::new(DUOLOGUE);
                command.args(["check", "--", DUOLOGUE, "connect", "--transport", transport]);
                command.args(["--token-file", token, url]);
                let checked = shown(&run(&mut command, ""));
                assert!(
                    checked.contains(" passed, 0 failed") && checked.ends_with("exit 0"),
                    "{transport}: {checked}"
                );
                // It ends the turn as cancelled.
                assert!(checked.contains("✓ close-ends"), "{transport}: {checked}");
            });
        }
    });
}

#[test]
fn a_server_passes_the_checks_of_its_transports() {
    let data = tempfile::tempdir().expect("a folder");
    let server = Server::start(data.path(), "0");
    let check = |more: &[&str]| {
        let mut command = Command::new(DUOLOGUE);
        command.args(["check", "--prompt", "permission", "--url", &server.url]).args(more);
        shown(&run(command.env("XDG_STATE_HOME", data.path().join("state")), ""))
    };
    let checked = check(&["--token-file", &server.token]);
    assert!(checked.ends_with(" passed, 0 failed, 0 with a warning, 0 skipped\nexit 0"), "{checked}");
    let checked =
        check(&["--token-file", &server.token, "--transport", "ws", "--only", "websocket", "--json"]);
    let last = r#"{"summary":{"pass":8,"fail":0,"warn":0,"skipped":0}}"#;
    assert!(checked.ends_with(&format!("{last}\nexit 0")), "{checked}");
    let refused = check(&[]);
    assert!(refused.contains("--token-file") && refused.ends_with("exit 3"), "{refused}");
    let checked = check(&["--transport", "sse", "--only", "ws-turn"]);
    assert!(checked.contains("ws-turn") && checked.ends_with("exit 2"), "{checked}");
}

/// Runs `duologue` with a state folder.
fn in_state(state: &Path, args: &[&str]) -> String {
    shown(&run(Command::new(DUOLOGUE).args(args).env("XDG_STATE_HOME", state), ""))
}

#[test]
fn two_terminals_need_no_address() {
    let state = tempfile::tempdir().expect("a folder");
    let hello = || in_state(state.path(), &["run", "hello", "--", DUOLOGUE, "connect", "--wait", "0"]);
    let refused = hello();
    assert!(refused.contains("start a server with `duologue serve`"), "{refused}");
    let mut command = Command::new(DUOLOGUE);
    command.args(["serve", "--", DUOLOGUE, "mock"]).env("XDG_STATE_HOME", state.path());
    let mut process = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let lines: Vec<String> = BufReader::new(process.stdout.take().expect("a pipe"))
        .lines()
        .take(2)
        .collect::<Result<_, _>>()
        .expect("UTF-8");
    let socket = state.path().join("duologue/socket");
    assert_eq!(lines[0], format!("serving {DUOLOGUE} mock at {}", socket.display()));
    assert_eq!(lines[1], "files and terminals of clients: off (--client-files)");
    let said = hello();
    assert!(said.contains("Hello!") && said.ends_with("exit 0"), "{said}");
    // A second server does not take the socket.
    let second = in_state(state.path(), &["serve", "--", DUOLOGUE, "mock"]);
    assert!(!second.ends_with("exit 0") && hello().ends_with("exit 0"), "{second}");
    let running = format!("runs already at {} (process {})", socket.display(), process.id());
    assert!(second.contains(&running), "{second}");
    run(Command::new("kill").arg(process.id().to_string()), "");
    assert!(process.wait().expect("it ended").success());
    assert!(!socket.exists());
}

#[test]
fn the_token_of_the_user_goes_to_the_running_server_alone() {
    let state = tempfile::tempdir().expect("a folder");
    let data = state.path().join("duologue");
    let mut server = Server::start(&data, "0");
    let hello =
        |url: &str| in_state(state.path(), &["run", "hello", "--", DUOLOGUE, "connect", "--wait", "0", url]);
    let said = hello(&server.url);
    assert!(said.contains("Hello!") && said.ends_with("exit 0"), "{said}");
    // A name can lead to another program.
    let named = hello(&server.url.replace("127.0.0.1", "localhost"));
    assert!(named.contains("401") && named.contains("`--token-file`"), "{named}");
    // So can an address, when the server does not run.
    server.kill();
    assert!(data.join("address").exists(), "a killed server leaves it");
    let address = server.url.trim_start_matches("http://").trim_end_matches("/acp");
    let listener = std::net::TcpListener::bind(address).expect("the port is free");
    let thief = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut request = vec![0; 4096];
        let count = std::io::Read::read(&mut stream, &mut request).expect("a request");
        String::from_utf8_lossy(&request[..count]).to_lowercase()
    });
    let lost = hello(&server.url);
    let request = thief.join().expect("a request");
    assert!(request.starts_with("get /acp") && !request.contains("authorization"), "{request}");
    assert!(!lost.ends_with("exit 0"), "{lost}");
    // The next one without a port does not keep it.
    let mut command = Command::new(DUOLOGUE);
    command.args(["serve", "--data"]).arg(&data).args(["--", DUOLOGUE, "mock"]);
    let mut process = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let first = BufReader::new(process.stdout.take().expect("a pipe")).lines().next();
    let has_address = data.join("address").exists();
    process.kill().expect("it runs");
    process.wait().expect("it ended");
    assert!(first.is_some() && !has_address);
}

#[test]
fn a_server_goes_on_without_its_output() {
    let state = tempfile::tempdir().expect("a folder");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = Command::new(DUOLOGUE);
    command.args(["serve", "--", DUOLOGUE, "mock"]).env("XDG_STATE_HOME", state.path());
    let mut process = command.stdout(writer).spawn().expect("it starts");
    let said = loop {
        let said = in_state(state.path(), &["run", "hello", "--", DUOLOGUE, "connect"]);
        if said.ends_with("exit 0") || process.try_wait().expect("a process").is_some() {
            break said;
        }
    };
    process.kill().expect("it runs");
    process.wait().expect("it ended");
    assert!(said.contains("Hello!"), "{said}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_server_raises_its_limit_of_open_files() {
    let data = tempfile::tempdir().expect("a folder");
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -Sn 64; exec \"$0\" \"$@\"", DUOLOGUE]);
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data.path());
    let server = Server::of(command.args(["--", DUOLOGUE, "mock"]));
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.id())).expect("a process");
    let files: Vec<&str> = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .expect("a row")
        .split_whitespace()
        .collect();
    let (soft, hard): (u64, u64) =
        (files[3].parse().expect("a number"), files[4].parse().unwrap_or(u64::MAX));
    assert_eq!(soft, hard.min(65_536));
}

#[test]
fn a_client_without_the_token_is_refused() {
    let data = tempfile::tempdir().expect("a folder");
    let server = Server::start(data.path(), "0");
    let wrong = data.path().join("wrong");
    std::fs::write(&wrong, "0".repeat(64)).expect("a file");
    let mut command = Command::new(DUOLOGUE);
    command.args(["connect", "--token-file"]).arg(wrong).arg(&server.url);
    let refused = shown(&run(&mut command, ""));
    assert!(refused.contains("status 401") && refused.contains("`--token-file`"), "{refused}");
    assert!(refused.ends_with("exit 3"), "{refused}");
}

#[test]
fn refused_requests_are_logged() {
    let data = tempfile::tempdir().expect("a folder");
    let log = data.path().join("log");
    let mut command = Command::new(DUOLOGUE);
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data.path());
    command.args(["--", DUOLOGUE, "mock"]).stderr(std::fs::File::create(&log).expect("a file"));
    let mut server = Server::of(&mut command);
    let token = std::fs::read_to_string(&server.token).expect("a token");
    let address = server.url.trim_start_matches("http://").trim_end_matches("/acp");
    let with_token = format!("Authorization: Bearer {}\r\n", token.trim());
    for (path, more) in [("/acp", ""), ("/other", &*with_token), ("/unknown", "")] {
        let mut stream = std::net::TcpStream::connect(address).expect("it listens");
        let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{more}\r\n");
        std::io::Write::write_all(&mut stream, head.as_bytes()).expect("it reads");
        std::io::Read::read_to_end(&mut stream, &mut Vec::new()).expect("it answers");
    }
    server.stop();
    let log = std::fs::read_to_string(log).expect("a log");
    for expected in [r#"path="/acp" status=401"#, r#"path="/unknown" status=401"#] {
        assert!(log.contains(expected), "{log}");
    }
    assert!(!log.contains("/other"), "{log}");
}

#[test]
fn a_token_that_others_can_read_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;

    let data = tempfile::tempdir().expect("a folder");
    let token = data.path().join("token");
    std::fs::write(&token, "0".repeat(64)).expect("a file");
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o640)).expect("the rights");
    let mut command = Command::new(DUOLOGUE);
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data.path());
    command.args(["--", DUOLOGUE, "mock"]);
    let refused = shown(&run(&mut command, ""));
    assert!(refused.contains("(mode 640)") && refused.ends_with("exit 2"), "{refused}");
    // So is one that can be guessed.
    std::fs::write(&token, "a").expect("a file");
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).expect("the rights");
    let refused = shown(&run(&mut command, ""));
    assert!(refused.contains("the token has 1 characters, 32 are needed"), "{refused}");
}

/// An editor that closes the input of its agent is no failure, and a signal has the code that it has in `run`.
#[test]
fn connect_ends_with_the_code_of_its_end() {
    let data = tempfile::tempdir().expect("a folder");
    let server = Server::start(data.path(), "0");
    for (signal, code) in [(Some("HUP"), 129), (Some("INT"), 130), (Some("TERM"), 143), (None, 0)] {
        let mut client = RawClient::new(&server);
        match signal {
            Some(signal) => {
                run(Command::new("kill").args([&format!("-{signal}"), &client.process.id().to_string()]), "");
            }
            None => drop(client.input.take()),
        }
        assert_eq!(client.process.wait().expect("it ended").code(), Some(code), "{signal:?}");
    }
}

#[test]
fn a_token_that_others_can_replace_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;

    let folder = tempfile::tempdir().expect("a folder");
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "[]").expect("a file");
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).expect("the rights");
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).expect("the rights");
    let secret = secret.to_str().expect("UTF-8");
    let dialogue = ["peer", "dialogue", "inform", "a", "--from", "agent://a", "--to", "agent://b", "--keys"];
    for args in [&["connect", "http://127.0.0.1:9/acp", "--token-file"][..], &dialogue] {
        let mut command = Command::new(DUOLOGUE);
        command.args(args).arg(secret).args(["--", "false"].iter().take(if args.len() > 4 { 2 } else { 0 }));
        let refused = shown(&run(&mut command, ""));
        assert!(
            refused.contains("use `chmod o-w` or `chmod +t`") && refused.ends_with("exit 2"),
            "{refused}"
        );
    }
}

#[test]
fn a_token_that_all_can_read_is_no_secret() {
    use std::os::unix::fs::PermissionsExt as _;

    let data = tempfile::tempdir().expect("a folder");
    let server = Server::start(data.path(), "0");
    let copy = data.path().join("copy");
    std::fs::copy(&server.token, &copy).expect("a file");
    let connect = |mode| {
        std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(mode)).expect("the rights");
        let mut command = Command::new(DUOLOGUE);
        shown(&run(command.args(["connect", "--token-file"]).arg(&copy).arg(&server.url), ""))
    };
    let warned = connect(0o644);
    assert!(warned.contains("warning: all users can read") && warned.ends_with("exit 0"), "{warned}");
    let silent = connect(0o640);
    assert!(!silent.contains("warning"), "{silent}");
}

/// A file system may leave a file without content after a power cut.
#[test]
fn an_empty_token_is_replaced() {
    let data = tempfile::tempdir().expect("a folder");
    std::fs::write(data.path().join("token"), "").expect("a file");
    let server = Server::start(data.path(), "0");
    let hello = server.prompt("hello");
    assert!(hello.ends_with("exit 0"), "{hello}");
}

#[test]
fn a_stopped_server_lets_its_turns_end() {
    let data = tempfile::tempdir().expect("a folder");
    let mut server = Server::start(data.path(), "20");
    let mut client = RawClient::new(&server);
    let session = client.session();
    let id = client.send("session/prompt", &prompt(&session, "hello"));
    while text(&[client.next()]).is_empty() {}
    let stopping = std::thread::spawn(move || server.stop());
    let answer = loop {
        let message = client.next();
        if message["id"] == id {
            break message;
        }
    };
    assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
    stopping.join().expect("it has ended");
}

/// An agent that ignores the end of its input and SIGTERM.
#[test]
fn a_stopped_server_leaves_no_process_behind() {
    stop_with_stubborn_agent("TERM");
}

#[test]
fn a_server_whose_terminal_is_closed_leaves_no_process_behind() {
    stop_with_stubborn_agent("HUP");
}

fn stop_with_stubborn_agent(signal: &str) {
    let data = tempfile::tempdir().expect("a folder");
    let pid = data.path().join("pid");
    let script =
        format!("trap '' TERM; echo $$ > {}; {DUOLOGUE} mock; while :; do sleep 1; done", pid.display());
    let mut command = Command::new(DUOLOGUE);
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data.path());
    let mut server = Server::of(command.args(["--", "sh", "-c", &script]));
    let mut client = RawClient::new(&server);
    client.session();
    server.stop_by(signal);
    assert!(!is_left(&pid), "the agent is left");
}

/// The turn of a client goes on without it.
#[test]
fn a_client_whose_terminal_is_closed_ends() {
    let data = tempfile::tempdir().expect("a folder");
    let server = Server::start(data.path(), "20");
    let mut client = RawClient::new(&server);
    let session = client.session();
    client.send("session/prompt", &prompt(&session, "hello"));
    while text(&[client.next()]).is_empty() {}
    run(Command::new("kill").args(["-HUP", &client.process.id().to_string()]), "");
    assert_eq!(client.process.wait().expect("it ended").code(), Some(129));
    let mut other = RawClient::new(&server);
    let load = json!({"sessionId": session, "cwd": "/tmp", "mcpServers": []});
    let (loaded, _) = other.request_with("session/load", &load);
    assert!(loaded["result"].is_object(), "{loaded}");
}

/// Returns true if a process of the agent whose id is in a file runs. It leads a process group.
fn is_left(pid: &Path) -> bool {
    let pid = std::fs::read_to_string(pid).expect("it ran").trim().parse().expect("a number");
    duologue_conformance::is_group_alive(rustix::process::Pid::from_raw(pid).expect("a process"))
}

/// An agent that ignores the end of its input.
#[test]
fn a_server_starts_behind_the_agents_of_a_killed_one() {
    let data = tempfile::tempdir().expect("a folder");
    let (pid, log) = (data.path().join("pid"), data.path().join("log"));
    let script = format!("echo $$ > {}; {DUOLOGUE} mock; while :; do sleep 1; done", pid.display());
    let serve = |log: &Path| {
        let mut command = Command::new(DUOLOGUE);
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data.path());
        let log = std::fs::File::create(log).expect("a file");
        Server::of(command.args(["--", "sh", "-c", &script]).stderr(log))
    };
    let mut server = serve(&log);
    RawClient::new(&server).session();
    server.kill();
    assert!(is_left(&pid), "the agent ends too early for this test");
    let _next = serve(&log);
    assert!(!is_left(&pid), "two servers have agents");
    let log = std::fs::read_to_string(log).expect("a log");
    assert!(
        log.contains("waiting until no other program and no agent of an earlier one uses this folder"),
        "{log}"
    );
}

#[test]
#[cfg(feature = "tls")]
fn an_encrypted_server_can_be_reached_by_others() {
    let data = tempfile::tempdir().expect("a folder");
    let (cert, key) = (data.path().join("cert.pem"), data.path().join("key.pem"));
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).expect("a certificate");
    std::fs::write(&cert, made.cert.pem()).expect("a file");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("a file");
    let mut command = Command::new(DUOLOGUE);
    command.args(["serve", "--listen", "0.0.0.0:0", "--cert"]).arg(&cert).arg("--key").arg(&key);
    let log = data.path().join("log");
    command.stderr(std::fs::File::create(&log).expect("a file"));
    let mut server = Server::of(command.arg("--data").arg(data.path()).args(["--", DUOLOGUE, "mock"]));
    let url = server.url.replace("0.0.0.0", "localhost");
    assert!(url.starts_with("https://localhost:"), "{url}");
    let connect = |ca: &[&str]| {
        let mut command = Command::new(DUOLOGUE);
        command.args(["run", "hello", "--", DUOLOGUE, "connect", "--token-file", &server.token]);
        shown(&run(command.args(ca).arg(&url), ""))
    };
    let hello = connect(&["--ca-file", cert.to_str().expect("UTF-8")]);
    assert!(hello.contains("Hello!") && hello.ends_with("exit 0"), "{hello}");
    let refused = connect(&[]);
    assert!(refused.contains("TLS failed"), "{refused}");
    server.stop();
    let log = std::fs::read_to_string(log).expect("a log");
    let expected = r#"event="connection_refused" peer="127.0.0.1:"#;
    assert!(log.contains(expected) && log.contains("the TLS handshake has failed"), "{log}");
}

#[test]
#[cfg(feature = "tls")]
fn a_certificate_and_a_key_have_to_be_those_of_a_server() {
    use std::os::unix::fs::PermissionsExt as _;

    let data = tempfile::tempdir().expect("a folder");
    let (cert, key) = (data.path().join("cert.pem"), data.path().join("key.pem"));
    let mut params = rcgen::CertificateParams::new(vec!["localhost".into()]).expect("a name");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let signing_key = rcgen::KeyPair::generate().expect("a key");
    let made = params.self_signed(&signing_key).expect("a certificate");
    std::fs::write(&cert, made.pem()).expect("a file");
    std::fs::write(&key, signing_key.serialize_pem()).expect("a file");
    let serve = || {
        let mut command = Command::new(DUOLOGUE);
        command.args(["serve", "--listen", "127.0.0.1:0", "--cert"]).arg(&cert).arg("--key").arg(&key);
        command.arg("--data").arg(data.path()).args(["--", DUOLOGUE, "mock"]);
        command
    };
    let set_mode = |mode| {
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(mode)).expect("the rights");
    };
    set_mode(0o666);
    let refused = shown(&run(&mut serve(), ""));
    assert!(refused.contains("(mode 666)") && refused.ends_with("exit 2"), "{refused}");
    set_mode(0o600);
    let server = Server::of(&mut serve());
    let mut command = Command::new(DUOLOGUE);
    command.args(["connect", "--token-file", &server.token, "--ca-file"]).arg(&cert);
    let refused = shown(&run(command.arg(server.url.replace("127.0.0.1", "localhost")), ""));
    assert!(refused.contains("basicConstraints=CA:FALSE"), "{refused}");
}

#[test]
fn an_address_that_others_can_reach_is_refused() {
    let mut command = Command::new(DUOLOGUE);
    command.args(["serve", "--listen", "0.0.0.0:0", "--", DUOLOGUE, "mock"]);
    let refused = shown(&run(&mut command, ""));
    assert!(refused.contains("not a loopback address") && refused.ends_with("exit 2"), "{refused}");
}

/// An agent that ignores the end of its input and SIGTERM.
#[test]
fn a_killed_server_leaves_no_process_behind() {
    let data = tempfile::tempdir().expect("a folder");
    let pid = data.path().join("pid");
    let script =
        format!("trap '' TERM; echo $$ > {}; {DUOLOGUE} mock; while :; do sleep 1; done", pid.display());
    let mut command = Command::new(DUOLOGUE);
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data.path());
    let mut server = Server::of(command.args(["--", "sh", "-c", &script]));
    let mut client = RawClient::new(&server);
    client.session();
    server.kill();
    let pid = std::fs::read_to_string(pid).expect("it ran");
    let is_there = || {
        let found = Command::new("kill").args(["-0", pid.trim()]).stderr(Stdio::null()).status();
        found.expect("it starts").success()
    };
    assert!(is_there(), "it ignores the end of its input");
    let start = std::time::Instant::now();
    while is_there() {
        assert!(start.elapsed() < std::time::Duration::from_secs(60), "process {pid} is left");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

#[test]
fn sessions_survive_a_killed_server() {
    let data = tempfile::tempdir().expect("a folder");
    let mut server = Server::start(data.path(), "0");
    let mut client = RawClient::new(&server);
    let session = client.session();
    let (_, updates) = client.request_with("session/prompt", &prompt(&session, "tools"));
    let said = text(&updates);
    server.kill();
    drop(client);

    let server = Server::start(data.path(), "0");
    let mut client = RawClient::new(&server);
    let load = json!({"sessionId": session, "cwd": "/tmp", "mcpServers": []});
    let (loaded, replay) = client.request_with("session/load", &load);
    assert!(loaded["result"].is_object(), "{loaded}");
    assert_eq!(text(&replay), format!("tools{said}"));
    // The mock forgets its sessions with its process.
    let lost = client.request("session/prompt", &prompt(&session, "hello"));
    assert_eq!(lost["error"]["data"]["code"], "context_lost", "{lost}");
    let mut fresh = prompt(&session, "hello");
    fresh["_meta"] = json!({"duologue": {"fresh": true}});
    let (ended, updates) = client.request_with("session/prompt", &fresh);
    assert_eq!(ended["result"]["stopReason"], "end_turn", "{ended}");
    assert!(text(&updates).contains("Hello!"));
}

/// Whatever a client has read before the server is killed is there afterwards, and the turn has ended as interrupted.
#[test]
fn nothing_that_a_client_has_read_is_lost_when_the_server_is_killed() {
    for read in [0, 1, 5, 9] {
        let data = tempfile::tempdir().expect("a folder");
        // The mock clears its draft later than the server is killed.
        let mut server = Server::start(data.path(), "20");
        let mut client = RawClient::new(&server);
        let session = client.session();
        client.send("session/prompt", &prompt(&session, "hello"));
        let mut seen = String::new();
        let mut updates = 0;
        while updates < read {
            let message = client.next();
            let kind = &message["params"]["update"]["sessionUpdate"];
            if kind == "agent_thought_chunk" || kind == "agent_message_chunk" {
                updates += 1;
                seen.push_str(&text(&[message]));
            }
        }
        server.kill();
        drop(client);

        let server = Server::start(data.path(), "0");
        let mut client = RawClient::new(&server);
        let load = json!({"sessionId": session, "cwd": "/tmp", "mcpServers": []});
        let (loaded, replay) = client.request_with("session/load", &load);
        assert!(loaded["result"].is_object(), "{loaded}");
        let kept = text(&replay);
        let kept = kept.strip_prefix("hello").unwrap_or(&kept);
        assert!(kept.starts_with(&seen), "read {seen:?}, kept {kept:?}");
        let log = data.path().join("sessions").join(&session);
        let mut files: Vec<_> =
            std::fs::read_dir(log).expect("the log").map(|file| file.unwrap().path()).collect();
        files.retain(|file| file.extension().is_some_and(|extension| extension == "jsonl"));
        let records: String = files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect();
        let prompts = records.matches(r#""event":"prompt""#).count();
        assert_eq!(records.matches(r#""event":"interrupted""#).count(), prompts, "{records}");
    }
}

/// The mock clears its draft. A client that cannot clear sees a rule and a new message, and loads only the final text.
#[test]
fn a_cleared_draft_is_replaced_in_every_client() {
    const RULE: &str = "\n\n---\n\n";
    let data = tempfile::tempdir().expect("a folder");
    let mut server = Server::start(data.path(), "0");
    let clears = json!({"_meta": {"duologue": {"messageClear": true}}});
    let mut clearing = RawClient::with(&server, &clears);
    let session = clearing.session();
    let load = json!({"sessionId": session, "cwd": "/tmp", "mcpServers": []});
    let (_, updates) = clearing.request_with("session/prompt", &prompt(&session, "hello"));
    let kinds = |updates: &[Value]| -> Vec<String> {
        let kind = |update: &Value| update["params"]["update"]["sessionUpdate"].as_str().map(str::to_owned);
        updates.iter().filter_map(kind).collect()
    };
    assert!(kinds(&updates).iter().any(|kind| kind == "agent_message_clear"));
    let mut other = RawClient::new(&server);
    let (_, seen) = other.request_with("session/load", &load);
    assert!(!text(&seen).contains(RULE), "{seen:?}");
    let (_, updates) = other.request_with("session/prompt", &prompt(&session, "hello"));
    assert!(!kinds(&updates).iter().any(|kind| kind == "agent_message_clear"));
    let all = text(&updates);
    let (draft, last) = all.split_once(RULE).expect("a rule");
    assert!(draft.contains("This is a draft.") && last.starts_with("Hello!"), "{all}");

    // After a restart too.
    let (_, before) = other.request_with("session/load", &load);
    server.kill();
    let server = Server::start(data.path(), "0");
    let (_, after) = RawClient::new(&server).request_with("session/load", &load);
    let messages = |replay: &[Value]| -> Vec<Value> {
        // The end of the own turn is behind its response.
        let updates = replay.iter().filter(|frame| frame["method"] == "session/update");
        updates.map(|update| update["params"]["update"].clone()).collect()
    };
    assert_eq!(messages(&before), messages(&after));
}

#[test]
fn agents_exchange_messages_through_a_server() {
    let data = tempfile::tempdir().expect("a folder");
    let server = Server::start(data.path(), "0");
    let order = data.path().join("order.json");
    let input = json!({
        "context": {"feature_id": "login", "workflow": "feature", "iteration": 1}, "paths": {"feature_root": "f"},
        "task": {"action": "specify", "params": {}},
    });
    std::fs::write(&order, input.to_string()).expect("a file");
    let order = order.to_str().expect("UTF-8");
    for (args, expected) in [
        (&["ping"][..], "idle"),
        (&["discover"], "duologue-mock"),
        (&["query", "who"], "You asked: who"),
        (&["delegate", "colleague"], "Your name is \"duologue\"."),
        (&["work", order], "Wrote a specification."),
    ] {
        let answer = server.with_agent(&[&["peer"], args].concat());
        assert!(answer.contains(expected) && answer.ends_with("exit 0"), "{args:?}: {answer}");
    }
}

#[test]
fn sessions_share_a_process() {
    let data = tempfile::tempdir().expect("a folder");
    let processes = data.path().join("processes");
    let script = format!("echo $$ >> {}; exec {DUOLOGUE} mock --pace 0", processes.display());
    let mut command = Command::new(DUOLOGUE);
    command.args(["serve", "--shared", "--listen", "127.0.0.1:0", "--data"]).arg(data.path());
    let server = Server::of(command.args(["--", "sh", "-c", &script]));
    for prompt in ["hello", "permission"] {
        let answer = server.prompt(prompt);
        assert!(answer.ends_with("exit 0"), "{answer}");
    }
    assert_eq!(std::fs::read_to_string(processes).expect("it ran").lines().count(), 1);
}

#[test]
fn bytes_of_an_agent_in_any_shape_make_the_same_turn() {
    for faults in ["bom", "fragment=1", "bom,crlf,noise,fragment=2", "coalesce"] {
        let data = tempfile::tempdir().expect("a folder");
        let mut command = Command::new(DUOLOGUE);
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data.path());
        let server = Server::of(command.args(["--", DUOLOGUE, "mock", "--pace", "0", "--faults", faults]));
        let hello = server.prompt("hello");
        assert!(hello.contains("Hello!") && hello.ends_with("exit 0"), "{faults}: {hello}");
    }
}

#[test]
fn the_log_has_the_stderr_of_the_agent() {
    let data = tempfile::tempdir().expect("a folder");
    for (level, is_logged) in [("warn", true), ("off", false)] {
        let path = data.path().join(level);
        let mut command = Command::new(DUOLOGUE);
        command.args(["serve", "--log", level, "--listen", "127.0.0.1:0", "--data"]).arg(data.path());
        command.args(["--", "sh", "-c", "printf 'no model \\033[2J\\n' >&2"]);
        let mut server = Server::of(command.stderr(std::fs::File::create(&path).expect("a file")));
        let failed = server.prompt("hello");
        assert!(!failed.ends_with("exit 0"), "{failed}");
        // The user of the client learns the reason too.
        assert!(failed.contains("exit status: 0") && failed.contains("no model"), "{failed}");
        server.stop();
        let log = std::fs::read_to_string(&path).expect("a log");
        assert_eq!(log.contains("no model"), is_logged, "{log}");
        assert!(!log.contains('\u{1b}'), "{log:?}");
    }
}

#[test]
fn lines_of_an_agent_have_its_session_in_the_log() {
    let data = tempfile::tempdir().expect("a folder");
    let log = data.path().join("log");
    let script =
        format!("while read -r line; do echo seen >&2; echo \"$line\"; done | {DUOLOGUE} mock --pace 0");
    let mut command = Command::new(DUOLOGUE);
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data.path());
    command.args(["--", "sh", "-c", &script]).stderr(std::fs::File::create(&log).expect("a file"));
    let mut server = Server::of(&mut command);
    let mut client = RawClient::new(&server);
    let session = client.session();
    client.request("session/prompt", &prompt(&session, "hello"));
    server.stop();
    let log = std::fs::read_to_string(log).expect("a log");
    let expected = format!("session={session}");
    assert!(log.lines().any(|line| line.contains("seen") && line.contains(&expected)), "{log}");
}

#[test]
fn a_server_reaches_files_and_terminals_only_if_its_client_allows_it() {
    let data = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(DUOLOGUE);
    command.args(["serve", "--client-files", "--listen", "127.0.0.1:0", "--data"]).arg(data.path());
    let server = Server::of(command.args(["--", DUOLOGUE, "mock", "--pace", "0"]));
    let capabilities = json!({"fs": {"readTextFile": true, "writeTextFile": true}, "terminal": true});
    for (more, expected) in [
        (&[][..], &[][..]),
        (&["--allow-files"], &["fs/write_text_file", "fs/read_text_file", "terminal/create"]),
    ] {
        let mut client = RawClient::of(server.connect().args(more), &capabilities);
        let session = client.session();
        let mut requested = Vec::new();
        for scenario in ["files", "terminal"] {
            let id = client.send("session/prompt", &prompt(&session, scenario));
            loop {
                let message = client.next();
                let (of, method) = (&message["id"], message["method"].as_str());
                let outcome = json!({"outcome": "selected", "optionId": "allow-once"});
                match method {
                    None if *of == id => break,
                    Some("session/request_permission") => {
                        client.write(&json!({"jsonrpc": "2.0", "id": of, "result": {"outcome": outcome}}));
                    }
                    Some(method) if !of.is_null() => {
                        requested.push(method.to_owned());
                        let error = json!({"code": -32603, "message": "no"});
                        client.write(&json!({"jsonrpc": "2.0", "id": of, "error": error}));
                    }
                    _ => {}
                }
            }
        }
        requested.dedup();
        assert_eq!(requested, expected, "{more:?}");
    }
}

#[test]
fn a_message_that_is_too_long_costs_only_itself() {
    let data = tempfile::tempdir().expect("a folder");
    let server = Server::start(data.path(), "0");
    let long = "x".repeat(17 << 20);
    for more in [&[][..], &["--map", "/tmp=/tmp"]] {
        let mut client = RawClient::of(server.connect().args(more).stderr(Stdio::piped()), &json!({}));
        let session = client.session();
        let (refused, _) = client.request_with("session/prompt", &prompt(&session, &long));
        assert_eq!(refused["error"]["code"], -32600, "{refused}");
        assert!(refused["error"]["message"].as_str().expect("a text").contains("16777216"), "{refused}");
        // Nothing can be answered to a notification.
        client.write(&json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": long}}));
        // A line that is no message has an error without an id.
        client.write(&json!("no message"));
        assert_eq!(client.next()["error"]["code"], -32600);
        let (ended, updates) = client.request_with("session/prompt", &prompt(&session, "hello"));
        assert_eq!(ended["result"]["stopReason"], "end_turn", "{ended}");
        assert!(text(&updates).contains("Hello!"));
        client.input = None;
        let log: Vec<String> = client.log().collect();
        let count = log.iter().filter(|line| line.contains("longer than 16777216 bytes")).count();
        assert_eq!(count, 2, "{log:?}");
    }
}

/// More lines wait than `connect` reads in advance, so that it cannot read the end.
#[test]
fn a_client_ends_behind_lines_that_its_server_does_not_read() {
    use std::io::Write as _;

    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
    let state = tempfile::tempdir().expect("a folder");
    let token = state.path().join("token");
    std::fs::write(&token, "0".repeat(64)).expect("a file");
    let mut command = Command::new(DUOLOGUE);
    command.args(["connect", "--token-file"]).arg(token);
    command.arg(format!("http://{}/acp", silent.local_addr().expect("an address")));
    let mut client = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut input = client.stdin.take().expect("a pipe");
    let line = format!("{}\n", "x".repeat((64 << 10) - 1));
    for _ in 0..17 {
        input.write_all(line.as_bytes()).expect("it reads");
    }
    drop(input);
    let ended = shown(&client.wait_with_output().expect("it ends"));
    assert!(
        ended.contains("has not taken or answered all its messages") && ended.ends_with("exit 0"),
        "{ended}"
    );
}

/// Nobody reads the log, and all threads of the server would wait for it.
#[test]
fn an_agent_that_floods_its_stderr_does_not_stop_the_server() {
    let data = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(DUOLOGUE);
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data.path());
    let script = format!("yes 'a line of the log' | head -n 20000 >&2; exec {DUOLOGUE} mock --pace 0");
    let server = Server::of(command.args(["--", "sh", "-c", &script]).stderr(Stdio::piped()));
    let mut client = RawClient::new(&server);
    for _ in 0..4 {
        let session = client.session();
        let (ended, _) = client.request_with("session/prompt", &prompt(&session, "hello"));
        assert_eq!(ended["result"]["stopReason"], "end_turn", "{ended}");
    }
}
