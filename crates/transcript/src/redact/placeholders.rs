//! The placeholders that redaction writes, and patterns that find them.

use std::sync::LazyLock;

use regex::Regex;

pub(crate) use super::secret_patterns::SECRET;
use crate::format::Redacted;
use crate::id_paths::IdKind;

/// The placeholders of the home, temporary and working folder.
pub(crate) const HOME: &str = "[home]";
pub(crate) const TMP: &str = "[tmp]";
pub(crate) const CWD: &str = "[cwd]";
/// The placeholders of a time, a signature and a program's version.
pub(crate) const TIME: &str = "[time]";
pub(crate) const SIGNATURE: &str = "[signature]";
pub(crate) const VERSION: &str = "[version]";

static SECRETS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(&regex::escape(SECRET)).ok());

static EVERYTHING: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let of_ids = |whole| {
        let kinds = IdKind::PLACEHOLDERS.iter().filter(|(_, _, of_whole)| *of_whole == whole);
        kinds.map(|(_, word, _)| *word).collect::<Vec<_>>().join("|")
    };
    let (ids, whole) = (of_ids(false), of_ids(true));
    let words = [SECRET, HOME, TMP, TIME, SIGNATURE, CWD, VERSION].map(regex::escape).join("|");
    Regex::new(&format!(
        r"{words}|\[cwd-[0-9]+\]|\[(?:{ids})-[0-9]+\]|\[(?:session-[0-9]+\.)?(?:request|{whole})-[0-9]+\]"
    ))
    .ok()
});

/// Returns a pattern of the placeholders in a transcript with this redaction. Any other word in brackets is
/// ordinary text.
pub(crate) fn placeholders(redacted: Redacted) -> Option<&'static Regex> {
    match redacted {
        Redacted::Nothing => None,
        Redacted::Secrets => SECRETS.as_ref(),
        Redacted::Everything => EVERYTHING.as_ref(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_redaction_writes_is_a_placeholder() {
        let found = |redacted, text| {
            let words = placeholders(redacted).into_iter().flat_map(move |it| it.find_iter(text));
            words.map(|word| word.as_str().to_owned()).collect::<Vec<_>>()
        };
        let text = "a[i] [link] [x] [home] [tool-call-2] [session-1.request-3] [cwd-2] [secret] [id-9] [session] \
             [agent-1] [session-1.envelope-2] [envelope-1] [session-1.agent-1]";
        let all = [
            "[home]",
            "[tool-call-2]",
            "[session-1.request-3]",
            "[cwd-2]",
            "[secret]",
            "[id-9]",
            "[agent-1]",
            "[session-1.envelope-2]",
            "[envelope-1]",
        ];
        assert_eq!(found(Redacted::Everything, text), all);
        assert_eq!(found(Redacted::Secrets, text), ["[secret]"]);
        assert!(found(Redacted::Nothing, text).is_empty());
    }
}
