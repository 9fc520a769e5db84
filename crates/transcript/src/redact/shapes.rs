//! What secrets look like: keys by their prefix, and values by the name that stands before them.

use std::ops::Range;
use std::sync::LazyLock;

use regex::bytes::{Regex, RegexSet};

/// What stands in place of a secret.
pub(crate) const SECRET: &str = "[secret]";

/// Whether what looks like a secret is one.
type Holds = fn(&[u8]) -> bool;

/// Something that looks like a secret: its first group, and whether what it holds is one indeed.
struct Shape {
    pattern: &'static str,
    holds: Holds,
}

/// What may stand before a key: nothing that belongs to a word. Escapes of JSON inside a string of
/// JSON and of URLs end in letters and digits, and count as an end of a word.
const BEFORE: &str = r"(?:^|[^A-Za-z0-9]|\\[nrtbf]|\\u[0-9a-fA-F]{4}|%[0-9A-Fa-f]{2})";

/// Keys that their makers marked with a prefix, so that they can be found.
const PREFIXED: &[Shape] = &[
    // OpenAI, Anthropic, OpenRouter, DeepSeek and others.
    Shape { pattern: r"(sk-[A-Za-z0-9_-]{16,})", holds: not_words },
    // Stripe.
    Shape { pattern: r"((?:[srp]k_(?:live|test)|whsec)_[A-Za-z0-9]{10,})", holds: anything },
    // GitHub, GitLab.
    Shape { pattern: r"(gh[pousr]_[A-Za-z0-9]{16,})", holds: anything },
    Shape { pattern: r"(github_pat_[A-Za-z0-9_]{16,})", holds: anything },
    Shape {
        pattern: r"(gl(?:pat|oas|dt|rt|cbt|ptt|ft|imt|agent|soat)-[A-Za-z0-9_.-]{16,})",
        holds: anything,
    },
    // Slack.
    Shape { pattern: r"(x(?:ox[a-z]|app)-[A-Za-z0-9-]{10,})", holds: has_digit },
    Shape { pattern: r"hooks\.slack\.com/(?:services|workflows)/([A-Za-z0-9/_-]{16,})", holds: anything },
    // Amazon, Google, DigitalOcean, Azure.
    Shape { pattern: r"((?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16})(?:[^0-9A-Za-z]|$)", holds: anything },
    Shape { pattern: r"(AIza[0-9A-Za-z_-]{30,})", holds: anything },
    Shape { pattern: r"(ya29\.[0-9A-Za-z_-]{16,})", holds: anything },
    Shape { pattern: r"(GOCSPX-[0-9A-Za-z_-]{16,})", holds: anything },
    Shape { pattern: r"(do[opr]_v1_[a-f0-9]{32,})", holds: anything },
    Shape { pattern: r"(?:AccountKey|SharedAccessKey)=([A-Za-z0-9+/]{20,}=*)", holds: anything },
    // Hugging Face, whose keys are of letters alone.
    Shape { pattern: r"(hf_[A-Za-z0-9]{30,})", holds: anything },
    // npm, PyPI, crates.io, Docker, Groq, xAI, Perplexity, Replicate, NVIDIA, Notion, Linear.
    Shape {
        pattern: r"((?:hf|npm|gsk|r8|ntn|lin_api|dckr_pat|shp(?:at|ca|pa|ss))_[A-Za-z0-9_-]{16,})",
        holds: has_digit,
    },
    Shape { pattern: r"((?:pypi|xai|pplx|nvapi|tvly)-[A-Za-z0-9_-]{16,})", holds: not_words },
    Shape { pattern: r"(cio[A-Za-z0-9]{32})(?:[^0-9A-Za-z]|$)", holds: has_digit },
    // SendGrid, Vault, age, Telegram.
    Shape { pattern: r"(SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,})", holds: anything },
    Shape { pattern: r"(hv[sbr]\.[A-Za-z0-9_-]{20,})", holds: anything },
    Shape { pattern: r"(AGE-SECRET-KEY-1[0-9A-Z]{20,})", holds: anything },
    Shape { pattern: r"([0-9]{8,10}:AA[A-Za-z0-9_-]{30,})", holds: anything },
    // JSON Web Tokens, signed or encrypted.
    Shape { pattern: r"(eyJ[A-Za-z0-9_-]{6,}(?:\.[A-Za-z0-9_-]*){2,4})", holds: anything },
];

