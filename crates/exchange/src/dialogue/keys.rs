//! Keys for signatures, with algorithm, owner, recipient and validity.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use duologue_schema::dialogue::{AgentUri, AgentUriError, ID_CHARS};
use futures::future::BoxFuture;
use zeroize::Zeroizing;

use super::ed25519::{self, ED25519_BYTES, PublicBytes};
use super::published_keys::PublishedKey;
use crate::PeerAgent;

/// Minimum length of a secret in bytes, which is the output length of HMAC-SHA-256.
pub const SECRET_BYTES: usize = 32;

/// A key with which one agent signs.
///
/// - [`new`](Self::new): a secret, which the recipient needs too. Use a separate one for each pair of agents and each
///   direction, and bind it with [`with`](Self::with). Everyone who has it can sign with it, so a shared secret does not
///   identify the signer.
/// - [`ed25519`](Self::ed25519): a private key. The recipients have its public key ([`ed25519_public`](Self::ed25519_public)),
///   which verifies and does not sign.
///
/// Secrets and private keys are wiped from memory when the last copy of the key is dropped, and never printed.
///
/// ```
/// use duologue_exchange::dialogue::Key;
///
/// # let secret = vec![7; 32];
/// let key = Key::new("buyer-2026", "agent://buyer.example", secret)?.with("agent://cars.example/seller")?;
/// assert_eq!(format!("{key:?}"), r#"Key { id: "buyer-2026", owner: "agent://buyer.example", .. }"#);
/// # Ok::<(), duologue_exchange::dialogue::KeyError>(())
/// ```
pub struct Key {
    id: Arc<str>,
    owner: AgentUri,
    peer: Option<AgentUri>,
    pub(super) not_before: Option<SystemTime>,
    pub(super) not_after: Option<SystemTime>,
    pub(super) material: KeyMaterial,
}

/// The bytes of a key. A key of one algorithm has none for the other.
#[derive(Clone)]
pub(super) enum KeyMaterial {
    Hs256(Zeroizing<Vec<u8>>),
    Ed25519 {
        /// Present if the key signs.
        private: Option<Zeroizing<Vec<u8>>>,
        public: PublicBytes,
    },
}

/// Returns true for a text that can be the id of a key.
pub(super) fn is_key_id(id: &str) -> bool {
    !id.is_empty() && id.chars().nth(ID_CHARS).is_none()
}

/// The signature algorithm of a key. The algorithm named in a message is compared with that of its
/// key and never trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Algorithm {
    /// HMAC with SHA-256.
    Hs256,
    /// Ed25519, which RFC 8037 names `EdDSA`.
    Ed25519,
}

impl Algorithm {
    /// Returns the name in the header of a signature.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hs256 => "HS256",
            Self::Ed25519 => "EdDSA",
        }
    }

    /// Returns the algorithm of a name.
    pub(super) fn named(name: &str) -> Option<Self> {
        [Self::Hs256, Self::Ed25519].into_iter().find(|algorithm| algorithm.as_str() == name)
    }
}

impl Key {
    /// Creates a key of `owner` for [`Algorithm::Hs256`], valid for any recipient and at any time.
    ///
    /// # Errors
    ///
    /// Returns an error if the secret is shorter than [`SECRET_BYTES`], the id does not have 1 to
    /// 128 characters, or the owner is not a valid URI.
    pub fn new(
        id: impl Into<Arc<str>>,
        owner: impl Into<AgentUri>,
        secret: impl Into<Vec<u8>>,
    ) -> Result<Self, KeyError> {
        // Wrapped first, so that it is wiped even if it is rejected.
        let secret = Zeroizing::new(secret.into());
        let is_short = secret.len() < SECRET_BYTES;
        let key = Key::of(id.into(), owner.into(), KeyMaterial::Hs256(secret))?;
        if is_short { Err(KeyError::Short) } else { Ok(key) }
    }

    /// Creates a key of `owner` for [`Algorithm::Ed25519`] that signs, valid for any recipient and at any time. `private` is
    /// the private key of RFC 8032.
    ///
    /// # Errors
    ///
    /// Returns an error if the private key does not have [`ED25519_BYTES`], and for the id and the owner as [`new`](Self::new).
    pub fn ed25519(
        id: impl Into<Arc<str>>,
        owner: impl Into<AgentUri>,
        private: impl Into<Vec<u8>>,
    ) -> Result<Self, KeyError> {
        let private = Zeroizing::new(private.into());
        let public = ed25519::public_key(&private).ok_or(KeyError::Private)?;
        Key::of(id.into(), owner.into(), KeyMaterial::Ed25519 { private: Some(private), public })
    }

