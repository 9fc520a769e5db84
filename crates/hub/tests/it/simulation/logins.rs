//! Seeded schedules of logins, over a hub with real processes that keep a login in memory.
//!
//! A login belongs to the agent and not to a session, so the hub repeats it in each new process, and its owner does not know of it.
#![cfg(unix)]

use std::path::{Path, PathBuf};

use duologue_client::Command;
use duologue_hub::{Hub, HubSettings};
use duologue_test_support::in_time;
use fastrand::Rng;
use serde_json::{Value, json};
use tokio::net::unix::pipe;

use super::campaign::{Campaign, EventCounts};
use crate::faults::{new_session, text_prompt};
use crate::hub::{RawClient, open_when_free};

/// An agent whose user is the method of the last login. It refuses the logins whose methods are files in its folder. The first
/// login of a process that knows envelopes waits for a line in the pipe `gate`, if there is one.
const AGENT: &str = r#"
    user=; sessions=0; gate=
    while read -r line; do
        id=${line#*\"id\":}; id=${id%%,*}
        outcome='"error":{"code":-32000,"message":"login required"}'
        case "$line" in
            *'"initialize"'*)
                case "$line" in *'"envelope"'*) gate=gate;; esac
                methods='[{"id":"a","name":"A"},{"id":"b","name":"B"}]'
                outcome='"result":{"protocolVersion":1,"agentCapabilities":{"loadSession":true},"authMethods":'$methods'}';;
            *'"authenticate"'*)
                method=${line#*\"methodId\":\"}; method=${method%%\"*}
                if [ -p "$gate" ]; then echo >reached; read -r wait <gate; gate=; fi
                [ -e "$method" ] || { user=$method; outcome='"result":{}'; };;
            *'"logout"'*) user=; outcome='"result":{}';;
            *exit*) exit 3;;
            *'"session/cancel"'*|*'"session/close"'*) continue;;
            *'"session/new"'*)
                sessions=$((sessions + 1))
                [ -z "$user" ] || outcome='"result":{"sessionId":"'$$-$sessions'"}';;
            *'"session/load"'*) [ -z "$user" ] || outcome='"result":{}';;
            *'"session/prompt"'*)
                [ -z "$user" ] || outcome='"result":{"stopReason":"end_turn","_meta":{"user":"'$user'"}}';;
        esac
        printf '%s\n' '{"jsonrpc":"2.0","id":'"$id,$outcome"'}'
    done
"#;

const CAMPAIGN: Campaign = Campaign {
    test: "duologue-hub --test it a_login_lasts_through_any_faults",
    schedules: 16,
    minimum: &[("logins", 100), ("ends of processes", 40), ("turns of new processes", 20)],
    shown: "",
};

/// Each turn is one of the user whose login was the last when its process began, also behind the end of a process, of the
/// hub and of a client. A login that is needed and missing, or that the agent refuses to repeat, is an error of the client's
/// request.
#[test]
fn a_login_lasts_through_any_faults() {
    CAMPAIGN.play(|seed, steps| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Ok(runtime.block_on(in_time(async move { Logins::new(seed).await.run(steps).await })))
    });
}

/// The user of a process.
type User = Option<&'static str>;

struct OpenSession {
    id: Value,
    /// The user of its process, or `None` if it has no process.
    process: Option<User>,
}

struct Logins {
    rng: Rng,
    data: tempfile::TempDir,
    shares_process: bool,
    /// Absent while another one opens its folder.
    hub: Option<Hub>,
    client: RawClient,
    requests: u32,
    /// The login that the hub repeats.
    login: User,
    /// The user of the process that all sessions share, if they do.
    shared: Option<User>,
    sessions: Vec<OpenSession>,
    counts: EventCounts,
}

fn settings(data: &Path, shares_process: bool) -> HubSettings {
    let folder: PathBuf = data.to_owned();
    let command = move || Command::new("sh").args(["-c", AGENT]).cwd(&folder);
    let mut settings = HubSettings::new(command, data.join("hub"));
    settings.shared_process = shares_process;
    settings.owner.restarts = usize::MAX;
    settings
}