/// Secrets known by what stands around them.
const SURROUNDED: &[Shape] = &[
    // A private key, to its end or to where it is cut off.
    Shape {
        pattern: r"(?s)(-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(?:.*?-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|[A-Za-z0-9+/=\s\\:,-]*))",
        holds: anything,
    },
    // The password in a URL, or a token in place of a user.
    Shape {
        pattern: r#"[A-Za-z][A-Za-z0-9+.-]*:\\?/\\?/[^\s/:@"'<>\\]*:([^\s/@"'<>\\]+)@"#,
        holds: anything,
    },
    Shape { pattern: r#"[A-Za-z][A-Za-z0-9+.-]*:\\?/\\?/([^\s/:@"'<>\\]{16,})@"#, holds: has_digit },
    // Parameters of a URL.
    Shape {
        pattern: r#"(?i)[?&](?:[a-z_-]*(?:key|token|signature|secret|password|credential)|sig|auth)=([^&\s"'\\#<>]{6,})"#,
        holds: random,
    },
    // What an Authorization header says, wherever it stands.
    Shape { pattern: r"(?i)\bbearer[ \t]+([a-z0-9._~+/-]{8,}=*)", holds: has_digit_or_length },
    Shape { pattern: r"(?i)\bbasic[ \t]+([a-z0-9+/]{6,}={0,2})", holds: user_and_password },
    Shape {
        pattern: r#"(?i)\b(?:proxy-)?authorization["'\\]*[ \t]*[:=][ \t]*["'\\]*(?:[a-z]{3,12}[ \t]+)?([^\s"'\\,]{8,})"#,
        holds: has_digit_or_length,
    },
    Shape {
        pattern: r#"(?i)\b(?:set-)?cookie["'\\]*[ \t]*[:=][ \t]*["'\\]*([^\r\n"'\\]*=[^\r\n"'\\]*)"#,
        holds: anything,
    },
    // NAME_OF_A_KEY=value, as in a shell or an .env file.
    Shape {
        pattern: r#"\b(?:[A-Z0-9_]*_)?(?:API_?KEY|TOKEN|SECRET|SECRET_?KEY|ACCESS_?KEY|PRIVATE_?KEY|PASSWORD|PASSWD|PASSPHRASE|PWD|CREDENTIALS?)=["'\\]*([^\s"'\\;&|<>(){}$`]{4,})"#,
        holds: value,
    },
    // "api_key": "value", quoted: in code, configurations and JSON inside a string.
    Shape {
        pattern: r#"(?i)(?:api[_-]?key|secret|(?:secret|access|private)[_-]?key|password|passwd|passphrase|(?:auth|access|refresh|id|session|bearer)[_-]?token)["'\\]*[ \t]*(?:=>|:=|[=:])[ \t]*\\*["']([^\s"'\\]{4,})\\*["']"#,
        holds: value,
    },
    // The same without quotes, and `token`, whose values are often none: only what looks made by a machine.
    Shape {
        pattern: r#"(?i)(?:api[_-]?key|secret|(?:secret|access|private)[_-]?key|password|passwd|passphrase|credential|token)["'\\]*[ \t]*(?:=>|:=|[=:])[ \t]*["'\\]*([^\s"'\\,;&|<>(){}\[\]$`]{8,})"#,
        holds: random,
    },
    // --api-key value, as in a command.
    Shape {
        pattern: r#"(?i)--[a-z-]*(?:api-?key|token|secret|password)(?:=|[ \t]+)["'\\]*([^\s"'\\;&|<>(){}\[\]$`-][^\s"'\\;&|<>(){}\[\]$`]{5,})"#,
        holds: value,
    },
];

/// The shapes, compiled once.
struct Compiled {
    set: RegexSet,
    each: Vec<(Regex, Holds)>,
}

static SHAPES: LazyLock<Compiled> = LazyLock::new(|| {
    let prefixed = PREFIXED.iter().map(|shape| (format!("(?-u){BEFORE}{}", shape.pattern), shape.holds));
    let surrounded = SURROUNDED.iter().map(|shape| (format!("(?-u){}", shape.pattern), shape.holds));
    let (patterns, holds): (Vec<_>, Vec<_>) = prefixed.chain(surrounded).unzip();
    // The patterns are constants, and a test compiles them.
    let set = RegexSet::new(&patterns).unwrap_or_else(|_| RegexSet::empty());
    let each =
        patterns.iter().zip(holds).filter_map(|(pattern, holds)| Some((Regex::new(pattern).ok()?, holds)));
    Compiled { each: each.collect(), set }
});

/// What every line holds in which something can be found, and few others. An escaped letter may hide
/// anything.
static SUSPICIOUS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let prefixes = r"sk-|[srp]k_(?:live|test)_|whsec_|gh[pousr]_|github_pat_|gl[a-z]{2,5}-|xox[a-z]-|xapp-|hooks\.slack|AKIA|ASIA|ABIA|ACCA|AIza|ya29\.|GOCSPX-|do[opr]_v1_|AccountKey|SharedAccessKey|hf_|npm_|gsk_|r8_|ntn_|lin_api_|dckr_pat_|shp(?:at|ca|pa|ss)_|pypi-|xai-|pplx-|nvapi-|tvly-|cio[A-Za-z0-9]{8}|SG\.|hv[sbr]\.|AGE-SECRET|:AA[A-Za-z0-9_-]{8}|eyJ";
    let names = r"(?i:key|token|secret|passw|passphrase|pwd|credential|authoriz|cookie|bearer|basic|signature|[?&]sig=|[?&]auth=)";
    let places = r#""(?:env|headers|httpHeaders)"|"authenticate"|:\\?/\\?/[^\s"/@]*@|PRIVATE KEY"#;
    Regex::new(&format!(r"(?-u)\\u00[2-7]|{prefixes}|{names}|{places}")).ok()
});

