//! The runtime of `#[wire]`: reads objects field by field, unions by their tag, and lenient fields.
//!
//! A derived tagged or flattened type buffers the whole object as a tree, which costs time and loses
//! raw values. Here an object is read key by key into *slots*. Only the keys before the tag of a union
//! are buffered, as raw text.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::path::PathBuf;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::{Json, Patch};

/// The keys and values of an object, in order.
pub(crate) type Entries = Vec<(Box<str>, Box<RawValue>)>;

/// A type read field by field.
pub(crate) trait ReadFields: Sized {
    /// One `Option` per field, `None` until its key is read.
    type Slots: Default;

    /// Reads the value of `key` into its slot. Returns false for an unknown key.
    fn read<'de, A: MapAccess<'de>>(
        slots: &mut Self::Slots,
        key: &str,
        map: &mut A,
    ) -> Result<bool, A::Error>;

    /// Creates the value after the last key.
    fn finish<E: serde::de::Error>(slots: Self::Slots) -> Result<Self, E>;
}

impl<T: ReadFields> ReadFields for Box<T> {
    type Slots = T::Slots;

    fn read<'de, A: MapAccess<'de>>(
        slots: &mut Self::Slots,
        key: &str,
        map: &mut A,
    ) -> Result<bool, A::Error> {
        T::read(slots, key, map)
    }

    fn finish<E: serde::de::Error>(slots: Self::Slots) -> Result<Self, E> {
        T::finish(slots).map(Box::new)
    }
}

/// A type that writes its fields into an object: its own object, or one that contains it flattened.
pub(crate) trait WriteFields {
    fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error>;
}

impl<T: WriteFields> WriteFields for Box<T> {
    fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        T::write(self, map)
    }
}

/// A union of object types. The value of one key selects the type.
pub(crate) trait Union: Sized {
    const TAG: &'static str;

    /// Reads the variant named `tag`. Returns `None` without reading for an unknown tag.
    fn read<'de, A: MapAccess<'de>>(
        tag: Option<&str>,
        rest: &mut Rest<'_, A>,
    ) -> Result<Option<Self>, A::Error>;

    fn unknown(unknown: Unknown) -> Self;
}

/// An object of an unknown kind, for example of a newer protocol.
///
/// It is written back with the same keys and values in the same order.
#[derive(Clone, Debug, PartialEq)]
pub struct Unknown {
    tag: Box<str>,
    json: Json,
}

impl Unknown {
    /// Returns the value of the tag.
    #[must_use]
    pub fn tag(&self) -> &str {
        &self.tag
    }

    /// Returns the whole object including the tag.
    #[must_use]
    pub fn json(&self) -> &Json {
        &self.json
    }

    /// Returns the text of a member.
    pub(crate) fn text(&self, member: &str) -> Option<String> {
        let pairs: Pairs<'_> = serde_json::from_str(self.json.get()).ok()?;
        let (_, value) = pairs.0.iter().rfind(|(key, _)| key == member)?;
        serde_json::from_str(value.get()).ok()
    }

    /// Returns the same object with another key in place of `from`.
    #[cfg(feature = "protocol-v2")]
    pub(crate) fn renamed(&self, from: &str, to: &str) -> Self {
        let pairs: Pairs<'_> = serde_json::from_str(self.json.get()).unwrap_or_default();
        let renamed = |key| if key == from { Cow::Borrowed(to) } else { key };
        let pairs: Vec<_> = pairs.0.into_iter().map(|(key, value)| (renamed(key), value)).collect();
        // Strings and JSON text always form an object, so there is no error to handle.
        let json = object(&pairs).unwrap_or_else(|_| self.json.clone());
        Unknown { tag: self.tag.clone(), json }
    }

    pub(crate) fn new<E: serde::de::Error>(tag: &str, entries: &Entries) -> Result<Self, E> {
        Ok(Unknown { tag: tag.into(), json: object(entries).map_err(E::custom)? })
    }
}

/// Writes `entries` as one JSON object.
pub(crate) fn object<K: Serialize, V: Serialize>(entries: &[(K, V)]) -> serde_json::Result<Json> {
    struct Object<'a, K, V>(&'a [(K, V)]);
    impl<K: Serialize, V: Serialize> Serialize for Object<'_, K, V> {
        fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
            s.collect_map(self.0.iter().map(|(key, value)| (key, value)))
        }
    }
    Json::new(&Object(entries))
}

