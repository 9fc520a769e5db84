//! Who answers the envelopes of the other agent.

use std::future::Future;
use std::pin::Pin;

use duologue_schema::envelope::{Capabilities, Fault, FaultCode, Kind, Query, Response};

use super::Received;

/// Answers the other agent's envelopes: one method a kind.
///
/// Each call runs in a task of its own and may await anything, questions to the same agent included.
pub trait Correspondent: Send + Sync + 'static {
    /// The answer to `discover`: who we are, what we know about, and how many delegations we work on at once.
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("")
    }

    /// Answers a question.
    ///
    /// # Errors
    ///
    /// The fault is the answer.
    fn query(&self, query: Received<Query>) -> impl Future<Output = Result<Response, Fault>> + Send {
        let _ = query;
        refuse(Kind::Query)
    }
}

/// Answers `ping` and `discover`, and refuses the rest.
impl Correspondent for () {}

fn refuse<T: Send>(kind: Kind) -> impl Future<Output = Result<T, Fault>> + Send {
    std::future::ready(Err(Fault::of(FaultCode::UnknownKind, format!("{kind} is not handled here"))))
}

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A [`Correspondent`] without its type.
pub(crate) trait Erased: Send + Sync {
    fn capabilities(&self) -> Capabilities;
    fn query(self: std::sync::Arc<Self>, query: Received<Query>) -> Boxed<Result<Response, Fault>>;
}

impl<C: Correspondent> Erased for C {
    fn capabilities(&self) -> Capabilities {
        Correspondent::capabilities(self)
    }

    fn query(self: std::sync::Arc<Self>, query: Received<Query>) -> Boxed<Result<Response, Fault>> {
        Box::pin(async move { Correspondent::query(&*self, query).await })
    }
}
