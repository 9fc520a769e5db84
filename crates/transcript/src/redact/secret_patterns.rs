//! Patterns of secrets: keys with a known prefix, and values after a telling name.

use std::ops::Range;
use std::sync::{LazyLock, OnceLock};

use duologue_schema::INVISIBLE;
use regex::bytes::{Regex, RegexSet};

use super::match_starts::MatchStarts;
use super::plain_text::PlainText;

/// The placeholder of a secret.
pub(crate) const SECRET: &str = "[secret]";

/// Checks if a match is a secret.
type Holds = fn(&[u8]) -> bool;

/// Patterns whose first group may be a secret, by the check of that group.
type SecretPatterns = &'static [(Holds, &'static [&'static str])];

/// The text before a key: the end of a word. Escapes in URLs and in JSON within a string end in alphanumeric
/// characters, and count as the end of a word too. So do terminal sequences, such as colours.
const BEFORE: &str = r"(?:^|[^A-Za-z0-9]|\\[nrtbf]|\\u[0-9a-fA-F]{4}|%[0-9A-Fa-f]{2}|\x1b[ -/]*[0-~]|(?:(?:\x1b|\\(?:u001[bB]|u\{(?:00)?1[bB]\}|x1[bB]|033|[eE])|%1[bB])(?:\[|%5[bB])|\xC2\x9B|\\u009[bB]|\\u\{9[bB]\}|%[cC]2%9[bB])[ -?]*[@-~])";

/// Keys with a prefix of their maker.
const PREFIXED: SecretPatterns = &[
    (
        not_words,
        &[
            // OpenAI, Anthropic, OpenRouter, DeepSeek and others.
            r"(sk-[A-Za-z0-9_-]{16,})",
            // PyPI, xAI, Perplexity, NVIDIA, Tavily.
            r"((?:pypi|xai|pplx|nvapi|tvly)-[A-Za-z0-9_-]{16,})",
        ],
    ),
    (
        has_digit,
        &[
            // The same as in a URL.
            r"(sk%2[Dd](?:[A-Za-z0-9_-]|%2[Dd]|%5[Ff]){16,})",
            // Slack.
            r"(x(?:ox[a-z]|app)-[A-Za-z0-9-]{10,})",
            // npm, Groq, Replicate, Notion, Linear, Docker, Shopify.
            r"((?:hf|npm|gsk|r8|ntn|lin_api|dckr_pat|shp(?:at|ca|pa|ss))_[A-Za-z0-9_-]{16,})",
            // crates.io.
            r"(cio[A-Za-z0-9]{32})(?:[^0-9A-Za-z]|$)",
        ],
    ),
    (
        anything,
        &[
            // Stripe.
            r"((?:[srp]k_(?:live|test)|whsec)_[A-Za-z0-9]{10,})",
            // GitHub, GitLab.
            r"(gh[pousr]_[A-Za-z0-9]{16,})",
            r"(github_pat_[A-Za-z0-9_]{16,})",
            r"(gl(?:pat|oas|dt|rt|cbt|ptt|ft|imt|agent|soat)-[A-Za-z0-9_.-]{16,})",
            // Slack.
            r"hooks\.slack\.com/(?:services|workflows)/([A-Za-z0-9/_-]{16,})",
            // Amazon, Google, DigitalOcean, Azure.
            r"((?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16})(?:[^0-9A-Za-z]|$)",
            r"(AIza[0-9A-Za-z_-]{30,})",
            r"(ya29\.[0-9A-Za-z_-]{16,})",
            r"(GOCSPX-[0-9A-Za-z_-]{16,})",
            r"(do[opr]_v1_[a-f0-9]{32,})",
            r"(?:AccountKey|SharedAccessKey)=([A-Za-z0-9+/]{20,}=*)",
            // Hugging Face, whose keys may have no digit.
            r"(hf_[A-Za-z0-9]{30,})",
            // SendGrid, Vault, age, Telegram.
            r"(SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,})",
            r"(hv[sbr]\.[A-Za-z0-9_-]{20,})",
            r"(AGE-SECRET-KEY-1[0-9A-Z]{20,})",
            r"([0-9]{8,10}:AA[A-Za-z0-9_-]{30,})",
            // JSON Web Tokens, signed or encrypted. A detached signature (`eyJ…..…`) is not a secret: it belongs to
            // the message that contains it.
            r"(eyJ[A-Za-z0-9_-]{6,}(?:\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*){1,3}|(?:\.[A-Za-z0-9_-]*){4}))",
        ],
    ),
    (
        encodes_secret,
        &[
            // Any of these in base64, if the text begins with it.
            r"((?:c2st|c2tf|cmtf|Z2h[vwz]|Z2l0aHViX|Z2xwYXQt|QUtJQ|QUl6Y|eG94|aGZf|bnBtX|Z3NrX|LS0tLS1CRUdJTi)[A-Za-z0-9+/_-]{16,}={0,2})",
        ],
    ),
];

/// Secrets that are known by the text around them.
const SURROUNDED: SecretPatterns = &[
    (
        anything,
        &[
            // The password in a URL, up to the last `@` before the path.
            r#"[A-Za-z][A-Za-z0-9+.-]*:\\?/\\?/[^\s/:@"'<>\\]*?(?::|%3[Aa])([^\s/"'<>\\]+)@"#,
            // A cookie.
            r#"(?i)\b(?:set-)?cookie["'\\]*[ \t]*[:=][ \t]*["'\\]*([^\s=;"'\\]+=[^\s;"'\\]*(?:;[^\r\n;"'\\]*)*)"#,
        ],
    ),
    (
        has_digit,
        &[
            // A token in place of the user in a URL.
            r#"[A-Za-z][A-Za-z0-9+.-]*:\\?/\\?/([^\s/:@"'<>\\]{16,})@"#,
        ],
    ),
    (
        random,
        &[
            // Parameters of a URL.
            r#"(?i)[?&](?:[a-z_-]*(?:key|token|signature|secret|password|credential)|sig|auth)=([^&\s"'\\#<>]{6,})"#,
            // `api_key: value` without quotes, only for values that are neither a word nor a name.
            r#"(?i)(?:api[_-]?key|secret|(?:secret|access|private)[_-]?key|credential)["'\\]*[ \t]*(?:=>|:=|[=:])[ \t]*["'\\]*([^\s"'\\,;&|<>(){}\[\]$`]{8,})"#,
            r#"(?i)(?:password|passwd|passphrase)["'\\]*[ \t]*(?:=>|:=|[=:])[ \t]*["'\\]*([^\s"'\\,;&|<>(){}\[\]$`]{6,})"#,
        ],
    ),
    (
        has_digit_or_length,
        &[
            // The value of an Authorization header, in any place.
            r"(?i)\bbearer[ \t]+([a-z0-9._~+/-]{8,}=*)",
            r#"(?i)\b(?:proxy-)?authorization["'\\]*[ \t]*[:=][ \t]*["'\\]*(?:[a-z]{3,12}[ \t]+)?([^\s"'\\,]{8,})"#,
        ],
    ),
    (
        user_and_password,
        &[
            // The user and the password in such a header.
            r"(?i)\bbasic[ \t]+([a-z0-9+/]{6,}={0,2})",
        ],
    ),
    (
        value,
        &[
            // NAME_OF_A_KEY=value, as in a shell or an .env file.
            r#"\b(?:[A-Z0-9_]*(?:API_?KEY|SECRET|SECRET_?KEY|ACCESS_?KEY|PRIVATE_?KEY|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?)|(?:[A-Z0-9_]*_)?(?:TOKEN|PASS)|[A-Z0-9_]*_PWD)=["'\\]*([^\s"'\\;&|<>(){}$`]{4,})"#,
            // "api_key": "value", quoted: in code, configurations and JSON inside a string.
            r#"(?i)(?:api[_-]?key|secret|(?:secret|access|private)[_-]?key|password|passwd|passphrase|(?:auth|access|refresh|id|session|bearer)[_-]?token)["'\\]*[ \t]*(?:=>|:=|[=:])[ \t]*\\*["']([^\s"'\\]{4,})\\*["']"#,
            // --api-key value, as in a command.
            r#"(?i)--[a-z-]*(?:api-?key|token|secret|password)(?:=|[ \t]+)["'\\]*([^\s"'\\;&|<>(){}\[\]$`-][^\s"'\\;&|<>(){}\[\]$`]{5,})"#,
            r#"\bcurl[ \t][^\r\n|;&]{0,200}?(?:-u|--user)[ \t=]*["'\\]*[^\s:"'\\-][^\s:"'\\]*:([^\s"'\\]+)"#,
            r#"\bsshpass[ \t]+-p[ \t]*["'\\]*([^\s"'\\]+)"#,
            // .netrc, on one line or several.
            r"\b(?:machine\s+[^\s\\]+|default)(?:\s|\\[nrt])+login\s+[^\s\\]+(?:\s|\\[nrt])+password\s+([^\s\\]+)",
        ],
    ),
    (
        machine_made,
        &[
            // NAME_KEY=value: the name alone does not tell that the key is secret.
            r#"\b[A-Z0-9_]*_KEY=["'\\]*([^\s"'\\;&|<>(){}$`]{8,})"#,
            // A token is often a part of a text, so its value must be generated.
            r#"(?i)token["'\\]*[ \t]*(?:=>|:=|[=:])[ \t]*["'\\]*([^\s"'\\,;&|<>(){}\[\]$`]{8,})"#,
        ],
    ),
];

/// Returns each pattern with its check.
fn all(patterns: SecretPatterns) -> impl Iterator<Item = (&'static str, Holds)> {
    patterns.iter().flat_map(|(holds, patterns)| patterns.iter().map(|pattern| (*pattern, *holds)))
}

/// The patterns, compiled once. Most recordings need few of them alone.
struct Compiled {
    set: RegexSet,
    each: Vec<SinglePattern>,
}

/// A pattern that is compiled when the set matches it.
struct SinglePattern {
    pattern: String,
    regex: OnceLock<Option<Regex>>,
    holds: Holds,
}

impl SinglePattern {
    fn regex(&self) -> Option<&Regex> {
        self.regex.get_or_init(|| Regex::new(&self.pattern).ok()).as_ref()
    }
}

static PATTERNS: LazyLock<Compiled> = LazyLock::new(|| {
    let prefixed = all(PREFIXED).map(|(pattern, holds)| (format!("(?-u){BEFORE}{pattern}"), holds));
    let surrounded = all(SURROUNDED).map(|(pattern, holds)| (format!("(?-u){pattern}"), holds));
    let single = |(pattern, holds)| SinglePattern { pattern, regex: OnceLock::new(), holds };
    let each: Vec<_> = prefixed.chain(surrounded).map(single).collect();
    // The patterns are constant, and a test compiles each of them.
    let set = RegexSet::new(each.iter().map(|single| &single.pattern)).unwrap_or_else(|_| RegexSet::empty());
    Compiled { set, each }
});

/// The prefixes of keys, also in base64.
const KEY_PREFIXES: &str = r"sk-|[srp]k_(?:live|test)_|whsec_|gh[pousr]_|github_pat_|gl[a-z]{2,5}-|xox[a-z]-|xapp-|sk%2|AKIA|ASIA|ABIA|ACCA|AIza|ya29\.|GOCSPX-|do[opr]_v1_|hf_|npm_|gsk_|r8_|ntn_|lin_api_|dckr_pat_|shp(?:at|ca|pa|ss)_|pypi-|xai-|pplx-|nvapi-|tvly-|SG\.|hv[sbr]\.|AGE-SECRET|eyJ|c2st|c2tf|cmtf|Z2h[vwz]|Z2l0aHViX|Z2xwYXQt|QUtJQ|QUl6Y|eG94|aGZf|bnBtX|Z3NrX|LS0tLS1CRUdJTi";

/// The patterns of placeholders with the start of their secret, by the first group.
static STARTS: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    let placeholders = format!("(?:{})+", regex::escape(SECRET));
    let names = r"key|token|secret|pass(?:word|wd|phrase)?|pwd|credentials?|authorization|cookie|bearer|basic|sig(?:nature)?|auth";
    let patterns = [
        format!(r"{BEFORE}((?:{KEY_PREFIXES}|cio|[0-9]{{8,10}}:AA)[A-Za-z0-9_.+/=~%-]*{placeholders})"),
        format!(r"hooks\.slack\.com/(?:services|workflows)/([A-Za-z0-9/_-]*{placeholders})"),
        // A value after its name and the scheme of a header.
        format!(
            r#"(?i:{names})["'\\]*(?:[ \t]*(?:=>|:=|[=:])[ \t]*|\s+)["'\\]*(?:[A-Za-z]{{3,12}}[ \t]+)?([^\s"'\\,;&|<>(){{}}\[\]$`]+{placeholders})"#
        ),
        // A token in place of the user in a URL.
        format!(r#":\\?/\\?/([^\s/:@"'<>\\\[\]]*{placeholders})@"#),
        // A secret that came in several pieces.
        format!("({0}{placeholders})", regex::escape(SECRET)),
    ];
    patterns.iter().filter_map(|pattern| Regex::new(&format!("(?-u){pattern}")).ok()).collect()
});

