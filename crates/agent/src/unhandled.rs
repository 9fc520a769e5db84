//! The default methods of an agent, and capabilities that only they would serve.

use std::any::type_name;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};

use duologue_schema::{AgentCapabilities, AuthMethod, Error as WireError, InitializeResponse, Request};

use crate::agent::Agent;
use crate::context::Context;
use crate::error::{Error, Result};

/// The future of a method that the agent does not implement. It fails with `-32601`.
pub(crate) struct Unhandled<R, T>(PhantomData<fn() -> (R, T)>);

/// Returns the future of a method for the request `R` that the agent does not implement.
pub(crate) fn unhandled<R: Request, T>() -> Unhandled<R, T> {
    Unhandled(PhantomData)
}

impl<R: Request, T> Future for Unhandled<R, T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, _: &mut TaskContext<'_>) -> Poll<Self::Output> {
        Poll::Ready(Err(Error::Response(WireError::method_not_found(R::METHOD))))
    }
}

/// Returns true if the future of a method is [`Unhandled`], so the agent has not implemented the method. The method is not
/// called.
pub(crate) fn is_unhandled<'a, A: 'a, X, F: Future>(_: impl Fn(&'a A, &'a Context, X) -> F) -> bool {
    // The text of a type's name is not guaranteed. With another text the contradiction is not found.
    type_name::<F>().starts_with(concat!(module_path!(), "::Unhandled<"))
}

/// Fails if the response to `initialize` has a capability whose method the agent has not implemented.
pub(crate) fn check_capabilities<A: Agent>(response: &InitializeResponse) -> Result<(), WireError> {
    let AgentCapabilities { load_session, session_capabilities: session, auth, .. } =
        &response.agent_capabilities;
    let has_login = response.auth_methods.iter().any(|method| matches!(method, AuthMethod::Agent(_)));
    let advertised: [(bool, bool, &str, &str); 7] = [
        (*load_session, is_unhandled(A::load_session), "loadSession", "load_session"),
        (
            session.resume.is_some(),
            is_unhandled(A::resume_session),
            "sessionCapabilities.resume",
            "resume_session",
        ),
        (session.list.is_some(), is_unhandled(A::list_sessions), "sessionCapabilities.list", "list_sessions"),
        (
            session.close.is_some(),
            is_unhandled(A::close_session),
            "sessionCapabilities.close",
            "close_session",
        ),
        (
            session.delete.is_some(),
            is_unhandled(A::delete_session),
            "sessionCapabilities.delete",
            "delete_session",
        ),
        (
            auth.logout.is_some(),
            is_unhandled(|agent: &A, context, ()| agent.logout(context)),
            "auth.logout",
            "logout",
        ),
        (has_login, is_unhandled(A::authenticate), "a login method of type agent", "authenticate"),
    ];
    let contradiction = advertised.iter().find(|(advertised, unhandled, ..)| *advertised && *unhandled);
    contradiction.map_or(Ok(()), |(_, _, capability, method)| {
        Err(WireError::internal(format!(
            "the agent advertises {capability}, but does not implement Agent::{method}"
        )))
    })
}
