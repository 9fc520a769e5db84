//! Dialogues between a client and an agent that are written for each other, see [`super::v2`] and [`super::unstable`].
//! Each method and each kind of update is a row. A cell counts when both sides have reported it.

use super::matrix::Matrix;
use super::wire::{self, Version};
use super::{InteropPaths, OURS, Pairing, Result, drive};

/// The SDKs with programs for these dialogues.
const SDKS: [&str; 2] = ["rust", "ts"];

/// A dialogue.
pub(super) struct ScriptedDialogue {
    /// The protocol, as the head of a column names it.
    pub(super) protocol: &'static str,
    pub(super) version: Version,
    pub(super) rows: &'static [&'static str],
    /// The limits of cells, printed below the table.
    pub(super) notes: &'static [&'static str],
}

/// The numbers of a run that has succeeded.
pub(super) struct ScriptedRun {
    pub(super) pairings: usize,
    pub(super) rows: usize,
    pub(super) messages: usize,
}

impl std::fmt::Display for ScriptedRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} pairings, {} rows, {} messages", self.pairings, self.rows, self.messages)
    }
}

impl ScriptedDialogue {
    /// Runs the pairings of ours with both SDKs, and checks their wire against the schema.
    pub(super) fn run(&self, paths: &InteropPaths) -> Result<ScriptedRun> {
        let (mut matrix, mut pairings, mut messages) = (Matrix::default(), Vec::new(), 0);
        let roles = [self.version.client, self.version.agent];
        for (client, agent) in SDKS.into_iter().flat_map(|sdk| [(OURS, sdk), (sdk, OURS)]) {
            let (problem, reports) = drive(paths, [client, agent], roles, &[])?;
            pairings.push(Pairing { client, agent, lacks: Vec::new(), problem, reports });
        }
        let head = |pairing: &Pairing| {
            [format!("{} drives", pairing.client), format!("{} in {}", pairing.agent, self.protocol)]
        };
        let heads: Vec<_> = pairings.iter().map(head).collect();
        matrix.rows(self.rows.iter().copied(), &heads, |column, row| {
            pairings.get(column).map_or(("", None), |pairing| pairing.cell(row))
        });
        for pairing in &pairings {
            let who = format!("{} drives {}", pairing.client, pairing.agent);
            if let Some(problem) = &pairing.problem {
                matrix.problem(format_args!("{who}: {problem}"));
            }
            let reported = pairing.reports.iter().flat_map(|report| report.keys());
            let unknown: std::collections::BTreeSet<_> =
                reported.filter(|row| !self.rows.contains(&row.as_str())).collect();
            for row in unknown {
                matrix.problem(format_args!("{who}: {row} is no row"));
            }
        }
        self.notes.iter().for_each(|note| matrix.note(note));
        let pairs: Vec<_> = pairings.iter().map(|pairing| (pairing.client, pairing.agent)).collect();
        matrix.check(wire::check(paths, &pairs, &self.version).map(|(count, found)| {
            messages = count;
            found
        }));
        matrix.finish(&format!("in the interop run of {}", self.protocol))?;
        Ok(ScriptedRun { pairings: pairs.len(), rows: self.rows.len(), messages })
    }
}
