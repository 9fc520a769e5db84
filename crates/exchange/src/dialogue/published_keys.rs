//! Keys whose owners publish them in the registry of a hub.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use duologue_schema::Json;
use duologue_schema::dialogue::AgentUri;
use duologue_schema::envelope::AgentId;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::keys::{Algorithm, Key, KeyError, KeyStore, is_key_id};
use crate::envelope::DISCOVER_LIFETIME;
use crate::limits::{CARD_KEYS, KEY_CARDS};
use crate::{PeerAgent, Result};

/// A key in the card of its owner, which everybody may read. The card has no secret and no private key.
///
/// An entry with an unknown member is an error: it could be a secret, or limit the key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct PublishedKey {
    /// The id, the `kid` of signatures.
    pub id: String,
    /// The name of the algorithm, `HS256` or `EdDSA`.
    pub algorithm: String,
    /// The public key of Ed25519 in base64 for URLs without padding, as `x` of RFC 8037.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_key: Option<String>,
    /// The start of its validity, such as `2027-01-31T00:00:00Z`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<String>,
    /// The end of its validity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_after: Option<String>,
}

impl PublishedKey {
    /// Creates an entry without a public key and limits of validity.
    pub fn new(id: impl Into<String>, algorithm: impl Into<String>) -> Self {
        PublishedKey { id: id.into(), algorithm: algorithm.into(), ..PublishedKey::default() }
    }

    /// Returns start and end of the validity, or `None` if one of them is no time.
    #[must_use]
    pub fn validity(&self) -> Option<(Option<SystemTime>, Option<SystemTime>)> {
        let time = |text: &Option<String>| {
            let time = text.as_ref().map(|text| text.parse::<Timestamp>());
            time.transpose().ok().map(|time| time.map(SystemTime::from))
        };
        Some((time(&self.not_before)?, time(&self.not_after)?))
    }

    /// Checks the validity, and that there is a public key for `EdDSA` and none for another algorithm.
    ///
    /// # Errors
    ///
    /// Returns the first error. The text does not repeat the public key, which could be a secret by mistake.
    pub fn check(&self) -> std::result::Result<(), KeyError> {
        if !is_key_id(&self.id) {
            return Err(KeyError::Id);
        }
        self.validity().ok_or(KeyError::Validity)?;
        if Algorithm::named(&self.algorithm) == Some(Algorithm::Ed25519) {
            // The owner of a card is checked elsewhere.
            return self.public(&AgentUri::from("agent://owner")).map(drop);
        }
        let is_public = self.public_key.is_none();
        is_public.then_some(()).ok_or_else(|| KeyError::NotPublic(self.algorithm.clone()))
    }

    /// Returns the public key, with the validity of the entry.
    fn public(&self, owner: &AgentUri) -> std::result::Result<Key, KeyError> {
        if Algorithm::named(&self.algorithm) != Some(Algorithm::Ed25519) {
            return Err(KeyError::NotPublic(self.algorithm.clone()));
        }
        let (not_before, not_after) = self.validity().ok_or(KeyError::Validity)?;
        let public = self.public_key.as_ref().and_then(|text| URL_SAFE_NO_PAD.decode(text).ok());
        let mut key = Key::ed25519_public(self.id.as_str(), owner.clone(), public.ok_or(KeyError::Public)?)?;
        (key.not_before, key.not_after) = (not_before, not_after);
        Ok(key)
    }
}

/// The entry of a key, without its secret or private key.
impl From<&Key> for PublishedKey {
    fn from(key: &Key) -> Self {
        let time = |time: Option<SystemTime>| {
            let limit = |time| if time < SystemTime::UNIX_EPOCH { Timestamp::MIN } else { Timestamp::MAX };
            time.map(|time| Timestamp::try_from(time).unwrap_or_else(|_| limit(time)).to_string())
        };
        PublishedKey {
            public_key: key.public_key().map(|public| URL_SAFE_NO_PAD.encode(public)),
            not_before: time(key.not_before),
            not_after: time(key.not_after),
            ..PublishedKey::new(key.id(), key.algorithm().as_str())
        }
    }
}

