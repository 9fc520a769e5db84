//! The complete description of a tool call, for the user who decides about it.

use std::collections::HashSet;
use std::path::Path;

use duologue_schema::{Json, Members, PermissionOption, ToolCall, ToolCallContent};
use duologue_transcript::describe;

use super::blocks;
use super::rows::Span;
use crate::ui::{BAD, BOLD, DIM, MARK, plural};

/// Limit on the lines of a description. The rest is counted.
const MAX_LINES: usize = 100_000;
/// Longest line in characters. A longer one goes on in the next line.
const LINE_CHARS: usize = 1000;
/// Longest title in characters in front of the input. All of a longer one is behind everything else.
const TITLE_CHARS: usize = 200;
/// Longest name of a member in bytes that stands in one line with its value.
const LONGEST_NAME: usize = 100;
/// Members of an input that hold a command.
const COMMANDS: [&str; 2] = ["command", "cmd"];
/// Members of an input that hold a path.
const PATHS: [&str; 6] = ["cwd", "path", "file_path", "filePath", "abs_path", "notebook_path"];

/// The left margin of the agent's lines, so that none of them can pass for a question of this program.
pub(super) const MARGIN: &str = "│ ";
/// The margin of a row that goes on with the text above.
const CONTINUED: &str = "┊ ";

/// A line without line breaks.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DetailLine {
    pub(super) spans: Vec<Span>,
    /// The margins of its first row and of every further row.
    pub(super) margins: [&'static str; 2],
}

/// Lines that describe a tool call.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Details {
    pub(super) lines: Vec<DetailLine>,
    /// The number of lines over the limit.
    pub(super) left_out: usize,
}

impl Details {
    /// Describes a call completely: kind, title, input, files, content and whole diffs.
    pub(super) fn of(call: &ToolCall) -> Self {
        let mut details = Details::default();
        let kind = format!("{:.30}  ", call.kind.as_str());
        let title = title(&call.title);
        details.push(vec![Span::line(MARK, &kind)], BOLD, &title);
        let name = call.name.as_ref().filter(|name| **name != call.title);
        if let Some(name) = name {
            details.push(vec![Span::new(DIM, "tool: ")], blocks::NORMAL, &self::title(name));
        }
        let described = details.lines.len();
        let diffs = Diffs::of(&call.content);
        if let Some(input) = &call.raw_input {
            details.input(input, &diffs);
        }
        for location in &call.locations {
            if location.line.is_none() && diffs.paths.contains(location.path.as_path()) {
                continue;
            }
            let location = describe::location(location);
            details.push(vec![Span::new(DIM, "file: ")], blocks::NORMAL, &location);
        }
        let mut next_diff = diffs.lines.iter();
        for content in &call.content {
            match content {
                ToolCallContent::Diff(diff) => {
                    let new_file = if diff.old_text.is_none() { " (new)" } else { "" };
                    let path = format!("{}{new_file}", diff.path.display());
                    details.push(vec![Span::new(DIM, "change: ")], BOLD, &path);
                    for (style, line) in next_diff.next().into_iter().flatten() {
                        details.push(Vec::new(), *style, line);
                    }
                }
                ToolCallContent::Changes(diff) => {
                    for change in &diff.changes {
                        let operation = describe::file_operation(&change.operation);
                        details.push(vec![Span::new(DIM, "change: ")], BOLD, &operation);
                    }
                    if let Some(patch) = &diff.patch {
                        details.text("", blocks::NORMAL, &patch.text);
                    }
                }
                ToolCallContent::Content(content) => {
                    details.text("", DIM, &describe::content(&content.content));
                }
                other => details.push(Vec::new(), DIM, &blocks::label(&describe::tool_content(other))),
            }
        }
        if details.lines.len() == described {
            let text = "only the title says what it does: no input, no files, no content";
            details.push(Vec::new(), BAD, text);
        }
        if title != call.title {
            details.push(vec![Span::new(DIM, "the whole title: ")], blocks::NORMAL, &call.title);
        }
        if let Some(name) = name.filter(|name| self::title(name) != **name) {
            details.push(vec![Span::new(DIM, "the whole tool: ")], blocks::NORMAL, name);
        }
        details
    }

    /// Adds one line, in pieces if it is long.
    fn push(&mut self, mut prefix: Vec<Span>, style: anstyle::Style, text: &str) {
        let mut rest = text;
        let mut continues = false;
        loop {
            let end = rest.char_indices().nth(LINE_CHARS).map_or(rest.len(), |(index, _)| index);
            let (piece, more) = rest.split_at(end);
            if self.lines.len() < MAX_LINES {
                let mut spans = std::mem::take(&mut prefix);
                spans.push(Span::line(style, piece));
                let first = if continues { CONTINUED } else { MARGIN };
                self.lines.push(DetailLine { spans, margins: [first, CONTINUED] });
            } else {
                self.left_out += 1;
            }
            if more.is_empty() {
                return;
            }
            (rest, continues) = (more, true);
        }
    }

