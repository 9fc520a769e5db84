//! Reads the input of a command: a transcript, or the log of another program.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use duologue_rpc::{Limits, RpcMessage};
use duologue_transcript::{Error as TranscriptError, Header, Importer, Reader, Record, Side, Transcript};

use crate::error::{Error, Result};
use crate::files::in_file;
use crate::session_folder::SessionFolder;
use crate::ui;

/// The bytes that are read from a file at once.
const CHUNK: usize = 256 * 1024;

/// The arguments that select the input.
#[derive(clap::Args)]
pub(crate) struct SourceArgs {
    /// A transcript, or a log of JSON-RPC lines with their direction; `-` is standard input. A pipe is
    /// read until its writers close it. The folder of a session of a server is the transcript of that session
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The side that wrote the log, if it only distinguishes incoming from outgoing
    #[arg(long, value_enum, default_value = "client", value_name = "SIDE")]
    seen_by: LogSide,
}

#[derive(Clone, Copy, ValueEnum)]
enum LogSide {
    Client,
    Agent,
}

/// The readable part of an input, and the rest.
pub(crate) struct Source {
    /// The readable records.
    pub(crate) transcript: Transcript,
    /// The line of the file of each record.
    pub(crate) lines: Vec<u64>,
    /// The unreadable lines.
    pub(crate) damage: Vec<TranscriptError>,
}

impl SourceArgs {
    /// Reads the whole input.
    pub(crate) fn read(&self) -> Result<Source> {
        let side = match self.seen_by {
            LogSide::Client => Side::Client,
            LogSide::Agent => Side::Agent,
        };
        read(&self.file, side)
    }
}

/// Returns true if a file name stands for standard input.
pub(crate) fn is_stdin(file: &Path) -> bool {
    file.as_os_str() == "-"
}

/// Reads a whole file. A damaged line is skipped and reported. `side` is the side that wrote a log, if the log
/// only distinguishes incoming from outgoing.
pub(crate) fn read(file: &Path, side: Side) -> Result<Source> {
    if is_stdin(file) {
        return read_from(io::stdin().lock(), "standard input", side);
    }
    let name = file.display().to_string();
    let opened = open(file).map_err(in_file(&name))?;
    read_from(BufReader::with_capacity(CHUNK, opened), &name, side).map_err(|error| match error {
        Error::Io(error) if error.kind() != io::ErrorKind::InvalidData => in_file(&name)(error).into(),
        error => error,
    })
}

/// Opens a file, or the folder of a session of a server.
fn open(file: &Path) -> io::Result<Box<dyn Read>> {
    if file.is_dir() {
        return Ok(Box::new(SessionFolder::open(file)?));
    }
    Ok(Box::new(File::open(file)?))
}

fn read_from(mut input: impl BufRead, name: &str, side: Side) -> Result<Source> {
    let start = read_start(&mut input)?;
    // The start is read again if it is no header.
    match Reader::new(start.as_slice()) {
        Ok(_) => {
            let mut reader = Reader::new(start.as_slice().chain(input))?;
            let read = ReadRecords::of(|| Some((reader.next()?, reader.line())))?;
            Ok(read.into_source(reader.header().clone(), reader.is_cut()))
        }
        Err(TranscriptError::NoHeader { .. }) => {
            let mut importer = Importer::new(start.as_slice().chain(input)).seen_by(side);
            let read = ReadRecords::of(|| Some((importer.next()?, importer.line())))?;
            if read.records.is_empty() {
                let mut reason = format!("{name}: neither a recording nor a log of JSON-RPC lines");
                if let Some(Ok(_)) = RpcMessage::read(start.trim_ascii(), &Limits::default()) {
                    reason = format!(
                        "{name}: the messages have no direction; write `> ` before those of the client and `< ` \
                         before those of the agent"
                    );
                }
                return Err(io::Error::new(io::ErrorKind::InvalidData, reason).into());
            }
            Ok(read.into_source(importer.header(), importer.is_cut()))
        }
        Err(error) => Err(error.into()),
    }
}

/// Reads the first line that is not blank, and the blank lines before it.
fn read_start(input: &mut impl BufRead) -> Result<Vec<u8>> {
    let longest = Transcript::LINE_BYTES + 1;
    let (mut start, mut line) = (Vec::new(), 0);
    loop {
        let (before, room) = (start.len(), longest.saturating_sub(start.len() as u64));
        if room == 0 {
            return Err(TranscriptError::LineTooLong { line }.into());
        }
        line += 1;
        let count = input.take(room).read_until(b'\n', &mut start)?;
        let is_blank = start.get(before..).unwrap_or_default().trim_ascii().is_empty();
        let is_whole = start.ends_with(b"\n") || (start.len() as u64) < longest;
        if count == 0 || (is_whole && !is_blank) {
            return Ok(start);
        }
    }
}

#[derive(Default)]
struct ReadRecords {
    records: Vec<Record>,
    lines: Vec<u64>,
    damage: Vec<TranscriptError>,
}

impl ReadRecords {
    /// Reads all records, each with its line.
    fn of(mut next: impl FnMut() -> Option<(duologue_transcript::Result<Record>, u64)>) -> Result<Self> {
        let mut read = ReadRecords::default();
        while let Some((record, line)) = next() {
            match record {
                Ok(record) => {
                    read.records.push(record);
                    read.lines.push(line);
                }
                Err(error @ (TranscriptError::Damaged { .. } | TranscriptError::LineTooLong { .. })) => {
                    read.damage.push(error);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(read)
    }

    fn into_source(self, header: Header, cut: bool) -> Source {
        let transcript = Transcript::new(header, self.records);
        let transcript = if cut { transcript.cut_short() } else { transcript };
        Source { transcript, lines: self.lines, damage: self.damage }
    }
}

impl Source {
    /// Returns a sentence for each part that could not be read.
    pub(crate) fn damage_messages(&self) -> Vec<String> {
        let cut = self.transcript.is_cut().then(|| "the file ends within a line, which is left out".into());
        self.damage.iter().map(ToString::to_string).chain(cut).collect()
    }

    /// Prints the parts that could not be read. Returns true if there are any.
    pub(crate) fn print_damage(&self) -> bool {
        let damage_messages = self.damage_messages();
        damage_messages.iter().for_each(|fault| ui::print_error(fault));
        !damage_messages.is_empty()
    }
}
