//! Patterns over the names of domains and topics.

use std::fmt;
use std::sync::Arc;

/// A pattern over the names of domains and topics. The parts of a name are separated by dots.
///
/// - A plain name matches only itself.
/// - `*` as the last part matches one part or more: `family.*` matches `family.calendar` and
///   `family.calendar.today`, but not `family`. `*` alone matches every name.
/// - `*` before that matches exactly one part: `*.calendar` matches `family.calendar`.
///
/// The agents choose the names. By convention `family.*` is the household, `work.*` the job,
/// `logistics.*` transport, and `meta.*` the exchange itself.
///
/// ```
/// use duologue_exchange::envelope::Pattern;
///
/// let family = Pattern::from("family.*");
/// assert!(family.matches("family.calendar"));
/// assert!(!family.matches("family"));
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Pattern(Arc<str>);

impl Pattern {
    /// Returns true if the pattern matches the name.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let mut parts = name.split('.');
        let mut wanted = self.0.split('.').peekable();
        while let Some(want) = wanted.next() {
            let Some(part) = parts.next() else { return false };
            if want == "*" && wanted.peek().is_none() {
                return true;
            }
            if want != "*" && want != part {
                return false;
            }
        }
        parts.next().is_none()
    }

    /// Returns the pattern's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Pattern {
    fn from(text: &str) -> Self {
        Pattern(text.into())
    }
}

impl From<String> for Pattern {
    fn from(text: String) -> Self {
        Pattern(text.into())
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Returns how closely a declared domain matches `domain`: the number of its named parts, or `None`
/// if it does not match. A declared `family` also covers `family.calendar`.
pub(crate) fn familiarity(declared: &str, domain: &str) -> Option<usize> {
    let below = Pattern(format!("{declared}.*").into());
    let pattern = Pattern::from(declared);
    let known = pattern.matches(domain) || below.matches(domain);
    known.then(|| declared.split('.').filter(|part| *part != "*").count())
}

#[cfg(test)]
mod tests {
    use super::{Pattern, familiarity};

    #[test]
    fn patterns_match_names() {
        let check = |pattern: &str, yes: &[&str], no: &[&str]| {
            let pattern = Pattern::from(pattern);
            yes.iter().for_each(|name| assert!(pattern.matches(name), "{pattern} is to match {name}"));
            no.iter().for_each(|name| assert!(!pattern.matches(name), "{pattern} is not to match {name}"));
        };
        check(
            "family.calendar",
            &["family.calendar"],
            &["family", "family.calendar.today", "Family.calendar"],
        );
        check("family.*", &["family.a", "family.a.b.c"], &["family", "families.a", "", "work.family.a"]);
        check("*", &["family", "a.b.c"], &[]);
        check("*.calendar", &["family.calendar", "work.calendar"], &["calendar", "a.b.calendar"]);
        check("a.*.c.*", &["a.b.c.d", "a.b.c.d.e"], &["a.b.c", "a.c.d", "a.b.b.c.d"]);
        check("fam*", &["fam*"], &["family"]);
        check("", &[""], &["a"]);
    }

    #[test]
    fn the_closer_declaration_wins() {
        assert_eq!(familiarity("family.calendar", "family.calendar"), Some(2));
        assert_eq!(familiarity("family", "family.calendar.today"), Some(1));
        assert_eq!(familiarity("family.*", "family.calendar"), Some(1));
        assert_eq!(familiarity("*", "family.calendar"), Some(0));
        assert_eq!(familiarity("family.calendar", "family"), None);
        assert_eq!(familiarity("work", "workshop"), None);
    }
}
