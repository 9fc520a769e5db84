//! The parts of `capabilities` that describe an agent to a registry.

use duologue_schema_derive::wire;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Json;
use crate::wire::schema_of;

/// A capability of an agent: a name alone, or with a description and a schema.
///
/// ```
/// use duologue_schema::envelope::{AgentCapability, DescribedCapability};
///
/// let named: AgentCapability = serde_json::from_str(r#""translate""#)?;
/// assert_eq!(named.name(), "translate");
///
/// let described = DescribedCapability::new("paint").description("Paints an image of a text");
/// assert_eq!(
///     serde_json::to_string(&AgentCapability::from(described))?,
///     r#"{"name":"paint","description":"Paints an image of a text"}"#,
/// );
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum AgentCapability {
    /// A name alone.
    Name(String),
    /// A name with a description and a schema.
    Described(DescribedCapability),
}

/// A capability that is an object.
#[wire(snake)]
pub struct DescribedCapability {
    /// The name.
    pub name: String,
    /// The description in natural language.
    pub description: Option<String>,
    /// The JSON Schema of the input.
    pub schema: Option<Json>,
}

impl AgentCapability {
    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            AgentCapability::Name(name) => name,
            AgentCapability::Described(described) => &described.name,
        }
    }
}

impl From<&str> for AgentCapability {
    fn from(name: &str) -> Self {
        AgentCapability::Name(name.to_owned())
    }
}

impl From<DescribedCapability> for AgentCapability {
    fn from(described: DescribedCapability) -> Self {
        AgentCapability::Described(described)
    }
}

impl Serialize for AgentCapability {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            AgentCapability::Name(name) => serializer.serialize_str(name),
            AgentCapability::Described(described) => described.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for AgentCapability {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Json::deserialize(deserializer)?;
        let capability = match json.get().as_bytes().first() {
            Some(b'"') => json.parse().map(AgentCapability::Name),
            Some(b'{') => json.parse().map(AgentCapability::Described),
            _ => return Err(serde::de::Error::custom("a capability must be a name or an object")),
        };
        capability.map_err(serde::de::Error::custom)
    }
}

schema_of!(AgentCapability, "Capability", |generator| schemars::json_schema!({
    "description": "A capability of an agent: a name, or an object with more.",
    "anyOf": [{ "type": "string" }, generator.subschema_for::<DescribedCapability>()],
}));

/// The price of an agent's work.
#[wire(snake)]
pub struct Pricing {
    /// The unit that is charged.
    pub model: PricingModel,
    /// The price of one unit.
    pub rate: Option<f64>,
    /// The currency, such as `EUR`.
    pub currency: Option<String>,
}

/// The unit that an agent charges.
#[wire(open)]
pub enum PricingModel {
    /// Each request has a price.
    PerRequest,
    /// Each minute of work has a price.
    PerMinute,
    /// A subscription has a price, whatever the amount of work.
    Subscription,
}
