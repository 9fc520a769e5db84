//! Writes the schema of both versions into a folder, `v1.json` and `v2.json`, without and with their unstable part as the
//! feature of the same name demands.

use std::fs;

use agent_client_protocol_schema::{v1, v2};
use schemars::generate::SchemaSettings;
use serde_json::json;

/// Returns the definitions of one version. The messages of both sides name all others.
macro_rules! document {
    ($version:ident) => {{
        let settings = SchemaSettings::draft2020_12().with(|settings| settings.definitions_path = "/$defs".into());
        let mut generator = settings.into_generator();
        document!(@ generator $version AgentRequest AgentNotification AgentResponse);
        document!(@ generator $version ClientRequest ClientNotification ClientResponse);
        #[cfg(feature = "unstable")]
        document!(@ generator $version ProxyRequest ProxyNotification ProxyResponse);
        generator.subschema_for::<$version::ProtocolLevelNotification>();
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$defs": generator.take_definitions(true),
        })
    }};
    (@ $generator:ident $version:ident $request:ident $notification:ident $response:ident) => {
        $generator.subschema_for::<$version::Request<$version::$request>>();
        $generator.subschema_for::<$version::Notification<$version::$notification>>();
        $generator.subschema_for::<$version::Response<$version::$response>>();
    };
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::path::PathBuf::from(std::env::args_os().nth(1).ok_or("the first argument is the folder")?);
    fs::create_dir_all(&folder)?;
    for (version, document) in [("v1", document!(v1)), ("v2", document!(v2))] {
        fs::write(folder.join(version).with_extension("json"), format!("{document:#}\n"))?;
    }
    Ok(())
}
