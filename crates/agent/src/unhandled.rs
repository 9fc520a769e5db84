//! The default methods of an agent, and capabilities that only they would serve.

use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};

use duologue_schema::{
    AgentCapabilities, AuthMethod, Error as WireError, InitializeResponse, ProtocolVersion, Request,
    SetSessionConfigOptionRequest, SetSessionModeRequest,
};

use crate::agent::Agent;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::session::Session;
use crate::settings::{ModeSource, OfferedSettings};

/// The future of a method that the agent does not implement. It fails with `-32601`.
///
/// It has no bytes and an unusual alignment, by which [`is_unhandled`] recognises it. The language guarantees the layout of
/// such a type, but neither the text of its name nor a `TypeId` for the future of a method that borrows.
#[repr(C, align(128))]
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
    // An `async` block or function has bytes for its state, so another future is not like this by accident.
    size_of::<F>() == 0 && align_of::<F>() == align_of::<Unhandled<(), ()>>()
}

/// Fails if the response to `initialize` has a capability whose method the agent has not implemented.
pub(crate) fn check_capabilities<A: Agent>(response: &InitializeResponse) -> Result<(), WireError> {
    let AgentCapabilities { load_session, session_capabilities: session, auth, .. } =
        &response.agent_capabilities;
    let has_login = response.auth_methods.iter().any(|method| matches!(method, AuthMethod::Agent(_)));
    let must_log_out = response.protocol_version > ProtocolVersion::V1 && !response.auth_methods.is_empty();
    let lacks_logout = is_unhandled(|agent: &A, context, ()| agent.logout(context));
    let advertised: &[(bool, bool, &str, &str)] = &[
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
        (auth.logout.is_some(), lacks_logout, "auth.logout", "logout"),
        (must_log_out, lacks_logout, "a login method in protocol version 2", "logout"),
        (has_login, is_unhandled(A::authenticate), "a login method of type agent", "authenticate"),
    ];
    #[cfg(feature = "unstable")]
    let advertised = [advertised, &crate::unstable::advertised::<A>(&response.agent_capabilities)].concat();
    let contradiction = advertised.iter().find(|(advertised, unhandled, ..)| *advertised && *unhandled);
    contradiction.map_or(Ok(()), |(_, _, capability, method)| Err(missing("advertises", capability, method)))
}

/// Fails if a session offers modes or options, and the agent has not implemented the method that sets them.
pub(crate) fn check_settings<A: Agent>(offered: &OfferedSettings) -> Result<()> {
    let no_mode =
        is_unhandled(|agent: &A, context, (session, request): (&Session, SetSessionModeRequest)| {
            agent.set_mode(context, session, request)
        });
    let no_option =
        is_unhandled(|agent: &A, context, (session, request): (&Session, SetSessionConfigOptionRequest)| {
            agent.set_config_option(context, session, request)
        });
    if no_mode && offered.are_set_by(ModeSource::Modes) {
        return Err(missing("offers", "modes", "set_mode").into());
    }
    if no_option && offered.are_set_by(ModeSource::Option) {
        return Err(missing("offers", "configOptions", "set_config_option").into());
    }
    Ok(())
}

fn missing(verb: &str, what: &str, method: &str) -> WireError {
    WireError::internal(format!("the agent {verb} {what}, but does not implement Agent::{method}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::{Prompt, SessionSetup};
    use crate::turn::Turn;

    struct Implementing;

    impl Agent for Implementing {
        /// Returns a future without bytes.
        fn load_session(
            &self,
            _: &Context,
            _: &Session,
        ) -> impl Future<Output = Result<SessionSetup>> + Send {
            std::future::pending()
        }

        async fn resume_session(&self, _: &Context, _: &Session) -> Result<SessionSetup> {
            Ok(SessionSetup::new())
        }

        async fn prompt(&self, _: &Turn, _: Prompt) -> Result<duologue_schema::StopReason> {
            Ok(duologue_schema::StopReason::EndTurn)
        }
    }

    #[test]
    fn an_implemented_method_is_not_taken_for_a_missing_one() {
        assert!(!is_unhandled(Implementing::load_session));
        assert!(!is_unhandled(Implementing::resume_session));
        assert!(is_unhandled(Implementing::close_session));
    }
}