/// Calls `found` with each placeholder that follows the start of a secret, together with that start.
pub(super) fn find_starts(text: &[u8], mut found: impl FnMut(Range<usize>)) {
    let search = |text: &[u8], found: &mut dyn FnMut(Range<usize>)| {
        let captures = STARTS.iter().flat_map(|pattern| pattern.captures_iter(text));
        captures.filter_map(|captures| captures.get(1)).for_each(|group| found(group.range()));
    };
    search(text, &mut found);
    if let Some(plain) = PlainText::of(text) {
        search(&plain.text, &mut |span| found(plain.span(span)));
    }
}

/// Returns true for the characters of keys.
pub(super) fn in_key(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+/=_.~%-".contains(byte)
}

/// Returns the number of bytes at the start of a text that go on with a key.
pub(super) fn rest_of_key(text: &[u8]) -> usize {
    let rest = text.iter().position(|byte| !in_key(byte)).unwrap_or(text.len());
    // A full stop ends a sentence.
    let last = text.get(..rest).and_then(|rest| rest.iter().rposition(u8::is_ascii_alphanumeric));
    last.map_or(0, |last| if text.get(last + 1..rest) == Some(b".") { last + 1 } else { rest })
}

/// Matches each line that may contain a secret, and few others. An escaped letter may be a part of any secret.
static SUSPICIOUS: LazyLock<Option<Suspicions>> = LazyLock::new(|| {
    let Invisible { pattern, starts } = Invisible::new();
    // A test computes both.
    Some(Suspicions {
        starts: MatchStarts::of(&suspicions(&starts))?,
        pattern: Regex::new(&suspicions(&pattern)).ok()?,
    })
});

