//! Keys whose owners publish them in the registry of a hub.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use duologue_schema::dialogue::AgentUri;
use duologue_schema::envelope::AgentId;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::keys::{Key, KeyStore};
use crate::envelope::DISCOVER_LIFETIME;
use crate::{PeerAgent, Result};

/// A key in the card of its owner. The card has no secret: agents give each other their secrets in another way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PublishedKey {
    /// The id, the `kid` of signatures.
    pub id: String,
    /// The name of the algorithm, such as `HS256`.
    pub algorithm: String,
    /// The start of its validity, such as `2027-01-31T00:00:00Z`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<String>,
    /// The end of its validity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_after: Option<String>,
}

impl PublishedKey {
    /// Creates an entry without limits of validity.
    pub fn new(id: impl Into<String>, algorithm: impl Into<String>) -> Self {
        PublishedKey { id: id.into(), algorithm: algorithm.into(), ..PublishedKey::default() }
    }

    /// Returns start and end of the validity, or `None` if one of them is no time.
    #[must_use]
    pub fn validity(&self) -> Option<(Option<SystemTime>, Option<SystemTime>)> {
        let time = |text: &Option<String>| {
            let time = text.as_ref().map(|text| text.parse::<jiff::Timestamp>());
            time.transpose().ok().map(|time| time.map(SystemTime::from))
        };
        Some((time(&self.not_before)?, time(&self.not_after)?))
    }
}

/// The keys of another store, as far as their owners publish them.
///
/// A key of another agent verifies a message only if the card of that agent lists it, with its algorithm, and in the validity
/// that the card has for it. So an owner replaces and revokes its keys at one place. The card is read from the hub with
/// `discover` when the first message of an agent arrives, and then when it is a minute old ([`DISCOVER_LIFETIME`]).
/// If the hub does not answer, the last card counts. All connections of these dialogues have to be with a hub.
///
/// ```
/// use duologue_exchange::dialogue::{Dialogues, Key, Keys, PublishedKeys};
///
/// # let secret = [7; 32];
/// let secrets = Keys::new();
/// secrets.insert(Key::new("buyer-1", "agent://buyer", secret)?.with("agent://seller")?)?;
/// let dialogues = Dialogues::new("agent://seller")?.keys(PublishedKeys::new(secrets));
/// # let _ = dialogues;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct PublishedKeys<K>(Arc<PublishedCards<K>>);

#[derive(Debug)]
struct PublishedCards<K> {
    secrets: K,
    cards: RwLock<HashMap<AgentUri, KeyCard>>,
}

/// The keys of one owner, and the time when they were read.
#[derive(Debug)]
struct KeyCard {
    keys: Vec<PublishedKey>,
    read: Instant,
}

impl<K: KeyStore> PublishedKeys<K> {
    /// Creates a store of the keys in `secrets` whose owners publish them.
    pub fn new(secrets: K) -> Self {
        PublishedKeys(Arc::new(PublishedCards { secrets, cards: RwLock::default() }))
    }

    /// Reads the card of an agent from a hub.
    ///
    /// # Errors
    ///
    /// The errors of [`PeerAgent::discover`]. The last card of the agent stays.
    pub async fn refresh(&self, hub: &PeerAgent, owner: &AgentUri) -> Result<()> {
        self.0.refresh(hub, owner).await
    }
}

impl<K: KeyStore> PublishedCards<K> {
    async fn refresh(&self, hub: &PeerAgent, owner: &AgentUri) -> Result<()> {
        let card = hub.addressed_to(AgentId::from(owner.as_str())).discover().await?;
        // Without a readable list the owner publishes none.
        let keys = card.extra.get("keys").unwrap_or_default();
        let card = KeyCard { keys, read: Instant::now() };
        self.cards.write().unwrap_or_else(PoisonError::into_inner).insert(owner.clone(), card);
        Ok(())
    }

    /// Returns the published keys of an owner, or `None` if its card was never read.
    fn published(&self, owner: &AgentUri) -> Option<Vec<Key>> {
        let cards = self.cards.read().unwrap_or_else(PoisonError::into_inner);
        let published = cards.get(owner)?.keys.iter();
        let keys = published.filter_map(|entry| self.secrets.key(&entry.id)?.published(entry));
        Some(keys.filter(|key| key.owner() == owner).collect())
    }
}

