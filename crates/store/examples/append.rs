//! Measures appends to a log against a bare `write` of the same bytes:
//! `cargo run --release -p duologue-store --example append -- FOLDER`.
#![allow(clippy::print_stdout, reason = "the figures")]

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use duologue_store::transcript::Header;
use duologue_store::{Log, LogLine, LogPosition, LogRoot, LogSettings};

/// Records of each measurement, and the bytes of each.
const RECORDS: usize = 400_000;
const BYTES: usize = 256;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "append-bench".into());
    let folder = Path::new(&folder);
    let logs = LogRoot::new(folder, LogSettings::default())?;
    let text = format!(r#"{{"at":1,"stderr":"{}"}}"#, "x".repeat(BYTES - 21));
    for batch in [1, 8, 64, 512] {
        let lines = vec![LogLine::new(text.clone())?; batch];
        let plain = format!("{text}\n").repeat(batch);

        let mut file = File::create(folder.join("plain"))?;
        let started = Instant::now();
        for _ in 0..RECORDS / batch {
            file.write_all(plain.as_bytes())?;
        }
        let bare = started.elapsed();

        let log = logs.open("append", &Header::new("append"))?;
        let started = Instant::now();
        for _ in 0..RECORDS / batch {
            log.append(&lines)?;
        }
        let appended = started.elapsed();

        logs.close_idle(std::time::Duration::ZERO);
        let (started, mut after) = (Instant::now(), LogPosition::START);
        while let Some(last) = log.read(after, 256 * 1024)?.last() {
            after = last;
        }
        let read = started.elapsed();

        let synced = if batch == 512 { 200 } else { 500 };
        let started = Instant::now();
        for _ in 0..synced {
            log.append(&lines)?;
            log.sync()?;
        }
        let sync = started.elapsed() / synced;
        let rate = |time: std::time::Duration| RECORDS as f64 / time.as_secs_f64() / 1e6;
        println!(
            "{batch:4} a batch: log {:5.2} M/s, bare write {:5.2} M/s, read {:5.2} M/s; append and sync {sync:.0?}",
            rate(appended),
            rate(bare),
            rate(read),
        );
        drop(log);
        logs.remove("append")?;
    }
    std::fs::remove_dir_all(folder)?;
    Ok(())
}