    /// Creates a key of `owner` for [`Algorithm::Ed25519`] that verifies and does not sign.
    ///
    /// # Errors
    ///
    /// Returns an error if the public key does not have [`ED25519_BYTES`] or everybody could sign for it, and for the id
    /// and the owner as [`new`](Self::new).
    pub fn ed25519_public(
        id: impl Into<Arc<str>>,
        owner: impl Into<AgentUri>,
        public: impl AsRef<[u8]>,
    ) -> Result<Self, KeyError> {
        let public: PublicBytes = public.as_ref().try_into().map_err(|_| KeyError::Public)?;
        if ed25519::is_weak(&public) {
            return Err(KeyError::Public);
        }
        Key::of(id.into(), owner.into(), KeyMaterial::Ed25519 { private: None, public })
    }

    fn of(id: Arc<str>, owner: AgentUri, material: KeyMaterial) -> Result<Self, KeyError> {
        if !is_key_id(&id) {
            return Err(KeyError::Id);
        }
        owner.check().map_err(KeyError::Owner)?;
        Ok(Key { id, owner, peer: None, not_before: None, not_after: None, material })
    }

    /// Restricts the key to messages for `peer`. Without this it signs messages for any recipient.
    ///
    /// # Errors
    ///
    /// Returns an error if `peer` is not a valid URI.
    pub fn with(mut self, peer: impl Into<AgentUri>) -> Result<Self, KeyError> {
        let peer = peer.into();
        peer.check().map_err(KeyError::Peer)?;
        self.peer = Some(peer);
        Ok(self)
    }

    /// Sets the start of the key's validity.
    #[must_use]
    pub fn not_before(mut self, time: SystemTime) -> Self {
        self.not_before = Some(time);
        self
    }

    /// Sets the end of the key's validity. Keep a replaced key valid while messages that it signed
    /// are in flight.
    #[must_use]
    pub fn not_after(mut self, time: SystemTime) -> Self {
        self.not_after = Some(time);
        self
    }

    /// Returns the key's id, the `kid` of signatures.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the agent that signs with the key.
    #[must_use]
    pub fn owner(&self) -> &AgentUri {
        &self.owner
    }

    /// Returns true if the key signs messages for `recipient`.
    #[must_use]
    pub fn is_for(&self, recipient: &AgentUri) -> bool {
        self.peer.as_ref().is_none_or(|peer| peer == recipient)
    }

    /// Returns the key's algorithm.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        match self.material {
            KeyMaterial::Hs256(_) => Algorithm::Hs256,
            KeyMaterial::Ed25519 { .. } => Algorithm::Ed25519,
        }
    }

    /// Returns the public key, or `None` if the algorithm has none.
    #[must_use]
    pub fn public_key(&self) -> Option<&[u8; ED25519_BYTES]> {
        match &self.material {
            KeyMaterial::Hs256(_) => None,
            KeyMaterial::Ed25519 { public, .. } => Some(public),
        }
    }

    /// Returns true if messages can be signed with the key, and false for a public key.
    #[must_use]
    pub fn may_sign(&self) -> bool {
        !matches!(self.material, KeyMaterial::Ed25519 { private: None, .. })
    }

    /// Returns true if the key is valid at `now`, with a tolerance of `skew`.
    #[must_use]
    pub fn is_valid(&self, now: SystemTime, skew: Duration) -> bool {
        let early = |limit: SystemTime| limit.duration_since(now).is_ok_and(|ahead| ahead > skew);
        let late = |limit: SystemTime| now.duration_since(limit).is_ok_and(|ago| ago > skew);
        !self.not_before.is_some_and(early) && !self.not_after.is_some_and(late)
    }

    /// Returns the key with the validity that its owner publishes, or `None` if the entry is not one of this key.
    pub(super) fn published(&self, entry: &PublishedKey) -> Option<Key> {
        let (not_before, not_after) = entry.validity()?;
        let PublishedKey { id, algorithm, public_key, .. } = PublishedKey::from(self);
        let is_same = (id, algorithm, public_key.as_ref())
            == (entry.id.clone(), entry.algorithm.clone(), entry.public_key.as_ref());
        is_same.then(|| Key {
            id: self.id.clone(),
            owner: self.owner.clone(),
            peer: self.peer.clone(),
            not_before: self.not_before.max(not_before),
            not_after: self.not_after.into_iter().chain(not_after).min(),
            material: self.material.clone(),
        })
    }

    /// Returns true if the key signs a message to `recipient` at `now`.
    pub(super) fn signs(&self, recipient: &AgentUri, now: SystemTime) -> bool {
        self.may_sign() && self.is_for(recipient) && self.is_valid(now, Duration::ZERO)
    }

    /// Orders the valid keys of an owner: the greatest one signs.
    pub(super) fn rank(&self) -> (bool, Option<SystemTime>) {
        (self.peer.is_some(), self.not_before)
    }

    pub(super) fn shared_id(&self) -> Arc<str> {
        self.id.clone()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("id", &self.id).field("owner", &self.owner).finish_non_exhaustive()
    }
}