impl WriteFields for Unknown {
    fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        let pairs: Pairs<'_> = serde_json::from_str(self.json.get()).map_err(serde::ser::Error::custom)?;
        pairs.0.iter().try_for_each(|(key, value)| map.serialize_entry(key, value))
    }
}

/// The members of an object, borrowed from its text.
#[derive(Default)]
pub(crate) struct Pairs<'a>(pub(crate) Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Pairs<'a> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct PairsVisitor;
        impl<'de> Visitor<'de> for PairsVisitor {
            type Value = Pairs<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<'de>, A::Error> {
                let mut pairs = Vec::new();
                while let Some(Text(key)) = map.next_key()? {
                    pairs.push((key, map.next_value()?));
                }
                Ok(Pairs(pairs))
            }
        }
        d.deserialize_map(PairsVisitor)
    }
}

/// A string, borrowed from the input where it has no escapes.
pub(crate) struct Text<'a>(pub(crate) Cow<'a, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
            fn visit_string<E>(self, text: String) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text)))
            }
        }
        d.deserialize_str(TextVisitor)
    }
}

/// Reads a struct. `null` counts as an empty object, because older peers send it as a result.
pub(crate) fn read_struct<'de, D: Deserializer<'de>, T: ReadFields>(d: D) -> Result<T, D::Error> {
    struct StructVisitor<T>(PhantomData<T>);
    impl<'de, T: ReadFields> Visitor<'de> for StructVisitor<T> {
        type Value = T;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }
        fn visit_unit<E: serde::de::Error>(self) -> Result<T, E> {
            T::finish(T::Slots::default())
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
            let mut slots = T::Slots::default();
            read_keys::<A, T>(&mut slots, &mut map, None)?;
            T::finish(slots)
        }
    }
    d.deserialize_any(StructVisitor(PhantomData))
}

/// Reads the remaining keys. The key `tag` was read before and must not repeat.
fn read_keys<'de, A: MapAccess<'de>, T: ReadFields>(
    slots: &mut T::Slots,
    map: &mut A,
    tag: Option<&str>,
) -> Result<(), A::Error> {
    while let Some(Text(key)) = map.next_key()? {
        once(&key, tag)?;
        if !T::read(slots, &key, map)? {
            map.next_value::<IgnoredAny>()?;
        }
    }
    Ok(())
}

/// Rejects a repeated tag.
///
/// For other keys the last value counts, as in most JSON parsers. A second tag would arrive after the
/// variant is chosen, and other parsers would choose another variant.
fn once<E: serde::de::Error>(key: &str, tag: Option<&str>) -> Result<(), E> {
    if Some(key) == tag { Err(E::custom(format_args!("duplicate key `{key}`"))) } else { Ok(()) }
}

/// Reads a union. Buffers only the keys before the tag.
pub(crate) fn read_union<'de, D: Deserializer<'de>, T: Union>(d: D) -> Result<T, D::Error> {
    struct UnionVisitor<T>(PhantomData<T>);
    impl<'de, T: Union> Visitor<'de> for UnionVisitor<T> {
        type Value = T;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
            let mut tag = None;
            let mut before = Entries::new();
            while let Some(Text(key)) = map.next_key()? {
                if key != T::TAG {
                    before.push((key.into(), map.next_value()?));
                } else if let Some(Text(text)) = map.next_value()? {
                    tag = Some(text);
                    break;
                }
            }
            let mut rest = Rest { tag: T::TAG, before, map: &mut map };
            if let Some(value) = T::read(tag.as_deref(), &mut rest)? {
                return Ok(value);
            }
            let Some(tag) = tag else { return Err(A::Error::missing_field(T::TAG)) };
            Unknown::new(&tag, &rest.entries(&tag)?).map(T::unknown)
        }
    }
    d.deserialize_map(UnionVisitor(PhantomData))
}

/// The remaining fields of an object whose tag is known.
pub(crate) struct Rest<'a, A> {
    /// The key of the tag.
    tag: &'static str,
    before: Entries,
    map: &'a mut A,
}

