//! What a command reads: a transcript, or the log of another program, whichever it is.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use duologue_transcript::{Error as TranscriptError, Header, Importer, Reader, Record, Side, Transcript};

use crate::error::Result;
use crate::ui;

/// Where to read from.
#[derive(clap::Args)]
pub(crate) struct SourceArgs {
    /// A transcript, or a log of JSON-RPC lines with their direction; `-` is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Who wrote the log, where it tells only incoming from outgoing
    #[arg(long, value_enum, default_value = "client", value_name = "SIDE")]
    seen_by: SeenBy,
}

#[derive(Clone, Copy, ValueEnum)]
enum SeenBy {
    Client,
    Agent,
}

/// What could be read.
pub(crate) struct Source {
    /// The readable part.
    pub(crate) transcript: Transcript,
    /// Which line of the file each record stands in.
    pub(crate) lines: Vec<u64>,
    /// The lines that could not be read.
    pub(crate) damage: Vec<TranscriptError>,
}

impl SourceArgs {
    /// Reads everything there is.
    pub(crate) fn read(&self) -> Result<Source> {
        let side = match self.seen_by {
            SeenBy::Client => Side::Client,
            SeenBy::Agent => Side::Agent,
        };
        read(&self.file, side)
    }
}

/// Whether a file is standard input.
pub(crate) fn is_stdin(file: &Path) -> bool {
    file.as_os_str() == "-"
}

/// Reads everything there is. A damaged line costs that line. `side` wrote the log, where it tells
/// only incoming from outgoing.
pub(crate) fn read(file: &Path, side: Side) -> Result<Source> {
    let bytes = bytes(file)?;
    match Reader::new(bytes.as_slice()) {
        Ok(mut reader) => {
            let mut source = Gathered::default();
            while let Some(record) = reader.next() {
                source.add(reader.line(), record)?;
            }
            Ok(source.finish(reader.header().clone(), reader.is_cut()))
        }
        Err(TranscriptError::NoHeader { .. }) => {
            let mut importer = Importer::new(bytes.as_slice()).seen_by(side);
            let mut source = Gathered::default();
            while let Some(record) = importer.next() {
                source.add(importer.line(), record)?;
            }
            if source.records.is_empty() {
                let name = if is_stdin(file) { "standard input".into() } else { file.to_string_lossy() };
                let reason = format!("{name}: neither a transcript nor a log of JSON-RPC lines");
                return Err(io::Error::new(io::ErrorKind::InvalidData, reason).into());
            }
            Ok(source.finish(importer.header(), importer.is_cut()))
        }
        Err(error) => Err(error.into()),
    }
}

fn bytes(file: &Path) -> Result<Vec<u8>> {
    if is_stdin(file) {
        let mut bytes = Vec::new();
        io::stdin().lock().read_to_end(&mut bytes)?;
        return Ok(bytes);
    }
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", file.display()));
    Ok(fs::read(file).map_err(named)?)
}

#[derive(Default)]
struct Gathered {
    records: Vec<Record>,
    lines: Vec<u64>,
    damage: Vec<TranscriptError>,
}

impl Gathered {
    fn add(&mut self, line: u64, record: duologue_transcript::Result<Record>) -> Result<()> {
        match record {
            Ok(record) => {
                self.records.push(record);
                self.lines.push(line);
            }
            Err(error @ TranscriptError::Damaged { .. }) => self.damage.push(error),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn finish(self, header: Header, cut: bool) -> Source {
        let transcript = Transcript::new(header, self.records);
        let transcript = if cut { transcript.cut_short() } else { transcript };
        Source { transcript, lines: self.lines, damage: self.damage }
    }
}

impl Source {
    /// What could not be read, a sentence each.
    pub(crate) fn faults(&self) -> Vec<String> {
        let cut = self.transcript.is_cut().then(|| "the file ends within a line, which is left out".into());
        self.damage.iter().map(ToString::to_string).chain(cut).collect()
    }

    /// Says what could not be read, and whether that was anything.
    pub(crate) fn complain(&self) -> bool {
        let faults = self.faults();
        faults.iter().for_each(|fault| ui::complain(fault));
        !faults.is_empty()
    }
}