impl Logins {
    async fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let (data, shares_process) = (tempfile::tempdir().unwrap(), rng.bool());
        let hub = Hub::open(settings(data.path(), shares_process)).unwrap();
        let client = RawClient::initialized(&hub).await;
        let shared = shares_process.then_some(None);
        let (hub, sessions, counts) = (Some(hub), Vec::new(), EventCounts::default());
        Logins { rng, data, shares_process, hub, client, requests: 0, login: None, shared, sessions, counts }
    }

    async fn run(mut self, steps: usize) -> EventCounts {
        for _ in 0..steps.min(32) {
            match self.rng.u8(..12) {
                0..2 => self.log_in().await,
                2 if self.rng.bool() => self.log_out().await,
                2 => self.refuse_or_allow(),
                3 | 4 => self.begin().await,
                5..9 => self.prompt("hello").await,
                9 | 10 => self.prompt("exit").await,
                _ if self.rng.bool() => self.restart().await,
                _ => self.connect().await,
            }
        }
        self.shut_down().await;
        self.counts
    }

    async fn shut_down(&mut self) {
        if let Some(hub) = self.hub.take() {
            hub.shut_down().await;
        }
    }

    async fn request(&mut self, method: &str, params: Value) -> Value {
        self.requests += 1;
        self.client.request(self.requests, method, params).await
    }

    fn is_refused(&self, method: &str) -> bool {
        self.data.path().join(method).exists()
    }

    /// Changes what the agent thinks of a login, as a provider does that ends one.
    fn refuse_or_allow(&mut self) {
        let method = self.any_method();
        let file = self.data.path().join(method);
        match file.exists() {
            true => std::fs::remove_file(file).unwrap(),
            false => std::fs::write(file, "").unwrap(),
        }
    }

    fn any_method(&mut self) -> &'static str {
        if self.rng.bool() { "a" } else { "b" }
    }

    /// Returns the user of a process that begins now, if it does.
    fn user_of_new(&self) -> User {
        self.login.filter(|login| !self.is_refused(login))
    }

    async fn log_in(&mut self) {
        let method = self.any_method();
        self.share();
        let answer = self.request("authenticate", json!({"methodId": method})).await;
        assert_eq!(answer["error"].is_object(), self.is_refused(method), "{method}: {answer}");
        if answer["error"].is_null() {
            self.change_user(Some(method));
            self.counts.add("logins", 1);
        }
    }

    async fn log_out(&mut self) {
        self.share();
        assert!(self.request("logout", json!({})).await["result"].is_object());
        self.change_user(None);
    }

    fn change_user(&mut self, user: User) {
        self.login = user;
        self.shared = self.shares_process.then_some(user);
    }

    /// Notes that the process that all share runs, if they share one.
    fn share(&mut self) {
        if self.shares_process && self.shared.is_none() {
            self.shared = Some(self.user_of_new());
        }
    }

    /// Checks the error of a request, or the user of a process that may be new.
    fn check(&mut self, answer: &Value, user: User, is_new: bool) {
        if answer["error"].is_null() {
            return assert!(user.is_some(), "without a login: {answer}");
        }
        assert_eq!(answer["error"]["code"], -32000, "{answer}");
        assert_eq!(user, None, "{} is lost: {answer}", if is_new { "the login" } else { "the user" });
        self.counts.add("logins that are needed", 1);
    }

    async fn begin(&mut self) {
        self.share();
        let answer = self.request("session/new", new_session()).await;
        // The process can be one that logged in while the agent allowed it.
        let user = match answer["error"].is_null() {
            true => self.shared.unwrap_or(self.login),
            false => self.shared.unwrap_or_else(|| self.user_of_new()),
        };
        self.check(&answer, user, true);
        if answer["error"].is_null() {
            let id = answer["result"]["sessionId"].clone();
            self.sessions.push(OpenSession { id, process: Some(user) });
            self.counts.add("sessions", 1);
        }
    }

    async fn prompt(&mut self, text: &str) {
        if self.sessions.is_empty() {
            return;
        }
        let place = self.rng.usize(..self.sessions.len());
        let OpenSession { id, process } = &self.sessions[place];
        let (id, is_new) = (id.clone(), process.is_none());
        let mut user = process.unwrap_or_else(|| self.user_of_new());
        if self.shares_process {
            self.share();
            user = self.shared.flatten();
        }
        let answer = self.request("session/prompt", text_prompt(&id, text)).await;
        if text == "exit" && (!is_new || user.is_some()) {
            assert_eq!(answer["error"]["data"]["code"], "interrupted", "{answer}");
            self.counts.add("ends of processes", 1);
            self.shared = None;
            match self.shares_process {
                true => self.end_processes(),
                false => self.sessions[place].process = None,
            }
            return;
        }
        // The process can be one that logged in while the agent allowed it.
        if is_new && !self.shares_process && answer["error"].is_null() {
            user = self.login;
        }
        self.check(&answer, user, is_new);
        if answer["error"].is_null() {
            assert_eq!(answer["result"]["_meta"]["user"], json!(user), "{answer}");
            self.counts.add(if is_new { "turns of new processes" } else { "turns" }, 1);
        }
        // A process in which the session could not be opened has ended, or serves the others.
        self.sessions[place].process = (!is_new || user.is_some()).then_some(user);
    }

    fn end_processes(&mut self) {
        self.sessions.iter_mut().for_each(|session| session.process = None);
    }

    async fn connect(&mut self) {
        self.client = RawClient::new(self.hub.as_ref().unwrap());
        self.client.initialize().await;
        for place in 0..self.sessions.len() {
            let params = json!({"sessionId": self.sessions[place].id, "cwd": "/tmp", "mcpServers": []});
            let opened = self.request("session/load", params).await;
            // It is answered from the log, and the next prompt starts a process.
            assert!(opened["result"].is_object(), "{opened}");
        }
    }

    async fn restart(&mut self) {
        self.shut_down().await;
        // The folder is free when the last connection has ended.
        self.client = RawClient::of(drop);
        let (data, shares_process) = (self.data.path().to_owned(), self.shares_process);
        self.hub = Some(open_when_free(|| settings(&data, shares_process)).await);
        self.login = None;
        self.shared = None;
        self.end_processes();
        self.connect().await;
    }
}