impl<'de, A: MapAccess<'de>> Rest<'_, A> {
    pub(crate) fn read<T: ReadFields>(&mut self) -> Result<T, A::Error> {
        let mut slots = T::Slots::default();
        for (key, value) in &self.before {
            T::read(&mut slots, key, &mut One(value)).map_err(A::Error::custom)?;
        }
        read_keys::<A, T>(&mut slots, self.map, Some(self.tag))?;
        T::finish(slots)
    }

    pub(crate) fn skip(&mut self) -> Result<(), A::Error> {
        while let Some((Text(key), IgnoredAny)) = self.map.next_entry()? {
            once(&key, Some(self.tag))?;
        }
        Ok(())
    }

    /// Returns all keys with their values, the tag at its original position.
    fn entries(&mut self, tag: &str) -> Result<Entries, A::Error> {
        let mut entries = std::mem::take(&mut self.before);
        let tag = serde_json::value::to_raw_value(tag).map_err(A::Error::custom)?;
        entries.push((self.tag.into(), tag));
        while let Some(Text(key)) = self.map.next_key()? {
            once(&key, Some(self.tag))?;
            entries.push((key.into(), self.map.next_value()?));
        }
        Ok(entries)
    }
}

/// A map access for one value whose key was read before.
pub(crate) struct One<'a>(pub(crate) &'a RawValue);

impl<'de> MapAccess<'de> for One<'de> {
    type Error = serde_json::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, _: K) -> Result<Option<K::Value>, Self::Error> {
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Self::Error> {
        seed.deserialize(&mut serde_json::Deserializer::from_str(self.0.get()))
    }
}

/// Reads a flattened field from the keys that are not fields of the containing struct.
pub(crate) fn unflatten<T: DeserializeOwned, E: serde::de::Error>(entries: Entries) -> Result<T, E> {
    struct Access<'a>(&'a [(Box<str>, Box<RawValue>)]);
    impl<'de> MapAccess<'de> for Access<'de> {
        type Error = serde_json::Error;
        fn next_key_seed<K: DeserializeSeed<'de>>(
            &mut self,
            seed: K,
        ) -> Result<Option<K::Value>, Self::Error> {
            let Some((key, _)) = self.0.first() else { return Ok(None) };
            seed.deserialize(serde::de::value::BorrowedStrDeserializer::new(key)).map(Some)
        }
        fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Self::Error> {
            let Some(((_, value), rest)) = self.0.split_first() else {
                return Err(Self::Error::custom("a value was read without its key"));
            };
            self.0 = rest;
            One(value).next_value_seed(seed)
        }
    }
    T::deserialize(MapAccessDeserializer::new(Access(&entries))).map_err(E::custom)
}

pub(crate) fn required<T, E: serde::de::Error>(slot: Option<T>, key: &'static str) -> Result<T, E> {
    slot.ok_or_else(|| E::missing_field(key))
}

/// Rejects a repeated key. Other parsers would take the other value.
pub(crate) fn first<T, E: serde::de::Error>(slot: &Option<T>, key: &'static str) -> Result<(), E> {
    if slot.is_some() { Err(E::duplicate_field(key)) } else { Ok(()) }
}

/// Reads an integer in any spelling: JSON has one type of number, so `1.0` and `1e0` are the integer 1.
pub(crate) fn integer<'de, A: MapAccess<'de>, T: TryFrom<i128>>(
    map: &mut A,
    key: &'static str,
) -> Result<T, A::Error> {
    let value = optional_integer(map, key)?;
    value.ok_or_else(|| no_integer(key))
}

/// Creates the error for a field that is no integer. It quotes no value.
fn no_integer<E: serde::de::Error>(key: &str) -> E {
    E::custom(format_args!("field `{key}` must be an integer"))
}

