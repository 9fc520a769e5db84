//! Exports the types as JSON Schema and the methods as `meta.json`, and provides test helpers.

mod dialogue;
mod difference;
mod envelope;
mod extension_schemas;
pub mod random;
mod registry;
#[cfg(feature = "protocol-v2")]
mod registry_v2;
mod surface;
mod work;

use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use crate::{MethodRow, MethodSide};

pub use difference::differences;
pub use extension_schemas::{ExtensionSchema, extension_schemas};
pub(crate) use registry::define;
pub use registry::{Definition, definitions};
pub use surface::Surface;
pub(crate) use surface::has_feature;

/// Returns the generated files: the path from the root of the repository, and the text.
#[must_use]
pub fn files() -> Vec<(String, String)> {
    let text = |value: &Value| format!("{value:#}\n");
    let mut files = Vec::new();
    for surface in Surface::ALL {
        files.push((format!("schema/{}.json", surface.file("schema")), text(&surface.document())));
        files.push((format!("schema/{}.json", surface.file("meta")), text(&surface.meta())));
    }
    for scheme in extension_schemas() {
        files.push((format!("schema/duologue/{}.json", scheme.name), text(&scheme.document())));
    }
    let metas: Map<_, _> =
        extension_schemas().iter().map(|scheme| (scheme.name.to_owned(), scheme.meta())).collect();
    files.push(("schema/duologue/meta.json".to_owned(), text(&metas.into())));
    files
}

/// The methods of a schema, by the side that handles them.
struct Sides {
    agent: Vec<MethodRow>,
    client: Vec<MethodRow>,
    protocol: Vec<MethodRow>,
    proxy: Vec<MethodRow>,
}

/// Returns the methods of the stable version 1 by side and variant name.
#[must_use]
pub fn meta() -> Value {
    Surface::V1.meta()
}

fn meta_of(surface: Surface) -> Value {
    let by_name = |rows: &[MethodRow]| -> Map<String, Value> {
        rows.iter()
            .map(|row| (row.method.trim_start_matches("$/").replace('/', "_"), row.method.into()))
            .collect()
    };
    let Sides { agent, client, protocol, proxy } = surface.sides();
    let mut meta = json!({
        "version": surface.version(),
        "agentMethods": by_name(&agent),
        "clientMethods": by_name(&client),
        "protocolMethods": by_name(&protocol),
    });
    if !proxy.is_empty() {
        meta["proxyMethods"] = by_name(&proxy).into();
    }
    meta
}

/// Returns the schema of the stable version 1. Its root accepts the messages of both sides.
#[must_use]
pub fn document() -> Value {
    Surface::V1.document()
}

fn document_of(surface: Surface) -> Value {
    let mut all = generated(&surface.definitions(), surface.methods().iter());
    refine(&mut all);
    surface.refine(&mut all);
    mark_additions(&mut all);
    let Sides { agent, client, protocol, proxy } = surface.sides();
    let messages = [("Client", &agent, &client), ("Agent", &client, &agent), ("Proxy", &proxy, &proxy)];
    let mut kinds = Vec::new();
    for (sender, handled, answered) in messages {
        if handled.is_empty() {
            continue;
        }
        let is_proxy = sender == "Proxy";
        let extension = |name: &'static str| (!is_proxy).then_some(name);
        let requests = handled.iter().filter(|row| row.result.is_some()).map(|row| row.params);
        let notifications = handled.iter().filter(|row| row.result.is_none()).map(|row| row.params);
        let results = answered.iter().filter_map(|row| row.result);
        all.insert(format!("{sender}Request"), envelope(Some("id"), requests.chain(extension("ExtRequest"))));
        all.insert(
            format!("{sender}Notification"),
            envelope(None, notifications.chain(extension("ExtNotification"))),
        );
        all.insert(format!("{sender}Response"), response(results.chain(extension("ExtResponse"))));
        kinds.push(sender);
    }
    let message = |kind: &str| {
        let refs = ["Request", "Response", "Notification"].map(|part| reference(&format!("{kind}{part}")));
        json!({ "title": kind, "type": "object", "properties": jsonrpc(), "required": ["jsonrpc"], "anyOf": refs })
    };
    let mut both = envelope(None, protocol.iter().map(|row| row.params));
    both["title"] = "ProtocolLevel".into();
    both["properties"]["jsonrpc"] = jsonrpc()["jsonrpc"].take();
    both["required"] = json!(["jsonrpc", "method"]);
    kinds.sort_unstable();
    let any_of: Vec<Value> = kinds.into_iter().map(message).chain([both]).collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": surface.title(),
        "anyOf": any_of,
        "$defs": all,
    })
}

