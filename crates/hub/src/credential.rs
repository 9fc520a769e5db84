//! The credentials of the gateway at the servers of agents elsewhere.

use std::collections::VecDeque;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use duologue_client::{AgentProcess, Pipes};
use duologue_rpc::{Lock as _, SecretText};
use serde::Deserialize;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, copy, sink};
use tokio::sync::Mutex;
use tokio::time::timeout;
use zeroize::Zeroizing;

/// The tokens that are searched for in answers: one that was refused is still a secret.
const SENT_TOKENS: usize = 8;
/// The shortest token that is searched for. A shorter one could be any word.
const SEARCHED_BYTES: usize = 16;

/// The longest output of a command, in bytes.
const OUTPUT_BYTES: u64 = 64 * 1024;

/// The source of the token that the gateway sends to the server of an agent, as `Authorization: Bearer TOKEN`.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "toml::Value")]
#[non_exhaustive]
pub enum AgentAuth {
    /// The name of a variable of the gateway's environment.
    Env(String),
    /// A file. Relative to the file of the configuration.
    File(PathBuf),
    /// A program with its arguments. It writes the token to its standard output.
    Command(Vec<String>),
}

/// The error of a source in another form. It has nothing of the value, which can be a secret.
const FORM: &str =
    "`auth` has one member: `env` with a name, `file` with a path, or `command` with a list of words";

impl TryFrom<toml::Value> for AgentAuth {
    type Error = &'static str;

    fn try_from(value: toml::Value) -> Result<Self, &'static str> {
        let toml::Value::Table(members) = value else { return Err(FORM) };
        let mut members = members.into_iter();
        let (Some((name, value)), None) = (members.next(), members.next()) else { return Err(FORM) };
        match (name.as_str(), value) {
            ("env", toml::Value::String(name)) => Ok(AgentAuth::Env(name)),
            ("file", toml::Value::String(path)) => Ok(AgentAuth::File(path.into())),
            ("command", words) => words.try_into().map(AgentAuth::Command).map_err(|_| FORM),
            _ => Err(FORM),
        }
    }
}

/// Shows the source and no arguments, which can be secrets.
impl fmt::Debug for AgentAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AgentAuth::Env(name) => write!(f, "env = {name:?}"),
            AgentAuth::File(path) => write!(f, "file = {path:?}"),
            AgentAuth::Command(words) => write!(f, "command = {:?} …", words.first()),
        }
    }
}

/// The credential for an agent, which can be none. A token is kept until a server refuses it with 401.
#[derive(Debug)]
pub(crate) struct AgentCredential {
    source: Option<AgentAuth>,
    limit: Duration,
    known: Mutex<Option<Arc<SecretText>>>,
    /// The last tokens, the newest at the end.
    sent: std::sync::Mutex<VecDeque<Arc<SecretText>>>,
}

impl AgentCredential {
    /// Creates a credential. `limit` is the time for a command.
    pub(crate) fn new(source: Option<AgentAuth>, limit: Duration) -> Self {
        AgentCredential { source, limit, known: Mutex::default(), sent: std::sync::Mutex::default() }
    }

    /// Returns the token, and `None` if the agent needs none. The reason for a failure is logged, for the operator alone.
    pub(crate) async fn token(&self) -> Result<Option<Arc<SecretText>>, &'static str> {
        let Some(source) = &self.source else { return Ok(None) };
        let mut known = self.known.lock().await;
        if known.is_none() {
            let token = source.token(self.limit).await.map(Arc::new).map_err(|why| {
                tracing::warn!(?source, why, "an agent is not reached without its credential");
                "the credential of the server for the agent is not there; the log of the server has the reason"
            })?;
            let mut sent = self.sent.lock_unpoisoned();
            sent.push_back(token.clone());
            if sent.len() > SENT_TOKENS {
                sent.pop_front();
            }
            *known = Some(token);
        }
        Ok(known.clone())
    }

    /// Returns true if a text or a name in an answer contains one of the last tokens.
    pub(crate) fn is_in(&self, answer: &Value) -> bool {
        let sent = self.sent.lock_unpoisoned();
        let long = || sent.iter().map(|token| token.as_str()).filter(|token| token.len() >= SEARCHED_BYTES);
        long().next().is_some() && has_text(answer, &|text| long().any(|token| text.contains(token)))
    }

    /// Forgets a token that a server has refused, so that the next one is read from the source. Returns false without one.
    pub(crate) async fn refuse(&self, token: Option<&Arc<SecretText>>) -> bool {
        let Some(token) = token else { return false };
        self.known.lock().await.take_if(|known| Arc::ptr_eq(known, token));
        true
    }
}

