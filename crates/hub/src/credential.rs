//! The credentials of the gateway at the servers of agents elsewhere.

use std::fmt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;
use tokio::sync::Mutex;
use tokio::time::timeout;
use zeroize::Zeroizing;

/// The longest output of a command, in bytes.
const OUTPUT_BYTES: u64 = 64 * 1024;

/// The source of the token that the gateway sends to the server of an agent, as `Authorization: Bearer TOKEN`.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AgentAuth {
    /// The name of a variable of the gateway's environment.
    Env(String),
    /// A file. Relative to the file of the configuration.
    File(PathBuf),
    /// A program with its arguments. It writes the token to its standard output.
    Command(Vec<String>),
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

/// A token.
#[derive(Clone)]
pub(crate) struct AgentToken(Arc<Zeroizing<String>>);

impl fmt::Debug for AgentToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AgentToken(..)")
    }
}

impl AgentToken {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// The credential for an agent, which can be none. A token is kept until a server refuses it with 401.
#[derive(Debug)]
pub(crate) struct AgentCredential {
    source: Option<AgentAuth>,
    limit: Duration,
    known: Mutex<Option<AgentToken>>,
}

impl AgentCredential {
    /// Creates a credential. `limit` is the time for a command.
    pub(crate) fn new(source: Option<AgentAuth>, limit: Duration) -> Self {
        AgentCredential { source, limit, known: Mutex::default() }
    }

    /// Returns the token, and `None` if the agent needs none. The reason for a failure is logged, for the operator alone.
    pub(crate) async fn token(&self) -> Result<Option<AgentToken>, &'static str> {
        let Some(source) = &self.source else { return Ok(None) };
        let mut known = self.known.lock().await;
        if known.is_none() {
            *known = Some(source.token(self.limit).await.map_err(|why| {
                tracing::warn!(?source, why, "an agent is not reached without its credential");
                "the credential of the server for the agent is not there; the log of the server has the reason"
            })?);
        }
        Ok(known.clone())
    }

    /// Forgets a token that a server has refused, so that the next one is read from the source. Returns false without one.
    pub(crate) async fn refuse(&self, token: Option<&AgentToken>) -> bool {
        let Some(token) = token else { return false };
        self.known.lock().await.take_if(|known| Arc::ptr_eq(&known.0, &token.0));
        true
    }
}

impl AgentAuth {
    async fn token(&self, limit: Duration) -> Result<AgentToken, String> {
        let text = self.read(limit).await?;
        let text = text.trim();
        match !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic()) {
            true => Ok(AgentToken(Arc::new(Zeroizing::new(text.to_owned())))),
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
                let read = tokio::task::spawn_blocking(move || std::fs::read_to_string(path)).await;
                let read = read.map_err(std::io::Error::from).and_then(|read| read);
                read.map(Zeroizing::new).map_err(|error| error.to_string())
            }
            // A program that takes too long ends with its handle.
            AgentAuth::Command(words) => timeout(limit, output(words)).await.unwrap_or_else(|_| {
                Err(format!("it did not end within {limit:?}; raise `limits.auth_seconds`"))
            }),
        }
    }
}

/// Returns the output of a program that succeeds.
async fn output(words: &[String]) -> Result<Zeroizing<String>, String> {
    let mut words = words.iter();
    let mut command = Command::new(words.next().map_or("false", String::as_str));
    // Its stderr can have secrets, and is not logged.
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let mut text = Zeroizing::new(String::new());
    if let Some(stdout) = child.stdout.take() {
        let read = stdout.take(OUTPUT_BYTES + 1).read_to_string(&mut text).await;
        read.map_err(|error| error.kind().to_string())?;
    }
    if text.len() as u64 > OUTPUT_BYTES {
        return Err(format!("its output is over {OUTPUT_BYTES} bytes"));
    }
    match child.wait().await.map_err(|error| error.to_string())? {
        status if status.success() => Ok(text),
        status => Err(format!("the program has failed: {status}")),
    }
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
        assert!(shown.contains("sh") && shown.contains("..") && !shown.contains("wc"), "{shown}");
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

    #[cfg(unix)]
    #[tokio::test]
    async fn a_source_without_a_token_fails_without_its_text() {
        for (source, part) in [
            (source("env = \"DUOLOGUE_ABSENT\""), "the variable is not set"),
            (source("file = \"/absent/token\""), "No such file"),
            (shell("echo swordfish; exit 3"), "exit status: 3"),
            (shell("echo swordfish a"), "visible ASCII"),
            (shell(": swordfish; yes | head -c 70000"), "over 65536 bytes"),
            (shell("true"), "visible ASCII"),
        ] {
            let fault = source.token(LONG).await.unwrap_err();
            assert!(fault.contains(part) && !fault.contains("swordfish"), "{fault}");
        }
        let late = shell("sleep 600").token(Duration::ZERO).await.unwrap_err();
        assert!(late.contains("limits.auth_seconds"), "{late}");
    }
}
