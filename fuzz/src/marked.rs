//! The marker of raw values in serde_json.

/// Returns true if the text has the key that marks raw values in serde_json. A tree takes the text beside it for the
/// value itself, so it cannot be compared with ours.
pub(crate) fn is_marked(text: &str) -> bool {
    const KEY: &str = "$serde_json::private::";
    if text.contains(KEY) || !text.contains("\\u") {
        return text.contains(KEY);
    }
    // Spelled with escapes it is the same key.
    let mut unescaped = text.to_owned();
    for char in KEY.chars() {
        for spelled in [format!("\\u{:04x}", u32::from(char)), format!("\\u{:04X}", u32::from(char))] {
            unescaped = unescaped.replace(&spelled, char.encode_utf8(&mut [0; 4]));
        }
    }
    unescaped.contains(KEY)
}