    /// Adds text of any number of lines.
    fn text(&mut self, indent: &str, style: anstyle::Style, text: &str) {
        for line in text.lines() {
            self.push(vec![Span::plain(indent)], style, line);
        }
    }

    /// Adds the input of the tool: the command first, then the paths, then everything else in its
    /// order.
    fn input(&mut self, input: &Json, diffs: &Diffs<'_>) {
        let Ok(members) = input.parse::<Members>() else {
            return match input.get().trim() {
                "null" | "\"\"" | "[]" => {}
                other => self.member("input", other, diffs),
            };
        };
        let rank = |name: &str| match name {
            name if COMMANDS.contains(&name) => 0,
            "args" => 1,
            name if PATHS.contains(&name) => 2,
            _ => 3,
        };
        let mut members: Vec<_> = members.iter().collect();
        members.sort_by_key(|(name, _)| rank(name));
        for (name, value) in members {
            match words(value).filter(|_| COMMANDS.contains(&name)) {
                Some(command) => {
                    let mut lines = command.lines();
                    self.push(vec![Span::new(MARK, "$ ")], BOLD, lines.next().unwrap_or_default());
                    lines.for_each(|line| self.push(vec![Span::plain("  ")], BOLD, line));
                }
                None => self.member(name, value, diffs),
            }
        }
    }

    /// Adds a member of the input: a string of several lines as these, everything else as JSON.
    fn member(&mut self, name: &str, json: &str, diffs: &Diffs<'_>) {
        let is_long = name.len() > LONGEST_NAME;
        if is_long {
            self.push(Vec::new(), DIM, name);
        }
        let name = if is_long { "" } else { name };
        let label = |text: &str| vec![Span::line(DIM, &format!("{name}: ")), Span::new(DIM, text)];
        let string = serde_json::from_str::<String>(json).ok().filter(|text| text.contains('\n'));
        let Some(text) = string else {
            let pretty = pretty(json);
            let mut lines = pretty.lines();
            self.push(label(""), blocks::NORMAL, lines.next().unwrap_or_default());
            return lines.for_each(|line| self.push(vec![Span::plain("  ")], blocks::NORMAL, line));
        };
        if diffs.shown_new.contains(text.as_str()) {
            return self.push(label("the new text of the change below"), DIM, "");
        }
        if diffs.shown_old.contains(text.as_str()) {
            return self.push(label("the old text of the change below"), DIM, "");
        }
        self.push(label(""), DIM, &format!("text of {} lines", text.lines().count()));
        self.text("    ", blocks::NORMAL, &text);
    }
}

/// Returns the line of an option in a question: its number, its kind and its name.
pub(super) fn option(number: usize, option: &PermissionOption) -> DetailLine {
    let spans = vec![
        Span::new(MARK, &format!("  {number}  ")),
        // The name comes last because the agent may write anything into it.
        Span::line(DIM, &format!("{:<15.30}", option.kind.as_str().replace('_', " "))),
        Span::line(blocks::NORMAL, &short(&option.name)),
    ];
    DetailLine { spans, margins: ["", "     "] }
}

/// Returns a line of this program about left-out text.
pub(super) fn remark(text: &str) -> DetailLine {
    DetailLine { spans: vec![Span::new(BAD, text)], margins: ["", ""] }
}

/// Cuts a title, which must not push the command out of the window.
pub(super) fn title(text: &str) -> String {
    cut(text, TITLE_CHARS)
}

/// Cuts a text to one line, and adds the number of cut characters.
pub(super) fn short(text: &str) -> String {
    cut(text, LINE_CHARS)
}

fn cut(text: &str, chars: usize) -> String {
    match text.char_indices().nth(chars) {
        None => text.to_owned(),
        Some((end, _)) => {
            let (shown, rest) = text.split_at(end);
            format!("{shown}… ({})", plural(rest.chars().count(), "more character"))
        }
    }
}

/// The diffs of a call, and the texts that their lines show whole.
#[derive(Default)]
struct Diffs<'a> {
    paths: HashSet<&'a Path>,
    lines: Vec<Vec<(anstyle::Style, String)>>,
    shown_old: HashSet<&'a str>,
    shown_new: HashSet<&'a str>,
}