/// Returns the definitions by name, and marks the params and results of methods.
fn generated<'a>(
    definitions: &[Definition],
    methods: impl Iterator<Item = &'a MethodRow>,
) -> Map<String, Value> {
    let mut generator = SchemaSettings::draft2020_12()
        .with(|settings| settings.definitions_path = "/$defs".into())
        .into_generator();
    for definition in definitions {
        (definition.register)(&mut generator);
    }
    let mut all = generator.take_definitions(true);
    for row in methods {
        for name in [Some(row.params), row.result].into_iter().flatten() {
            if let Some(Value::Object(definition)) = all.get_mut(name) {
                definition.insert("x-method".into(), row.method.into());
                definition.insert("x-side".into(), side_name(row.side).into());
            }
        }
    }
    all
}

/// Adds constraints that the Rust types do not express.
fn refine(all: &mut Map<String, Value>) {
    let mut set = |definition: &str, property: &str, keyword: &str, value: Value| {
        if let Some(definition) = all.get_mut(definition) {
            definition["properties"][property][keyword] = value;
        }
    };
    set("Notice", "title", "minLength", 1.into());
    set("ElicitationUrlMode", "url", "format", "uri".into());
    // An elicitation of an unknown mode has a scope too.
    if let Some(request) = all.get_mut("CreateElicitationRequest")
        && let Some(other) = request["anyOf"].as_array_mut().and_then(|modes| modes.last_mut())
    {
        other["anyOf"] =
            references(["ElicitationSessionScope", "ElicitationRequestScope"].into_iter()).into();
    }
}

/// Marks the additions to ACP with `x-extension`.
fn mark_additions(all: &mut Map<String, Value>) {
    let mark = |value: &mut Value| value["x-extension"] = "duologue".into();
    if let Some(clear) = all.get_mut("MessageClear") {
        mark(clear);
    }
    let Some(Value::Array(variants)) = all.get_mut("SessionUpdate").map(|update| update["oneOf"].take())
    else {
        return;
    };
    let marked = variants.into_iter().map(|mut variant| {
        if variant["properties"]["sessionUpdate"]["const"].as_str().is_some_and(|tag| tag.ends_with("_clear"))
        {
            mark(&mut variant);
        }
        variant
    });
    all["SessionUpdate"]["oneOf"] = marked.collect();
}

fn side_name(side: MethodSide) -> &'static str {
    match side {
        MethodSide::Agent => "agent",
        MethodSide::Client => "client",
        MethodSide::Protocol => "protocol",
    }
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/$defs/{name}") })
}

fn references<'a>(names: impl Iterator<Item = &'a str>) -> Vec<Value> {
    names.map(reference).collect()
}

fn jsonrpc() -> Value {
    json!({ "jsonrpc": { "type": "string", "enum": ["2.0"] } })
}

fn envelope<'a>(id: Option<&str>, params: impl Iterator<Item = &'a str>) -> Value {
    let mut properties = Map::new();
    if let Some(id) = id {
        properties.insert(id.into(), reference("RequestId"));
    }
    properties.insert("method".into(), json!({ "type": "string" }));
    let mut variants = references(params);
    variants.push(json!({ "type": "null" }));
    properties.insert("params".into(), json!({ "anyOf": variants }));
    let required: Vec<&str> = id.into_iter().chain(["method"]).collect();
    json!({ "type": "object", "properties": properties, "required": required, "x-docs-ignore": true })
}

fn response<'a>(results: impl Iterator<Item = &'a str>) -> Value {
    let id = reference("RequestId");
    json!({
        "anyOf": [
            {
                "title": "Result",
                "type": "object",
                "properties": { "id": id, "result": { "anyOf": references(results) } },
                "required": ["id", "result"],
            },
            {
                "title": "Error",
                "type": "object",
                "properties": { "id": id, "error": reference("Error") },
                "required": ["id", "error"],
            },
        ],
        "x-docs-ignore": true,
    })
}

/// The properties of a field that `#[wire]` passes to the schema.
#[allow(clippy::struct_excessive_bools)]
pub(crate) struct Field {
    pub(crate) key: &'static str,
    pub(crate) doc: &'static str,
    pub(crate) required: bool,
    pub(crate) nullable: bool,
    pub(crate) lenient: bool,
    pub(crate) skip_invalid: bool,
    pub(crate) null_default: bool,
    pub(crate) default: Option<Value>,
}

/// Builds the schema of a struct field by field.
pub(crate) struct Object {
    schema: Map<String, Value>,
    properties: Map<String, Value>,
    required: Vec<&'static str>,
}

impl Object {
    pub(crate) fn new(doc: &str) -> Self {
        let mut schema = Map::new();
        schema.insert("description".into(), doc.into());
        schema.insert("type".into(), "object".into());
        Object { schema, properties: Map::new(), required: Vec::new() }
    }