/// Reads an integer as [`integer`] does, or `null`.
pub(crate) fn optional_integer<'de, A: MapAccess<'de>, T: TryFrom<i128>>(
    map: &mut A,
    key: &'static str,
) -> Result<Option<T>, A::Error> {
    struct Seed<T>(&'static str, PhantomData<T>);
    impl<T: TryFrom<i128>> Seed<T> {
        fn convert<E: serde::de::Error>(&self, value: i128) -> Result<Option<T>, E> {
            let error = |_| E::custom(format_args!("field `{}` is out of range: {value}", self.0));
            T::try_from(value).map(Some).map_err(error)
        }
    }
    impl<'de, T: TryFrom<i128>> DeserializeSeed<'de> for Seed<T> {
        type Value = Option<T>;
        fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Option<T>, D::Error> {
            d.deserialize_any(self)
        }
    }
    impl<'de, T: TryFrom<i128>> Visitor<'de> for Seed<T> {
        type Value = Option<T>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "an integer as `{}`", self.0)
        }
        fn visit_unit<E>(self) -> Result<Option<T>, E> {
            Ok(None)
        }
        fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Option<T>, E> {
            self.convert(value.into())
        }
        fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Option<T>, E> {
            self.convert(value.into())
        }
        fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Option<T>, E> {
            // Readers of JSON round some larger ones.
            const LARGEST: f64 = 1e15;
            if value.fract() == 0.0 && value.abs() <= LARGEST {
                #[allow(clippy::cast_possible_truncation, reason = "an integer of at most 50 bits")]
                return self.convert(value as i128);
            }
            Err(no_integer(self.0))
        }
        fn visit_bool<E: serde::de::Error>(self, _: bool) -> Result<Option<T>, E> {
            Err(no_integer(self.0))
        }
        fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<Option<T>, E> {
            Err(no_integer(self.0))
        }
        fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<Option<T>, A::Error> {
            Err(no_integer(self.0))
        }
        fn visit_map<A: MapAccess<'de>>(self, _: A) -> Result<Option<T>, A::Error> {
            Err(no_integer(self.0))
        }
    }
    map.next_value_seed(Seed(key, PhantomData))
}

/// The value of a lenient field.
pub(crate) enum Loose<T> {
    Null,
    Bad,
    Good(T),
}

impl<T> Loose<T> {
    pub(crate) fn ok(self) -> Option<T> {
        match self {
            Loose::Good(value) => Some(value),
            Loose::Null | Loose::Bad => None,
        }
    }

    pub(crate) fn patch(self) -> Patch<T> {
        match self {
            Loose::Null => Patch::Clear,
            Loose::Bad => Patch::Keep,
            Loose::Good(value) => Patch::Set(value),
        }
    }
}

/// A type that a lenient field can have: an invalid value is not an error.
pub(crate) trait Lenient: DeserializeOwned {
    fn read_lenient<'de, D: Deserializer<'de>>(d: D) -> Result<Loose<Self>, D::Error> {
        let raw = Box::<RawValue>::deserialize(d)?;
        Ok(match serde_json::from_str(raw.get()) {
            _ if raw.get() == "null" => Loose::Null,
            Ok(value) => Loose::Good(value),
            Err(_) => Loose::Bad,
        })
    }
}

/// Reads the next value leniently.
pub(crate) fn lenient<'de, A: MapAccess<'de>, T: Lenient>(map: &mut A) -> Result<Loose<T>, A::Error> {
    struct Seed<T>(PhantomData<T>);
    impl<'de, T: Lenient> DeserializeSeed<'de> for Seed<T> {
        type Value = Loose<T>;
        fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Loose<T>, D::Error> {
            T::read_lenient(d)
        }
    }
    map.next_value_seed(Seed(PhantomData))
}

/// Reads the next list without its invalid items.
///
/// A list of only invalid items is invalid itself, so that an optional field does not empty the list
/// that it replaces. A required field has no such choice: the schema of ACP lets it read as empty.
/// Only one item at a time is buffered as text, because a list may be as long as a line.
pub(crate) fn list<'de, A: MapAccess<'de>, T: DeserializeOwned>(
    map: &mut A,
) -> Result<Loose<Vec<T>>, A::Error> {
    struct Items<T>(Vec<T>);
    impl<T: DeserializeOwned> Leaf for Items<T> {
        fn sequence<'de, A: SeqAccess<'de>>(mut seq: A) -> Result<Option<Self>, A::Error> {
            let (mut good, mut empty) = (Vec::new(), true);
            while let Some(item) = seq.next_element::<Box<RawValue>>()? {
                empty = false;
                good.extend(serde_json::from_str::<T>(item.get()));
            }
            Ok((empty || !good.is_empty()).then_some(Items(good)))
        }
    }
    struct Seed<T>(PhantomData<T>);
    impl<'de, T: DeserializeOwned> DeserializeSeed<'de> for Seed<T> {
        type Value = Loose<Items<T>>;
        fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Self::Value, D::Error> {
            read_leaf(d)
        }
    }
    Ok(match map.next_value_seed(Seed(PhantomData))? {
        Loose::Null => Loose::Null,
        Loose::Bad => Loose::Bad,
        Loose::Good(Items(items)) => Loose::Good(items),
    })
}