impl<'a> Diffs<'a> {
    fn of(content: &'a [ToolCallContent]) -> Self {
        let mut diffs = Diffs::default();
        // Of all diffs of one question together.
        let mut budget = blocks::COMPARED_LINES;
        for content in content {
            let ToolCallContent::Diff(diff) = content else { continue };
            let shown = blocks::diff_lines_within(diff, &mut budget);
            diffs.paths.insert(&diff.path);
            // Lines that are far from a change are not shown.
            if shown.new_bytes == diff.new_text.len() {
                diffs.shown_new.insert(&diff.new_text);
            }
            if let Some(old) = diff.old_text.as_deref().filter(|old| shown.old_bytes == old.len()) {
                diffs.shown_old.insert(old);
            }
            diffs.lines.push(shown.lines);
        }
        diffs
    }
}

/// Returns the first command in the input of a tool, if there is one.
pub(super) fn command(input: &Json) -> Option<String> {
    let members: Members = input.parse().ok()?;
    let mut commands = members.iter().filter(|(name, _)| COMMANDS.contains(name));
    commands.find_map(|(_, value)| words(value))
}

/// Returns the command line in a JSON string, or in a list of words.
fn words(json: &str) -> Option<String> {
    let words = || serde_json::from_str::<Vec<String>>(json).ok().filter(|words| !words.is_empty());
    serde_json::from_str(json).ok().or_else(|| words().map(|words| shell_words(&words)))
}

