//! Expands `#[wire]` on an enum.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{Fields, GenericArgument, Ident, ItemEnum, PathArguments, Result, Type, Variant, parse_quote};

use crate::options::{MemberOptions, TypeOptions, doc_text, json_schema, snake_case};

/// Expands an enum of names: a string on the wire.
pub(crate) fn expand_names(mut item: ItemEnum, type_options: &TypeOptions) -> Result<TokenStream> {
    let open = type_options.open;
    let mut arms = Vec::new();
    for variant in &mut item.variants {
        let options = MemberOptions::take(&mut variant.attrs)?;
        let wire = options.rename.clone().unwrap_or_else(|| snake_case(&variant.ident.to_string()));
        arms.push(Arm {
            ident: variant.ident.clone(),
            wire,
            doc: doc_text(&variant.attrs),
            payload: None,
            options,
        });
    }
    let idents: Vec<_> = arms.iter().map(|arm| &arm.ident).collect();
    let wires: Vec<_> = arms.iter().map(|arm| &arm.wire).collect();
    let cfgs: Vec<_> = arms.iter().map(|arm| arm.options.cfg()).collect();
    let names = arms.iter().map(|Arm { wire, doc, options, .. }| {
        let (cfg, is_exported) = (options.cfg(), options.is_exported());
        quote!(#cfg if #is_exported { names.push((#wire, #doc)); })
    });
    let doc = doc_text(&item.attrs);
    item.variants.push(parse_quote! {
        /// An unknown name. It is written back unchanged.
        Unknown(::std::sync::Arc<str>)
    });
    let name = &item.ident;
    let schema = json_schema(
        name,
        type_options,
        &quote! {{
            let mut names = ::std::vec::Vec::new();
            #(#names)*
            crate::export::names(#doc, #open, &names)
        }},
    );
    Ok(quote! {
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        #item
        impl #name {
            /// Returns the name on the wire.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    #(#cfgs Self::#idents => #wires,)*
                    Self::Unknown(name) => name,
                }
            }
        }
        impl ::std::convert::From<&str> for #name {
            fn from(name: &str) -> Self {
                match name {
                    #(#cfgs #wires => Self::#idents,)*
                    _ => Self::Unknown(name.into()),
                }
            }
        }
        crate::wire::string_type!(#name);
        #schema
    })
}

struct Arm {
    ident: Ident,
    wire: String,
    doc: String,
    payload: Option<Type>,
    options: MemberOptions,
}

