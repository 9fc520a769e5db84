//! The endpoints of models that an agent calls: `providers/list`, `providers/set` and `providers/disable`.

use std::collections::BTreeMap;

use duologue_schema_derive::wire;

crate::ids::ids! {
    /// The id of a provider of models. The agent creates it.
    ProviderId,
}

/// The capability to handle the `providers/*` methods.
#[wire]
pub struct ProvidersCapabilities {}

/// The params of `providers/list`, which returns the providers that a client can configure.
#[wire]
pub struct ListProvidersRequest {}

/// The answer to `providers/list`.
#[wire]
pub struct ListProvidersResponse {
    /// The providers.
    pub providers: Vec<ProviderInfo>,
}

/// A provider that a client can configure.
#[wire]
pub struct ProviderInfo {
    /// The id of the provider.
    pub provider_id: ProviderId,
    /// The protocols that the agent supports for it.
    #[wire(skip_invalid)]
    pub supported: Vec<LlmProtocol>,
    /// True if the provider cannot be disabled.
    pub required: bool,
    /// The current endpoint. Absent if the provider is disabled.
    pub current: Option<ProviderCurrentConfig>,
}

/// The current endpoint of a provider, without its secrets.
#[wire]
pub struct ProviderCurrentConfig {
    /// The protocol of the endpoint.
    pub api_type: LlmProtocol,
    /// The URL of the endpoint.
    pub base_url: String,
}

/// A protocol of models.
#[wire(open)]
pub enum LlmProtocol {
    /// Anthropic's.
    Anthropic,
    /// OpenAI's.
    #[wire(rename = "openai")]
    OpenAi,
    /// Azure's.
    Azure,
    /// Google Vertex AI's.
    Vertex,
    /// AWS Bedrock's.
    Bedrock,
}

/// The params of `providers/set`, which replaces the endpoint of a provider.
#[wire]
pub struct SetProviderRequest {
    /// The id of the provider.
    pub provider_id: ProviderId,
    /// The protocol of the endpoint.
    pub api_type: LlmProtocol,
    /// The URL of the endpoint.
    pub base_url: String,
    /// The headers to send. They may be secrets.
    #[wire(default)]
    pub headers: BTreeMap<String, String>,
}

/// The answer to `providers/set`.
#[wire]
pub struct SetProviderResponse {}

/// The params of `providers/disable`, which removes the endpoint of a provider.
#[wire]
pub struct DisableProviderRequest {
    /// The id of the provider.
    pub provider_id: ProviderId,
}

/// The answer to `providers/disable`.
#[wire]
pub struct DisableProviderResponse {}