/// A pattern with a filter in front of it.
struct Suspicions {
    starts: MatchStarts,
    pattern: Regex,
}

impl Suspicions {
    /// Returns a place that no match starts before, and the text from there; `None` if there is no match.
    fn filter<'t>(&self, text: &'t [u8]) -> Option<(usize, &'t [u8])> {
        // An invisible character may be the second one of a match.
        let start = self.starts.find(text)?.saturating_sub(1);
        Some((start, text.get(start..)?))
    }
}

/// The whole strings that are suspicious. No other alternative of [`SUSPICIOUS`] contains a quote.
const STRINGS: [&str; 8] =
    ["env", "headers", "httpHeaders", "http_headers", "mcpServers", "auth", "authenticate", "auth/login"];

/// Returns the pattern of [`SUSPICIOUS`]. No alternative depends on the text around it. Only the user in a URL may
/// be longer than [`REACH`], and it contains no quote. [`unlike`] relies on both.
fn suspicions(invisible: &str) -> String {
    let others = r"hooks\.slack|AccountKey|SharedAccessKey|cio[A-Za-z0-9]{8}|:AA[A-Za-z0-9_-]{8}";
    // Percent-encoded characters that need no encoding.
    let encoded = r"%(?:2[Dd]|5[Ff]|3[0-9]|[46][1-9A-Fa-f]|[57][0-9Aa])";
    let names = r"(?i:key|token|secret|pass|pwd|credential|authoriz|cookie|bearer|basic|signature|[?&]sig=|[?&]auth=)";
    let places = r#"curl\s|:\\?/\\?/[^\s"/@]*@|PRIVATE KEY"#;
    let terminal = r"\x1b[\[\](]|\\u001[bB]|\\x1[bB]\[|\\033\[|\\[eE]\[|\\u\{(?:1|001|9)[bB]|%1[bB]|%9[bB]|\xC2\x9B|\\u009[bB]";
    // JSON may escape a slash.
    let strings = STRINGS.join("|").replace('/', r"\\?/");
    format!(
        r#"(?-u)\\u00[2-7]|{KEY_PREFIXES}|{others}|{encoded}|{terminal}|{invisible}|{names}|{places}|"(?:{strings})""#
    )
}