impl<K: KeyStore> KeyStore for PublishedKeys<K> {
    fn key(&self, id: &str) -> Option<Arc<Key>> {
        let owner = self.0.secrets.key(id)?.owner().clone();
        self.0.published(&owner)?.into_iter().find(|key| key.id() == id).map(Arc::new)
    }

    /// A key of an owner whose card was not read is that of the secrets: nobody reads its own card.
    fn signing_key(&self, owner: &AgentUri, recipient: &AgentUri, now: SystemTime) -> Option<Arc<Key>> {
        let Some(published) = self.0.published(owner) else {
            return self.0.secrets.signing_key(owner, recipient, now);
        };
        let fits = |key: &Key| key.is_for(recipient) && key.is_valid(now, Duration::ZERO);
        published.into_iter().filter(fits).max_by_key(Key::rank).map(Arc::new)
    }

    fn knows(&self, owner: &AgentUri) -> bool {
        self.0.secrets.knows(owner)
    }

    fn prepare(&self, sender: &AgentUri, peer: &PeerAgent) -> Option<BoxFuture<'static, ()>> {
        let is_fresh = {
            let cards = self.0.cards.read().unwrap_or_else(PoisonError::into_inner);
            cards.get(sender).is_some_and(|card| card.read.elapsed() < DISCOVER_LIFETIME)
        };
        if is_fresh || !self.0.secrets.knows(sender) {
            return None;
        }
        let (cards, sender, peer) = (self.0.clone(), sender.clone(), peer.clone());
        let refresh = async move {
            if let Err(error) = cards.refresh(&peer, &sender).await {
                tracing::warn!(%sender, %error, "the keys of an agent were not read from the registry");
            }
        };
        Some(refresh.boxed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialogue::Keys;

    const DAY: Duration = Duration::from_secs(86_400);

    #[test]
    fn a_key_counts_as_its_owner_publishes_it() {
        let (owner, peer) = (AgentUri::from("agent://a"), AgentUri::from("agent://p"));
        let start = SystemTime::from("2027-01-01T00:00:00Z".parse::<jiff::Timestamp>().unwrap());
        let keys = Keys::new();
        keys.insert(Key::new("k1", owner.clone(), [1; 32]).unwrap().not_after(start + 9 * DAY)).unwrap();
        keys.insert(Key::new("k2", owner.clone(), [2; 32]).unwrap()).unwrap();
        keys.insert(Key::new("other", "agent://b", [3; 32]).unwrap()).unwrap();
        let keys = PublishedKeys::new(keys);
        let publish = |published: Vec<PublishedKey>| {
            let card = KeyCard { keys: published, read: Instant::now() };
            keys.0.cards.write().unwrap().insert(owner.clone(), card);
        };
        let is_valid = |id: &str, at: SystemTime| keys.key(id).map(|key| key.is_valid(at, Duration::ZERO));
        // Nothing is known of the owner. It signs itself.
        assert_eq!(is_valid("k1", start), None);
        assert_eq!(keys.signing_key(&owner, &peer, start).unwrap().id(), "k2");

        let mut first = PublishedKey::new("k1", "HS256");
        first.not_before = Some("2027-01-02T00:00:00Z".to_owned());
        publish(vec![first.clone(), PublishedKey::new("other", "HS256")]);
        assert_eq!((is_valid("k1", start), is_valid("k1", start + DAY)), (Some(false), Some(true)));
        // The limits of both sides count, and a key that is not published is revoked.
        assert_eq!((is_valid("k1", start + 10 * DAY), is_valid("k2", start)), (Some(false), None));
        assert_eq!(is_valid("other", start), None, "the key of another owner");
        assert!(keys.signing_key(&owner, &peer, start).is_none());
        assert_eq!(keys.signing_key(&owner, &peer, start + DAY).unwrap().id(), "k1");

        first.not_after = Some("tomorrow".to_owned());
        publish(vec![first, PublishedKey::new("k2", "EdDSA")]);
        assert_eq!((is_valid("k1", start + DAY), is_valid("k2", start)), (None, None));
    }
}
