//! Expands `#[wire]` on a struct.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Attribute, Fields, Ident, ItemStruct, Result, Type, parse_quote};

use crate::options::{MemberOptions, TypeOptions, camel_case, doc_text, json_schema};

/// The presence of a field on the wire, according to its type.
enum Shape {
    Plain,
    Option(Box<Type>),
    Patch(Box<Type>),
}

struct Field {
    name: Ident,
    key: String,
    doc: String,
    ty: Type,
    shape: Shape,
    options: MemberOptions,
}

pub(crate) fn expand(mut item: ItemStruct, type_options: &TypeOptions) -> Result<TokenStream> {
    let span_of_item = item.ident.clone();
    let Fields::Named(named) = &mut item.fields else {
        return Err(syn::Error::new_spanned(
            span_of_item,
            "`#[wire]` applies only to structs with named fields",
        ));
    };
    let has_meta = named.named.iter().any(|field| field.ident.as_ref().is_some_and(|ident| ident == "meta"));
    if type_options.snake {
        named.named.push(parse_quote! {
            /// The unknown fields. They are written back unchanged.
            #[wire(flatten, default)]
            pub extra: crate::Members
        });
    } else if !has_meta && !type_options.no_meta {
        named.named.push(parse_quote! {
            /// Extension data, `_meta` on the wire.
            /// See [Extensibility](https://agentclientprotocol.com/protocol/v1/extensibility).
            #[wire(lenient)]
            pub meta: ::std::option::Option<crate::Meta>
        });
    }
    let mut fields = Vec::new();
    for field in &mut named.named {
        let mut options = MemberOptions::take(&mut field.attrs)?;
        options.reads_null = options.null_default || (type_options.snake && options.default);
        let Some(name) = field.ident.clone() else { continue };
        let key = match &options.rename {
            Some(key) => key.clone(),
            None if type_options.snake => name.to_string(),
            None if name == "meta" => "_meta".to_owned(),
            None => camel_case(&name.to_string()),
        };
        let doc = doc_text(&field.attrs);
        let shape = shape_of(&field.ty);
        let field = Field { name, key, doc, ty: field.ty.clone(), shape, options };
        if field.is_required() && field.options.gate.is_some() {
            return Err(syn::Error::new_spanned(&field.name, "a field with `cfg` must be optional"));
        }
        fields.push(field);
    }

    let name = &item.ident;
    let default = fields.iter().all(|field| !field.is_required()).then(|| quote!(Default,));
    let inherent = inherent(name, &fields);
    let read = read(name, &fields, type_options.snake);
    let write = write(name, &fields);
    let schema = schema(name, type_options, &item.attrs, &fields);
    Ok(quote! {
        #[derive(Clone, Debug, #default PartialEq)]
        #[non_exhaustive]
        #item
        #inherent
        #read
        #write
        #schema
    })
}

impl Field {
    /// Returns true if the field has no default, so that `new` requires it.
    fn is_required(&self) -> bool {
        matches!(self.shape, Shape::Plain) && !self.options.default && !self.options.local
    }

