//! The options in `#[wire(..)]`, and helpers for structs and enums.

use proc_macro2::TokenStream;
use quote::quote;
use syn::meta::ParseNestedMeta;
use syn::{Attribute, Expr, ExprLit, Lit, LitStr, Meta, Result};

#[derive(Default)]
pub(crate) struct TypeOptions {
    pub(crate) tag: Option<String>,
    pub(crate) no_meta: bool,
    pub(crate) snake: bool,
    pub(crate) open: bool,
    /// The name of the definition in the JSON Schema, if it is not the name of the type.
    pub(crate) definition: Option<String>,
}

impl TypeOptions {
    pub(crate) fn read(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        if meta.path.is_ident("tag") {
            self.tag = Some(meta.value()?.parse::<LitStr>()?.value());
        } else if meta.path.is_ident("no_meta") {
            self.no_meta = true;
        } else if meta.path.is_ident("snake") {
            self.snake = true;
        } else if meta.path.is_ident("open") {
            self.open = true;
        } else if meta.path.is_ident("definition") {
            self.definition = Some(meta.value()?.parse::<LitStr>()?.value());
        } else {
            return Err(meta.error("unknown option"));
        }
        Ok(())
    }
}

/// The options of a field or a variant.
#[derive(Default)]
pub(crate) struct MemberOptions {
    pub(crate) rename: Option<String>,
    pub(crate) aliases: Vec<String>,
    pub(crate) default: bool,
    pub(crate) always: bool,
    pub(crate) lenient: bool,
    pub(crate) skip_invalid: bool,
    pub(crate) skip_items: bool,
    pub(crate) keep_invalid: bool,
    pub(crate) null_default: bool,
    pub(crate) integer: bool,
    /// True if `null` reads as the default, with or without a hint in the schema.
    pub(crate) reads_null: bool,
    pub(crate) flatten: bool,
    pub(crate) local: bool,
    pub(crate) untagged: bool,
    pub(crate) never_read: bool,
    pub(crate) unexported: bool,
    /// The Cargo features that add the member.
    pub(crate) gate: Option<Gate>,
}

/// The `#[cfg(feature = "..")]` or `#[cfg(all(feature = "..", feature = ".."))]` of a member.
pub(crate) struct Gate {
    cfg: Attribute,
    features: Vec<String>,
}

impl Gate {
    fn find(attributes: &[Attribute]) -> Result<Option<Self>> {
        let Some(cfg) = attributes.iter().find(|attribute| attribute.path().is_ident("cfg")) else {
            return Ok(None);
        };
        let mut features = Vec::new();
        cfg.parse_nested_meta(|meta| match meta.path.is_ident("all") {
            true => meta.parse_nested_meta(|meta| Self::read_feature(&meta, &mut features)),
            false => Self::read_feature(&meta, &mut features),
        })?;
        Ok(Some(Gate { cfg: cfg.clone(), features }))
    }

    fn read_feature(meta: &ParseNestedMeta<'_>, features: &mut Vec<String>) -> Result<()> {
        if !meta.path.is_ident("feature") {
            return Err(
                meta.error("`#[wire]` supports only features in `#[cfg(..)]`, one or `all` of several")
            );
        }
        features.push(meta.value()?.parse::<LitStr>()?.value());
        Ok(())
    }
}

impl MemberOptions {
    /// Removes the `#[wire(..)]` attributes from `attributes` and parses them.
    pub(crate) fn take(attributes: &mut Vec<Attribute>) -> Result<Self> {
        let mut options = MemberOptions::default();
        for attribute in attributes.extract_if(.., |attribute| attribute.path().is_ident("wire")) {
            attribute.parse_nested_meta(|meta| options.read(&meta))?;
        }
        options.gate = Gate::find(attributes)?;
        Ok(options)
    }

    /// Returns the `cfg` attribute to repeat on generated code.
    pub(crate) fn cfg(&self) -> Option<&Attribute> {
        self.gate.as_ref().map(|gate| &gate.cfg)
    }

    /// Returns an expression that is true if the exported schema has the member.
    pub(crate) fn is_exported(&self) -> TokenStream {
        match &self.gate {
            Some(Gate { features, .. }) => quote!(true #(&& crate::export::has_feature(#features))*),
            None => quote!(true),
        }
    }

    fn read(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        let name = meta.path.get_ident().map(ToString::to_string).unwrap_or_default();
        match name.as_str() {
            "rename" => self.rename = Some(meta.value()?.parse::<LitStr>()?.value()),
            "alias" => self.aliases.push(meta.value()?.parse::<LitStr>()?.value()),
            "default" => self.default = true,
            "always" => self.always = true,
            "lenient" => self.lenient = true,
            "skip_invalid" => self.skip_invalid = true,
            "skip_items" => self.skip_items = true,
            "keep_invalid" => self.keep_invalid = true,
            "null_default" => self.null_default = true,
            "integer" => self.integer = true,
            "flatten" => self.flatten = true,
            "local" => self.local = true,
            "untagged" => self.untagged = true,
            "never_read" => self.never_read = true,
            "unexported" => self.unexported = true,
            _ => return Err(meta.error("unknown option")),
        }
        Ok(())
    }
}

/// Returns the text of the doc comments in `attributes`.
pub(crate) fn doc_text(attributes: &[Attribute]) -> String {
    let mut text = String::new();
    for attribute in attributes {
        if let Meta::NameValue(pair) = &attribute.meta
            && pair.path.is_ident("doc")
            && let Expr::Lit(ExprLit { lit: Lit::Str(line), .. }) = &pair.value
        {
            text.push_str(line.value().strip_prefix(' ').unwrap_or(&line.value()));
            text.push('\n');
        }
    }
    text.trim_end().to_owned()
}

/// Converts `session_id` to `sessionId`.
pub(crate) fn camel_case(snake: &str) -> String {
    let mut out = String::new();
    let mut upper = false;
    for c in snake.trim_start_matches("r#").chars() {
        if c == '_' {
            upper = true;
        } else if upper {
            out.extend(c.to_uppercase());
            upper = false;
        } else {
            out.push(c);
        }
    }
    out
}

/// Converts `AgentMessageChunk` to `agent_message_chunk`.
pub(crate) fn snake_case(camel: &str) -> String {
    let mut out = String::new();
    for (index, c) in camel.chars().enumerate() {
        if c.is_uppercase() && index > 0 {
            out.push('_');
        }
        out.extend(c.to_lowercase());
    }
    out
}

/// Implements `JsonSchema`. `body` is an expression that uses `generator`.
pub(crate) fn json_schema(name: &syn::Ident, options: &TypeOptions, body: &TokenStream) -> TokenStream {
    let definition = options.definition.clone().unwrap_or_else(|| name.to_string());
    quote! {
        #[cfg(feature = "schemars")]
        impl ::schemars::JsonSchema for #name {
            fn schema_name() -> ::std::borrow::Cow<'static, str> {
                #definition.into()
            }
            #[allow(unused_variables)]
            fn json_schema(generator: &mut ::schemars::SchemaGenerator) -> ::schemars::Schema {
                #body
            }
        }
    }
}
