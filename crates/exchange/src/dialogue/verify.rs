//! Verifies signatures and parameters. A message that fails is rejected here and never reaches a
//! handler.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use duologue_schema::Json;
use duologue_schema::dialogue::{AgentUri, DialogueMessage, ErrorContent, Receipt};
use duologue_schema::params_fault;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::allow::AllowList;
use super::callbacks;
use super::canonical::Signable;
use super::keys::KeyStore;
use super::message::VerifiedMessage;
use super::replay_cache::{Digest, MessageKey, ReplayCache, ReplayCheck, ReplayEntry, ReplayScope};
use super::signature::{ParsedSignature, SignError, sign, unsigned};
use super::verify_error::VerifyError;
use crate::PeerAgent;
use crate::limits::{CLOCK_SKEW, MESSAGE_BYTES, REPLAY_MESSAGES_PER_SENDER};
use duologue_rpc::Lock as _;

/// Decides if a message is accepted.
///
/// The checks, in this order: size, strict JSON, key and algorithm, signature, fields, recipient,
/// clock, allow-list, and replay. The first failure rejects the message. No part of a message is
/// used before the check that covers it.
///
/// One verifier serves all connections of an agent: a signed message that arrived on one must not
/// be accepted on another.
pub(crate) struct Verifier {
    own: AgentUri,
    keys: Option<Arc<dyn KeyStore>>,
    accept_unsigned: bool,
    allow: AllowList,
    seen: Mutex<ReplayCache>,
}

/// The result for an accepted message.
#[derive(Debug, PartialEq)]
pub(crate) enum VerifyOutcome {
    /// The message is new.
    New(Box<NewMessage>),
    /// The same message was accepted before. Only the receipt is repeated.
    Duplicate(Receipt),
    /// The same message was accepted before, and rejected later. The rejection is repeated.
    Refused(Box<ErrorContent>),
}

/// A message that passed a [`Verifier`].
#[derive(Debug, PartialEq)]
pub(crate) struct NewMessage {
    pub(crate) received: VerifiedMessage,
    /// The argument for [`Verifier::forget`].
    pub(crate) replay_key: ReplayKey,
}

/// The entry of a message in the replay cache.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ReplayKey {
    source: ReplayScope,
    name: MessageKey,
}

impl Verifier {
    /// Creates a verifier for messages to `own` without keys: it accepts unsigned messages from any
    /// sender, and rejects signed ones.
    ///
    /// Messages sent before now are rejected, because an earlier process may have accepted them.
    /// Clocks have a small tolerance.
    pub(crate) fn new(own: impl Into<AgentUri>) -> Self {
        let start = Timestamp::now().saturating_sub(signed(CLOCK_SKEW)).unwrap_or(Timestamp::MIN);
        Verifier {
            own: own.into(),
            keys: None,
            accept_unsigned: false,
            allow: AllowList::everyone(),
            seen: Mutex::new(ReplayCache::new(REPLAY_MESSAGES_PER_SENDER, signed(CLOCK_SKEW), start)),
        }
    }

    /// Sets the source of keys. Every message must then be signed.
    pub(crate) fn keys(mut self, keys: Arc<dyn KeyStore>) -> Self {
        self.keys = Some(keys);
        self
    }

