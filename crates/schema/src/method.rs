//! What a method is: a name, the type of its params, the type of its result.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A request, implemented by the type of its params.
///
/// The name of a method stands in one place, here; the SDKs route by it and callers never spell it.
/// Implement it for your own extension methods (their names start with `_`).
///
/// ```
/// use duologue_schema::Request;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Weather { city: String }
///
/// #[derive(Serialize, Deserialize)]
/// struct Forecast { sunny: bool }
///
/// impl Request for Weather {
///     const METHOD: &'static str = "_example/weather";
///     type Result = Forecast;
/// }
/// ```
pub trait Request: Serialize + DeserializeOwned + Send + 'static {
    /// The method's name on the wire.
    const METHOD: &'static str;
    /// What a successful answer holds.
    type Result: Serialize + DeserializeOwned + Send + 'static;
}

/// A notification, implemented by the type of its params. It has no answer.
pub trait Notification: Serialize + DeserializeOwned + Send + 'static {
    /// The method's name on the wire.
    const METHOD: &'static str;
}
