//! The request `session/set_config_option`, which some agents answer without the options.

use duologue_schema::{
    Meta, Request, SessionConfigId, SessionConfigOption, SessionConfigOptionValue,
    SetSessionConfigOptionRequest, SetSessionConfigOptionResponse, Versioned, VersionedRequest,
};
use serde::de::{Error as _, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

/// The request with a result that may have no options. An agent that sends none reports them in an update.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct SetOption(pub(crate) SetSessionConfigOptionRequest);

impl Request for SetOption {
    const METHOD: &'static str = SetSessionConfigOptionRequest::METHOD;
    type Result = SetOptionResult;
}

impl Versioned for SetOption {
    #[cfg(feature = "protocol-v2")]
    fn serialize_v2<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize_v2(serializer)
    }
}

impl VersionedRequest for SetOption {
    fn read_result_v2(result: &RawValue) -> Result<SetOptionResult, serde_json::Error> {
        SetOptionResult::read(result, SetSessionConfigOptionRequest::read_result_v2)
    }
}

/// The result of [`SetOption`].
#[derive(Serialize)]
#[serde(transparent)]
pub(crate) struct SetOptionResult {
    pub(crate) response: SetSessionConfigOptionResponse,
    /// False if the options are absent or `null`.
    #[serde(skip)]
    pub(crate) has_options: bool,
}

impl SetOptionResult {
    fn read(
        result: &RawValue,
        read: impl FnOnce(&RawValue) -> Result<SetSessionConfigOptionResponse, serde_json::Error>,
    ) -> Result<Self, serde_json::Error> {
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Members {
            config_options: Option<IgnoredAny>,
            #[serde(rename = "_meta")]
            meta: Option<Meta>,
        }
        let members: Option<Members> = serde_json::from_str(result.get())?;
        let members = members.unwrap_or_default();
        if members.config_options.is_some() {
            return Ok(SetOptionResult { response: read(result)?, has_options: true });
        }
        let mut response = SetSessionConfigOptionResponse::new(Vec::new());
        response.meta = members.meta;
        Ok(SetOptionResult { response, has_options: false })
    }
}

impl<'de> Deserialize<'de> for SetOptionResult {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let result = Box::<RawValue>::deserialize(deserializer)?;
        SetOptionResult::read(&result, |result| serde_json::from_str(result.get())).map_err(D::Error::custom)
    }
}

/// Sets the current value of an option.
pub(crate) fn set_value(
    options: &mut [SessionConfigOption],
    id: &SessionConfigId,
    value: &SessionConfigOptionValue,
) {
    options.iter_mut().filter(|option| option.id == *id).for_each(|option| option.set_value(value));
}