/// The pattern of invisible characters, as bytes and as escapes of JSON.
struct Invisible {
    /// Those of emoji and scripts can hide a key only after ASCII, so they match with the character before.
    pattern: String,
    /// The first three bytes of each.
    starts: String,
}

impl Invisible {
    fn new() -> Self {
        let escapes = format!(r"\\u(?i:{})", Self::escapes().join("|"));
        Invisible {
            pattern: format!("{}|{escapes}", Self::characters()),
            starts: format!("{}|{escapes}", Self::starts().join("|")),
        }
    }

    fn characters() -> String {
        let (mut hiding, mut joining) = (String::new(), String::new());
        for range in INVISIBLE {
            let joins = matches!(range.start(), '\u{200B}'..='\u{200F}' | '\u{FE00}'..='\u{FE0F}');
            let class = if joins { &mut joining } else { &mut hiding };
            let (start, end) = (u32::from(*range.start()), u32::from(*range.end()));
            class.push_str(&format!(r"\x{{{start:x}}}-\x{{{end:x}}}"));
        }
        format!(r"(?u:[{hiding}])|[!-~](?u:[{joining}])")
    }

    fn escapes() -> Vec<String> {
        // The first half of a surrogate pair is enough.
        let first = |char: char| char.encode_utf16(&mut [0; 2]).first().copied().unwrap_or_default();
        let mut escapes: Vec<_> =
            INVISIBLE.iter().flat_map(Clone::clone).map(|char| format!("{:04x}", first(char))).collect();
        escapes.dedup();
        escapes
    }

