//! `duologue serve --config` as a process, with the example and its tour.
#![cfg(all(unix, feature = "serve"))]

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::process::{DUOLOGUE, run, shown};
use crate::served::{EXAMPLE, Server, start_hub, start_hub_at, start_hub_with};

/// Sends a request with curl, and returns the status and the body.
fn request(server: &Server, key: &str, path: &str, more: &[&str]) -> (u16, String) {
    let url = format!("{}{path}", server.url.strip_suffix("/acp").expect("the path of the first agent"));
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--write-out", "\n%{http_code}", "--header", &format!("X-API-Key: {key}")]);
    let output = curl.args(more).arg(url).output().expect("curl");
    let printed = String::from_utf8_lossy(&output.stdout);
    let (body, status) = printed.rsplit_once('\n').expect("a status");
    (status.parse().expect("a number"), body.to_owned())
}

/// Waits until something is so.
pub(crate) fn until(mut is_so: impl FnMut() -> bool) {
    let begin = std::time::Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < std::time::Duration::from_secs(60), "it takes too long");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

const JSON: [&str; 2] = ["--header", "Content-Type: application/json"];

#[test]
fn a_stopped_hub_drains_until_a_second_signal() {
    let data = tempfile::tempdir().expect("a folder");
    let mut server = start_hub_with(data.path(), &["--drain", "600"]);
    let key = std::fs::read_to_string(&server.token).expect("the token").trim().to_owned();
    let task = r#"{"taskId": "t1", "task": {"type": "a", "parameters": {"prompt": "cancel"}}}"#;
    let post = |server: &Server| {
        request(server, &key, "/agents/writer/tasks", &[&JSON[..], &["--data", task]].concat()).0
    };
    assert_eq!(post(&server), 202);
    let session = || {
        let task = request(&server, &key, "/agents/writer/tasks/t1", &[]).1;
        let task: serde_json::Value = serde_json::from_str(&task).expect("a task");
        task["sessionId"].as_str().map(ToOwned::to_owned)
    };
    // A drain waits for turns that have begun.
    until(|| {
        session().is_some_and(|session| {
            request(&server, &key, &format!("/sessions/{session}/log"), &[]).1.contains("session/prompt")
        })
    });
    assert_eq!(request(&server, "", "/ready", &[]).0, 200);
    run(Command::new("kill").arg(server.id().to_string()), "");
    until(|| request(&server, "", "/ready", &[]).0 == 503);
    assert_eq!((post(&server), request(&server, "", "/health", &[]).0), (503, 200));
    assert_eq!(
        request(&server, &key, "/agents/writer/tasks/t1", &[]).0,
        200,
        "what was accepted can be read"
    );
    let metrics = request(&server, &key, "/metrics", &[]).1;
    assert!(metrics.contains("duologue_draining 1"), "{metrics}");
    server.stop();
}

