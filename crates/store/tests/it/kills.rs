//! A process that appends is killed at random moments: accepted records stay, in their order.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use duologue_store::{Log, LogCursor, LogSettings};
use duologue_test_support::{Reproduction, measured, runs, seed};
use tempfile::tempdir;

use crate::support::{at, line, numbers, open, whole_transcript};

/// The folder of the log, in the process that appends.
const FOLDER: &str = "DUOLOGUE_TEST_LOG";

/// `true` if it appends long batches.
const LONG: &str = "DUOLOGUE_TEST_LONG_BATCHES";

const THIS: &str = "kills::accepted_records_survive_the_end_of_the_process";

fn settings() -> LogSettings {
    let mut settings = LogSettings::default();
    settings.segment_bytes = 200_000;
    settings
}

#[test]
fn accepted_records_survive_the_end_of_the_process() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return append_for_ever(Path::new(&folder));
    }
    let (kills, seed) = (runs(15), seed());
    let _reproduction = Reproduction::of("-p duologue-store --test it kills", seed, kills);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut folder = tempdir().expect("a folder");
    let (mut torn, mut records, mut cursors) = (0, 0, Vec::new());
    for kill in 0..kills {
        // Only a long write can be cut short. Such a log is soon too long to be read each time.
        let has_long_batches = kill % 5 > 2;
        if kill % 20 == 0 || has_long_batches {
            folder = tempdir().expect("a folder");
            cursors.clear();
        }
        let accepted = killed(folder.path(), &mut random, has_long_batches);
        let log = open(folder.path(), settings());
        torn += u64::from(log.recovery().removed_bytes > 0);
        assert_eq!(log.recovery().saved_to, None, "a kill leaves no hole");
        let found = numbers(&log);
        assert!(found.iter().copied().eq(1..=found.len() as u64), "a gap or another order");
        assert_eq!(whole_transcript(folder.path()), found);
        if let Some((cursor, last)) = accepted {
            assert!(log.recovery().end >= cursor.position, "{cursor} was accepted");
            assert!(found.len() as u64 >= last);
            records += last;
            cursors.push(cursor);
        }
        for cursor in &cursors {
            log.check(*cursor).expect("a cursor of an accepted record");
        }
    }
    measured(format_args!(
        "{kills} kills, {torn} torn records removed, {records} accepted records are all there"
    ));
}

/// Starts a process that appends, and kills it. Returns the cursor and the number of the last record that it has
/// reported.
fn killed(folder: &Path, random: &mut fastrand::Rng, has_long_batches: bool) -> Option<(LogCursor, u64)> {
    let mut command = Command::new(std::env::current_exe().expect("our own"));
    command
        .args(["--exact", THIS, "--nocapture"])
        .env(FOLDER, folder)
        .env(LONG, has_long_batches.to_string());
    command.env("DUOLOGUE_SEED", random.u64(..).to_string()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    let mut output = BufReader::new(child.stdout.take().expect("its output"));
    let mut line = String::new();
    let mut accepted = None;
    // A quarter is killed while it opens the log, the others while they append.
    if random.u8(..4) > 0 {
        while !line.contains("accepted") {
            line.clear();
            assert!(output.read_line(&mut line).expect("its output") > 0, "it ended by itself");
        }
        accepted = parsed(&line);
    }
    std::thread::sleep(Duration::from_micros(random.u64(..if has_long_batches { 5_000 } else { 20_000 })));
    child.kill().expect("killed");
    child.wait().expect("ended");
    for line in output.lines() {
        accepted = parsed(&line.expect("its output")).or(accepted);
    }
    accepted
}

fn parsed(line: &str) -> Option<(LogCursor, u64)> {
    let (cursor, number) = line.split_once("accepted ")?.1.split_once(' ')?;
    Some((cursor.parse().ok()?, number.trim().parse().ok()?))
}

#[allow(clippy::print_stdout, reason = "the report to the process that kills this one")]
fn append_for_ever(folder: &Path) {
    let log = open(folder, settings());
    let is_long = std::env::var(LONG).is_ok_and(|long| long == "true");
    let mut number = numbers(&log).last().copied().unwrap_or_default();
    let mut random = fastrand::Rng::with_seed(seed());
    loop {
        let (count, padding) = match (is_long, random.u8(..4)) {
            (true, _) => (20, 300_000),
            (false, 0) => (500, 1000),
            (false, _) => (20, 50),
        };
        let batch: Vec<_> = (1..=random.u64(1..count))
            .map(|_| {
                number += 1;
                line(number, random.usize(..padding))
            })
            .collect();
        let end = log.append(&batch).expect("appended");
        println!("accepted {} {number}", log.cursor(end));
        if random.u8(..10) == 0 {
            assert!(log.sync().expect("synced") >= at(1));
        }
    }
}