    fn starts() -> Vec<String> {
        let start = |char: char| {
            let char = char.to_string();
            char.bytes().take(MatchStarts::LENGTH).map(|byte| format!(r"\x{byte:02x}")).collect::<String>()
        };
        let mut starts: Vec<_> = INVISIBLE.iter().flat_map(Clone::clone).map(start).collect();
        starts.dedup();
        starts
    }
}

/// The length of the longest match of [`SUSPICIOUS`], except for the user in a URL.
pub(super) const REACH: usize = 16;

/// Returns true if a line may contain a secret. Much faster than a search for each pattern.
pub(crate) fn suspicious(line: &[u8]) -> bool {
    let Some(suspicions) = &*SUSPICIOUS else { return true };
    suspicions.filter(line).is_some_and(|(_, rest)| suspicions.pattern.is_match(rest))
}

/// Returns the end of the last part of a text that may begin a secret, or a URL.
pub(super) fn last_suspicion(text: &[u8]) -> Option<usize> {
    let Some(suspicions) = &*SUSPICIOUS else { return Some(text.len()) };
    // The filter stops at each URL too.
    let (start, rest) = suspicions.filter(text)?;
    let url = memchr::memmem::rfind(rest, b"://").map(|at| start + at + 3);
    suspicions.pattern.find_iter(rest).last().map(|last| start + last.end()).max(url)
}

/// Returns true if a string without escapes is suspicious because of its quotes.
pub(super) fn suspicious_string(string: &[u8]) -> bool {
    STRINGS.iter().any(|known| known.as_bytes() == string)
}

/// Returns the part of a line that has to be checked if its start and end are those of a clean line: the changed
/// part, and as much around it as a match may reach.
pub(crate) fn unlike(clean: &[u8], line: &[u8]) -> Range<usize> {
    let same = |(here, there): &(&[u8], &[u8])| here == there;
    let before = line.chunks_exact(REACH).zip(clean.chunks_exact(REACH)).take_while(same).count() * REACH;
    let after = line.rchunks_exact(REACH).zip(clean.rchunks_exact(REACH)).take_while(same).count() * REACH;
    let after = line.len() - after;
    let quote = line.get(..before).and_then(|before| memchr::memrchr(b'"', before));
    let start = quote.map_or(0, |quote| (quote + 1).min(before - REACH));
    let quote = line.get(after..).and_then(|after| memchr::memchr(b'"', after));
    let end = quote.map_or(line.len(), |quote| (after + quote).max(after + REACH));
    start.min(end)..end
}

/// The patterns of the begin and end of a private key.
static PRIVATE_KEY: LazyLock<Option<[Regex; 2]>> = LazyLock::new(|| {
    let label = "[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----";
    let regex = |word| Regex::new(&format!("(?-u)-----{word} {label}")).ok();
    Some([regex("BEGIN")?, regex("END")?])
});

