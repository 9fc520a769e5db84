//! The logins of the page: records that a cookie names, with a bounded number and lifetime.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use duologue_rpc::{Lock as _, is_equal_secret};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;
use uuid::Uuid;

use crate::gateway::access::Principal;
use crate::gateway::config::GatewayLimits;
use crate::gateway::{Refusal, RefusalCode};

/// The SHA-256 of a secret. The secret itself is not kept.
type Digest = [u8; 32];

/// The logins that are open. They are in memory alone, so a restart ends them.
pub(crate) struct PageLogins {
    lifetime: Duration,
    limit: usize,
    all: Mutex<HashMap<Digest, PageLogin>>,
}

/// A login.
#[derive(Clone)]
pub(crate) struct PageLogin {
    pub(crate) principal: Principal,
    pub(crate) expires: Instant,
    token: Digest,
}

/// The secrets of a new login.
pub(crate) struct LoginSecrets {
    /// The value of the cookie.
    pub(crate) cookie: String,
    /// The value of the header that requests for data have too.
    pub(crate) token: String,
}

impl PageLogin {
    /// Returns true for the token of this login.
    pub(crate) fn is_token(&self, given: &[u8]) -> bool {
        is_equal_secret(self.token, digest(given))
    }
}

impl PageLogins {
    /// The logins of a principal. A new one replaces its oldest.
    const PER_PRINCIPAL: usize = 16;

    pub(crate) fn new(limits: &GatewayLimits) -> Self {
        let lifetime = Duration::from_secs(limits.page_login_seconds);
        PageLogins { lifetime, limit: limits.page_logins, all: Mutex::default() }
    }

    /// Returns the longest time of a login.
    pub(crate) fn lifetime(&self) -> Duration {
        self.lifetime
    }

    /// Adds a login of a principal, for this time.
    pub(crate) fn open(&self, principal: Principal, lasts: Duration) -> Result<LoginSecrets, Refusal> {
        let now = Instant::now();
        let mut all = self.all.lock_unpoisoned();
        all.retain(|_, login| login.expires > now);
        let own = all.iter().filter(|(_, login)| login.principal.id == principal.id);
        if own.clone().count() >= PageLogins::PER_PRINCIPAL.min(self.limit) {
            let oldest = own.min_by_key(|(_, login)| login.expires).map(|(key, _)| *key);
            oldest.map(|oldest| all.remove(&oldest));
        }
        if all.len() >= self.limit {
            let why = format!(
                "{} logins of the page are open; log out elsewhere, or raise `limits.page_logins`",
                self.limit
            );
            return Err(Refusal::new(RefusalCode::Overloaded, why));
        }
        let secrets = LoginSecrets { cookie: secret(), token: secret() };
        let token = digest(secrets.token.as_bytes());
        // A lifetime beyond the clock is one of a day.
        let expires = now.checked_add(lasts).unwrap_or(now + Duration::from_secs(86_400));
        all.insert(digest(secrets.cookie.as_bytes()), PageLogin { principal, expires, token });
        Ok(secrets)
    }

    /// Returns the login of a cookie, unless it has ended.
    pub(crate) fn find(&self, cookie: &str) -> Option<PageLogin> {
        let key = digest(cookie.as_bytes());
        let mut all = self.all.lock_unpoisoned();
        let login = all.get(&key)?;
        if login.expires > Instant::now() {
            return Some(login.clone());
        }
        all.remove(&key);
        None
    }

    /// Ends the login of a cookie.
    pub(crate) fn close(&self, cookie: &str) {
        self.all.lock_unpoisoned().remove(&digest(cookie.as_bytes()));
    }
}

fn digest(secret: &[u8]) -> Digest {
    Sha256::digest(secret).into()
}

/// Returns 244 random bits as digits.
fn secret() -> String {
    format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn principal(id: &str) -> Principal {
        Principal { id: id.into(), roles: Vec::new(), agent: None }
    }

    fn logins(limit: usize) -> PageLogins {
        let limits = GatewayLimits { page_logins: limit, page_login_seconds: 60, ..GatewayLimits::default() };
        PageLogins::new(&limits)
    }

    #[tokio::test(start_paused = true)]
    async fn a_login_ends_after_its_time() {
        let logins = logins(4);
        let secrets = logins.open(principal("a"), MINUTE).unwrap();
        let found = logins.find(&secrets.cookie).expect("a login");
        assert!(found.is_token(secrets.token.as_bytes()) && !found.is_token(secrets.cookie.as_bytes()));
        assert!(logins.find(&secrets.token).is_none());
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(logins.find(&secrets.cookie).is_none());
        assert!(logins.all.lock_unpoisoned().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_logins_is_bounded() {
        let logins = logins(20);
        let mut last = None;
        let first = logins.open(principal("a"), MINUTE).unwrap();
        for _ in 0..PageLogins::PER_PRINCIPAL {
            tokio::time::advance(Duration::from_millis(1)).await;
            last = Some(logins.open(principal("a"), MINUTE).unwrap());
        }
        assert!(logins.find(&first.cookie).is_none(), "the oldest one of the principal");
        assert!(logins.find(&last.unwrap().cookie).is_some());
        for other in ["b", "c", "d", "e"] {
            assert!(logins.open(principal(other), MINUTE).is_ok());
        }
        let refused = logins.open(principal("f"), MINUTE).err().expect("a refusal");
        assert!(refused.message.contains("limits.page_logins"), "{refused}");
        // The principals that have some can log in again.
        assert!(logins.open(principal("a"), MINUTE).is_ok());
        tokio::time::advance(Duration::from_secs(61)).await;
        assert!(logins.open(principal("f"), MINUTE).is_ok());
    }
}
