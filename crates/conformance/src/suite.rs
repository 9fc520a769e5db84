//! `duologue check`: whether an agent keeps to the protocol, told by named checks.
//!
//! A check that fails a correct agent is worse than none. So each says where the specification asks
//! for what it checks, what it only asks for is a warning, and what an agent may do in more than one
//! way passes in each of them.
//!
//! One cause is one failure. A finding names the checks that test its possible causes, and is skipped
//! when one of these fails. A check that needs an answered prompt is skipped when there is none.

mod bench;
mod cancel;
mod envelopes;
mod finding;
mod handshake;
mod ids;
mod lines;
mod process;
mod report;
mod requests;
mod sessions;
mod stream;
mod turns;
mod wire;

use std::pin::Pin;

pub(crate) use bench::{Bench, Settings};
use finding::{Check, Finding, Running, Severity, Verdict, skip_dependent};
use report::{Report, Summary};

use crate::error::{Error, Result};
use crate::exit::Exit;

/// All checks, by group, in the order they run. Those of the stream look at what the others caused.
const GROUPS: &[(&str, &[Check])] = &[
    ("handshake", handshake::CHECKS),
    ("requests", requests::CHECKS),
    ("lines", lines::CHECKS),
    ("ids", ids::CHECKS),
    ("turns", turns::CHECKS),
    ("cancel", cancel::CHECKS),
    ("sessions", sessions::CHECKS),
    ("envelopes", envelopes::CHECKS),
    ("process", process::CHECKS),
    ("stream", stream::CHECKS),
];

/// The checks and groups of these names, or all.
pub(crate) struct Chosen(Vec<(&'static str, &'static Check)>);

impl Chosen {
    pub(crate) fn new(names: &[String]) -> Result<Self> {
        let all = || GROUPS.iter().flat_map(|(group, checks)| checks.iter().map(|check| (*group, check)));
        let named = |name: &str, (group, check): &(&str, &Check)| *group == name || check.name == name;
        for name in names {
            if !all().any(|entry| named(name, &entry)) {
                let message =
                    format!("there is no check and no group named {name}; see `duologue check --list`");
                return Err(Error::Usage(message));
            }
        }
        let wanted = |entry: &(&'static str, &'static Check)| {
            names.is_empty() || names.iter().any(|name| named(name, entry))
        };
        Ok(Chosen(all().filter(wanted).collect()))
    }

    /// Says what is checked.
    pub(crate) fn list(&self, json: bool) -> Result<()> {
        let mut report = Report::new(json);
        self.0.iter().try_for_each(|(group, check)| report.describe(group, check))
    }

    /// Runs the checks, one after the other, and says what the command ends with.
    pub(crate) async fn run(&self, mut bench: Bench, json: bool) -> Result<Exit> {
        let (mut report, mut summary) = (Report::new(json), Summary::default());
        bench.chosen = self.0.iter().map(|(_, check)| check.name).collect();
        for (group, check) in &self.0 {
            let finding = judge(&mut bench, check).await;
            if let Some(error) = bench.unstartable.take() {
                return Err(error);
            }
            summary.add(finding.verdict);
            report.finding(group, check, &finding)?;
        }
        let no_agent = bench.has_no_agent();
        bench.finish().await;
        report.summary(summary)?;
        Ok(match (summary.failed(), no_agent) {
            (true, _) => Exit::Found,
            (false, true) => Exit::Agent,
            (false, false) => Exit::Ok,
        })
    }
}

/// Runs a check and keeps its finding. A check runs once; a second call returns the kept finding.
///
/// A failure is skipped instead if a check that tests its cause fails as well: one cause is one failure.
fn judge<'a>(bench: &'a mut Bench, check: &'static Check) -> Pin<Box<dyn Future<Output = Finding> + 'a>> {
    Box::pin(async move {
        if let Some(known) = bench.finding(check.name) {
            return known.clone();
        }
        let marks = bench.marks();
        let run: Running<'_> = (check.run)(bench);
        let mut finding = run.await.unwrap_or_else(|finding| finding);
        if finding.verdict == Verdict::Fail {
            bench.retire_shared();
            if check.severity == Severity::Should {
                finding.verdict = Verdict::Warn;
            }
        }
        if finding.shown.is_empty() {
            finding.shown = bench.since(&marks);
        }
        bench.close_sessions().await;
        // Kept before its causes are looked at, so that two checks that name each other both end.
        bench.keep(check.name, finding.clone());
        if matches!(finding.verdict, Verdict::Fail | Verdict::Warn)
            && let Some(why) = explained(bench, check.name, finding.verdict, &finding.causes).await
        {
            finding = skip_dependent(why);
            bench.keep(check.name, finding.clone());
        }
        finding
    })
}

/// Returns why a finding of `name` is not its own, if a chosen check of its causes fails. A warning explains only
/// another warning.
async fn explained(
    bench: &mut Bench,
    name: &str,
    verdict: Verdict,
    causes: &[&'static str],
) -> Option<String> {
    // Two checks that name each other: the one that runs first is the failure.
    let itself = bench.finding(name).and_then(|finding| finding.explains(name));
    for cause in causes.iter().filter(|cause| **cause != name) {
        let check = GROUPS.iter().flat_map(|(_, checks)| *checks).find(|check| check.name == *cause);
        let Some(check) = check.filter(|check| bench.chosen.contains(check.name)) else { continue };
        let found = judge(bench, check).await;
        if found.verdict == Verdict::Warn && verdict != Verdict::Warn {
            continue;
        }
        if let Some(why) = found.explains(check.name)
            && !itself.as_ref().is_some_and(|itself| why.starts_with(itself))
        {
            return Some(why);
        }
    }
    None
}