#[test]
fn refused_access_is_in_the_log_on_stderr() {
    let data = tempfile::tempdir().expect("a folder");
    let server = start_hub(data.path());
    assert_eq!(request(&server, "wrong", "/agents/a%0Aforged", &[]).0, 401);
    let log = || std::fs::read_to_string(data.path().join("log")).expect("the log");
    until(|| log().contains("duologue::audit"));
    let log = log();
    let line = log.lines().find(|line| line.contains("access_refused")).expect("a line");
    assert!(
        line.contains(r#"path="/agents/a%0Aforged""#) && line.contains(r#"code="unauthenticated""#),
        "{log}"
    );
}

/// The hub is killed before a request, while a question is open, and while a task runs.
#[test]
fn the_tour_of_the_example_is_complete_although_its_hub_is_killed() {
    let data = tempfile::tempdir().expect("a folder");
    let mut server = start_hub(data.path());
    let hub = server.url.strip_suffix("/acp").expect("the path of the first agent").to_owned();
    let address = hub.strip_prefix("http://").expect("the scheme").to_owned();
    let key = std::fs::read_to_string(&server.token).expect("the token");
    let mut tour = Command::new("sh");
    tour.arg(format!("{EXAMPLE}/tour.sh")).env("HUB", &hub).env("KEY", key.trim()).env("RUN", "1");
    let mut tour = tour.stdout(Stdio::piped()).spawn().expect("a shell");
    let (mut printed, mut kills) = (String::new(), 0);
    let lines = BufReader::new(tour.stdout.take().expect("a pipe")).lines();
    for line in lines.map_while(Result::ok) {
        printed.extend([&*line, "\n"]);
        let kill_at = [
            "# Leave a message",
            "> GET /agents/reviewer/tasks/review-1/input",
            "> POST /agents/writer/tasks/long-1/cancel",
        ];
        if kill_at.iter().any(|mark| line.starts_with(mark)) {
            server.kill();
            server = start_hub_at(&address, data.path(), &[]);
            kills += 1;
        }
    }
    let status = tour.wait().expect("it ended");
    assert!(status.success() && printed.ends_with("The tour is complete.\n"), "{printed}");
    assert_eq!(kills, 3, "{printed}");
}

#[test]
fn the_service_and_the_container_run_a_command_that_exists() {
    let read = |name: &str| std::fs::read_to_string(format!("{EXAMPLE}/{name}")).expect("the example");
    let (unit, image) = (read("duologue.service"), read("Containerfile"));
    let words: Vec<String> = {
        let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("a command");
        line.split(' ').skip(1).map(str::to_owned).collect()
    };
    let line = image.lines().find_map(|line| line.strip_prefix("CMD ")).expect("a command");
    assert_eq!(serde_json::from_str::<Vec<String>>(line).expect("a list"), words);
    assert!(image.contains("\nUSER 65532:65532\n"), "not as root");
    let data = tempfile::tempdir().expect("a folder");
    let config = data.path().join("hub.toml");
    std::fs::write(&config, "listen = \"127.0.0.1:0\"\n").expect("a file");
    let place = |word: &String| match word.as_str() {
        "/etc/duologue/hub.toml" => config.clone().into_os_string(),
        "/var/lib/duologue" => data.path().into(),
        word => word.into(),
    };
    let mut server = Server::of(Command::new(DUOLOGUE).args(words.iter().map(place)));
    server.stop();
}

#[test]
fn the_folder_of_the_user_belongs_to_one_configuration() {
    let state = tempfile::tempdir().expect("a folder");
    let file = |name: &str| state.path().join(name);
    for name in ["first.toml", "second.toml"] {
        std::fs::write(file(name), "").expect("a file");
    }
    let serve = |name: &str, listen: &str, more: &[&str]| {
        let mut command = Command::new(DUOLOGUE);
        command.args(["serve", "--listen", listen, "--config"]).arg(file(name)).args(more);
        command.env("XDG_STATE_HOME", state.path());
        command
    };
    let starts = |name: &str, more: &[&str]| Server::of(&mut serve(name, "127.0.0.1:0", more)).stop();
    // It does not serve in any case.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = listener.local_addr().expect("an address").to_string();
    let refused = |name: &str, of: &str| {
        let refused = shown(&run(&mut serve(name, &taken, &[]), ""));
        let why = format!("the folder of the user is that of the hub with {}", file(of).display());
        assert!(refused.contains(&why) && refused.ends_with("exit 2"), "{refused}");
    };
    starts("first.toml", &[]);
    refused("second.toml", "first.toml");
    std::fs::rename(file("first.toml"), file("moved.toml")).expect("a file");
    starts("moved.toml", &[]);
    refused("second.toml", "moved.toml");
    let named = file("duologue");
    starts("second.toml", &["--data", named.to_str().expect("UTF-8")]);
    refused("moved.toml", "second.toml");
}

#[test]
fn each_agent_of_a_hub_has_a_path() {
    let data = tempfile::tempdir().expect("a folder");
    let server = start_hub(data.path());
    let prompt = |url: &str, key: &Path| {
        let mut command = Command::new(DUOLOGUE);
        command.current_dir(data.path());
        command.args(["run", "--yes", "plan", "--", DUOLOGUE, "connect", "--token-file"]).arg(key).arg(url);
        run(&mut command, "")
    };
    let token = Path::new(&server.token);
    let alice = data.path().join("alice");
    std::fs::write(&alice, "alice-key").expect("a file");
    for (path, key, is_allowed) in [
        ("/acp", token, true),
        ("/acp/writer", token, true),
        ("/acp/reviewer", token, true),
        ("/acp/unknown", token, false),
        ("/acp/writer", &alice, true),
        // The rules of the example give her the writer alone.
        ("/acp/reviewer", &alice, false),
    ] {
        let url = server.url.replace("/acp", path);
        let output = prompt(&url, key);
        assert_eq!(output.status.success(), is_allowed, "{path}: {}", shown(&output));
    }
}

#[test]
fn a_wrong_configuration_is_explained() {
    let data = tempfile::tempdir().expect("a folder");
    let file = data.path().join("hub.toml");
    for (config, reason) in [
        ("[[agents]]\nid = \"a/b\"\ncommand = [\"x\"]", "use 1 to 64 letters"),
        ("[[agents]]\nid = \"a\"\ncommand = []", "the agent \"a\" has no command"),
        ("[[agents]]\nid = \"a\"\ncommand = [\"x\"]\nsurprise = 1", "unknown field `surprise`"),
        (
            "[[agents]]\nid = \"a\"\ncommand = [\"x\"]\n[[principals]]\nid = \"p\"\nkey_sha256 = \"00\"",
            "set trust = \"shared\"",
        ),
        ("[[principals]]\nid = \"p\"\nkey_sha256 = \"00\"", "use 64 hexadecimal digits"),
    ] {
        std::fs::write(&file, config).expect("a file");
        let mut command = Command::new(DUOLOGUE);
        command.args(["serve", "--config"]).arg(&file).arg("--data").arg(data.path());
        let output = run(&mut command, "");
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && printed.contains(reason), "{config}: {printed}");
    }
}
