//! The requests of commands to a hub, and their output.

use std::io::Write as _;
use std::path::PathBuf;

use duologue_http::Error as HttpError;
use duologue_hub::client::{HubClient, HubClientError, HubResult};
use duologue_hub::gateway::types::{JsonText, PageLimit, PageOffset, Pagination, RestPriority};
use serde::Serialize;
use unicode_width::UnicodeWidthStr as _;

use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::run::envelope_command::json_or_text;
use crate::runtime;
#[cfg(feature = "tls")]
use crate::server_args::TlsArgs;
use crate::server_args::{ServerArgs, TransportName};
use crate::ui::{self, DIM};

/// The remedy if no hub answers.
const START_OR_NAME: &str = "start a hub with `duologue serve --config hub.toml`, or name its folder with `--data` or its address with `--hub`";

/// The arguments of every command that sends requests to a hub.
#[derive(clap::Args)]
pub(crate) struct HubArgs {
    /// The address of the hub, if it is not the one of this user on this machine
    #[arg(long, global = true, value_name = "URL")]
    hub: Option<String>,
    /// The data folder of the hub, if not that of the user: `~/.local/state/duologue`
    #[arg(long, global = true, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The file with the key. It is not needed for the running hub of this user, at the address that it has printed
    #[arg(long, global = true, value_name = "FILE")]
    token_file: Option<PathBuf>,
    #[cfg(feature = "tls")]
    #[command(flatten)]
    tls: TlsArgs,
    /// Print JSON, one object a line
    #[arg(long, global = true)]
    json: bool,
}

/// The place of a page in a list.
#[derive(clap::Args, Default)]
pub(crate) struct PageArgs {
    /// Leave out so many entries
    #[arg(long, value_name = "N", default_value_t = 0)]
    offset: u64,
    /// Show at most so many entries, 100 if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    limit: Option<u64>,
}

impl PageArgs {
    pub(crate) fn place(&self) -> (PageOffset, PageLimit) {
        (PageOffset(self.offset), self.limit.map_or_else(PageLimit::default, PageLimit))
    }
}

/// The name of a priority on the command line.
#[derive(Clone, Copy, clap::ValueEnum)]
pub(crate) enum PriorityName {
    Low,
    Medium,
    High,
    Critical,
}

impl From<PriorityName> for RestPriority {
    fn from(name: PriorityName) -> Self {
        match name {
            PriorityName::Low => RestPriority::Low,
            PriorityName::Medium => RestPriority::Medium,
            PriorityName::High => RestPriority::High,
            PriorityName::Critical => RestPriority::Critical,
        }
    }
}

/// A hub and the form of the output.
pub(crate) struct HubRequest {
    pub(crate) hub: HubClient,
    /// The address, or the path of the socket.
    address: String,
    json: bool,
}

/// Runs a command that sends requests to a hub.
pub(crate) fn run(args: HubArgs, command: impl AsyncFnOnce(&HubRequest) -> Result<Exit>) -> Result<Exit> {
    #[cfg(feature = "tls")]
    let server = ServerArgs::new(args.token_file, args.tls);
    #[cfg(not(feature = "tls"))]
    let server = ServerArgs::new(args.token_file);
    let (url, options) = server.target(args.hub.as_deref(), args.data.as_deref(), TransportName::Auto)?;
    let hub = HubClient::new(&url, &options).map_err(|error| Error::Usage(error.to_string()))?;
    #[cfg(unix)]
    let url = options.socket.as_ref().map_or(url, |socket| socket.display().to_string());
    let request = HubRequest { hub, address: url, json: args.json };
    runtime::current_thread()?.block_on(command(&request))
}

impl HubRequest {
    /// Returns the result of a request, or an error that says what to do.
    pub(crate) fn result<T>(&self, result: HubResult<T>) -> Result<T> {
        result.map_err(|error| {
            let (remedy, exit) = self.remedy(&error);
            Error::HubRequest(format!("{error}{remedy}"), exit)
        })
    }

