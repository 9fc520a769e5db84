//! A JSON serializer with the same output as `serde_json`, but faster for strings.
//!
//! `serde_json` examines each byte of a string on its own. Messages, files and images consist mostly of strings, so this
//! serializer examines many bytes at once. Numbers and rare types are passed to `serde_json`.

use std::fmt::Display;

use serde::ser::{
    Error as _, Impossible, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant,
    SerializeTuple, SerializeTupleStruct, SerializeTupleVariant, Serializer,
};
use serde_json::{Error, Result};

/// Appends `value`.
pub(crate) fn write<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) -> Result<()> {
    value.serialize(Writer { out })
}

/// Appends a string with its quotes.
fn text(out: &mut Vec<u8>, text: &str) {
    let bytes = text.as_bytes();
    out.reserve(bytes.len() + 2);
    out.push(b'"');
    if is_plain(bytes) {
        out.extend_from_slice(bytes);
    } else {
        escaped(out, bytes);
    }
    out.push(b'"');
}

/// The number of bytes of a long string that are examined together.
const STRIDE: usize = 32;

/// Returns true if no byte has to be escaped.
fn is_plain(bytes: &[u8]) -> bool {
    // The last bytes are examined together too, even if some were examined before.
    if let Some(last) = bytes.last_chunk() {
        bytes.as_chunks().0.iter().all(has_none) && has_none(last)
    } else if let Some(last) = bytes.last_chunk() {
        bytes.as_chunks().0.iter().all(has_none_of_eight) && has_none_of_eight(last)
    } else {
        !bytes.iter().any(|byte| must_be_escaped(*byte))
    }
}

/// Returns true if no byte has to be escaped. There is no branch per byte, so that the compiler can vectorize it.
fn has_none(bytes: &[u8; STRIDE]) -> bool {
    !bytes.iter().fold(false, |any, byte| any | must_be_escaped(*byte))
}

/// [`has_none`] for eight bytes in one word. The highest bit of a byte becomes 1 if the byte is less than the subtrahend.
fn has_none_of_eight(bytes: &[u8; 8]) -> bool {
    const EACH: u64 = u64::MAX / 0xff;
    let word = u64::from_ne_bytes(*bytes);
    let less = |word: u64, than: u64| word.wrapping_sub(than * EACH) & !word;
    let is = |byte: u8| less(word ^ (u64::from(byte) * EACH), 1);
    (less(word, 0x20) | is(b'"') | is(b'\\')) & (0x80 * EACH) == 0
}

const fn must_be_escaped(byte: u8) -> bool {
    (byte < 0x20) | (byte == b'"') | (byte == b'\\')
}

/// Appends a string in which some bytes have to be escaped.
fn escaped(out: &mut Vec<u8>, bytes: &[u8]) {
    // The bytes before this index are written.
    let mut written = 0;
    let mut write_stride = |from: usize, stride: &[u8]| {
        for (at, byte) in stride.iter().enumerate().filter(|(_, byte)| must_be_escaped(**byte)) {
            out.extend_from_slice(&bytes[written..from + at]);
            escape(out, *byte);
            written = from + at + 1;
        }
    };
    let (strides, last) = bytes.as_chunks::<STRIDE>();
    for (nth, stride) in strides.iter().enumerate().filter(|(_, stride)| !has_none(stride)) {
        write_stride(nth * STRIDE, stride);
    }
    write_stride(bytes.len() - last.len(), last);
    out.extend_from_slice(&bytes[written..]);
}

fn escape(out: &mut Vec<u8>, byte: u8) {
    let short = match byte {
        b'"' | b'\\' => byte,
        b'\n' => b'n',
        b'\r' => b'r',
        b'\t' => b't',
        0x08 => b'b',
        0x0c => b'f',
        _ => {
            let digit = |nibble: u8| b"0123456789abcdef"[usize::from(nibble)];
            out.extend_from_slice(&[b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte & 0xf)]);
            return;
        }
    };
    out.extend_from_slice(&[b'\\', short]);
}

/// The serializer of one value.
struct Writer<'a> {
    out: &'a mut Vec<u8>,
}

/// The members of an array or an object.
struct Members<'a> {
    out: &'a mut Vec<u8>,
    /// The closing brackets.
    end: &'static [u8],
    first: bool,
}

/// The prefix of the struct names with which `serde_json` marks values that it writes verbatim, such as raw values.
const OWN: &str = "$serde_json::";

/// The serializer of a struct: of its members, or of a marked value that `serde_json` writes verbatim.
enum Fields<'a> {
    Object(Members<'a>),
    Verbatim(&'a mut Vec<u8>, &'static str),
}

