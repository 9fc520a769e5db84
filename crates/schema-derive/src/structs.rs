//! Expands `#[wire]` on a struct.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Attribute, Fields, Ident, Index, ItemStruct, Result, Type, parse_quote};

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
    /// The index of the group of slots, and the index in the group.
    slot: [Index; 2],
}

/// The length of the longest tuple that implements `Default`.
const GROUP: usize = 12;

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
    for (index, field) in named.named.iter_mut().enumerate() {
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
        let slot = [index / GROUP, index % GROUP].map(Index::from);
        fields.push(Field { name, key, doc, ty: field.ty.clone(), shape, options, slot });
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
        matches!(self.shape, Shape::Plain) && !self.options.default
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

    /// Returns the statement that writes the value to `map`.
    fn write(&self) -> TokenStream {
        let (name, key) = (&self.name, &self.key);
        if self.options.flatten {
            return quote!(crate::wire::WriteFields::write(&self.#name, map)?;);
        }
        match self.shape {
            Shape::Patch(_) => quote!(crate::wire::write_patch(map, #key, &self.#name)?;),
            Shape::Option(_) if !self.options.always => {
                quote!(crate::wire::write_option(map, #key, &self.#name)?;)
            }
            Shape::Plain if self.options.default && !self.options.always => {
                quote!(crate::wire::write_default(map, #key, &self.#name)?;)
            }
            Shape::Plain | Shape::Option(_) => quote!(map.serialize_entry(#key, &self.#name)?;),
        }
    }
}

fn inherent(name: &Ident, fields: &[Field]) -> TokenStream {
    let required: Vec<&Field> = fields.iter().filter(|field| field.is_required()).collect();
    let parameters = required.iter().map(|field| {
        let (name, ty) = (&field.name, parameter(&field.ty));
        quote!(#name: #ty)
    });
    let values = fields.iter().map(|field| {
        let name = &field.name;
        if !field.is_required() {
            quote!(#name: ::std::default::Default::default())
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
    let Field { name, key, ty, shape, .. } = field;
    // Otherwise the key would be written twice.
    let replace = field.options.keep_invalid.then(|| quote!(self.extra.remove(#key);));
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
            #[doc = #doc]
            #[must_use]
            pub fn #clear(mut self) -> Self {
                self.#name = crate::Patch::Clear;
                self
            }
        }
    });
    quote! {
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
    let slots = fields.chunks(GROUP).map(|group| {
        let slots =
            group.iter().map(
                |Field { ty, options, .. }| {
                    if options.flatten { quote!(crate::wire::Entries) } else { quote!(#ty) }
                },
            );
        quote!((#(::std::option::Option<#slots>,)*))
    });
    let extra = fields.iter().find(|field| field.options.flatten).map(|field| &field.slot);
    let arms = fields.iter().filter(|field| !field.options.flatten).map(|field| {
        let Field { key, ty, slot: [group, slot], .. } = field;
        let (aliases, value) = (&field.options.aliases, field.read());
        // ACP lets the last one count, as most parsers do.
        let first = strict.then(|| quote!(crate::wire::first(&slots.#group.#slot, #key)?;));
        if let Some([extra_group, extra]) = extra.filter(|_| field.options.keep_invalid) {
            return quote!(#key #(| #aliases)* => {
                #first
                let raw = map.next_value::<::std::boxed::Box<::serde_json::value::RawValue>>()?;
                let read = |map: &mut crate::wire::One<'_>| -> ::serde_json::Result<#ty> {
                    use ::serde::de::MapAccess as _;
                    let value = #value;
                    ::std::result::Result::Ok(value)
                };
                let value = read(&mut crate::wire::One(&raw)).unwrap_or_else(|_| {
                    slots.#extra_group.#extra.get_or_insert_default().push((key.into(), raw.clone()));
                    ::std::default::Default::default()
                });
                slots.#group.#slot = ::std::option::Option::Some(value)
            });
        }
        quote!(#key #(| #aliases)* => { #first slots.#group.#slot = ::std::option::Option::Some(#value) })
    });
    let rest = match fields.iter().find(|field| field.options.flatten) {
        Some(Field { slot: [group, slot], .. }) => quote! {
            slots.#group.#slot.get_or_insert_default().push((key.into(), map.next_value()?))
        },
        None => quote!(return ::std::result::Result::Ok(false)),
    };
    let values = fields.iter().map(|field| {
        let Field { name, key, slot: [group, slot], .. } = field;
        if field.options.flatten {
            quote!(#name: crate::wire::unflatten(slots.#group.#slot.unwrap_or_default())?)
        } else if field.is_required() {
            quote!(#name: crate::wire::required(slots.#group.#slot, #key)?)
        } else {
            quote!(#name: slots.#group.#slot.unwrap_or_default())
        }
    });
    quote! {
        impl crate::wire::ReadFields for #name {
            type Slots = (#(#slots,)*);
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
        impl<'de> ::serde::Deserialize<'de> for #name {
            fn deserialize<D: ::serde::Deserializer<'de>>(d: D) -> ::std::result::Result<Self, D::Error> {
                crate::wire::read_struct(d)
            }
        }
        impl crate::wire::Lenient for #name {}
    }
}

fn write(name: &Ident, fields: &[Field]) -> TokenStream {
    let statements = fields.iter().map(Field::write);
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

fn schema(name: &Ident, options: &TypeOptions, attributes: &[Attribute], fields: &[Field]) -> TokenStream {
    let doc = doc_text(attributes);
    let calls = fields.iter().map(|field| {
        let Field { key, doc, ty, shape, options, .. } = field;
        if options.flatten {
            return quote!(.flatten::<#ty>(generator));
        }
        let (skip, null) = (options.skip_invalid, options.null_default);
        let lenient = options.lenient || skip;
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
        quote! {
            .field::<#inner>(generator, crate::export::Field {
                key: #key, doc: #doc, required: #required, nullable: #nullable, lenient: #lenient,
                skip_invalid: #skip, null_default: #null, default: #default,
            })
        }
    });
    json_schema(name, options, &quote!(crate::export::Object::new(#doc) #(#calls)* .finish()))
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