    fn remedy(&self, error: &HubClientError) -> (String, Exit) {
        match error {
            HubClientError::Refused { refusal, .. } => {
                let remedy = match refusal.code.as_str() {
                    "unauthenticated" => {
                        "; name the file of your key with `--token-file`; on its own machine `duologue serve` prints that of its token"
                    }
                    "not_found" if refusal.message.starts_with("no such agent") => {
                        "; `duologue agents` lists those that you find, and a rule of the hub has to allow more than that"
                    }
                    _ => "",
                };
                (remedy.to_owned(), Exit::Found)
            }
            HubClientError::Response { .. } => {
                let why = "is not the address of a hub";
                (format!("; {} {why}: {START_OR_NAME}", self.address), Exit::Agent)
            }
            HubClientError::Connection(HttpError::Tls(_)) => {
                let remedy = "; name the certificate of its authority with `--ca-file`, or begin the address of a hub without a \
                              certificate with `http://`";
                (remedy.to_owned(), Exit::Agent)
            }
            _ => (format!("; {START_OR_NAME}"), Exit::Agent),
        }
    }

    /// Prints an entry: as JSON, or with the lines of `text`.
    pub(crate) fn print(&self, entry: &impl Serialize, text: impl FnOnce() -> String) -> Result<Exit> {
        let mut out = ui::stdout();
        if self.json {
            ui::json_line(&mut out, entry)?;
        } else {
            for line in text().lines() {
                writeln!(out, "{}", ui::printable(line))?;
            }
        }
        out.flush()?;
        Ok(Exit::Ok)
    }

    /// Prints an event: as JSON with its name, or with the lines of `text`.
    pub(crate) fn print_event(
        &self,
        event: &str,
        data: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> Result<Exit> {
        #[derive(Serialize)]
        struct NamedEvent<'a, T> {
            event: &'a str,
            data: &'a T,
        }
        self.print(&NamedEvent { event, data }, text)
    }

    /// Prints a text that waited for its line feed, unless the output is JSON.
    pub(crate) fn print_rest(&self, text: &mut String) -> Result<Exit> {
        let text = std::mem::take(text);
        if self.json { Ok(Exit::Ok) } else { self.print(&(), || text) }
    }

    /// Prints a page of a list, with the columns of each entry.
    pub(crate) fn print_page<T: Serialize>(
        &self,
        entries: &[T],
        page: Pagination,
        columns: impl Fn(&T) -> Vec<String>,
    ) -> Result<Exit> {
        self.print_list(entries, columns)?;
        let shown = page.offset.saturating_add(entries.len() as u64);
        if !self.json && page.total > shown {
            let left = page.total - shown;
            writeln!(ui::stderr(), "{DIM}{left} more; `--offset {shown}` shows them{DIM:#}")?;
        }
        Ok(Exit::Ok)
    }

    /// Prints a list, with the columns of each entry.
    pub(crate) fn print_list<T: Serialize>(
        &self,
        entries: &[T],
        columns: impl Fn(&T) -> Vec<String>,
    ) -> Result<Exit> {
        let mut out = ui::stdout();
        if self.json {
            entries.iter().try_for_each(|entry| ui::json_line(&mut out, entry))?;
        } else {
            let cell = |cell: String| ui::printable(&cell).replace('\n', " ");
            let rows: Vec<Vec<String>> =
                entries.iter().map(|entry| columns(entry).into_iter().map(cell).collect()).collect();
            for line in aligned(&rows) {
                writeln!(out, "{line}")?;
            }
        }
        out.flush()?;
        Ok(Exit::Ok)
    }
}

/// Returns the lines of rows whose columns begin below each other.
fn aligned(rows: &[Vec<String>]) -> Vec<String> {
    let count = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.width()).max();
    let widths: Vec<usize> = (0..count).map(|column| width(column).unwrap_or_default()).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths);
        let line = cells.fold(String::new(), |line, (cell, width)| {
            let space = " ".repeat(width.saturating_sub(cell.width()) + 2);
            line + cell + &space
        });
        line.trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// Returns a value of the command line: JSON, or else a text.
pub(crate) fn value(text: &str) -> Result<JsonText> {
    JsonText::of(&json_or_text(text)?).map_err(|error| Error::Usage(error.to_string()))
}

/// Returns a value for a person: a text without its quotes, and other values as JSON.
pub(crate) fn shown(value: &JsonText) -> String {
    value.parse::<String>().unwrap_or_else(|_| value.as_str().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_begin_below_each_other() {
        let row = |cells: &[&str]| cells.iter().map(|&cell| cell.to_owned()).collect::<Vec<_>>();
        let rows = [row(&["a", "long", "x"]), row(&["äöü", "b", ""])];
        assert_eq!(aligned(&rows), ["a    long  x", "äöü  b"]);
        assert!(aligned(&[]).is_empty());
    }
}
