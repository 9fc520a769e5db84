//! `duologue diff`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use duologue_transcript::{RenderOptions, Side, Transcript};
use serde::Serialize;
use similar::{ChangeTag, TextDiff, TextDiffConfig};

use crate::commands::IgnoreArgs;
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::source::{self, is_stdin};
use crate::ui::{self, BAD, BOLD, GOOD, MARK, printable};

const EXAMPLES: &str = "\
Example: token counts may differ, everything else may not.
  duologue diff monday.jsonl tuesday.jsonl --ignore update.used --ignore result.usage";

/// Compare two recordings, ignoring ids, times, paths and chunk boundaries
///
/// Both are redacted and rendered as by `show`, and compared line by line. Exits with 0 if
/// they are equal and with 1 if they differ.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DiffArgs {
    /// A recording; `-` is standard input
    a: PathBuf,
    /// Another recording
    b: PathBuf,
    /// Compare the final state of the sessions, and not the events
    #[arg(long)]
    fold: bool,
    /// Compare only the messages: neither stderr nor the end of the process
    #[arg(long)]
    wire: bool,
    #[command(flatten)]
    ignore: IgnoreArgs,
    /// The number of lines to show around a difference
    #[arg(short = 'U', long, value_name = "LINES", default_value_t = 3)]
    unified: usize,
    /// Print the differences as one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: DiffArgs) -> Result<Exit> {
    if is_stdin(&args.a) && is_stdin(&args.b) {
        return Err(Error::Usage("only one of the two can be standard input".into()));
    }
    let mut damaged = false;
    let ignored = args.ignore.paths()?;
    let mut read = |path: &Path| -> Result<Transcript> {
        let source = source::read(path, Side::Client)?;
        damaged |= source.print_damage();
        Ok(source.transcript)
    };
    let (a, b) = (read(&args.a)?, read(&args.b)?);
    IgnoreArgs::warn_of_unmatched(&ignored, &[&a, &b])?;
    let text = |transcript: Transcript| {
        let transcript = transcript.without(&ignored).redacted();
        match args.fold {
            true => transcript.fold(),
            false => RenderOptions::new().process(!args.wire).script(&transcript).to_string(),
        }
    };
    let (a, b) = (text(a), text(b));
    let hunks = hunks(&a, &b, args.unified);
    let mut out = ui::stdout();
    if args.json {
        ui::json_line(&mut out, &Report { equal: hunks.is_empty(), hunks: &hunks })?;
    } else if !hunks.is_empty() {
        let name = |path: &Path| printable(&path.display().to_string()).into_owned();
        writeln!(out, "{BOLD}--- {}{BOLD:#}\n{BOLD}+++ {}{BOLD:#}", name(&args.a), name(&args.b))?;
        hunks.iter().try_for_each(|hunk| hunk.write(&mut out))?;
    }
    out.flush()?;
    Ok(match (damaged, hunks.is_empty()) {
        (true, _) => Exit::File,
        (false, true) => Exit::Ok,
        (false, false) => Exit::Found,
    })
}

/// A difference and the lines around it.
#[derive(Serialize)]
struct Hunk {
    /// The heading above the difference.
    section: Option<String>,
    /// The first line in each recording, counted from 1.
    line: Pair,
    /// The number of lines in each recording.
    lines: Pair,
    changes: Vec<Change>,
}

#[derive(Serialize)]
struct Pair {
    a: usize,
    b: usize,
}

#[derive(Serialize)]
struct Change {
    only: Option<char>,
    text: String,
}

#[derive(Serialize)]
struct Report<'a> {
    equal: bool,
    hunks: &'a [Hunk],
}

fn hunks(a: &str, b: &str, context: usize) -> Vec<Hunk> {
    // After this time, very different texts are compared less exactly.
    let diff: TextDiff<'_, '_, '_, str> =
        TextDiffConfig::default().timeout(Duration::from_secs(5)).diff_lines(a, b);
    let mut hunks = Vec::new();
    // The lines above the current hunk, and the last heading in them.
    let (mut above, mut section) = (0, None);
    for group in diff.grouped_ops(context) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let (starts, ends) = (
            (first.old_range().start, first.new_range().start),
            (last.old_range().end, last.new_range().end),
        );
        let end = (starts.0 + 1).min(diff.old_slices().len());
        let passed = diff.old_slices().get(above..end).unwrap_or_default();
        section = passed.iter().rev().find_map(|line| line.strip_prefix("## ")).or(section);
        above = above.max(end);
        let changes = group.iter().flat_map(|op| diff.iter_changes(op)).map(|change| Change {
            only: match change.tag() {
                ChangeTag::Equal => None,
                ChangeTag::Delete => Some('a'),
                ChangeTag::Insert => Some('b'),
            },
            text: change.value().trim_end_matches('\n').to_owned(),
        });
        hunks.push(Hunk {
            section: section.map(|line| line.trim_end().to_owned()),
            line: Pair { a: starts.0 + 1, b: starts.1 + 1 },
            lines: Pair { a: ends.0 - starts.0, b: ends.1 - starts.1 },
            changes: changes.collect(),
        });
    }
    hunks
}

impl Hunk {
    fn write(&self, out: &mut impl Write) -> std::io::Result<()> {
        let Hunk { section, line, lines, changes } = self;
        write!(out, "{MARK}@@ -{},{} +{},{} @@{MARK:#}", line.a, lines.a, line.b, lines.b)?;
        match section {
            Some(section) => writeln!(out, " {section}")?,
            None => writeln!(out)?,
        }
        for Change { only, text } in changes {
            match only {
                Some('a') => writeln!(out, "{BAD}-{text}{BAD:#}")?,
                Some(_) => writeln!(out, "{GOOD}+{text}{GOOD:#}")?,
                None if text.is_empty() => writeln!(out)?,
                None => writeln!(out, " {text}")?,
            }
        }
        Ok(())
    }
}