    /// Returns the future that fetches the keys of a message's claimed sender, if they need one.
    pub(crate) fn prepare(&self, json: &Json, peer: &PeerAgent) -> Option<BoxFuture<'static, ()>> {
        #[derive(Deserialize)]
        struct Claimed {
            sender_id: AgentUri,
        }
        let keys = self.keys.as_ref().filter(|_| json.get().len() <= MESSAGE_BYTES)?;
        let Claimed { sender_id } = json.parse().ok()?;
        // No card is read for a name that no agent can have.
        sender_id.check().ok().filter(|()| sender_id != self.own)?;
        callbacks::call("KeyStore::prepare", || keys.prepare(&sender_id, peer))
    }

    /// Accepts unsigned messages from senders that never had a key, even if there are keys.
    pub(crate) fn accept_unsigned(mut self, yes: bool) -> Self {
        self.accept_unsigned = yes;
        self
    }

    /// Sets the authorization rules. By default everything is allowed.
    pub(crate) fn allow(mut self, list: AllowList) -> Self {
        self.allow = list;
        self
    }

    /// Sets the number of messages of one sender in the replay cache.
    #[cfg(test)]
    pub(crate) fn memory(mut self, messages: usize) -> Self {
        self.seen.get_mut().unwrap_or_else(PoisonError::into_inner).capacity = messages;
        self
    }

    /// Rejects messages sent at this time or earlier.
    pub(crate) fn since(mut self, time: SystemTime) -> Self {
        let since = Timestamp::try_from(time).unwrap_or(Timestamp::MIN);
        self.seen.get_mut().unwrap_or_else(PoisonError::into_inner).since = since;
        self
    }

    /// Returns the agent whose messages are accepted.
    pub(crate) fn own(&self) -> &AgentUri {
        &self.own
    }

    /// Verifies a message from the connection `connection`. `now` is the time on the caller's clock.
    /// [`VerifyError::content`] is the response to a rejected message.
    pub(crate) fn verify(
        &self,
        json: &Json,
        connection: u64,
        now: SystemTime,
    ) -> Result<VerifyOutcome, VerifyError> {
        let bytes = json.get().len();
        if bytes > MESSAGE_BYTES {
            return Err(VerifyError::TooLarge { bytes, limit: MESSAGE_BYTES });
        }
        let signable = Signable::read(json.get())?;
        let key_id = self.check_signature(&signable, now)?;
        let message: DialogueMessage =
            json.parse().map_err(|error| VerifyError::Unreadable(params_fault("message", &error)))?;
        message.check()?;
        if message.recipient_id != self.own {
            return Err(VerifyError::Recipient);
        }
        if message.sender_id == self.own {
            return Err(VerifyError::Ourselves);
        }
        let (sent, expires, now) = self.check_clock(&message, now)?;
        if !self.allow.allows(&message) {
            return Err(VerifyError::NotAllowed);
        }
        let digest: Digest = Sha256::digest(signable.canonical.as_bytes()).into();
        let source = match key_id {
            Some(_) => ReplayScope::Agent(message.sender_id.clone()),
            None => ReplayScope::Connection(connection),
        };
        let name = (message.sender_id.clone(), message.message_id.clone());
        let sighting = ReplayEntry { source, name, connection, digest, sent, expires };
        match self.seen.lock_unpoisoned().see(&sighting, now) {
            ReplayCheck::New => {
                let ReplayEntry { source, name, .. } = sighting;
                let replay_key = ReplayKey { source, name };
                let received = VerifiedMessage { key_id, ..VerifiedMessage::new(message, json.clone()) };
                Ok(VerifyOutcome::New(Box::new(NewMessage { received, replay_key })))
            }
            ReplayCheck::Same => Ok(VerifyOutcome::Duplicate(
                Receipt::new(message.message_id, message.session_id).duplicate(true),
            )),
            ReplayCheck::Refused(error) => Ok(VerifyOutcome::Refused(error)),
            ReplayCheck::Elsewhere => Err(VerifyError::Elsewhere),
            ReplayCheck::Other => Err(VerifyError::Conflict),
            ReplayCheck::TooOld => Err(VerifyError::TooOld),
        }
    }

    /// Removes an accepted message from the replay cache because it was not acted upon. The same
    /// message may be sent again, for example after `OVERLOADED`.
    pub(crate) fn forget(&self, replay_key: &ReplayKey) {
        self.seen.lock_unpoisoned().forget(&replay_key.source, &replay_key.name);
    }

    /// Records that a message was rejected after its receipt. A repetition of it is rejected too.
    pub(crate) fn refuse(&self, message: &VerifiedMessage, connection: u64, error: &ErrorContent) {
        let source = match message.key_id {
            Some(_) => ReplayScope::Agent(message.sender_id.clone()),
            None => ReplayScope::Connection(connection),
        };
        let name = (message.sender_id.clone(), message.message_id.clone());
        self.seen.lock_unpoisoned().refuse(&source, &name, error);
    }

    /// Removes the entries of a connection that has ended.
    pub(crate) fn leave(&self, connection: u64) {
        self.seen.lock_unpoisoned().leave(connection);
    }

    /// Signs a message with the newest key of its sender for its recipient. Without keys it stays
    /// unsigned.
    pub(crate) fn sign(&self, message: &DialogueMessage, now: SystemTime) -> Result<Json, SignError> {
        let Some(keys) = &self.keys else { return unsigned(message) };
        let (sender, recipient) = (&message.sender_id, &message.recipient_id);
        match callbacks::call("KeyStore::signing_key", || keys.signing_key(sender, recipient, now)) {
            Some(key) => sign(message, &key),
            None if self.accept_unsigned
                && !callbacks::call("KeyStore::may_sign", || keys.may_sign(sender)) =>
            {
                unsigned(message)
            }
            None => Err(SignError::NoKey),
        }
    }

    /// Checks the signature. Returns the id of its key.
    fn check_signature(&self, message: &Signable, now: SystemTime) -> Result<Option<Arc<str>>, VerifyError> {
        let sender = message.text("sender_id");
        let Some(keys) = &self.keys else {
            return if message.signature.is_some() { Err(VerifyError::NoKeys) } else { Ok(None) };
        };
        let Some(signature) = &message.signature else {
            let known = sender.is_none_or(|sender| knows(&**keys, &sender.into()));
            return if self.accept_unsigned && !known { Ok(None) } else { Err(VerifyError::Unsigned) };
        };
        let claimed = signature.as_str().and_then(ParsedSignature::read).ok_or(VerifyError::SignatureForm)?;
        let kid = || claimed.kid.chars().take(128).collect::<String>();
        let claimant = sender.unwrap_or_default().into();
        let key = callbacks::call("KeyStore::key", || keys.key(&claimed.kid, &claimant));
        // Before the checks of the key, so that all of these errors take the same time.
        let is_genuine = claimed.is_by(key.as_deref(), &message.canonical);
        let key = key.ok_or_else(|| VerifyError::UnknownKey(kid()))?;
        if sender != Some(key.owner().as_str()) {
            return Err(VerifyError::Owner(kid()));
        }
        if !key.is_for(&self.own) {
            return Err(VerifyError::Peer(kid()));
        }
        if !claimed.fits(&key) {
            return Err(VerifyError::Algorithm(kid()));
        }
        if !key.is_valid(now, CLOCK_SKEW) {
            return Err(VerifyError::KeyTime(kid()));
        }
        if !is_genuine {
            return Err(VerifyError::Forged(kid()));
        }
        Ok(Some(key.shared_id()))
    }

    /// Returns the send time, the expiry time and the current time.
    fn check_clock(
        &self,
        message: &DialogueMessage,
        now: SystemTime,
    ) -> Result<(Timestamp, Option<Timestamp>, Timestamp), VerifyError> {
        // A clock that far from 1970 exceeds the range of timestamps.
        let now = Timestamp::try_from(now).unwrap_or(Timestamp::MAX);
        let sent: Timestamp = message.timestamp.parse().map_err(|_| VerifyError::Timestamp)?;
        if sent > later(now, CLOCK_SKEW) {
            return Err(VerifyError::Future);
        }
        let expires = message.metadata.ttl.map(|ttl| later(sent, Duration::from_secs(ttl)));
        if expires.is_some_and(|expires| expires < now) {
            return Err(VerifyError::Expired);
        }
        Ok((sent, expires, now))
    }
}

fn knows(keys: &dyn KeyStore, owner: &AgentUri) -> bool {
    callbacks::call("KeyStore::knows", || keys.knows(owner))
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

fn later(time: Timestamp, by: Duration) -> Timestamp {
    time.saturating_add(signed(by)).unwrap_or(Timestamp::MAX)
}