/// The process for the introduction of the second client repeats the former login. It does not serve a session.
#[tokio::test]
async fn a_process_with_a_former_login_is_not_used() {
    in_time(async {
        let data = tempfile::tempdir().unwrap();
        let hub = Hub::open(settings(data.path(), false)).unwrap();
        let [gate, reached] = ["gate", "reached"].map(|name| data.path().join(name));
        assert!(std::process::Command::new("mkfifo").args([&gate, &reached]).status().unwrap().success());
        let (mut first, mut second) = (RawClient::new(&hub), RawClient::new(&hub));
        first.initialize().await;
        let log_in = |method| json!({"methodId": method});
        assert!(first.request(1, "authenticate", log_in("a")).await["result"].is_object());
        let introduced = second.initialize_with(json!({"envelope": {"v": [1]}}));
        let changed = async {
            // A pipe that is open in both directions keeps no thread.
            let pipe = pipe::OpenOptions::new().read_write(true).open_receiver(reached).unwrap();
            pipe.readable().await.unwrap();
            assert!(first.request(2, "authenticate", log_in("b")).await["result"].is_object());
            let mut gate = std::fs::File::options().read(true).write(true).open(gate).unwrap();
            std::io::Write::write_all(&mut gate, b"\n").unwrap();
            gate
        };
        let (_, _gate) = tokio::join!(introduced, changed);
        std::fs::remove_file(data.path().join("gate")).unwrap();
        let new = second.request(3, "session/new", new_session()).await;
        let prompt = text_prompt(&new["result"]["sessionId"], "hello");
        let answer = second.request(4, "session/prompt", prompt).await;
        assert_eq!(answer["result"]["_meta"]["user"], "b", "{answer}");
        hub.shut_down().await;
    })
    .await;
}
