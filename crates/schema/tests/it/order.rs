//! The order and the spelling of keys do not change what is read.

use duologue_schema::export::random::RandomValues;
use duologue_schema::export::{definitions, document};
use serde_json::Value;

/// Writes `value` with the keys of every object in another order and every string escaped.
fn rewrite(value: &Value, random: &mut RandomValues<'_>, out: &mut String) {
    match value {
        Value::Object(object) => {
            let mut keys: Vec<&String> = object.keys().collect();
            for index in (1..keys.len()).rev() {
                keys.swap(index, random.below(index + 1));
            }
            out.push('{');
            for (index, key) in keys.into_iter().enumerate() {
                if index > 0 {
                    out.push_str(" ,\n");
                }
                escape(key, random, out);
                out.push_str(" : ");
                rewrite(&object[key], random, out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                rewrite(item, random, out);
            }
            out.push(']');
        }
        Value::String(text) => escape(text, random, out),
        other => out.push_str(&other.to_string()),
    }
}

fn escape(text: &str, random: &mut RandomValues<'_>, out: &mut String) {
    out.push('"');
    for unit in text.encode_utf16() {
        match char::from_u32(unit.into()) {
            Some(c) if c.is_ascii_alphanumeric() && random.below(4) > 0 => out.push(c),
            _ => out.push_str(&format!("\\u{unit:04x}")),
        }
    }
    out.push('"');
}

#[test]
fn any_order_of_keys_and_any_escapes_read_the_same() {
    let document = document();
    for definition in definitions() {
        for seed in 0..60 {
            let mut random = RandomValues::new(&document, seed);
            let value = random.definition(&definition.name);
            let mut text = String::new();
            rewrite(&value, &mut random, &mut text);
            let (plain, shuffled) =
                ((definition.round_trip)(&value.to_string()), (definition.round_trip)(&text));
            // Unknown members keep their order and spelling, so values are compared and not texts.
            let parse =
                |result: Result<String, String>| -> Value { serde_json::from_str(&result.unwrap()).unwrap() };
            assert_eq!(parse(plain), parse(shuffled), "{}: {text}", definition.name);
        }
    }
}

#[test]
fn unknown_keys_are_passed_over() {
    let document = document();
    for definition in definitions() {
        let mut random = RandomValues::new(&document, 1);
        let Value::Object(object) = random.definition(&definition.name) else { continue };
        let plain = (definition.round_trip)(&Value::Object(object.clone()).to_string());
        let mut more = object;
        more.insert("aUnknown".into(), serde_json::json!({ "x": [1, { "y": null }] }));
        more.insert("zUnknown".into(), Value::Null);
        let with_more = (definition.round_trip)(&Value::Object(more).to_string());
        let same = plain == with_more;
        // A type that keeps the original value keeps unknown keys too.
        assert!(same || with_more.is_ok_and(|text| text.contains("zUnknown")), "{}", definition.name);
    }
}