/// Expands a tagged union: an object on the wire, whose key `tag` selects the variant.
pub(crate) fn expand_tagged(
    mut item: ItemEnum,
    tag: &str,
    type_options: &TypeOptions,
) -> Result<TokenStream> {
    let open = type_options.open;
    let mut arms = Vec::new();
    for variant in &mut item.variants {
        let options = MemberOptions::take(&mut variant.attrs)?;
        let wire = options.rename.clone().unwrap_or_else(|| snake_case(&variant.ident.to_string()));
        let payload = payload_of(variant)?;
        arms.push(Arm {
            ident: variant.ident.clone(),
            wire,
            doc: doc_text(&variant.attrs),
            payload,
            options,
        });
    }
    let doc = doc_text(&item.attrs);
    item.variants.push(parse_quote! {
        /// An unknown kind. It is written back unchanged.
        Unknown(crate::Unknown)
    });
    let name = &item.ident;
    let read = arms.iter().filter_map(|Arm { ident, wire, payload, options, .. }| {
        let (value, cfg) = (value_of(ident, payload.as_ref()), options.cfg());
        let mut patterns = options.aliases.clone();
        if !options.untagged && !options.never_read {
            patterns.insert(0, wire.clone());
        }
        (!patterns.is_empty()).then(|| quote!(#cfg ::std::option::Option::Some(#(#patterns)|*) => #value,))
    });
    let read_untagged = arms.iter().find(|arm| arm.options.untagged).map(|Arm { ident, payload, .. }| {
        let value = value_of(ident, payload.as_ref());
        quote!(::std::option::Option::None => #value,)
    });
    let write = arms.iter().map(|Arm { ident, wire, payload, options, .. }| {
        let tag = (!options.untagged).then(|| quote!(map.serialize_entry(#tag, #wire)?;));
        let cfg = options.cfg();
        match payload {
            Some(_) => quote!(#cfg Self::#ident(it) => { #tag crate::wire::WriteFields::write(it, map) }),
            None => quote!(#cfg Self::#ident => { #tag ::std::result::Result::Ok(()) }),
        }
    });
    let tags = arms.iter().map(|Arm { ident, wire, payload, options, .. }| {
        let (pattern, cfg) = (payload.as_ref().map(|_| quote!((_))), options.cfg());
        quote!(#cfg Self::#ident #pattern => #wire,)
    });
    let conversions = conversions(name, &arms);
    let is_exported = |arm: &&Arm| !arm.options.never_read && !arm.options.unexported;
    let variants = arms.iter().filter(is_exported).map(|Arm { wire, doc, payload, options, .. }| {
        let payload = payload.as_ref().map(unboxed);
        let schema = match payload {
            Some(payload) => quote!(::std::option::Option::Some(generator.subschema_for::<#payload>())),
            None => quote!(::std::option::Option::None),
        };
        let wire = if options.untagged {
            quote!(::std::option::Option::None)
        } else {
            quote!(::std::option::Option::Some(#wire))
        };
        let (cfg, is_exported) = (options.cfg(), options.is_exported());
        quote!(#cfg if #is_exported { variants.push((#wire, #doc, #schema)); })
    });
    let schema = json_schema(
        name,
        type_options,
        &quote! {{
            let mut variants = ::std::vec::Vec::new();
            #(#variants)*
            crate::export::tagged(#doc, #tag, #open, variants)
        }},
    );
    Ok(quote! {
        #[derive(Clone, Debug, PartialEq)]
        #[non_exhaustive]
        #item
        impl #name {
            /// Returns the tag on the wire.
            #[must_use]
            pub fn tag(&self) -> &str {
                match self {
                    #(#tags)*
                    Self::Unknown(unknown) => unknown.tag(),
                }
            }
        }
        impl crate::wire::Union for #name {
            const TAG: &'static str = #tag;
            fn read<'de, A: ::serde::de::MapAccess<'de>>(
                tag: ::std::option::Option<&str>,
                rest: &mut crate::wire::Rest<'_, A>,
            ) -> ::std::result::Result<::std::option::Option<Self>, A::Error> {
                ::std::result::Result::Ok(::std::option::Option::Some(match tag {
                    #(#read)*
                    #read_untagged
                    _ => return ::std::result::Result::Ok(::std::option::Option::None),
                }))
            }
            fn unknown(unknown: crate::Unknown) -> Self {
                Self::Unknown(unknown)
            }
        }
        impl crate::wire::WriteFields for #name {
            fn write<M: ::serde::ser::SerializeMap>(&self, map: &mut M) -> ::std::result::Result<(), M::Error> {
                match self {
                    #(#write)*
                    Self::Unknown(unknown) => crate::wire::WriteFields::write(unknown, map),
                }
            }
        }
        impl ::serde::Serialize for #name {
            fn serialize<S: ::serde::Serializer>(&self, s: S) -> ::std::result::Result<S::Ok, S::Error> {
                crate::wire::write_object(self, s)
            }
        }
        impl<'de> ::serde::Deserialize<'de> for #name {
            fn deserialize<D: ::serde::Deserializer<'de>>(d: D) -> ::std::result::Result<Self, D::Error> {
                crate::wire::read_union(d)
            }
        }
        impl crate::wire::Lenient for #name {}
        #conversions
        #schema
    })
}

fn value_of(ident: &Ident, payload: Option<&Type>) -> TokenStream {
    match payload {
        Some(_) => quote!(Self::#ident(rest.read()?)),
        None => quote!({ rest.skip()?; Self::#ident }),
    }
}

/// Implements `From` for every payload type that occurs in only one variant that is read.
fn conversions(name: &Ident, arms: &[Arm]) -> TokenStream {
    let arms: Vec<&Arm> = arms.iter().filter(|arm| !arm.options.never_read).collect();
    let payloads: Vec<String> = arms.iter().map(|arm| arm.payload.to_token_stream().to_string()).collect();
    let impls = arms.iter().enumerate().filter_map(|(index, arm)| {
        let payload = arm.payload.as_ref()?;
        let unique = payloads.iter().filter(|other| **other == payloads[index]).count() == 1;
        let (ident, from, cfg) = (&arm.ident, unboxed(payload), arm.options.cfg());
        unique.then(|| {
            quote! {
                #cfg
                impl ::std::convert::From<#from> for #name {
                    fn from(it: #from) -> Self {
                        Self::#ident(it.into())
                    }
                }
            }
        })
    });
    quote!(#(#impls)*)
}

fn payload_of(variant: &Variant) -> Result<Option<Type>> {
    match &variant.fields {
        Fields::Unit => Ok(None),
        Fields::Unnamed(fields) if fields.unnamed.len() == 1 => Ok(Some(fields.unnamed[0].ty.clone())),
        other => Err(syn::Error::new_spanned(
            other,
            "a variant of a `#[wire]` union must contain one wire type or nothing",
        )),
    }
}

/// Returns `T` of `Box<T>`, else the type itself.
fn unboxed(ty: &Type) -> &Type {
    if let Type::Path(path) = ty
        && let Some(last) = path.path.segments.last()
        && last.ident == "Box"
        && let PathArguments::AngleBracketed(arguments) = &last.arguments
        && let Some(GenericArgument::Type(inner)) = arguments.args.first()
    {
        return inner;
    }
    ty
}
