//! The unstable messages in the version of their connection.

use super::*;
use crate::{Versioned, VersionedRequest};

/// Declares requests and their responses whose forms are equal in both versions.
macro_rules! equal {
    ($($request:ident -> $response:ident,)*) => {$(
        impl Versioned for $request {}
        impl Versioned for $response {}
        impl VersionedRequest for $request {}
    )*};
}

equal! {
    AuthStatusRequest -> AuthStatusResponse,
    ArchiveSessionRequest -> ArchiveSessionResponse,
    UnarchiveSessionRequest -> UnarchiveSessionResponse,
    SetSessionTitleRequest -> SetSessionTitleResponse,
    SessionStatusRequest -> SessionStatusResponse,
    ListProvidersRequest -> ListProvidersResponse,
    SetProviderRequest -> SetProviderResponse,
    DisableProviderRequest -> DisableProviderResponse,
}

impl Versioned for SessionOptionsRequest {}

impl Versioned for SessionOptionsResponse {
    #[cfg(feature = "protocol-v2")]
    fn serialize_v2<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serde::Serialize::serialize(&crate::v2::SessionOptionsResponse::from(self.clone()), serializer)
    }
}

impl VersionedRequest for SessionOptionsRequest {
    #[cfg(feature = "protocol-v2")]
    fn read_result_v2(result: &serde_json::value::RawValue) -> Result<Self::Result, serde_json::Error> {
        serde_json::from_str::<crate::v2::SessionOptionsResponse>(result.get()).map(Into::into)
    }
}

impl Versioned for ForkSessionRequest {
    #[cfg(feature = "protocol-v2")]
    fn serialize_v2<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let request: crate::v2::ForkSessionRequest =
            self.clone().try_into().map_err(serde::ser::Error::custom)?;
        serde::Serialize::serialize(&request, serializer)
    }
}

impl VersionedRequest for ForkSessionRequest {
    #[cfg(feature = "protocol-v2")]
    fn read_result_v2(result: &serde_json::value::RawValue) -> Result<Self::Result, serde_json::Error> {
        serde_json::from_str::<crate::v2::ForkSessionResponse>(result.get()).map(Into::into)
    }
}