/// Reads the next list without its invalid items. Another value than a list is an error.
pub(crate) fn items<'de, A: MapAccess<'de>, T: DeserializeOwned>(map: &mut A) -> Result<Vec<T>, A::Error> {
    struct Items<T>(Vec<T>);
    impl<'de, T: DeserializeOwned> Deserialize<'de> for Items<T> {
        fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
            d.deserialize_seq(ItemsVisitor(PhantomData))
        }
    }
    struct ItemsVisitor<T>(PhantomData<T>);
    impl<'de, T: DeserializeOwned> Visitor<'de> for ItemsVisitor<T> {
        type Value = Items<T>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Items<T>, A::Error> {
            let mut good = Vec::new();
            while let Some(item) = seq.next_element::<Box<RawValue>>()? {
                good.extend(serde_json::from_str::<T>(item.get()));
            }
            Ok(Items(good))
        }
    }
    map.next_value::<Items<T>>().map(|items| items.0)
}

/// A lenient type that is read without buffering the text of the value.
pub(crate) trait Leaf: Sized {
    fn text(_: &str) -> Option<Self> {
        None
    }
    fn boolean(_: bool) -> Option<Self> {
        None
    }
    fn unsigned(_: u64) -> Option<Self> {
        None
    }
    fn signed(_: i64) -> Option<Self> {
        None
    }
    fn float(_: f64) -> Option<Self> {
        None
    }
    fn sequence<'de, A: SeqAccess<'de>>(mut seq: A) -> Result<Option<Self>, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }
}

pub(crate) fn read_leaf<'de, D: Deserializer<'de>, T: Leaf>(d: D) -> Result<Loose<T>, D::Error> {
    struct LeafVisitor<T>(PhantomData<T>);
    fn loose<T, E>(value: Option<T>) -> Result<Loose<T>, E> {
        Ok(value.map_or(Loose::Bad, Loose::Good))
    }
    impl<'de, T: Leaf> Visitor<'de> for LeafVisitor<T> {
        type Value = Loose<T>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("any JSON")
        }
        fn visit_str<E>(self, value: &str) -> Result<Self::Value, E> {
            loose(T::text(value))
        }
        fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
            loose(T::boolean(value))
        }
        fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
            loose(T::unsigned(value))
        }
        fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
            loose(T::signed(value))
        }
        fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
            loose(T::float(value))
        }
        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(Loose::Null)
        }
        fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
            T::sequence(seq).and_then(loose)
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            Ok(Loose::Bad)
        }
    }
    d.deserialize_any(LeafVisitor(PhantomData))
}

macro_rules! leaf {
    ($($type:ty { $($method:ident($value:ident: $from:ty) $convert:expr;)* })*) => {$(
        impl Leaf for $type {
            $(fn $method($value: $from) -> Option<Self> { $convert })*
        }
        impl Lenient for $type {
            fn read_lenient<'de, D: Deserializer<'de>>(d: D) -> Result<Loose<Self>, D::Error> {
                read_leaf(d)
            }
        }
    )*};
}

leaf! {
    String { text(value: &str) Some(value.to_owned()); }
    PathBuf { text(value: &str) Some(value.into()); }
    bool { boolean(value: bool) Some(value); }
    u32 { unsigned(value: u64) value.try_into().ok(); }
    u64 { unsigned(value: u64) Some(value); }
    i64 { unsigned(value: u64) value.try_into().ok(); signed(value: i64) Some(value); }
    f64 {
        unsigned(value: u64) Some(value as f64);
        signed(value: i64) Some(value as f64);
        float(value: f64) Some(value);
    }
}

impl<T: Lenient> Lenient for Box<T> {
    fn read_lenient<'de, D: Deserializer<'de>>(d: D) -> Result<Loose<Self>, D::Error> {
        Ok(match T::read_lenient(d)? {
            Loose::Null => Loose::Null,
            Loose::Bad => Loose::Bad,
            Loose::Good(value) => Loose::Good(Box::new(value)),
        })
    }
}