/// The keys of another store, as far as their owners publish them.
///
/// A key of another agent verifies a message only if the card of that agent lists it, with its algorithm and its public key,
/// and in the validity that the card has for it. So an owner replaces and revokes its keys at one place. The card is read from
/// the hub with `discover` when the first message of an agent arrives, and then when it is a minute old
/// ([`DISCOVER_LIFETIME`]). If the hub does not answer, the last card counts. All connections of these dialogues have to be
/// with a hub.
///
/// ```
/// use duologue_exchange::dialogue::{Dialogues, Key, Keys, PublishedKeys};
///
/// # let (private, public) = ([7; 32], *Key::ed25519("k", "agent://buyer", [8; 32])?.public_key().unwrap());
/// let keys = Keys::new();
/// keys.insert(Key::ed25519("seller-1", "agent://seller", private)?)?;
/// keys.insert(Key::ed25519_public("buyer-1", "agent://buyer", public)?)?;
/// let dialogues = Dialogues::new("agent://seller")?.keys(PublishedKeys::new(keys));
/// # let _ = dialogues;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct PublishedKeys<K> {
    cards: Arc<PublishedCards<K>>,
    trusts_cards: bool,
}

#[derive(Debug)]
struct PublishedCards<K> {
    own: K,
    cards: RwLock<HashMap<AgentUri, KeyCard>>,
}

/// The keys of one owner, and the time when they were read.
#[derive(Debug)]
struct KeyCard {
    keys: Vec<PublishedKey>,
    read: Instant,
}

impl<K: KeyStore> PublishedKeys<K> {
    /// Creates a store of the keys in `own` whose owners publish them.
    pub fn new(own: K) -> Self {
        PublishedKeys {
            cards: Arc::new(PublishedCards { own, cards: RwLock::default() }),
            trusts_cards: false,
        }
    }

    /// Creates a store that also takes the public keys of cards, for agents of which `own` never had a key. Agents that
    /// use it exchange no keys before they talk.
    ///
    /// The hub is trusted with the names of these agents: it could publish another key as theirs. An agent whose card was
    /// not read counts as one that signs.
    pub fn with_public_keys(own: K) -> Self {
        PublishedKeys { trusts_cards: true, ..PublishedKeys::new(own) }
    }

    /// Reads the card of an agent from a hub.
    ///
    /// # Errors
    ///
    /// The errors of [`PeerAgent::discover`]. The last card of the agent stays.
    pub async fn refresh(&self, hub: &PeerAgent, owner: &AgentUri) -> Result<()> {
        self.cards.refresh(hub, owner).await
    }

    /// Returns true if the public keys in the card of an agent count.
    fn trusts_card_of(&self, owner: &AgentUri) -> bool {
        self.trusts_cards && !self.cards.own.knows(owner)
    }
}

impl<K: KeyStore> PublishedCards<K> {
    async fn refresh(&self, hub: &PeerAgent, owner: &AgentUri) -> Result<()> {
        let card = hub.addressed_to(AgentId::from(owner.as_str())).discover().await?;
        // Without a list the owner publishes none, and one that cannot be read is not published.
        let keys: Vec<Json> = card.extra.get("keys").unwrap_or_default();
        self.keep(owner, keys.iter().filter_map(|entry| entry.parse().ok()).collect());
        Ok(())
    }

    fn keep(&self, owner: &AgentUri, mut keys: Vec<PublishedKey>) {
        keys.retain(|entry| Algorithm::named(&entry.algorithm).is_some() && entry.check().is_ok());
        keys.truncate(CARD_KEYS);
        let mut cards = self.cards.write().unwrap_or_else(PoisonError::into_inner);
        cards.insert(owner.clone(), KeyCard { keys, read: Instant::now() });
        while cards.len() > KEY_CARDS
            && let Some(oldest) =
                cards.iter().min_by_key(|(_, card)| card.read).map(|(owner, _)| owner.clone())
        {
            cards.remove(&oldest);
        }
    }

    /// Reads the card of an owner, or returns `None` if there is none.
    fn card<T>(&self, owner: &AgentUri, read: impl FnOnce(&KeyCard) -> T) -> Option<T> {
        self.cards.read().unwrap_or_else(PoisonError::into_inner).get(owner).map(read)
    }