/// Returns true if a text or a name in a value is found. A value of JSON has a limit on its depth.
fn has_text(value: &Value, is_found: &impl Fn(&str) -> bool) -> bool {
    match value {
        Value::String(text) => is_found(text),
        Value::Array(items) => items.iter().any(|item| has_text(item, is_found)),
        Value::Object(members) => {
            members.iter().any(|(name, value)| is_found(name) || has_text(value, is_found))
        }
        _ => false,
    }
}

impl AgentAuth {
    async fn token(&self, limit: Duration) -> Result<SecretText, String> {
        let text = self.read(limit).await?;
        let text = text.trim();
        match !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic()) {
            true => Ok(text.into()),
            false => Err("it is not a token of visible ASCII characters".to_owned()),
        }
    }

    async fn read(&self, limit: Duration) -> Result<Zeroizing<String>, String> {
        match self {
            // The text of the error can have the value.
            AgentAuth::Env(name) => std::env::var(name)
                .map(Zeroizing::new)
                .map_err(|_| "the variable is not set, or is not UTF-8".to_owned()),
            AgentAuth::File(path) => {
                let path = path.clone();
                let read = tokio::task::spawn_blocking(move || file_text(&path));
                match timeout(limit, read).await {
                    Ok(read) => read.map_err(|error| error.to_string())?,
                    Err(_) => Err(format!("it was not read within {limit:?}; raise `limits.auth_seconds`")),
                }
            }
            // A program that takes too long ends with this.
            AgentAuth::Command(words) => timeout(limit, output(words)).await.unwrap_or_else(|_| {
                Err(format!("it did not end within {limit:?}; raise `limits.auth_seconds`"))
            }),
        }
    }
}