/// A marked struct with its only field.
struct Verbatim<'a, T: ?Sized> {
    name: &'static str,
    key: &'static str,
    value: &'a T,
}

impl<T: Serialize + ?Sized> Serialize for Verbatim<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct(self.name, 1)?;
        fields.serialize_field(self.key, self.value)?;
        fields.end()
    }
}

impl<'a> Writer<'a> {
    fn rest<T: Serialize + ?Sized>(self, value: &T) -> Result<()> {
        serde_json::to_writer(self.out, value)
    }

    fn array(self) -> Members<'a> {
        self.members(b'[', b"]")
    }

    fn object(self) -> Members<'a> {
        self.members(b'{', b"}")
    }

    /// Begins the one member of an object.
    fn variant(self, variant: &str) -> Self {
        self.out.push(b'{');
        text(self.out, variant);
        self.out.push(b':');
        self
    }

    fn members(self, open: u8, end: &'static [u8]) -> Members<'a> {
        self.out.push(open);
        Members { out: self.out, end, first: true }
    }
}

impl Members<'_> {
    fn comma(&mut self) {
        if !std::mem::take(&mut self.first) {
            self.out.push(b',');
        }
    }

    fn item<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        self.comma();
        write(self.out, value)
    }

    fn field<T: Serialize + ?Sized>(&mut self, key: &str, value: &T) -> Result<()> {
        self.comma();
        text(self.out, key);
        self.out.push(b':');
        write(self.out, value)
    }

    fn close(self) -> Result<()> {
        self.out.extend_from_slice(self.end);
        Ok(())
    }
}

/// Implements the methods that pass the value to `serde_json`.
macro_rules! rest {
    ($($method:ident: $type:ty),*) => {
        $(fn $method(self, value: $type) -> Result<()> {
            self.rest(&value)
        })*
    };
}

impl<'a> Serializer for Writer<'a> {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = Members<'a>;
    type SerializeTuple = Members<'a>;
    type SerializeTupleStruct = Members<'a>;
    type SerializeTupleVariant = Members<'a>;
    type SerializeMap = Members<'a>;
    type SerializeStruct = Fields<'a>;
    type SerializeStructVariant = Members<'a>;

    rest! {
        serialize_bool: bool, serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_i128: i128, serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64,
        serialize_u128: u128, serialize_f32: f32, serialize_f64: f64, serialize_char: char, serialize_bytes: &[u8]
    }

    fn serialize_str(self, value: &str) -> Result<()> {
        text(self.out, value);
        Ok(())
    }

    fn collect_str<T: Display + ?Sized>(self, value: &T) -> Result<()> {
        serde_json::Serializer::new(self.out).collect_str(value)
    }

    fn serialize_none(self) -> Result<()> {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<()> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<()> {
        self.out.extend_from_slice(b"null");
        Ok(())
    }

    fn serialize_unit_struct(self, _name: &'static str) -> Result<()> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _name: &'static str, _index: u32, variant: &'static str) -> Result<()> {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _name: &'static str, value: &T) -> Result<()> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<()> {
        let Writer { out } = self.variant(variant);
        write(out, value)?;
        out.push(b'}');
        Ok(())
    }

    fn serialize_seq(self, _length: Option<usize>) -> Result<Members<'a>> {
        Ok(self.array())
    }

    fn serialize_tuple(self, _length: usize) -> Result<Members<'a>> {
        Ok(self.array())
    }

    fn serialize_tuple_struct(self, _name: &'static str, _length: usize) -> Result<Members<'a>> {
        Ok(self.array())
    }

    fn serialize_tuple_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        _length: usize,
    ) -> Result<Members<'a>> {
        Ok(self.variant(variant).members(b'[', b"]}"))
    }

    fn serialize_map(self, _length: Option<usize>) -> Result<Members<'a>> {
        Ok(self.object())
    }

    fn serialize_struct(self, name: &'static str, _length: usize) -> Result<Fields<'a>> {
        Ok(match name.starts_with(OWN) {
            true => Fields::Verbatim(self.out, name),
            false => Fields::Object(self.object()),
        })
    }

    fn serialize_struct_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        _length: usize,
    ) -> Result<Members<'a>> {
        Ok(self.variant(variant).members(b'{', b"}}"))
    }
}

impl SerializeStruct for Fields<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<()> {
        match self {
            Fields::Object(members) => members.field(key, value),
            Fields::Verbatim(out, name) => serde_json::to_writer(&mut **out, &Verbatim { name, key, value }),
        }
    }

    fn end(self) -> Result<()> {
        match self {
            Fields::Object(members) => members.close(),
            Fields::Verbatim(..) => Ok(()),
        }
    }
}