/// Errors in the properties of a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The id is empty or too long.
    #[error("a key's id has 1 to {ID_CHARS} characters")]
    Id,
    /// The secret is too short.
    #[error("a key's secret has {SECRET_BYTES} bytes or more; make one at random")]
    Short,
    /// A private key has another length.
    #[error("a private key of Ed25519 has {ED25519_BYTES} bytes; make one at random")]
    Private,
    /// A public key has another length, or everybody could sign for it.
    #[error(
        "a public key of Ed25519 has {ED25519_BYTES} bytes, in texts as base64 for URLs without padding, and no weak value"
    )]
    Public,
    /// A published key of another algorithm has a public key.
    #[error("a key of the algorithm {0:?} has no public key; publish its id without any secret")]
    NotPublic(String),
    /// A limit of the validity is no time.
    #[error("not_before and not_after of a key are times, such as 2027-01-31T00:00:00Z")]
    Validity,
    /// The owner is not a valid URI.
    #[error("the owner of a key {0}")]
    Owner(#[source] AgentUriError),
    /// The recipient is not a valid URI.
    #[error("the peer of a key {0}")]
    Peer(#[source] AgentUriError),
    /// A key with that id exists or was revoked. Ids are never reused.
    #[error("a key with that id exists or was revoked; ids are never reused")]
    Taken,
}

/// A source of keys.
///
/// It is queried for every message and must not block: fetch keys beforehand, or in
/// [`prepare`](Self::prepare). Its methods may read dialogues. Sending or receiving there fails with
/// [`Error::InCallback`](super::Error::InCallback).
pub trait KeyStore: Send + Sync + 'static {
    /// Returns the key with this id, or `None` if it does not exist or was revoked. `sender` is the agent that claims to
    /// have signed with it. A key of another owner verifies nothing for that agent.
    fn key(&self, id: &str, sender: &AgentUri) -> Option<Arc<Key>>;

    /// Returns the key with which `owner` signs messages to `recipient` at `now`.
    fn signing_key(&self, owner: &AgentUri, recipient: &AgentUri, now: SystemTime) -> Option<Arc<Key>>;

    /// Returns true if `owner` has or had a key. Unsigned messages from such an agent are rejected
    /// even where unsigned messages are accepted.
    fn knows(&self, owner: &AgentUri) -> bool;

    /// Returns true if `owner`, which is this agent, has or had a key to sign with. It sends nothing unsigned then. By default as
    /// [`knows`](Self::knows).
    fn may_sign(&self, owner: &AgentUri) -> bool {
        self.knows(owner)
    }

    /// Returns a future that is awaited before a message which claims to be of `sender` is verified, to fetch keys. `peer` is
    /// the other side in the session of the message. By default there is none.
    fn prepare(&self, sender: &AgentUri, peer: &PeerAgent) -> Option<BoxFuture<'static, ()>> {
        let _ = (sender, peer);
        None
    }
}

impl<K: KeyStore + ?Sized> KeyStore for Arc<K> {
    fn key(&self, id: &str, sender: &AgentUri) -> Option<Arc<Key>> {
        (**self).key(id, sender)
    }

    fn signing_key(&self, owner: &AgentUri, recipient: &AgentUri, now: SystemTime) -> Option<Arc<Key>> {
        (**self).signing_key(owner, recipient, now)
    }