/// Joins words into a line that a POSIX shell would split into the same words.
pub(super) fn shell_words<T: AsRef<str>>(words: &[T]) -> String {
    let plain = |char: char| char.is_ascii_alphanumeric() || "_@%+=:,./-".contains(char);
    let quoted = words.iter().map(AsRef::as_ref).map(|word| match word {
        word if !word.is_empty() && word.chars().all(plain) => word.to_owned(),
        word => format!("'{}'", word.replace('\'', r"'\''")),
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// Breaks JSON text into indented lines. Numbers keep their spelling, and strings lose the escapes that
/// they do not need: `\u002d` is shown as `-`.
fn pretty(json: &str) -> String {
    let (mut out, mut depth, mut opened) = (String::with_capacity(json.len()), 0_usize, false);
    let mut rest = json;
    while let Some(char) = rest.chars().next() {
        let (token, behind) = rest.split_at(if char == '"' { string_end(rest) } else { char.len_utf8() });
        rest = behind;
        if char.is_ascii_whitespace() {
            continue;
        }
        let closes = matches!(char, '}' | ']');
        if closes {
            depth = depth.saturating_sub(1);
        }
        // An empty list or object stays in one line.
        if opened != closes {
            new_line(&mut out, depth);
        }
        opened = matches!(char, '{' | '[');
        match char {
            '"' => {
                let plain =
                    serde_json::from_str::<String>(token).and_then(|text| serde_json::to_string(&text));
                out.push_str(plain.as_deref().unwrap_or(token));
            }
            _ => out.push(char),
        }
        match char {
            '{' | '[' => depth += 1,
            ',' => new_line(&mut out, depth),
            ':' => out.push(' '),
            _ => {}
        }
    }
    out
}

/// Returns where the string ends that the text begins with.
fn string_end(text: &str) -> usize {
    let mut escaped = false;
    for (index, char) in text.char_indices().skip(1) {
        match char {
            '"' if !escaped => return index + 1,
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    text.len()
}

fn new_line(out: &mut String, depth: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n("  ", depth));
}

#[cfg(test)]
mod tests {
    use duologue_schema::{Diff, Json, ToolCall, ToolCallContent, ToolCallLocation, ToolKind};

    use super::super::rows::flat;
    use super::{CONTINUED, Details, LINE_CHARS, MAX_LINES, pretty, shell_words};

    fn text(call: &ToolCall) -> String {
        let lines = Details::of(call).lines;
        lines.iter().map(|line| format!("{}\n", flat(&line.spans))).collect()
    }

    fn call(input: &str) -> ToolCall {
        let mut call = ToolCall::new("call-1", "Bash");
        call.kind = ToolKind::Execute;
        call.raw_input = serde_json::from_str::<Json>(input).ok();
        call
    }

    #[test]
    fn the_command_comes_first_and_nothing_of_the_input_is_left_out() {
        insta::assert_snapshot!(
            text(&call(r#"{"description":"List files","timeout":1e400,"a":[],"b":{"c":[1,"x,\"{"]},"cwd":"/tmp","command":"rm -rf /\nls"}"#)),
            @r#"
        execute  Bash
        $ rm -rf /
          ls
        cwd: "/tmp"
        description: "List files"
        timeout: 1e400
        a: []
        b: {
            "c": [
              1,
              "x,\"{"
            ]
          }
        "#);
        insta::assert_snapshot!(text(&call(r#"{"command":["bash","-lc","rm 'a b'"],"command":"ls"}"#)), @r"
        execute  Bash
        $ bash -lc 'rm '\''a b'\'''
        $ ls
        ");
        insta::assert_snapshot!(text(&call(r#""rm -rf /""#)), @r#"
        execute  Bash
        input: "rm -rf /"
        "#);
    }

    /// A diff shows the lines around a change alone, and none if nothing changes.
    #[test]
    fn a_diff_does_not_hide_a_text_of_the_input() {
        let unchanged: String = (0..20).map(|line| format!("line {line}\n")).collect();
        let code = format!("import os\nos.system('rm -rf ~')\n{unchanged}");
        // A lone carriage return ends a line of a diff, and of no text.
        let returns = "import os\nos.system('rm -rf ~')\nx\na\rb\rc\rd\re\n".to_owned();
        for (code, new) in [
            (code.clone(), code.clone()),
            (code.clone(), format!("{code}the last line\n")),
            (returns.clone(), returns.replace("\re", "\rf")),
        ] {
            let mut call = call(&serde_json::json!({ "code": code, "new": new }).to_string());
            let diff = Diff::new("/p/a.py", new).old_text(code.clone());
            call.content.push(duologue_schema::ToolCallContent::Diff(Box::new(diff)));
            assert!(text(&call).contains("rm -rf ~"), "{}", text(&call));
        }
    }

    #[test]
    fn a_long_title_or_name_does_not_hide_the_command() {
        let mut call = call(r#"{"command":"rm -rf /"}"#);
        call.title = "x".repeat(LINE_CHARS);
        call.name = Some("y".repeat(50 * LINE_CHARS));
        assert!(text(&call).lines().nth(2).is_some_and(|line| line == "$ rm -rf /"), "{}", text(&call));
        call.name = None;
        let text = text(&call);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], format!("execute  {}… (800 more characters)", "x".repeat(200)));
        assert_eq!(lines[1..], ["$ rm -rf /".to_owned(), format!("the whole title: {}", call.title)]);
    }

    #[test]
    fn a_call_without_details_is_marked() {
        for input in ["{}", "null", "\"\""] {
            assert!(text(&call(input)).contains("only the title says what it does"), "{input}");
        }
    }

    /// The texts of a change are not shown twice.
    #[test]
    fn the_whole_change_is_described_once() {
        let (old, new) = ("a\nb\n", "a\nc\n");
        let mut call = call(&serde_json::json!({ "old": old, "new": new, "path": "x" }).to_string());
        let mut diff = Diff::new("/x", new);
        diff.old_text = Some(old.into());
        call.content = vec![diff.into()];
        call.locations = vec![ToolCallLocation::new("/x")];
        insta::assert_snapshot!(text(&call), @r#"
        execute  Bash
        path: "x"
        new: the new text of the change below
        old: the old text of the change below
        change: /x
        @@ -1,2 +1,2 @@
         a
        -b
        +c
        "#);
    }

    /// The operations are shown beside the patch, which may name other files.
    #[test]
    fn the_changes_of_version_2_are_described() {
        let diff: duologue_schema::v2::Diff = serde_json::from_value(serde_json::json!({
            "changes": [
                { "operation": "delete", "path": "/x" },
                { "operation": "move", "oldPath": "/y", "path": "/z" },
            ],
            "patch": { "format": "git_patch", "text": "--- a/y\n+++ b/z\n@@ -1 +1 @@\n-b\n+c\n" },
        }))
        .unwrap();
        let mut call = call("{}");
        call.content = vec![ToolCallContent::Changes(Box::new(diff))];
        insta::assert_snapshot!(text(&call), @r#"
        execute  Bash
        change: delete /x
        change: move /y to /z
        --- a/y
        +++ b/z
        @@ -1 +1 @@
        -b
        +c
        "#);
    }

    #[test]
    fn lines_over_the_limit_are_counted() {
        let lines = "x\n".repeat(MAX_LINES);
        let details = Details::of(&call(&serde_json::json!({ "script": lines }).to_string()));
        assert_eq!((details.lines.len(), details.left_out), (MAX_LINES, 2));
        let details =
            Details::of(&call(&serde_json::json!({ "script": "y".repeat(LINE_CHARS) }).to_string()));
        assert_eq!(details.lines.iter().filter(|line| line.margins[0] == CONTINUED).count(), 1);
    }

    #[test]
    fn json_is_indented_and_its_numbers_keep_their_spelling() {
        assert_eq!(pretty(r#"{ "a" :[ {} ,"\\" ] }"#), "{\n  \"a\": [\n    {},\n    \"\\\\\"\n  ]\n}");
        assert_eq!(
            pretty(r#"["rm \u002drf\u0020\/", 1.10, "\"", "unfinished"#),
            "[\n  \"rm -rf /\",\n  1.10,\n  \"\\\"\",\n  \"unfinished"
        );
    }

    #[test]
    fn words_are_quoted_as_a_shell_reads_them() {
        assert_eq!(shell_words(&["a", "", "b c", "d'e", "$f"]), r"a '' 'b c' 'd'\''e' '$f'");
    }
}
