#![doc = include_str!("../README.md")]

mod enums;
mod options;
mod structs;

use proc_macro::TokenStream;
use syn::{Item, parse_macro_input};

/// Turns a type into a wire type. Works only inside duologue-schema, whose private items it uses.
///
/// On a **struct**: keys are the camelCase of the field names. `Option` and `Patch` fields are optional
/// and not written when absent. A field `meta` for `_meta` is added.
///
/// | type option | meaning |
/// | --- | --- |
/// | `no_meta` | adds no field `meta` |
/// | `snake` | for messages outside ACP: keys are the field names, a field `extra` keeps unknown keys instead of `meta`, `null` reads as the default, and a repeated known key is an error |
/// | `definition = ".."` | the name of the definition in the JSON Schema; also for enums |
///
/// | field option | meaning |
/// | --- | --- |
/// | `rename = ".."`, `alias = ".."` | another key, a further key to read |
/// | `default` | optional; an absent field reads as its `Default` |
/// | `always` | written even if it is the default; an absent option is written as `null` |
/// | `lenient` | an invalid value reads as absent, or as the `Default` of a required field |
/// | `skip_invalid` | as `lenient`, and invalid items of a list are skipped |
/// | `skip_items` | invalid items of a list are skipped, and another value than a list is an error |
/// | `keep_invalid` | an invalid value reads as the default, and is kept in `extra` |
/// | `null_default` | `null` reads as the default |
/// | `integer` | accepts every spelling of an integer, such as `1.0`, and names the key in errors |
/// | `flatten` | the fields of the value are fields of the struct |
/// | `local` | not on the wire: reads as its `Default` |
///
/// On an **enum of names**: a string. An unknown name is kept in the variant `Unknown`.
///
/// On an **enum with `tag = ".."`**: an object whose key of that name selects the variant. An object
/// with an unknown tag is kept in the variant `Unknown`. The variant options are `rename = ".."`,
/// `alias = ".."`, `untagged`, for objects without the tag, `never_read`: the tag reads as another variant,
/// and `unexported`: the schema does not have the variant.
///
/// A field or a variant may have `#[cfg(feature = "..")]`, or `all` of several features. The exported schema has it if it
/// exports those features.
///
/// The option `open` of an enum lets the schema accept unknown names or tags, because the protocol
/// allows them. Decoding always accepts them.
#[proc_macro_attribute]
pub fn wire(options: TokenStream, item: TokenStream) -> TokenStream {
    let mut type_options = options::TypeOptions::default();
    let parser = syn::meta::parser(|meta| type_options.read(&meta));
    parse_macro_input!(options with parser);
    let expanded = match parse_macro_input!(item as Item) {
        Item::Struct(item) => structs::expand(item, &type_options),
        Item::Enum(item) => match &type_options.tag {
            Some(tag) => enums::expand_tagged(item, tag, &type_options),
            None => enums::expand_names(item, &type_options),
        },
        other => Err(syn::Error::new_spanned(other, "`#[wire]` applies only to a struct or an enum")),
    };
    expanded.unwrap_or_else(|error| error.to_compile_error()).into()
}
