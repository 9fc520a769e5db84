//! The repair of half surrogate pairs in escaped JSON strings.

/// Replaces escaped halves of surrogate pairs (`\ud83d` without its other half) by `\ufffd`, or
/// returns `None` when there are none.
///
/// JavaScript peers cut emoji in two when they stream; no Rust string can hold the halves. The
/// replacement has the length of what it replaces, and no other byte changes.
pub(crate) fn repair_surrogates(line: &[u8]) -> Option<Vec<u8>> {
    let mut repaired: Option<Vec<u8>> = None;
    let mut at = 0;
    while let Some(offset) = memchr::memchr(b'\\', line.get(at..)?) {
        let here = at + offset;
        let Some(unit) = escaped_unit(line, here) else {
            at = here + 2; // any other escape is two bytes long
            continue;
        };
        at = here + 6;
        match unit {
            0xD800..=0xDBFF if matches!(escaped_unit(line, at), Some(0xDC00..=0xDFFF)) => at += 6,
            0xD800..=0xDFFF => {
                let copy = repaired.get_or_insert_with(|| line.to_vec());
                copy.get_mut(here..here + 6)?.copy_from_slice(b"\\ufffd");
            }
            _ => {}
        }
    }
    repaired
}

/// The code unit of an escape of the form `\u0041` at `at`.
fn escaped_unit(line: &[u8], at: usize) -> Option<u16> {
    let hex = line.get(at..at + 6)?.strip_prefix(b"\\u")?;
    if !hex.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u16::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()
}

/// Whether a line may hold half a surrogate pair: the cheap question in front of the repair.
pub(crate) fn has_surrogate_escape(line: &[u8]) -> bool {
    memchr::memchr_iter(b'\\', line).any(|at| matches!(line.get(at + 1..at + 3), Some(b"ud" | b"uD")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_of_surrogate_pairs_are_replaced_and_whole_pairs_kept() {
        let repair =
            |text: &str| repair_surrogates(text.as_bytes()).map(|bytes| String::from_utf8(bytes).unwrap());
        assert_eq!(repair(r#""\ud83d\ude00 \u00e9 \n""#), None);
        assert_eq!(repair(r#""\ud83d""#).as_deref(), Some(r#""\ufffd""#));
        assert_eq!(repair(r#""\ude00\ud83d""#).as_deref(), Some(r#""\ufffd\ufffd""#));
        assert_eq!(repair(r#""\ud83d\ud83d\ude00""#).as_deref(), Some(r#""\ufffd\ud83d\ude00""#));
        assert_eq!(repair(r#""\\ud83d""#), None, "an escaped backslash is no escape");
        assert_eq!(repair(r#""\ud83"#), None);
        assert!(has_surrogate_escape(br#""\uD83d""#) && !has_surrogate_escape(br#""\u00e9""#));
    }

    proptest::proptest! {
        #[test]
        fn whatever_arrives_the_repair_leaves_text_that_serde_can_read(
            units in proptest::collection::vec(0xD7F0u16..0xE010, 0..12)
        ) {
            let body: String = units.iter().map(|unit| format!("\\u{unit:04x}")).collect();
            let text = format!("\"{body}\"");
            let repaired = repair_surrogates(text.as_bytes()).unwrap_or_else(|| text.clone().into_bytes());
            proptest::prop_assert_eq!(repaired.len(), text.len());
            let read: String = serde_json::from_slice(&repaired).unwrap();
            proptest::prop_assert_eq!(read, String::from_utf16_lossy(&units));
        }
    }
}