/// A private key in a text.
pub(crate) struct PrivateKey {
    begin: Range<usize>,
    /// The end of the key, if the text contains it.
    pub(crate) end: Option<usize>,
    /// The start of the next key: this one must have ended before.
    next: usize,
}

/// Calls `found` with each private key in a text.
pub(crate) fn private_keys(text: &[u8], mut found: impl FnMut(PrivateKey)) {
    let Some([begin, end]) = &*PRIVATE_KEY else { return };
    if memchr::memmem::find(text, b"PRIVATE KEY").is_none() {
        return;
    }
    let mut begins = begin.find_iter(text).peekable();
    let mut ends = end.find_iter(text).map(|end| end.end()).peekable();
    while let Some(begin) = begins.next() {
        while ends.next_if(|end| *end <= begin.end()).is_some() {}
        let next = begins.peek().map_or(text.len(), |next| next.start());
        found(PrivateKey {
            begin: begin.range(),
            end: ends.peek().copied().filter(|end| *end <= next),
            next,
        });
    }
}

impl PrivateKey {
    /// Returns the span of the key. A key that is cut off ends with its last line of base64.
    fn span(&self, text: &[u8]) -> Range<usize> {
        let cut_off = || {
            let body = |byte: &u8| {
                byte.is_ascii_alphanumeric() || byte.is_ascii_whitespace() || b"+/=\\:,-".contains(byte)
            };
            let rest = text.get(self.begin.end..self.next).unwrap_or_default();
            let limit = rest.iter().position(|byte| !body(byte)).unwrap_or(rest.len());
            let (mut last, mut start) = (0, 0);
            for line in rest.split(|byte| *byte == b'\n') {
                parts_of_key(line, |part| {
                    if start + part.end <= limit {
                        last = start + part.end;
                    }
                });
                start += line.len() + 1;
                if start > limit {
                    break;
                }
            }
            self.begin.end + last
        };
        self.begin.start..self.end.unwrap_or_else(cut_off)
    }
}

/// Calls `found` with the parts of a line that may belong to a private key: at least 16 alphanumeric
/// characters in a row, or a line that consists of them.
pub(crate) fn parts_of_key(line: &[u8], mut found: impl FnMut(Range<usize>)) {
    const MANY: usize = 16;
    let whole = line.trim_ascii();
    let in_key = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=".contains(byte);
    let mut at = 0;
    for part in line.chunk_by(|a, b| in_key(a) == in_key(b)) {
        let span = at..at + part.len();
        at = span.end;
        if part.first().is_some_and(in_key) && (part.len() >= MANY || part == whole) {
            found(span);
        }
    }
}

/// Returns the end of a private key that started before this text.
pub(crate) fn end_of_private_key(text: &[u8]) -> Option<usize> {
    PRIVATE_KEY.as_ref().and_then(|[_, end]| Some(end.find(text)?.end()))
}

/// Calls `found` with each secret in a text, also if it is percent-encoded or contains invisible characters or
/// terminal sequences. They may overlap.
pub(crate) fn find(text: &[u8], mut found: impl FnMut(Range<usize>)) {
    find_as_spelled(text, &mut found);
    if let Some(plain) = PlainText::of(text) {
        find_as_spelled(&plain.text, |span| found(plain.span(span)));
    }
}

fn find_as_spelled(text: &[u8], mut found: impl FnMut(Range<usize>)) {
    private_keys(text, |key| found(key.span(text)));
    let shapes = &*PATTERNS;
    for single in shapes.set.matches(text).into_iter().filter_map(|at| shapes.each.get(at)) {
        for captures in single.regex().into_iter().flat_map(|regex| regex.captures_iter(text)) {
            if let Some(group) = captures.get(1)
                && group.as_bytes() != SECRET.as_bytes()
                && (single.holds)(group.as_bytes())
            {
                found(group.range());
            }
        }
    }
}

