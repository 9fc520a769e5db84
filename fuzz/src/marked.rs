//! What serde_json takes for its own.

/// Whether the key is in the text with which serde_json marks raw values. A tree takes the text beside it for the
/// value itself, so it is no reading to compare ours with.
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