impl SerializeMap for Members<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<()> {
        self.comma();
        if key.serialize(Name { out: self.out }).is_err() {
            name(self.out, key)?;
        }
        self.out.push(b':');
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        write(self.out, value)
    }

    fn end(self) -> Result<()> {
        self.close()
    }
}

/// The serializer of a member name. It rejects values that are not strings, without writing anything.
struct Name<'a> {
    out: &'a mut Vec<u8>,
}

/// Appends a name that is not a string. `serde_json` decides which values can be names, so it writes an object with this
/// name and the name is copied from it.
fn name<T: Serialize + ?Sized>(out: &mut Vec<u8>, key: &T) -> Result<()> {
    struct One<'a, T: ?Sized>(&'a T);
    impl<T: Serialize + ?Sized> Serialize for One<'_, T> {
        fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
            serializer.collect_map([(self.0, ())])
        }
    }
    let object = serde_json::to_string(&One(key))?;
    let name = object.strip_prefix('{').and_then(|rest| rest.strip_suffix(":null}"));
    out.extend_from_slice(name.ok_or_else(no_text)?.as_bytes());
    Ok(())
}

fn no_text() -> Error {
    Error::custom("the name is not a string")
}

macro_rules! refuses {
    ($($method:ident($($type:ty),*) $result:ty),* $(,)?) => {
        $(fn $method(self, $(_: $type),*) -> Result<$result> {
            Err(no_text())
        })*
    };
}

impl Serializer for Name<'_> {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = Impossible<(), Error>;
    type SerializeTuple = Impossible<(), Error>;
    type SerializeTupleStruct = Impossible<(), Error>;
    type SerializeTupleVariant = Impossible<(), Error>;
    type SerializeMap = Impossible<(), Error>;
    type SerializeStruct = Impossible<(), Error>;
    type SerializeStructVariant = Impossible<(), Error>;

    fn serialize_str(self, value: &str) -> Result<()> {
        text(self.out, value);
        Ok(())
    }

    fn serialize_unit_variant(self, _name: &'static str, _index: u32, variant: &'static str) -> Result<()> {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _name: &'static str, value: &T) -> Result<()> {
        value.serialize(self)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, _value: &T) -> Result<()> {
        Err(no_text())
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        _index: u32,
        _variant: &'static str,
        _value: &T,
    ) -> Result<()> {
        Err(no_text())
    }

    refuses! {
        serialize_bool(bool) (), serialize_i8(i8) (), serialize_i16(i16) (), serialize_i32(i32) (),
        serialize_i64(i64) (), serialize_i128(i128) (), serialize_u8(u8) (), serialize_u16(u16) (),
        serialize_u32(u32) (), serialize_u64(u64) (), serialize_u128(u128) (), serialize_f32(f32) (),
        serialize_f64(f64) (), serialize_char(char) (), serialize_bytes(&[u8]) (), serialize_none() (),
        serialize_unit() (), serialize_unit_struct(&'static str) (),
        serialize_seq(Option<usize>) Self::SerializeSeq,
        serialize_tuple(usize) Self::SerializeTuple,
        serialize_tuple_struct(&'static str, usize) Self::SerializeTupleStruct,
        serialize_tuple_variant(&'static str, u32, &'static str, usize) Self::SerializeTupleVariant,
        serialize_map(Option<usize>) Self::SerializeMap,
        serialize_struct(&'static str, usize) Self::SerializeStruct,
        serialize_struct_variant(&'static str, u32, &'static str, usize) Self::SerializeStructVariant,
    }
}

/// Implements the four kinds of arrays, which differ only in their names.
macro_rules! array {
    ($($kind:ident $method:ident),*) => {
        $(impl $kind for Members<'_> {
            type Ok = ();
            type Error = Error;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
                self.item(value)
            }

            fn end(self) -> Result<()> {
                self.close()
            }
        })*
    };
}

array! {
    SerializeSeq serialize_element, SerializeTuple serialize_element, SerializeTupleStruct serialize_field,
    SerializeTupleVariant serialize_field
}

