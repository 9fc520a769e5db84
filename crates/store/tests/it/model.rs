//! Any sequence of operations on a log in files gives what a list of records gives.

use std::time::Duration;

use duologue_store::{Log, LogLine, LogRoot};
use proptest::prelude::*;
use tempfile::tempdir;

use crate::support::{NAME, at, header, line, read_from, root, small, whole_transcript};

#[derive(Clone, Debug)]
enum Operation {
    /// Batches of records with these lengths.
    Append(Vec<usize>),
    Sync,
    Reopen,
    RestartProcess,
    CloseIdle,
    /// Reads behind a part of the log, pages of some bytes.
    Read(f64, usize),
    /// Removes records before a part of the log.
    Remove(f64),
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        6 => prop::collection::vec(prop_oneof![8 => 0..100usize, 1 => 0..4000usize], 0..12).prop_map(Operation::Append),
        1 => Just(Operation::Sync),
        1 => Just(Operation::Reopen),
        1 => Just(Operation::RestartProcess),
        1 => Just(Operation::CloseIdle),
        5 => (0.0..1.0, 0..3000usize).prop_map(|(part, bytes)| Operation::Read(part, bytes)),
        1 => (0.0..1.0).prop_map(Operation::Remove),
    ]
}

/// The record before a part of the log.
fn position(part: f64, first: u64, end: u64) -> u64 {
    first - 1 + (part * (end + 2 - first) as f64) as u64
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_log_is_a_list_of_its_records(
        operations in prop::collection::vec(operation(), 1..40),
        segment_bytes in prop_oneof![Just(1000), Just(8000)],
    ) {
        let folder = tempdir().expect("a folder");
        let mut settings = small();
        settings.segment_bytes = segment_bytes;
        let mut logs: LogRoot = root(folder.path(), settings.clone());
        let mut log = logs.open(NAME, &header()).expect("a log");
        let (mut model, mut first, mut number): (Vec<Vec<u8>>, _, _) = (vec![read_from(&log, at(0), 1000).remove(0)], 1, 0);
        let mut cursors = Vec::new();
        for operation in operations {
            match operation {
                Operation::Append(lengths) => {
                    let lines: Vec<LogLine> = lengths.into_iter().map(|length| { number += 1; line(number, length) }).collect();
                    model.extend(lines.iter().map(|line| line.bytes().to_vec()));
                    prop_assert_eq!(log.append(&lines).expect("appended").number(), model.len() as u64);
                }
                Operation::Sync => prop_assert_eq!(log.sync().expect("synced").number(), model.len() as u64),
                Operation::CloseIdle => drop(logs.close_idle(Duration::ZERO)),
                Operation::Reopen | Operation::RestartProcess => {
                    let life = log.life();
                    drop(log);
                    if matches!(operation, Operation::RestartProcess) {
                        drop(logs);
                        logs = root(folder.path(), settings.clone());
                    }
                    log = logs.open(NAME, &header()).expect("a log");
                    prop_assert_eq!(log.life(), life + 1);
                    prop_assert_eq!(log.recovery().removed_bytes, 0);
                    model.push(LogLine::new(format!(r#"{{"at":{},"hub":{{"event":"opened","life":{}}}}}"#, log.opened_at().as_micros(), life + 1)).expect("a line").bytes().to_vec());
                }
                Operation::Read(part, bytes) => {
                    let after = position(part, first, model.len() as u64);
                    prop_assert_eq!(&read_from(&log, at(after), bytes), &model[after as usize..]);
                }
                Operation::Remove(part) => {
                    let keep = position(part, first, model.len() as u64) + 1;
                    let now = log.remove_before(at(keep)).expect("removed").number();
                    prop_assert!(now >= first && now <= keep.max(first));
                    first = now;
                }
            }
            prop_assert_eq!((log.first().number(), log.end().number()), (first, model.len() as u64));
            cursors.push(log.cursor(log.end()));
        }
        prop_assert_eq!(read_from(&log, at(first - 1), 500), &model[first as usize - 1..]);
        for cursor in cursors {
            // The place just before the first record is only valid in a life that is known.
            match log.check(cursor) {
                Ok(position) => prop_assert!(position.number() + 1 >= first),
                Err(error) => prop_assert!(cursor.position.number() < first, "{}: {}", cursor, error),
            }
        }
        whole_transcript(folder.path());
    }
}