    /// Returns one of our keys of an owner with the validity in its card.
    fn published(&self, owner: &AgentUri, entry: &PublishedKey) -> Option<Key> {
        self.own.key(&entry.id, owner).filter(|key| key.owner() == owner)?.published(entry)
    }
}

impl<K: KeyStore> KeyStore for PublishedKeys<K> {
    fn key(&self, id: &str, sender: &AgentUri) -> Option<Arc<Key>> {
        let trusts_card = self.trusts_card_of(sender);
        let key = |entry: &PublishedKey| match trusts_card {
            true => entry.public(sender).ok(),
            false => self.cards.published(sender, entry),
        };
        self.cards
            .card(sender, |card| card.keys.iter().filter(|entry| entry.id == id).find_map(key))?
            .map(Arc::new)
    }

    /// A key of an owner whose card was not read is one of ours: nobody reads its own card.
    fn signing_key(&self, owner: &AgentUri, recipient: &AgentUri, now: SystemTime) -> Option<Arc<Key>> {
        let Some(entries) = self.cards.card(owner, |card| card.keys.clone()) else {
            return self.cards.own.signing_key(owner, recipient, now);
        };
        let published = entries.iter().filter_map(|entry| self.cards.published(owner, entry));
        published.filter(|key| key.signs(recipient, now)).max_by_key(Key::rank).map(Arc::new)
    }

    fn knows(&self, owner: &AgentUri) -> bool {
        let has_keys = || self.cards.card(owner, |card| !card.keys.is_empty()).unwrap_or(true);
        self.cards.own.knows(owner) || (self.trusts_cards && has_keys())
    }

    fn may_sign(&self, owner: &AgentUri) -> bool {
        self.cards.own.may_sign(owner)
    }

    fn prepare(&self, sender: &AgentUri, peer: &PeerAgent) -> Option<BoxFuture<'static, ()>> {
        let is_fresh = self.cards.card(sender, |card| card.read.elapsed() < DISCOVER_LIFETIME);
        if is_fresh == Some(true) || !(self.trusts_cards || self.cards.own.knows(sender)) {
            return None;
        }
        let (cards, sender, peer) = (self.cards.clone(), sender.clone(), peer.clone());
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
    use std::time::Duration;

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
        let publish = |published: Vec<PublishedKey>| keys.cards.keep(&owner, published);
        let is_valid =
            |id: &str, at: SystemTime| keys.key(id, &owner).map(|key| key.is_valid(at, Duration::ZERO));
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

    /// Returns a store that trusts cards, and one that does not, both with the keys of `own`.
    fn stores(own: impl Fn() -> Vec<Key>) -> [PublishedKeys<Keys>; 2] {
        let keys = || {
            let keys = Keys::new();
            own().into_iter().for_each(|key| keys.insert(key).unwrap());
            keys
        };
        [PublishedKeys::with_public_keys(keys()), PublishedKeys::new(keys())]
    }

    #[test]
    fn a_public_key_counts_as_ours_or_as_that_of_the_card() {
        let [owner, other, peer] = ["agent://a", "agent://b", "agent://p"].map(AgentUri::from);
        let private = |id: &str, seed: u8| Key::ed25519(id, owner.clone(), [seed; 32]).unwrap();
        let entry = PublishedKey::from(&private("k1", 1));
        assert_eq!((entry.algorithm.as_str(), entry.check()), ("EdDSA", Ok(())));

        // Nobody knows the owner: its card is believed by the one that trusts cards.
        let [trusting, strict] = stores(Vec::new);
        for store in [&trusting, &strict] {
            store.cards.keep(&owner, vec![entry.clone(), PublishedKey::new("k2", "HS256")]);
        }
        let key = trusting.key("k1", &owner).unwrap();
        assert_eq!((key.owner(), key.public_key()), (&owner, private("k1", 1).public_key()));
        assert!(
            !key.may_sign() && trusting.key("k2", &owner).is_none() && trusting.key("k1", &other).is_none()
        );
        assert!(strict.key("k1", &owner).is_none() && !strict.knows(&owner));
        // One that has a card without keys does not sign. One without a card may.
        trusting.cards.keep(&peer, Vec::new());
        assert_eq!([&owner, &other, &peer].map(|agent| trusting.knows(agent)), [true, true, false]);

        // This agent has no key, and reads no card of its own.
        assert!(trusting.knows(&other) && !trusting.may_sign(&other));

        // A key of ours is not replaced by the card, and comes not back when it was revoked.
        for store in stores(|| vec![private("k1", 1)]) {
            store.cards.keep(
                &owner,
                vec![PublishedKey::from(&private("k1", 2)), PublishedKey::from(&private("k3", 3))],
            );
            assert!(store.key("k1", &owner).is_none() && store.key("k3", &owner).is_none());
            store.cards.keep(&owner, vec![entry.clone()]);
            assert!(store.key("k1", &owner).is_some());
            assert_eq!(store.signing_key(&owner, &peer, SystemTime::now()).unwrap().id(), "k1");
            store.cards.own.revoke("k1");
            assert!(store.key("k1", &owner).is_none());
        }
    }

