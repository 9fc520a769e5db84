//! The repair of half surrogate pairs in escaped JSON strings.

/// Replaces each escaped half of a surrogate pair (`\ud83d` without its other half) by `\ufffd`. Returns
/// `None` if there are none.
///
/// JavaScript peers cut emoji in two when they stream. No Rust string can contain the halves. The
/// replacement has the same length, and no other byte changes.
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

/// Returns the code unit of an escape of the form `\u0041` at `at`.
fn escaped_unit(line: &[u8], at: usize) -> Option<u16> {
    let hex = line.get(at..at + 6)?.strip_prefix(b"\\u")?;
    if !hex.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u16::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()
}

/// Returns true if a line may contain half a surrogate pair. This is a cheap test before the repair.
pub(crate) fn has_surrogate_escape(line: &[u8]) -> bool {
    memchr::memchr_iter(b'\\', line).any(|at| matches!(line.get(at + 1..at + 3), Some(b"ud" | b"uD")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_surrogate_pairs_are_replaced_and_whole_pairs_are_kept() {
        let repair =
            |text: &str| repair_surrogates(text.as_bytes()).map(|bytes| String::from_utf8(bytes).unwrap());
        assert_eq!(repair(r#""\ud83d\ude00 \u00e9 \n""#), None);
        assert_eq!(repair(r#""\ud83d""#).as_deref(), Some(r#""\ufffd""#));
        assert_eq!(repair(r#""\ude00\ud83d""#).as_deref(), Some(r#""\ufffd\ufffd""#));
        assert_eq!(repair(r#""\ud83d\ud83d\ude00""#).as_deref(), Some(r#""\ufffd\ud83d\ude00""#));
        assert_eq!(repair(r#""\\ud83d""#), None, "an escaped backslash does not begin an escape");
        assert_eq!(repair(r#""\ud83"#), None);
        assert!(has_surrogate_escape(br#""\uD83d""#) && !has_surrogate_escape(br#""\u00e9""#));
    }

    proptest::proptest! {
        #[test]
        fn repaired_text_is_valid_json(
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