    fn knows(&self, owner: &AgentUri) -> bool {
        (**self).knows(owner)
    }

    fn may_sign(&self, owner: &AgentUri) -> bool {
        (**self).may_sign(owner)
    }

    fn prepare(&self, sender: &AgentUri, peer: &PeerAgent) -> Option<BoxFuture<'static, ()>> {
        (**self).prepare(sender, peer)
    }
}

/// Keys in memory.
///
/// An owner may have several keys, for different recipients or during a rotation. Distribute a new
/// key with a `not_before` in the future: it is used from that time on, and messages signed with
/// the old key are still accepted.
///
/// ```
/// use std::time::SystemTime;
/// use duologue_exchange::dialogue::{Key, KeyStore, Keys};
///
/// let keys = Keys::new();
/// keys.insert(Key::new("k1", "agent://buyer.example", [7; 32])?)?;
/// keys.insert(Key::new("k2", "agent://buyer.example", [8; 32])?.not_before(SystemTime::UNIX_EPOCH))?;
/// let (buyer, seller) = ("agent://buyer.example".into(), "agent://seller.example".into());
/// let newest = || keys.signing_key(&buyer, &seller, SystemTime::now());
/// assert_eq!(newest().unwrap().id(), "k2");
///
/// keys.revoke("k2");
/// assert_eq!(newest().unwrap().id(), "k1");
/// # Ok::<(), duologue_exchange::dialogue::KeyError>(())
/// ```
#[derive(Default)]
pub struct Keys {
    /// The keys with their order of insertion. A revoked key leaves its id and owner behind.
    keys: RwLock<HashMap<Arc<str>, Slot>>,
}

struct Slot {
    owner: AgentUri,
    order: usize,
    key: Option<Arc<Key>>,
}

impl Keys {
    /// Creates an empty store.
    #[must_use]
    pub fn new() -> Self {
        Keys::default()
    }

    /// Adds a key.
    ///
    /// # Errors
    ///
    /// Returns an error if a key with that id exists or was revoked.
    pub fn insert(&self, key: Key) -> Result<(), KeyError> {
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        if keys.contains_key(key.id()) {
            return Err(KeyError::Taken);
        }
        let (id, owner, order) = (key.shared_id(), key.owner.clone(), keys.len());
        keys.insert(id, Slot { owner, order, key: Some(Arc::new(key)) });
        Ok(())
    }

    /// Revokes a key; returns true if it existed. Messages signed with it are rejected from now on.
    pub fn revoke(&self, id: &str) -> bool {
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        keys.get_mut(id).is_some_and(|slot| slot.key.take().is_some())
    }