    #[test]
    fn a_card_has_no_secret_and_its_algorithms_are_not_mixed_up() {
        let start = SystemTime::from("2027-01-01T00:00:00Z".parse::<Timestamp>().unwrap());
        let secret = Key::new("k", "agent://a", [1; 32]).unwrap().not_before(start).not_after(start + DAY);
        let text = serde_json::to_string(&PublishedKey::from(&secret)).unwrap();
        let limits = r#""not_before":"2027-01-01T00:00:00Z","not_after":"2027-01-02T00:00:00Z""#;
        assert_eq!(text, format!(r#"{{"id":"k","algorithm":"HS256",{limits}}}"#));

        let public = PublishedKey::from(&Key::ed25519("k", "agent://a", [1; 32]).unwrap()).public_key;
        let entry = |algorithm: &str, public_key: Option<&str>| {
            PublishedKey { public_key: public_key.map(str::to_owned), ..PublishedKey::new("k", algorithm) }
                .check()
        };
        assert_eq!(entry("EdDSA", public.as_deref()), Ok(()));
        assert_eq!(entry("HS512", None), Ok(()));
        for algorithm in ["HS256", "EdDSA"] {
            let named = PublishedKey { id: "x".repeat(1 << 10), ..PublishedKey::new("", algorithm) };
            assert_eq!(
                [named, PublishedKey::new("", algorithm)].map(|entry| entry.check()),
                [Err(KeyError::Id), Err(KeyError::Id)]
            );
        }
        for wrong in [None, Some(""), Some("AAAA"), Some("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")] {
            assert_eq!(entry("EdDSA", wrong), Err(KeyError::Public), "{wrong:?}");
        }
        let read = serde_json::from_str::<PublishedKey>;
        assert_eq!(read(r#"{"id":"k","algorithm":"HS512"}"#).unwrap(), PublishedKey::new("k", "HS512"));
        assert!(read(r#"{"id":"k","algorithm":"HS256","secret":"s"}"#).is_err());
        for algorithm in ["HS256", "HS512", "eddsa", ""] {
            assert_eq!(entry(algorithm, public.as_deref()), Err(KeyError::NotPublic(algorithm.into())));
        }
    }

    #[test]
    fn cards_and_their_keys_are_bounded() {
        let [trusting, _] = stores(Vec::new);
        let entry = PublishedKey::from(&Key::ed25519("k", "agent://a", [1; 32]).unwrap());
        let owner = |number: usize| AgentUri::from(format!("agent://a{number}"));
        for number in 0..KEY_CARDS + 2 {
            let many = if number == 0 { 2 * CARD_KEYS } else { 1 };
            trusting.cards.keep(&owner(number), vec![entry.clone(); many]);
            assert_eq!(
                trusting.cards.card(&owner(number), |card| card.keys.len()),
                Some(many.min(CARD_KEYS))
            );
        }
        assert_eq!(trusting.cards.cards.read().unwrap().len(), KEY_CARDS);
        assert!(trusting.key("k", &owner(0)).is_none() && trusting.key("k", &owner(KEY_CARDS + 1)).is_some());
    }
}