/// Accepts base64 of a text that contains a secret.
fn encodes_secret(text: &[u8]) -> bool {
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
    let bare = text.split(|byte| *byte == b'=').next().unwrap_or_default();
    // A cut-off text may end within a group.
    let whole = bare.get(..bare.len() / 4 * 4).unwrap_or_default();
    let decoded = [bare, whole]
        .into_iter()
        .find_map(|text| STANDARD_NO_PAD.decode(text).or_else(|_| URL_SAFE_NO_PAD.decode(text)).ok());
    let mut is_secret = false;
    decoded.into_iter().for_each(|decoded| find_as_spelled(&decoded, |_| is_secret = true));
    is_secret
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

/// Rejects words, such as `sk-learn-contrib-something`.
fn not_words(text: &[u8]) -> bool {
    has_digit(text) || text.split(|byte| matches!(byte, b'-' | b'_')).any(|part| part.len() >= 16)
}

/// Accepts values with a digit and an alphabetic character.
fn random(text: &[u8]) -> bool {
    has_digit(text) && text.iter().any(u8::is_ascii_alphabetic) && value(text)
}

/// Accepts generated values, with digits in the middle. Names and words are rejected.
pub(crate) fn machine_made(text: &[u8]) -> bool {
    let text = text.trim_ascii();
    // The value may follow the name of a variable: `PWD=/home/me1/x2y3`.
    let name = text.iter().take_while(|byte| byte.is_ascii_uppercase() || **byte == b'_').count();
    let place = text.get(name..).and_then(|rest| rest.strip_prefix(b"=")).unwrap_or(text);
    let is_path = matches!(place, [b'/' | b'~' | b'.', ..]) || memchr::memmem::find(text, b"://").is_some();
    let groups = text.chunk_by(|a, b| a.is_ascii_digit() == b.is_ascii_digit());
    let mut groups = groups.filter(|group| has_digit(group));
    // A name such as `identifier42` ends with digits.
    let inner =
        groups.next().is_some() && (groups.next().is_some() || (ends_in_word(text) && text.len() >= 12));
    text.len() >= 8 && inner && !is_path && !text.contains(&b' ') && random(text)
}

/// Accepts `name=value; …`.
pub(crate) fn is_cookie(text: &[u8]) -> bool {
    let first = text.split(|byte| *byte == b';').next().unwrap_or_default();
    let mut halves = first.splitn(2, |byte| *byte == b'=');
    let bare = |half: Option<&[u8]>| {
        half.is_some_and(|half| !half.is_empty() && !half.iter().any(u8::is_ascii_whitespace))
    };
    bare(halves.next()) && bare(halves.next()) && value(text)
}

fn ends_in_word(text: &[u8]) -> bool {
    text.last().is_some_and(|last| !last.is_ascii_digit())
}

/// Accepts the base64 of `user:password`.
fn user_and_password(text: &[u8]) -> bool {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD_NO_PAD;
    let text = text.trim_ascii_end();
    let bare = text.split(|byte| *byte == b'=').next().unwrap_or_default();
    STANDARD_NO_PAD.decode(bare).is_ok_and(|decoded| decoded.contains(&b':'))
        || (has_digit(text) && text.len() >= 16)
}

/// Returns true if the value of a secret is a real one, and neither a common word nor a reference.
pub(crate) fn value(text: &[u8]) -> bool {
    const WORDS: &str = "string null none nil true false undefined required optional include omit \
        same-origin redacted bearer basic default unset empty missing hidden changeme change_me \
        change-me placeholder example";
    let text = text.trim_ascii();
    let variable = text.strip_prefix(b"$").is_some_and(|name| {
        name.iter().all(|byte| byte.is_ascii_uppercase() || matches!(byte, b'_' | b'{' | b'}'))
    });
    let in_brackets = text.starts_with(b"<") && text.ends_with(b">");
    let reference =
        variable || in_brackets || text.starts_with(b"process.env") || text.starts_with(b"os.environ");
    text.iter().any(u8::is_ascii_alphanumeric)
        // The writer has elided the rest.
        && !text.ends_with(b"...")
        && text != SECRET.as_bytes()
        && !reference
        && !WORDS.split(' ').any(|word| text.eq_ignore_ascii_case(word.as_bytes()))
}

/// The secrecy of a value, by the name of its member, variable or header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Secrecy {
    /// A generated value is secret.
    Perhaps,
    /// A generated value is secret, and so is a cookie.
    Cookie,
    /// Any value except a number is secret, since a number may be a count.
    Surely,
    /// Any value is secret.
    Always,
}