impl Lenient for Json {}
impl Lenient for crate::Error {}
impl<T: DeserializeOwned> Lenient for Vec<T> {}
impl Lenient for crate::Members {}

pub(crate) fn write_object<S: Serializer, T: WriteFields>(value: &T, s: S) -> Result<S::Ok, S::Error> {
    let mut map = s.serialize_map(None)?;
    value.write(&mut map)?;
    map.end()
}

pub(crate) fn write_option<M: SerializeMap, T: Serialize>(
    map: &mut M,
    key: &'static str,
    value: &Option<T>,
) -> Result<(), M::Error> {
    value.as_ref().map_or(Ok(()), |value| map.serialize_entry(key, value))
}

pub(crate) fn write_patch<M: SerializeMap, T: Serialize>(
    map: &mut M,
    key: &'static str,
    value: &Patch<T>,
) -> Result<(), M::Error> {
    match value {
        Patch::Keep => Ok(()),
        Patch::Clear => map.serialize_entry(key, &()),
        Patch::Set(value) => map.serialize_entry(key, value),
    }
}

pub(crate) fn write_default<M: SerializeMap, T: Serialize + Default + PartialEq>(
    map: &mut M,
    key: &'static str,
    value: &T,
) -> Result<(), M::Error> {
    if *value == T::default() { Ok(()) } else { map.serialize_entry(key, value) }
}

/// Reads a string into a type that converts from it.
pub(crate) fn read_string<'de, D: Deserializer<'de>, T: for<'a> From<&'a str>>(d: D) -> Result<T, D::Error> {
    struct StringVisitor<T>(PhantomData<T>);
    impl<T: for<'a> From<&'a str>> Visitor<'_> for StringVisitor<T> {
        type Value = T;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string")
        }
        fn visit_str<E>(self, text: &str) -> Result<T, E> {
            Ok(T::from(text))
        }
    }
    d.deserialize_str(StringVisitor(PhantomData))
}

/// Implements the traits of a type that is a string on the wire and has `as_str` and `From<&str>`.
macro_rules! string_type {
    ($name:ident) => {
        impl ::std::convert::From<String> for $name {
            fn from(text: String) -> Self {
                Self::from(text.as_str())
            }
        }
        impl ::std::convert::AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                self.as_str()
            }
        }
        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.as_str())
            }
        }
        impl ::std::cmp::PartialEq<str> for $name {
            fn eq(&self, other: &str) -> bool {
                self.as_str() == other
            }
        }
        impl ::std::cmp::PartialEq<&str> for $name {
            fn eq(&self, other: &&str) -> bool {
                self.as_str() == *other
            }
        }
        impl ::serde::Serialize for $name {
            fn serialize<S: ::serde::Serializer>(&self, s: S) -> ::std::result::Result<S::Ok, S::Error> {
                s.serialize_str(self.as_str())
            }
        }
        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(d: D) -> ::std::result::Result<Self, D::Error> {
                crate::wire::read_string(d)
            }
        }
        impl crate::wire::Leaf for $name {
            fn text(text: &str) -> ::std::option::Option<Self> {
                ::std::option::Option::Some(text.into())
            }
        }
        impl crate::wire::Lenient for $name {
            fn read_lenient<'de, D: ::serde::Deserializer<'de>>(
                d: D,
            ) -> ::std::result::Result<crate::wire::Loose<Self>, D::Error> {
                crate::wire::read_leaf(d)
            }
        }
    };
}
pub(crate) use string_type;

/// Implements `JsonSchema` for a type without `#[wire]`: its name and its schema. The schema of an
/// `inline` type has no definition of its own.
macro_rules! schema_of {
    (inline $type:ty, $name:expr, |$generator:pat_param| $schema:expr) => {
        #[cfg(feature = "schemars")]
        impl schemars::JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> std::borrow::Cow<'static, str> {
                $name.into()
            }
            fn json_schema($generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                $schema
            }
        }
    };
    ($type:ty, $name:expr, |$generator:pat_param| $schema:expr) => {
        #[cfg(feature = "schemars")]
        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                $name.into()
            }
            fn json_schema($generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                $schema
            }
        }
    };
}
pub(crate) use schema_of;