impl SerializeStructVariant for Members<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<()> {
        self.field(key, value)
    }

    fn end(self) -> Result<()> {
        self.close()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde::Serialize;
    use serde_json::value::RawValue;
    use serde_json::{Value, json};

    fn ours<T: Serialize + ?Sized>(value: &T) -> serde_json::Result<String> {
        let mut out = b"before".to_vec();
        super::write(&mut out, value)?;
        Ok(String::from_utf8(out.split_off("before".len())).unwrap())
    }

    #[track_caller]
    fn same<T: Serialize + ?Sized>(value: &T) {
        assert_eq!(ours(value).unwrap(), serde_json::to_string(value).unwrap());
    }

    #[derive(Serialize)]
    struct Unit;
    #[derive(Serialize)]
    struct Newtype(&'static str);
    #[derive(Serialize)]
    struct Pair(u8, Option<f64>);
    #[derive(Serialize)]
    struct Nothing {}
    #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
    enum Kind {
        Unit,
        Newtype(i32),
        Pair(bool, char),
        Fields { a: u128, b: Vec<u8> },
    }
    #[derive(Serialize)]
    struct All {
        unit: (),
        unit_struct: Unit,
        newtype: Newtype,
        pair: Pair,
        nothing: Nothing,
        kinds: Vec<Kind>,
        floats: [f64; 4],
        by_number: BTreeMap<i64, &'static str>,
        by_truth: BTreeMap<bool, ()>,
        by_kind: BTreeMap<Kind, ()>,
        by_letter: BTreeMap<char, ()>,
        raw: Box<RawValue>,
        #[serde(rename = "\"strange\"")]
        strange: Option<()>,
        #[serde(flatten)]
        rest: Value,
        address: std::net::IpAddr,
    }

    #[test]
    fn every_type_is_written_as_by_serde_json() {
        same(&All {
            unit: (),
            unit_struct: Unit,
            newtype: Newtype("\u{1f600}"),
            pair: Pair(255, None),
            nothing: Nothing {},
            kinds: vec![
                Kind::Unit,
                Kind::Newtype(-7),
                Kind::Pair(true, '"'),
                Kind::Fields { a: u128::MAX, b: vec![1] },
            ],
            floats: [0.1, -0.0, f64::NAN, 1e300],
            by_number: [(-1, "a"), (12, "b")].into(),
            by_truth: [(true, ()), (false, ())].into(),
            by_kind: [(Kind::Unit, ())].into(),
            by_letter: [('\n', ())].into(),
            raw: RawValue::from_string("{ \"a\": [1.50, \"\\u0041\"] }".into()).unwrap(),
            strange: None,
            rest: json!({ "more": { "deep": [[], {}, null] } }),
            address: [127, 0, 0, 1].into(),
        });
    }

    #[derive(Serialize)]
    #[serde(rename = "$ref")]
    struct Marked {
        a: u8,
        #[serde(skip_serializing_if = "Option::is_none")]
        b: Option<u8>,
    }
    #[derive(Serialize)]
    #[serde(rename = "$none")]
    struct Unmarked {}

    #[test]
    fn a_struct_name_with_a_dollar_sign_is_not_special() {
        same(&(Marked { a: 1, b: Some(2) }, Marked { a: 1, b: None }, [Unmarked {}, Unmarked {}]));
    }

    /// An object with one member. It is serialized by hand, because not every key type is ordered.
    struct One<T>(T);
    impl<T: Serialize> Serialize for One<T> {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_map([(&self.0, "value")])
        }
    }

    #[test]
    fn names_are_accepted_and_rejected_as_by_serde_json() {
        fn check<T: Serialize>(key: T) {
            let key = One(key);
            let ours = ours(&key).map_err(|error| error.to_string());
            assert_eq!(ours, serde_json::to_string(&key).map_err(|error| error.to_string()));
        }
        check("text");
        check('"');
        check((1u128 << 100, 1));
        check(1u128 << 100);
        check(i64::MIN);
        check(-0.0);
        check(1e300);
        check(f64::NAN);
        check(true);
        check(Some("some"));
        check(None::<&str>);
        check(());
        check(Unit);
        check(Newtype("text"));
        check(vec![1]);
        check(Kind::Unit);
        check(Kind::Newtype(1));
        check(Kind::Fields { a: 1, b: vec![] });
        check(Nothing {});
        check(json!("text"));
        check(json!(5));
        check(RawValue::from_string("\"text\"".into()).unwrap());
        check(RawValue::from_string("12".into()).unwrap());
        check(serde_json::Number::from(5));
    }

    #[test]
    fn every_character_is_written_as_by_serde_json_at_every_position() {
        for character in (0..=0x2ff).filter_map(char::from_u32) {
            for before in 0..70 {
                let text = "x".repeat(before) + &character.to_string();
                same(&text);
                same(&(text + "tail"));
            }
        }
    }

    proptest! {
        #[test]
        fn any_string_is_written_as_by_serde_json(text in "(?s).{0,200}", escapes in "[\"\\\\\n\ta-f]{0,100}") {
            same(&[text.as_str(), escapes.as_str()]);
        }
    }
}