    /// Returns the expression that reads the value from `map`.
    fn read(&self) -> TokenStream {
        let ty = &self.ty;
        if self.options.integer {
            let key = &self.key;
            return match self.shape {
                Shape::Plain if self.options.reads_null => {
                    quote!(crate::wire::optional_integer(map, #key)?.unwrap_or_default())
                }
                Shape::Plain => quote!(crate::wire::integer(map, #key)?),
                Shape::Option(_) | Shape::Patch(_) => quote!(crate::wire::optional_integer(map, #key)?),
            };
        }
        if self.options.skip_items {
            return quote!(crate::wire::items(map)?);
        }
        if !self.options.lenient && !self.options.skip_invalid {
            return if self.options.reads_null {
                quote!(map.next_value::<::std::option::Option<#ty>>()?.unwrap_or_default())
            } else {
                quote!(map.next_value()?)
            };
        }
        let read = if self.options.skip_invalid { quote!(list) } else { quote!(lenient) };
        match &self.shape {
            Shape::Plain => quote!(crate::wire::#read(map)?.ok().unwrap_or_default()),
            Shape::Option(_) => quote!(crate::wire::#read(map)?.ok()),
            Shape::Patch(_) => quote!(crate::wire::#read(map)?.patch()),
        }
    }

    /// Returns the condition under which [`write`](Self::write) writes the value of a field with `keep_invalid`.
    fn is_set(&self) -> TokenStream {
        let (name, ty) = (&self.name, &self.ty);
        match self.shape {
            Shape::Plain => quote!(self.#name != <#ty as ::std::default::Default>::default()),
            Shape::Option(_) => quote!(self.#name.is_some()),
            Shape::Patch(_) => quote!(!::std::matches!(self.#name, crate::Patch::Keep)),
        }
    }

    /// Returns the statement that writes the value to `map`.
    fn write(&self) -> TokenStream {
        let (name, key, cfg) = (&self.name, &self.key, self.options.cfg());
        let write = match self.shape {
            Shape::Patch(_) => quote!(crate::wire::write_patch(map, #key, &self.#name)?;),
            Shape::Option(_) if !self.options.always => {
                quote!(crate::wire::write_option(map, #key, &self.#name)?;)
            }
            Shape::Plain if self.options.default && !self.options.always => {
                quote!(crate::wire::write_default(map, #key, &self.#name)?;)
            }
            Shape::Plain | Shape::Option(_) => quote!(map.serialize_entry(#key, &self.#name)?;),
        };
        quote!(#cfg { #write })
    }
}

fn inherent(name: &Ident, fields: &[Field]) -> TokenStream {
    let required: Vec<&Field> = fields.iter().filter(|field| field.is_required()).collect();
    let parameters = required.iter().map(|field| {
        let (name, ty) = (&field.name, parameter(&field.ty));
        quote!(#name: #ty)
    });
    let values = fields.iter().map(|field| {
        let (name, cfg) = (&field.name, field.options.cfg());
        if !field.is_required() {
            quote!(#cfg #name: ::std::default::Default::default())
        } else if is_primitive(&field.ty) {
            quote!(#name)
        } else {
            quote!(#name: #name.into())
        }
    });
    let setters = fields.iter().filter(|field| !field.is_required()).map(setter);
    let doc = format!("Creates `{name}` from its required fields.");
    quote! {
        impl #name {
            #[doc = #doc]
            #[must_use]
            pub fn new(#(#parameters),*) -> Self {
                Self { #(#values),* }
            }
            #(#setters)*
        }
    }
}

fn setter(field: &Field) -> TokenStream {
    let Field { name, key, ty, shape, options, .. } = field;
    let cfg = options.cfg();
    // Otherwise the key would be written twice.
    let replace = options.keep_invalid.then(|| quote!(self.extra.remove(#key);));
    let inner = match shape {
        Shape::Plain => ty,
        Shape::Option(inner) | Shape::Patch(inner) => inner,
    };
    let parameter = parameter(inner);
    let into = if is_primitive(inner) { quote!(#name) } else { quote!(#name.into()) };
    let value = match shape {
        Shape::Plain => into,
        Shape::Option(_) => quote!(::std::option::Option::Some(#into)),
        Shape::Patch(_) => quote!(crate::Patch::Set(#into)),
    };
    let doc = format!("Sets `{name}`.");
    let clear = matches!(shape, Shape::Patch(_)).then(|| {
        let doc = format!("Sends `null` for `{name}`, so that the receiver removes its value.");
        let clear = format_ident!("clear_{name}");
        quote! {
            #cfg
            #[doc = #doc]
            #[must_use]
            pub fn #clear(mut self) -> Self {
                self.#name = crate::Patch::Clear;
                self
            }
        }
    });
    quote! {
        #cfg
        #[doc = #doc]
        #[must_use]
        pub fn #name(mut self, #name: #parameter) -> Self {
            #replace
            self.#name = #value;
            self
        }
        #clear
    }
}

fn read(name: &Ident, fields: &[Field], strict: bool) -> TokenStream {
    let slots =
        fields.iter().filter(|field| !field.options.local).map(|Field { name, ty, options, .. }| {
            let cfg = options.cfg();
            let slot = if options.flatten { quote!(crate::wire::Entries) } else { quote!(#ty) };
            quote!(#cfg #name: ::std::option::Option<#slot>)
        });
    let extra = fields.iter().find(|field| field.options.flatten).map(|field| &field.name);
    let is_read = |field: &&Field| !field.options.flatten && !field.options.local;
    let arms = fields.iter().filter(is_read).map(|field| {
        let Field { name, key, ty, options, .. } = field;
        let (cfg, aliases, value) = (options.cfg(), &options.aliases, field.read());
        // ACP lets the last one count, as most parsers do.
        let first = strict.then(|| quote!(crate::wire::first(&slots.#name, #key)?;));
        if let Some(extra) = extra.filter(|_| options.keep_invalid) {
            return quote!(#cfg #key #(| #aliases)* => {
                #first
                let raw = map.next_value::<::std::boxed::Box<::serde_json::value::RawValue>>()?;
                let read = |map: &mut crate::wire::One<'_>| -> ::serde_json::Result<#ty> {
                    use ::serde::de::MapAccess as _;
                    let value = #value;
                    ::std::result::Result::Ok(value)
                };
                let value = read(&mut crate::wire::One(&raw)).unwrap_or_else(|_| {
                    slots.#extra.get_or_insert_default().push((key.into(), raw.clone()));
                    ::std::default::Default::default()
                });
                slots.#name = ::std::option::Option::Some(value)
            });
        }
        quote!(#cfg #key #(| #aliases)* => { #first slots.#name = ::std::option::Option::Some(#value) })
    });
    let rest = match extra {
        Some(extra) => quote! {
            slots.#extra.get_or_insert_default().push((key.into(), map.next_value()?))
        },
        None => quote!(return ::std::result::Result::Ok(false)),
    };
    let values = fields.iter().map(|field| {
        let Field { name, key, options, .. } = field;
        let cfg = options.cfg();
        let value = if options.local {
            quote!(::std::default::Default::default())
        } else if options.flatten && options.lenient {
            quote!(crate::wire::unflatten::<_, E>(slots.#name.unwrap_or_default()).unwrap_or_default())
        } else if options.flatten {
            quote!(crate::wire::unflatten(slots.#name.unwrap_or_default())?)
        } else if field.is_required() {
            quote!(crate::wire::required(slots.#name, #key)?)
        } else {
            quote!(slots.#name.unwrap_or_default())
        };
        quote!(#cfg #name: #value)
    });
    quote! {
        const _: () = {
            #[derive(Default)]
            pub(crate) struct Slots { #(#slots,)* }
            impl crate::wire::ReadFields for #name {
                type Slots = Slots;
                fn read<'de, A: ::serde::de::MapAccess<'de>>(
                    slots: &mut Self::Slots,
                    key: &str,
                    map: &mut A,
                ) -> ::std::result::Result<bool, A::Error> {
                    match key {
                        #(#arms)*
                        _ => #rest,
                    }
                    ::std::result::Result::Ok(true)
                }
                fn finish<E: ::serde::de::Error>(slots: Self::Slots) -> ::std::result::Result<Self, E> {
                    ::std::result::Result::Ok(Self { #(#values),* })
                }
            }
        };
        impl<'de> ::serde::Deserialize<'de> for #name {
            fn deserialize<D: ::serde::Deserializer<'de>>(d: D) -> ::std::result::Result<Self, D::Error> {
                crate::wire::read_struct(d)
            }
        }
        impl crate::wire::Lenient for #name {}
    }
}

fn write(name: &Ident, fields: &[Field]) -> TokenStream {
    let statements =
        fields.iter().filter(|field| !field.options.local).map(|field| match field.options.flatten {
            true => write_extra(field, fields),
            false => field.write(),
        });
    quote! {
        impl crate::wire::WriteFields for #name {
            fn write<M: ::serde::ser::SerializeMap>(&self, map: &mut M) -> ::std::result::Result<(), M::Error> {
                #(#statements)*
                ::std::result::Result::Ok(())
            }
        }
        impl ::serde::Serialize for #name {
            fn serialize<S: ::serde::Serializer>(&self, s: S) -> ::std::result::Result<S::Ok, S::Error> {
                crate::wire::write_object(self, s)
            }
        }
    }
}

/// Returns the statement that writes the unknown fields. An invalid value that was kept there is left out if its field has a
/// value now. Otherwise the key would be written twice.
fn write_extra(extra: &Field, fields: &[Field]) -> TokenStream {
    let name = &extra.name;
    let kept: Vec<&Field> = fields.iter().filter(|field| field.options.keep_invalid).collect();
    if kept.is_empty() {
        return quote!(crate::wire::WriteFields::write(&self.#name, map)?;);
    }
    let arms = kept.iter().map(|field| {
        let (key, is_set) = (&field.key, field.is_set());
        quote!(#key => #is_set,)
    });
    quote!(self.#name.write_unless(map, |key| match key { #(#arms)* _ => false })?;)
}

fn schema(name: &Ident, options: &TypeOptions, attributes: &[Attribute], fields: &[Field]) -> TokenStream {
    let doc = doc_text(attributes);
    let calls = fields.iter().filter(|field| !field.options.local).map(|field| {
        let Field { key, doc, ty, shape, options, .. } = field;
        if options.flatten {
            return quote!(let object = object.flatten::<#ty>(generator););
        }
        let (skip, null) = (options.skip_invalid, options.null_default);
        let lenient = options.lenient || skip;
        let skip = skip || options.skip_items;
        let required = matches!(shape, Shape::Plain) && (!options.default || (options.always && null));
        let inner = match shape {
            Shape::Plain => ty,
            Shape::Option(inner) | Shape::Patch(inner) => inner,
        };
        let nullable = !matches!(shape, Shape::Plain);
        let default = if options.default && !required && !null {
            quote!(::std::option::Option::Some(
                ::serde_json::json!(<#ty as ::std::default::Default>::default())
            ))
        } else {
            quote!(::std::option::Option::None)
        };
        let (cfg, is_exported) = (options.cfg(), options.is_exported());
        quote! {
            #cfg
            let object = if #is_exported {
                object.field::<#inner>(generator, crate::export::Field {
                    key: #key, doc: #doc, required: #required, nullable: #nullable, lenient: #lenient,
                    skip_invalid: #skip, null_default: #null, default: #default,
                })
            } else {
                object
            };
        }
    });
    let body = quote! {{
        let object = crate::export::Object::new(#doc);
        #(#calls)*
        object.finish()
    }};
    json_schema(name, options, &body)
}

/// Returns the type of a parameter for `ty`: `impl Into`, except for types with numeric literals.
fn parameter(ty: &Type) -> TokenStream {
    if is_primitive(ty) { quote!(#ty) } else { quote!(impl ::std::convert::Into<#ty>) }
}

fn is_primitive(ty: &Type) -> bool {
    matches!(ty, Type::Path(path) if path.path.get_ident().is_some_and(|ident| {
        ["bool", "u16", "u32", "u64", "i64", "f64"].iter().any(|primitive| ident == primitive)
    }))
}

fn shape_of(ty: &Type) -> Shape {
    if let Type::Path(path) = ty
        && let Some(last) = path.path.segments.last()
        && let syn::PathArguments::AngleBracketed(arguments) = &last.arguments
        && let Some(syn::GenericArgument::Type(inner)) = arguments.args.first()
    {
        if last.ident == "Option" {
            return Shape::Option(Box::new(inner.clone()));
        }
        if last.ident == "Patch" {
            return Shape::Patch(Box::new(inner.clone()));
        }
    }
    Shape::Plain
}
