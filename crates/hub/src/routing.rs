//! The members of params by which messages find their session and their request, and the methods of the transport.

pub(crate) use duologue_rpc::raw_message::is_of_transport;
use duologue_rpc::raw_message::{is_doubled, similar_members};
use duologue_schema::Error as RpcError;
pub(crate) use duologue_schema::is_of_client_files;
use serde_json::value::RawValue;

/// The members that the hub reads or replaces in messages that it passes on.
const ROUTING: [&str; 2] = ["sessionId", "requestId"];

/// Refuses params that have one of these members twice. The hub reads the first, and most agents and clients the last, so
/// the message could reach a session that its sender may not use.
pub(crate) fn check_routing(params: Option<&RawValue>) -> Result<(), RpcError> {
    let Some(params) = params else { return Ok(()) };
    // Some programs read the members of an array by their order, where the hub finds no session.
    if !params.get().starts_with('{') {
        return Err(RpcError::invalid_params("the params have to be an object"));
    }
    match ROUTING.iter().find(|name| is_doubled(params.get().as_bytes(), name)) {
        Some(name) => Err(RpcError::invalid_params(format!("the params have `{name}` twice"))),
        None => Ok(()),
    }
}

/// Refuses the params of a client as [`check_routing`], and those that have one of these members in another case. The hub does
/// not read it, and an agent may.
pub(crate) fn check_client_routing(params: Option<&RawValue>) -> Result<(), RpcError> {
    check_routing(params)?;
    let params = params.map(|params| params.get().as_bytes()).unwrap_or_default();
    match similar_members(params, &ROUTING).find(|(key, name)| key != name) {
        Some((key, name)) => {
            Err(RpcError::invalid_params(format!("the params have {key:?}; the member is `{name}`")))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doubled_session_is_refused() {
        for (params, is_allowed) in [
            (r#"{"sessionId":"a"}"#, true),
            (r#"{"sessionId":"a","b":{"sessionId":"c"}}"#, true),
            (r#"{"sessionId":"a","sessionId":"a"}"#, false),
            (r#"{"sessionId":"a","session\u0049d":"b"}"#, false),
            (r#"{"requestId":1,"requestId":2}"#, false),
            (r#"["a"]"#, false),
            ("[]", false),
        ] {
            let params = RawValue::from_string(params.to_owned()).unwrap();
            assert_eq!(check_routing(Some(&params)).is_ok(), is_allowed, "{params}");
            assert_eq!(check_client_routing(Some(&params)).is_ok(), is_allowed, "{params}");
        }
        assert!(check_routing(None).is_ok() && check_client_routing(None).is_ok());
        for params in
            [r#"{"sessionId":"a","SessionId":"b"}"#, r#"{"\u017fessionid":"b"}"#, r#"{"requestID":1}"#]
        {
            let params = RawValue::from_string(params.to_owned()).unwrap();
            assert!(check_client_routing(Some(&params)).is_err(), "{params}");
        }
    }
}
