#![doc = include_str!("../README.md")]

mod enums;
mod options;
mod structs;

use proc_macro::TokenStream;
use syn::{Item, parse_macro_input};

/// Makes a wire type. For use inside duologue-schema only: the output names its private items.
///
/// On a **struct**: keys are the camelCase of the field names, `Option` and `Patch` fields are
/// optional and never written when absent, and a `meta` field for `_meta` is added. The type
/// options are `no_meta`, and `snake` for the messages that are not ACP's own: their keys are the field
/// names as they are, a field `extra` keeps the keys they do not know instead of `_meta`, and `null` reads as any
/// default, since many languages write it for what is left out. The field options are `rename = ".."`, `alias = ".."`, `default`
/// (optional, by its `Default`), `always` (written even when it is the default, an absent option as `null`), `lenient` (a bad
/// value reads as absent), `skip_invalid` (so do the bad items of a list), `null_default` (`null`
/// reads as the default) and `flatten`.
///
/// On an **enum of names**: a string that keeps what it does not know in `Unknown`.
///
/// On an **enum with `tag = ".."`**: an object told apart by that key, which keeps what it does not
/// know in `Unknown`. The variant options are `rename = ".."`, `alias = ".."` and `untagged` (what
/// an object without the tag is).
///
/// Every enum takes `open`: the protocol says that there may be more names or tags than it lists,
/// so the schema allows them. (Reading takes unknown ones always.)
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
        other => Err(syn::Error::new_spanned(other, "#[wire] takes a struct or an enum")),
    };
    expanded.unwrap_or_else(|error| error.to_compile_error()).into()
}