/// Returns the secrecy of values with this name.
pub(crate) fn names_secret(name: &str) -> Option<Secrecy> {
    const ALWAYS: &str = "apikey secretkey accesskey privatekey signingkey encryptionkey password passwd \
        passphrase secret authorization credential";
    const SURELY: &str = "token jwt pwd";
    // Tokens that are not secret, such as positions in a list, progress marks and parts of a text, and keys that
    // protect nothing.
    const HARMLESS: &str = "pagetoken nexttoken progresstoken continuationtoken cancellationtoken \
        canceltoken synctoken eostoken bostoken padtoken stoptoken maxtoken pertoken publickey \
        primarykey foreignkey cachekey sortkey partitionkey idempotencykey oldpwd";
    /// Names whose plural is not a count of text parts.
    const TOKENS: &str = "apitoken authtoken accesstoken refreshtoken bearertoken";
    // Most names are shorter or longer than any of these, so they are not copied.
    if name.len() < 3 || name.len() > 128 {
        return None;
    }
    let plain: String = name
        .bytes()
        .filter(u8::is_ascii_alphanumeric)
        .map(|byte| char::from(byte.to_ascii_lowercase()))
        .collect();
    let (one, several) = match plain.strip_suffix('s') {
        Some(one) if !one.ends_with('s') => (one, true),
        _ => (plain.as_str(), false),
    };
    let ends = |list: &str| list.split(' ').any(|end| one.ends_with(end));
    let ends_in = |word: &str| ends_in(name.trim_end_matches(['s', 'S']), word) || ends_in(name, word);
    if ends(HARMLESS) {
        return None;
    }
    if ends(ALWAYS) {
        return Some(Secrecy::Always);
    }
    match one {
        "bearer" => Some(Secrecy::Surely),
        "token" | "pwd" | "pass" => Some(Secrecy::Perhaps),
        _ if several && one.ends_with("token") && !ends(TOKENS) => Some(Secrecy::Perhaps),
        _ if ends(SURELY) => Some(Secrecy::Surely),
        _ if ends_in("PASS") => Some(Secrecy::Surely),
        _ if one.ends_with("cookie") => Some(Secrecy::Cookie),
        _ if one != "key" && ends_in("key") || ends_in("pass") => Some(Secrecy::Perhaps),
        _ => None,
    }
}

/// Returns true if this is the last word of a name: of `openaiKey`, `OPENAI_KEY` and `openai-key`, but not of
/// `monkey`. A word in capitals matches only capitals.
fn ends_in(name: &str, word: &str) -> bool {
    let Some((before, last)) = name.len().checked_sub(word.len()).and_then(|at| name.split_at_checked(at))
    else {
        return false;
    };
    let alone = before.is_empty() || before.ends_with(['_', '-', '.', ' ']);
    let capital = last.starts_with(|char: char| char.is_ascii_uppercase())
        && before.ends_with(|char: char| char.is_ascii_lowercase() || char.is_ascii_digit());
    let is_word = if word.starts_with(|char: char| char.is_ascii_uppercase()) {
        last == word
    } else {
        last.eq_ignore_ascii_case(word)
    };
    is_word && (alone || capital)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_compiles() {
        assert!(PATTERNS.each.iter().all(|single| single.regex().is_some()));
        assert_eq!(PATTERNS.set.len(), PATTERNS.each.len());
        assert!(SUSPICIOUS.is_some());
        assert_eq!(last_suspicion(b"at https://example.com, or key"), Some(30));
        assert_eq!(last_suspicion(b"at https://example.com"), Some(11));
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config { failure_persistence: None, cases: 1_000, ..Default::default() })]

        /// Each match is checked, wherever a line starts and stops to differ from a clean one.
        #[test]
        fn nothing_hides_in_what_is_like_a_clean_line(
            before in "[\"a:/ ]{0,60}",
            suspicion in proptest::string::bytes_regex(&suspicions(&Invisible::new().pattern)).unwrap(),
            after in "[\"a@/]{0,60}",
            between in "[.]{0,40}",
            begins: proptest::sample::Index,
            ends: proptest::sample::Index,
        ) {
            let line = [before.as_bytes(), &suspicion, after.as_bytes()].concat();
            // Neither of the equal parts contains all of it.
            let begins = begins.index(before.len() + suspicion.len());
            let ends = line.len() - ends.index(suspicion.len() + after.len());
            let clean = [&line[..begins], between.as_bytes(), &line[ends..]].concat();
            proptest::prop_assert!(suspicious(&line));
            proptest::prop_assume!(!suspicious(&clean));
            let new = &line[unlike(&clean, &line)];
            proptest::prop_assert!(suspicious(new), "{} | {}", new.escape_ascii(), clean.escape_ascii());
        }
    }
}
