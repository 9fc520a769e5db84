//! `duologue show`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use duologue_transcript::{Redaction, RenderOptions};

use crate::error::Result;
use crate::exit::Exit;
use crate::files;
use crate::show::page;
use crate::source::SourceArgs;
use crate::ui::{self, printable};

const EXAMPLES: &str = "\
Examples:
  duologue show session.jsonl
  duologue show --redact --html -o session.html session.jsonl
  duologue show --seen-by agent editor.log";

/// Show a recording: as text, as JSON, or as a page for a browser
///
/// Logs of other programs are shown too. The readable part of a damaged file is shown, and the exit
/// code is 4.
#[derive(clap::Args)]
#[command(override_usage = "duologue show [OPTIONS] <FILE>", after_help = EXAMPLES)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Show the final state of the sessions, instead of the events
    #[arg(long, group = "form")]
    fold: bool,
    /// Print the events as JSON
    #[arg(long, group = "form")]
    json: bool,
    /// Write a self-contained page for a browser
    #[arg(long, group = "form")]
    html: bool,
    /// Write to a file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace that file if it exists
    #[arg(long, requires = "output")]
    force: bool,
    /// Redact secrets, ids, paths and times; with `--times` the seconds stay
    #[arg(long)]
    redact: bool,
    /// Show each chunk of a message separately
    #[arg(long, conflicts_with_all = ["fold", "html"])]
    chunks: bool,
    /// Show only the messages: neither stderr nor the end of the process
    #[arg(long, conflicts_with_all = ["fold", "html"])]
    wire: bool,
    /// Show the time of each event, in seconds since the start
    #[arg(long, conflicts_with_all = ["fold", "html"])]
    times: bool,
}

pub(crate) fn run(args: ShowArgs) -> Result<Exit> {
    let mut source = args.source.read()?;
    if args.redact {
        let redaction = Redaction::default().keep_pace(args.times);
        source.transcript = source.transcript.redact(&redaction);
    }
    match &args.output {
        None => print(&args, &source, &mut ui::stdout().lock())?,
        Some(path) => {
            let mut file = BufWriter::new(files::create(&mut File::options(), path, args.force)?);
            print(&args, &source, &mut file)?;
            file.flush().map_err(files::in_file(path.display()))?;
        }
    }
    Ok(if source.print_damage() { Exit::File } else { Exit::Ok })
}

fn print(args: &ShowArgs, source: &crate::source::Source, out: &mut impl Write) -> Result<()> {
    let transcript = &source.transcript;
    if args.html {
        return Ok(page(transcript, &source.damage_messages(), out)?);
    }
    if args.fold {
        return Ok(out.write_all(printable(&transcript.fold()).as_bytes())?);
    }
    let render = RenderOptions::new().single_chunks(args.chunks).times(args.times).process(!args.wire);
    let script = render.script(transcript);
    if args.json {
        return Ok(ui::json_line(out, &script)?);
    }
    Ok(out.write_all(printable(&script.to_string()).as_bytes())?)
}