    pub(crate) fn field<T: JsonSchema>(mut self, generator: &mut SchemaGenerator, field: Field) -> Self {
        let mut schema = generator.subschema_for::<T>().to_value();
        if field.nullable {
            schema = nullable(schema);
        }
        if let Value::Bool(_) = schema {
            schema = json!({});
        }
        schema["description"] = field.doc.into();
        if let Some(default) = field.default {
            schema["default"] = default;
        }
        let hints = [
            (field.lenient, "x-deserialize-default-on-error"),
            (field.skip_invalid, "x-deserialize-skip-invalid-items"),
            (field.null_default, "x-deserialize-default-on-null"),
        ];
        for (_, hint) in hints.iter().filter(|(holds, _)| *holds) {
            schema[hint] = true.into();
        }
        if field.required {
            self.required.push(field.key);
        }
        self.properties.insert(field.key.into(), schema);
        self
    }

    /// Adds the alternatives of `T` beside the properties.
    pub(crate) fn flatten<T: JsonSchema>(mut self, generator: &mut SchemaGenerator) -> Self {
        let Value::Object(inner) = T::json_schema(generator).to_value() else { return self };
        self.schema.extend(inner.into_iter().filter(|(key, _)| key != "description" && key != "type"));
        self
    }

    pub(crate) fn finish(mut self) -> Schema {
        self.schema.insert("properties".into(), self.properties.into());
        if !self.required.is_empty() {
            self.schema.insert("required".into(), self.required.into());
        }
        self.schema.into()
    }
}

/// Returns a schema that also accepts `null`.
fn nullable(mut schema: Value) -> Value {
    match &schema {
        Value::Object(object) if object.contains_key("type") => {
            let inner = schema["type"].take();
            schema["type"] = json!([inner, "null"]);
            schema
        }
        // It accepts `null` already.
        Value::Bool(_) => schema,
        Value::Object(object) if object.is_empty() => schema,
        _ => json!({ "anyOf": [schema, { "type": "null" }] }),
    }
}

/// Returns the schema of an enum of names.
pub(crate) fn names(doc: &str, open: bool, names: &[(&str, &str)]) -> Schema {
    let mut variants: Vec<Value> = names
        .iter()
        .map(|(name, doc)| json!({ "type": "string", "const": name, "description": doc }))
        .collect();
    if open {
        variants.push(json!({ "type": "string", "title": "other", "description": "Any other name." }));
    }
    let key = if open { "anyOf" } else { "oneOf" };
    object([("description", doc.into()), (key, variants.into())])
}

/// Returns the schema of a union. Each variant has an optional tag, a description and a payload.
pub(crate) fn tagged(
    doc: &str,
    tag: &str,
    open: bool,
    variants: Vec<(Option<&str>, &str, Option<Schema>)>,
) -> Schema {
    let tagged = |name: &str| {
        json!({
            "type": "object",
            "properties": { tag: { "type": "string", "const": name } },
            "required": [tag],
        })
    };
    let known: Vec<Value> = variants.iter().filter_map(|(name, ..)| name.map(tagged)).collect();
    let any = open || known.len() < variants.len();
    let mut all: Vec<Value> = variants
        .into_iter()
        .map(|(name, doc, payload)| {
            let mut variant = match (name, &payload) {
                (Some(name), _) => tagged(name),
                (None, Some(_)) => json!({}),
                (None, None) => json!({ "type": "object", "properties": { tag: { "type": "null" } } }),
            };
            variant["description"] = doc.into();
            if let Some(payload) = payload {
                variant["allOf"] = json!([payload]);
            }
            variant
        })
        .collect();
    if open {
        all.push(json!({
            "title": "other",
            "description": "Any other kind.",
            "type": "object",
            "properties": { tag: { "type": "string" } },
            "required": [tag],
            "not": { "anyOf": known },
        }));
    }
    let key = if any { "anyOf" } else { "oneOf" };
    let mut schema = object([("description", doc.into()), (key, all.into())]);
    if !any {
        schema.insert("discriminator".into(), json!({ "propertyName": tag }));
    }
    schema
}

/// Returns the schema of an id.
pub(crate) fn id(doc: &str) -> Schema {
    object([("description", doc.trim().into()), ("type", "string".into())])
}

/// Returns a schema that accepts any value.
pub(crate) fn anything(doc: &str) -> Schema {
    object([("description", doc.trim().into())])
}

/// Returns the schema of a union without a tag.
pub(crate) fn any_of(doc: &str, variants: impl IntoIterator<Item = Schema>) -> Schema {
    let variants: Vec<Value> = variants.into_iter().map(Schema::to_value).collect();
    object([("description", doc.into()), ("anyOf", variants.into())])
}

fn object<const N: usize>(members: [(&str, Value); N]) -> Schema {
    members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect::<Map<_, _>>().into()
}