/// Returns the text of a regular file. Another one, such as a pipe, can be without an end.
fn file_text(path: &Path) -> Result<Zeroizing<String>, String> {
    use std::io::Read as _;

    if !std::fs::metadata(path).map_err(|error| error.to_string())?.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let mut text = Zeroizing::new(String::new());
    file.take(OUTPUT_BYTES + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    match text.len() as u64 > OUTPUT_BYTES {
        true => Err(format!("it is over {OUTPUT_BYTES} bytes")),
        false => Ok(text),
    }
}

/// Returns the output of a program that succeeds. Its process group ends with it, and with this future.
async fn output(words: &[String]) -> Result<Zeroizing<String>, String> {
    let mut words = words.iter();
    let mut command = Command::new(words.next().map_or("false", String::as_str));
    command.args(words);
    let (mut process, Pipes { stdin, stdout, mut stderr, .. }) =
        AgentProcess::start(command).map_err(|error| error.to_string())?;
    drop(stdin);
    let mut text = Zeroizing::new(String::new());
    let read = async {
        let read = stdout.take(OUTPUT_BYTES + 1).read_to_string(&mut text).await;
        match read.map_err(|error| error.kind().to_string())? as u64 > OUTPUT_BYTES {
            true => Err(format!("its output is over {OUTPUT_BYTES} bytes")),
            false => Ok(()),
        }
    };
    // It can have secrets, and is not logged.
    let ignored = async {
        let _ = copy(&mut stderr, &mut sink()).await;
        Ok::<_, String>(())
    };
    let ended = async {
        let status = process.wait().await;
        // Programs in the background could hold the output.
        process.kill();
        match status {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(format!("the program has failed: {status}")),
            None => Err("the program has ended without a status".to_owned()),
        }
    };
    tokio::try_join!(read, ignored, ended)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn source(text: &str) -> AgentAuth {
        #[derive(Deserialize)]
        struct Entry {
            auth: AgentAuth,
        }
        toml::from_str::<Entry>(&format!("auth = {{ {text} }}")).unwrap().auth
    }

    #[cfg(unix)]
    fn shell(script: &str) -> AgentAuth {
        source(&format!("command = [\"sh\", \"-c\", {script:?}]"))
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_token_is_kept_until_it_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let runs = folder.path().join("runs");
        let script = format!("echo run >> {0}; wc -l < {0}", runs.display());
        let credential = AgentCredential::new(Some(shell(&script)), LONG);
        let token = async || credential.token().await.unwrap().unwrap();
        let first = token().await;
        assert_eq!((first.as_str(), token().await.as_str()), ("1", "1"));
        assert!(credential.refuse(Some(&first)).await);
        assert_eq!(token().await.as_str(), "2");
        // Another request was refused with the same token meanwhile.
        credential.refuse(Some(&first)).await;
        assert_eq!(token().await.as_str(), "2");
        let shown = format!("{credential:?}");
        assert!(shown.contains("sh") && shown.contains("[redacted]") && !shown.contains("wc"), "{shown}");
    }

    #[tokio::test]
    async fn a_token_is_read_from_a_variable_or_a_file() {
        let is_token = |value: &str| !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_graphic());
        let (name, value) = std::env::vars().find(|(_, value)| is_token(value)).unwrap();
        let read = source(&format!("env = {name:?}")).token(LONG).await.unwrap();
        assert_eq!(read.as_str(), value);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        std::fs::write(&file, "a-token\n").unwrap();
        let read = source(&format!("file = {file:?}")).token(LONG).await.unwrap();
        assert_eq!(read.as_str(), "a-token");
        assert!(AgentCredential::new(None, LONG).token().await.unwrap().is_none());
    }

    #[test]
    fn a_source_in_another_form_is_refused_without_its_text() {
        for text in [
            "\"swordfish\"",
            "{ token = \"swordfish\" }",
            "{ command = \"a swordfish\" }",
            "{}",
            "{ env = 1 }",
            "{ env = \"A\", file = \"swordfish\" }",
        ] {
            let error = toml::from_str::<AgentAuth>(&format!("auth = {text}")).err();
            let error = error.map_or_else(String::new, |error| error.to_string());
            let refused = AgentAuth::try_from(
                toml::from_str::<toml::Table>(&format!("auth = {text}")).unwrap()["auth"].clone(),
            );
            let reason = refused.expect_err("no source");
            assert!(!reason.contains("swordfish") && !error.contains("unknown variant"), "{reason}");
        }
    }

    #[tokio::test]
    async fn a_token_is_found_in_the_texts_of_an_answer() {
        let (long, short) = ("swordfish/AbC/dEf==", "swordfish");
        for (token, is_found) in [(long, true), (short, false)] {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("token");
            std::fs::write(&file, token).unwrap();
            let credential = AgentCredential::new(Some(source(&format!("file = {file:?}"))), LONG);
            let first = credential.token().await.unwrap();
            std::fs::write(&file, "another-token-of-some-length").unwrap();
            credential.refuse(first.as_ref()).await;
            credential.token().await.unwrap();
            let escaped =
                format!(r#"{{"a":["Bearer {}"]}}"#, token.replace('/', "\\/").replace('=', "\\u003d"));
            let name = format!(r#"{{"{token}":1}}"#);
            for answer in [escaped, name] {
                assert_eq!(credential.is_in(&serde_json::from_str(&answer).unwrap()), is_found, "{answer}");
            }
            assert!(!credential.is_in(&serde_json::json!({"a": "Bearer another"})));
        }
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_source_without_a_token_fails_without_its_text() {
        for (source, part) in [
            (source("env = \"DUOLOGUE_ABSENT\""), "the variable is not set"),
            (source("file = \"/absent/token\""), "No such file"),
            (source("file = \"/dev/zero\""), "not a regular file"),
            (shell("echo swordfish; exit 3"), "exit status: 3"),
            (shell("echo swordfish a"), "visible ASCII"),
            (shell(": swordfish; yes | head -c 70000"), "over 65536 bytes"),
            (shell("true"), "visible ASCII"),
        ] {
            let fault = source.token(LONG).await.unwrap_err();
            assert!(fault.contains(part) && !fault.contains("swordfish"), "{fault}");
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        std::fs::write(&file, "a".repeat(70_000)).unwrap();
        let long = source(&format!("file = {file:?}")).token(LONG).await.unwrap_err();
        assert!(long.contains("over 65536 bytes"), "{long}");
        let late = shell("sleep 600").token(Duration::ZERO).await.unwrap_err();
        assert!(late.contains("limits.auth_seconds"), "{late}");
    }

    /// A child of the program keeps one end of a pipe open, whose other end the test reads.
    #[cfg(unix)]
    #[tokio::test]
    async fn the_children_of_a_program_end_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        // It holds the output of the program too.
        let child = format!("sleep 600 3> {} &", pipe.display());
        for (script, limit, is_token) in [
            (format!("{child} echo a-token"), LONG, true),
            (format!("{child} wait"), Duration::from_secs(1), false),
        ] {
            let path = pipe.clone();
            let open = tokio::task::spawn_blocking(move || std::fs::read(path));
            let read = shell(&script).token(limit).await;
            assert_eq!(read.is_ok(), is_token, "{read:?}");
            // A child that has ended before it has opened the pipe.
            drop(std::fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap());
            // The end of the pipe is the end of the child.
            assert_eq!(tokio::time::timeout(LONG, open).await.unwrap().unwrap().unwrap(), b"");
        }
    }
}