/// Whether anything may be found in a line: one look at it, without reading it.
pub(crate) fn suspicious(line: &[u8]) -> bool {
    SUSPICIOUS.as_ref().is_none_or(|pattern| pattern.is_match(line))
}

/// Shows each secret in a text. They may overlap.
pub(crate) fn find(text: &[u8], mut found: impl FnMut(Range<usize>)) {
    let shapes = &*SHAPES;
    for (pattern, holds) in shapes.set.matches(text).into_iter().filter_map(|at| shapes.each.get(at)) {
        for captures in pattern.captures_iter(text) {
            if let Some(group) = captures.get(1)
                && group.as_bytes() != SECRET.as_bytes()
                && holds(group.as_bytes())
            {
                found(group.range());
            }
        }
    }
}

fn anything(_: &[u8]) -> bool {
    true
}

fn has_digit(text: &[u8]) -> bool {
    text.iter().any(u8::is_ascii_digit)
}

fn has_digit_or_length(text: &[u8]) -> bool {
    has_digit(text) || text.len() >= 20
}

/// `sk-learn-contrib-something` is no key.
fn not_words(text: &[u8]) -> bool {
    has_digit(text) || text.split(|byte| matches!(byte, b'-' | b'_')).any(|part| part.len() >= 16)
}

/// Letters and digits, as no word and no number has them.
fn random(text: &[u8]) -> bool {
    has_digit(text) && text.iter().any(u8::is_ascii_alphabetic) && value(text)
}

/// The base64 of `user:password`.
fn user_and_password(text: &[u8]) -> bool {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD_NO_PAD;
    let text = text.trim_ascii_end();
    let bare = text.split(|byte| *byte == b'=').next().unwrap_or_default();
    STANDARD_NO_PAD.decode(bare).is_ok_and(|decoded| decoded.contains(&b':'))
        || (has_digit(text) && text.len() >= 16)
}

/// Whether the value of something secret is one, and not a word or a reference in its place.
pub(crate) fn value(text: &[u8]) -> bool {
    const WORDS: &[&str] = &[
        "string",
        "null",
        "none",
        "nil",
        "true",
        "false",
        "undefined",
        "required",
        "optional",
        "include",
        "omit",
        "same-origin",
        "redacted",
        "bearer",
        "basic",
        "default",
        "unset",
        "empty",
        "missing",
        "hidden",
    ];
    let text = text.trim_ascii();
    let variable = text.strip_prefix(b"$").is_some_and(|name| {
        name.iter().all(|byte| byte.is_ascii_uppercase() || matches!(byte, b'_' | b'{' | b'}'))
    });
    let in_brackets = text.starts_with(b"<") && text.ends_with(b">");
    let reference =
        variable || in_brackets || text.starts_with(b"process.env") || text.starts_with(b"os.environ");
    text.iter().any(u8::is_ascii_alphanumeric)
        // Elided by whoever wrote it.
        && !text.ends_with(b"...")
        && text != SECRET.as_bytes()
        && !reference
        && !WORDS.iter().any(|word| text.eq_ignore_ascii_case(word.as_bytes()))
}

/// Whether the member, variable or header of this name holds a secret.
pub(crate) fn names_secret(name: &str) -> bool {
    const ENDS: &[&str] = &[
        "apikey",
        "secretkey",
        "accesskey",
        "privatekey",
        "signingkey",
        "encryptionkey",
        "password",
        "passwd",
        "passphrase",
        "secret",
        "authorization",
        "credential",
        "credentials",
        "cookie",
        "token",
        "jwt",
        "apitoken",
    ];
    // Tokens that anybody may see: places in a list, marks of progress, parts of a text.
    const HARMLESS: &[&str] = &[
        "pagetoken",
        "nexttoken",
        "progresstoken",
        "continuationtoken",
        "cancellationtoken",
        "canceltoken",
        "synctoken",
        "eostoken",
        "bostoken",
        "padtoken",
        "stoptoken",
        "maxtoken",
        "pertoken",
    ];
    // Most names are shorter or longer than any of these, and none is worth a copy.
    if name.len() < 3 || name.len() > 128 {
        return false;
    }
    let plain: String = name
        .bytes()
        .filter(u8::is_ascii_alphanumeric)
        .map(|byte| char::from(byte.to_ascii_lowercase()))
        .collect();
    (ENDS.iter().any(|end| plain.ends_with(end)) || matches!(plain.as_str(), "pwd" | "pass" | "pgpassword"))
        && !HARMLESS.iter().any(|end| plain.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_compiles() {
        assert_eq!(SHAPES.each.len(), PREFIXED.len() + SURROUNDED.len());
        assert_eq!(SHAPES.set.len(), SHAPES.each.len());
        assert!(SUSPICIOUS.is_some());
    }
}
