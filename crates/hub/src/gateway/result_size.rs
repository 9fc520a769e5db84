//! The limits on the size of the results of tasks and messages.

use duologue_rpc::raw_message::beginning;
use duologue_schema::serialized_len;
use duologue_store::StoreSettings;
use serde_json::Value;

/// The bytes that the store keeps free for what a result or its callback has beside its parts.
const RESERVE: usize = 64 * 1024;

/// The limits on a result, in bytes of its JSON text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResultSize {
    /// The most bytes of a part, such as the text.
    pub(crate) part: usize,
    /// The most bytes of all parts together.
    pub(crate) whole: usize,
}

impl ResultSize {
    /// Creates the limits. `result_bytes` is the setting, and a store can hold less.
    pub(crate) fn new(result_bytes: usize, store: &StoreSettings) -> Self {
        let whole = whole(store);
        ResultSize { part: result_bytes.min(whole), whole }
    }

    /// Cuts a text at its limit. Returns true if it was cut.
    pub(crate) fn cut(self, mut text: String) -> (String, bool) {
        let kept = json_beginning(&text, self.part).len();
        let is_cut = kept < text.len();
        text.truncate(kept);
        (text, is_cut)
    }

    /// Returns true if a part can be added to a result.
    pub(crate) fn fits(self, result: &Value, part: &Value) -> bool {
        let length = serialized_len(part, self.part);
        length.is_some_and(|length| serialized_len(result, self.whole.saturating_sub(length)).is_some())
    }
}

/// Returns the reason for which the store could not hold results of this size.
pub(super) fn check_result_bytes(result_bytes: usize) -> Result<(), String> {
    let most = whole(&StoreSettings::default());
    match result_bytes <= most {
        true => Ok(()),
        false => Err(format!(
            "limits.result_bytes is {result_bytes}, and the store holds at most {most} (`StoreSettings::content_bytes`); use a smaller value"
        )),
    }
}

fn whole(store: &StoreSettings) -> usize {
    store.content_bytes.saturating_sub(RESERVE)
}

/// Returns the longest beginning of a text that has at most `limit` bytes as JSON, without its quotes.
pub(crate) fn json_beginning(text: &str, mut limit: usize) -> &str {
    for (at, byte) in text.bytes().enumerate() {
        match limit.checked_sub(json_len(byte)) {
            Some(left) => limit = left,
            None => return beginning(text, at),
        }
    }
    text
}

/// Returns the bytes of a byte in a JSON string.
fn json_len(byte: u8) -> usize {
    match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        ..0x20 => 6,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::gateway::GatewayConfig;

    #[test]
    fn a_text_is_cut_at_the_bytes_of_its_json() {
        let all: String = (0..=0x2ff).filter_map(char::from_u32).collect();
        let length = |text: &str| json!(text).to_string().len() - 2;
        for limit in 0..=length(&all) {
            let kept = json_beginning(&all, limit);
            let next = all.get(kept.len()..).and_then(|rest| rest.chars().next());
            let longer = kept.to_owned() + &next.map(String::from).unwrap_or_default();
            assert!(
                length(kept) <= limit && (next.is_none() || length(&longer) > limit),
                "{limit}: {kept:?}"
            );
        }
        assert_eq!(json_beginning(&all, length(&all)), all);
    }

    #[test]
    fn the_parts_of_a_result_fit_the_store_together() {
        let size = ResultSize::new(1 << 20, &StoreSettings::default());
        let (text, is_cut) = size.cut("\u{1}".repeat(1 << 20));
        assert!(is_cut && json!(text).to_string().len() <= (1 << 20) + 2);
        let part = json!("x".repeat((1 << 20) - 2));
        let mut result = json!({ "text": text });
        for (name, fits) in [("data", true), ("attachments", true), ("more", false)] {
            assert_eq!(size.fits(&result, &part), fits, "{name}");
            result[name] = part.clone();
        }
        assert!(!size.fits(&json!({}), &json!("x".repeat(1 << 20))));
    }

    #[test]
    fn a_limit_that_the_store_cannot_hold_is_refused_at_the_start() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("hub.toml");
        for (result_bytes, is_refused) in [(8_000_000, true), (whole(&StoreSettings::default()), false)] {
            std::fs::write(&file, format!("[limits]\nresult_bytes = {result_bytes}\n")).expect("a file");
            let refused = GatewayConfig::read(&file).err().map(|error| error.to_string());
            assert_eq!(refused.is_some(), is_refused, "{refused:?}");
            let names = ["limits.result_bytes is 8000000", "4128768", "`StoreSettings::content_bytes`"];
            assert!(refused.iter().all(|text| names.iter().all(|name| text.contains(name))), "{refused:?}");
        }
    }
}