    fn read<T>(&self, read: impl FnOnce(&HashMap<Arc<str>, Slot>) -> T) -> T {
        read(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl KeyStore for Keys {
    fn key(&self, id: &str, _: &AgentUri) -> Option<Arc<Key>> {
        self.read(|keys| keys.get(id)?.key.clone())
    }

    /// Among the valid keys, one bound to this recipient precedes an unbound one, then the latest
    /// `not_before`, then the latest insertion.
    fn signing_key(&self, owner: &AgentUri, recipient: &AgentUri, now: SystemTime) -> Option<Arc<Key>> {
        self.read(|keys| {
            keys.values()
                .filter(|slot| slot.owner == *owner)
                .filter_map(|slot| slot.key.as_ref().map(|key| (key, slot.order)))
                .filter(|(key, _)| key.signs(recipient, now))
                .max_by_key(|(key, order)| (key.rank(), *order))
                .map(|(key, _)| key.clone())
        })
    }

    fn knows(&self, owner: &AgentUri) -> bool {
        self.read(|keys| keys.values().any(|slot| slot.owner == *owner))
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.read(|keys| f.debug_set().entries(keys.values().filter_map(|slot| slot.key.as_ref())).finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn key(id: &str) -> Key {
        Key::new(id, "agent://a", [1; 32]).unwrap()
    }

    #[test]
    fn a_key_needs_an_id_an_owner_and_a_long_secret() {
        let fault = |id: &str, owner: &str, secret: &[u8]| Key::new(id, owner, secret).unwrap_err();
        assert_eq!(fault("", "agent://a", &[1; 32]), KeyError::Id);
        assert_eq!(fault(&"k".repeat(129), "agent://a", &[1; 32]), KeyError::Id);
        assert_eq!(fault("k", "agent://a", &[1; 31]), KeyError::Short);
        assert_eq!(fault("k", "a", &[1; 32]), KeyError::Owner(AgentUriError::Scheme));
        assert!(Key::new("é".repeat(128), "agent://a", [1; 32]).is_ok());
    }

    #[test]
    fn debug_output_hides_the_secret() {
        let keys = Keys::new();
        keys.insert(Key::new("k", "agent://a", *b"correct horse battery staple !!!").unwrap()).unwrap();
        let shown = format!("{keys:?} {:?}", keys.key("k", &"agent://a".into()).unwrap());
        assert!(!shown.contains("horse") && !shown.contains("104") && !shown.contains("secret"), "{shown}");
    }

    #[test]
    fn the_newest_valid_key_signs() {
        let start = SystemTime::UNIX_EPOCH + 100 * DAY;
        let keys = Keys::new();
        keys.insert(key("late").not_before(start + 2 * DAY)).unwrap();
        keys.insert(key("old").not_after(start + DAY)).unwrap();
        keys.insert(key("new").not_before(start)).unwrap();
        keys.insert(Key::new("other", "agent://b", [1; 32]).unwrap()).unwrap();
        let (owner, peer) = ("agent://a".into(), "agent://p".into());
        let signs = |now| keys.signing_key(&owner, &peer, now).map(|key| key.id().to_owned());
        assert_eq!(signs(start - DAY).as_deref(), Some("old"));
        assert_eq!(signs(start).as_deref(), Some("new"));
        // The tolerance of clocks is for verification alone.
        assert_eq!(signs(start + 2 * DAY - Duration::from_secs(1)).as_deref(), Some("new"));
        assert_eq!(signs(start + 2 * DAY).as_deref(), Some("late"));
        assert!(keys.revoke("late") && !keys.revoke("late") && !keys.revoke("none"));
        assert_eq!(signs(start + 2 * DAY).as_deref(), Some("new"));
        assert!(keys.key("late", &owner).is_none());
        assert_eq!(keys.insert(key("late")), Err(KeyError::Taken));
        assert!(keys.revoke("new") && keys.revoke("old"));
        assert_eq!(signs(start), None);
        assert!(keys.knows(&"agent://a".into()) && !keys.knows(&"agent://c".into()));
    }

    #[test]
    fn of_keys_that_began_together_the_last_one_signs() {
        let keys = Keys::new();
        for id in ["b", "c", "a"] {
            keys.insert(key(id).not_before(SystemTime::UNIX_EPOCH)).unwrap();
        }
        let signs = || keys.signing_key(&"agent://a".into(), &"agent://p".into(), SystemTime::now());
        assert_eq!(signs().unwrap().id(), "a");
        keys.revoke("a");
        assert_eq!(signs().unwrap().id(), "c");
    }

    #[test]
    fn a_bound_key_is_preferred() {
        let keys = Keys::new();
        keys.insert(key("b").with("agent://b").unwrap()).unwrap();
        keys.insert(key("c").with("agent://c").unwrap()).unwrap();
        let signs = |peer: &str| {
            keys.signing_key(&"agent://a".into(), &peer.into(), SystemTime::UNIX_EPOCH)
                .map(|key| key.id().to_owned())
        };
        assert_eq!((signs("agent://b").as_deref(), signs("agent://c").as_deref()), (Some("b"), Some("c")));
        assert_eq!(signs("agent://d"), None);
        keys.insert(key("anybody").not_before(SystemTime::UNIX_EPOCH)).unwrap();
        assert_eq!(
            (signs("agent://b").as_deref(), signs("agent://d").as_deref()),
            (Some("b"), Some("anybody"))
        );
        assert_eq!(key("k").with("b").unwrap_err(), KeyError::Peer(AgentUriError::Scheme));
    }

    #[test]
    fn validity_has_a_tolerance_for_clocks() {
        let start = SystemTime::UNIX_EPOCH + DAY;
        let key = key("k").not_before(start).not_after(start + DAY);
        let valid = |now| key.is_valid(now, Duration::from_secs(60));
        let second = Duration::from_secs(1);
        assert!(valid(start - 60 * second) && !valid(start - 61 * second));
        assert!(valid(start + DAY + 60 * second) && !valid(start + DAY + 61 * second));
    }
}
