//! The traits of methods: a name, the type of the params and the type of the result.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A request, implemented by the type of its params.
///
/// The SDKs route by [`METHOD`](Self::METHOD), the only place that spells the name. Implement the
/// trait for your own extension methods, whose names start with `_`.
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
    /// The name of the method on the wire.
    const METHOD: &'static str;
    /// The type of the result.
    type Result: Serialize + DeserializeOwned + Send + 'static;
}

/// A notification, implemented by the type of its params. It has no response.
pub trait Notification: Serialize + DeserializeOwned + Send + 'static {
    /// The name of the method on the wire.
    const METHOD: &'static str;
}

/// Returns true for a method with which an agent uses the files or terminals of a client. Version 2 has no such methods.
///
/// It ignores case, because some programs read names without it.
#[must_use]
pub fn is_of_client_files(method: &str) -> bool {
    let namespace = method.split_once('/').map(|(namespace, _)| namespace);
    namespace.is_some_and(|it| ["fs", "terminal"].iter().any(|known| it.eq_ignore_ascii_case(known)))
}
