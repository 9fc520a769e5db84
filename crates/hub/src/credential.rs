//! The credentials of the gateway at the servers of agents elsewhere.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use duologue_rpc::{Lock as _, SecretText};
use serde_json::Value;
use tokio::sync::Mutex;

use crate::secret_source::SecretSource;

/// The tokens that are searched for in answers: one that was refused is still a secret.
const SENT_TOKENS: usize = 8;
/// The shortest token that is searched for. A shorter one could be any word.
const SEARCHED_BYTES: usize = 16;

/// The credential for an agent, which can be none. A token is kept until a server refuses it with 401.
#[derive(Debug)]
pub(crate) struct AgentCredential {
    source: Option<SecretSource>,
    limit: Duration,
    known: Mutex<Option<Arc<SecretText>>>,
    /// The last tokens, the newest at the end.
    sent: std::sync::Mutex<VecDeque<Arc<SecretText>>>,
}

impl AgentCredential {
    /// Creates a credential. `limit` is the time for a command.
    pub(crate) fn new(source: Option<SecretSource>, limit: Duration) -> Self {
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

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(unix)]
    use crate::secret_source::tests::shell;
    use crate::secret_source::tests::{secret_file, source};

    const LONG: Duration = Duration::from_secs(60);

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
    async fn an_agent_without_a_source_has_no_token() {
        assert!(AgentCredential::new(None, LONG).token().await.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_token_is_found_in_the_texts_of_an_answer() {
        let (long, short) = ("swordfish/AbC/dEf==", "swordfish");
        for (token, is_found) in [(long, true), (short, false)] {
            let (_folder, file) = secret_file(token);
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
}
