//! `cargo xtask rest [--seconds N] [--seed N]`: the REST interface of the hub as programs of others use it.
//!
//! A client that `openapi-typescript` generates from the description takes the tour of the interface, and `schemathesis`
//! derives requests from the description and compares the responses with it: as the local user, then as two users, who must
//! not see each other's objects. Without options the run is the same each time and bounded. With `--seconds` schemathesis
//! repeats its random phases for that time, each time with another seed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::interop::install::{npm, python};
use crate::interop::{InteropPaths, Result, finish};
use crate::target::root;
use crate::target::{cargo, executable};

const USAGE: &str = "cargo xtask rest [--seconds N] [--seed N]";
/// The time limit of the tour and of schemathesis together, without `--seconds`. They take about half of it.
const LIMIT: Duration = Duration::from_secs(90);
/// The time that each run of schemathesis needs beyond `--seconds`.
const GRACE: Duration = Duration::from_secs(300);
/// The seed of a run without one.
const SEED: u64 = 1;
/// The streams end with a task, and schemathesis reads a response to its end.
const STREAMS: &str = "events$";
/// The token of the served hub, whose owner has all permissions.
const KEY: &str = "token";

/// The options of the command.
#[derive(Debug, Default, PartialEq)]
struct Options {
    seconds: Option<u64>,
    seed: Option<u64>,
}

impl Options {
    fn read(args: &[String]) -> Result<Self> {
        let mut options = Options::default();
        for pair in args.chunks(2) {
            let [name, number] = pair else { return Err(USAGE.into()) };
            let place = match name.as_str() {
                "--seconds" => &mut options.seconds,
                "--seed" => &mut options.seed,
                _ => return Err(USAGE.into()),
            };
            *place = Some(number.parse().map_err(|_| format!("{name} {number}: use a whole number"))?);
        }
        Ok(options)
    }
}

/// Installs the programs, serves a hub, and runs both against it.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let options = Options::read(args)?;
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("rest");
    let target = std::path::absolute(InteropPaths::new().target.join("rest"))?;
    npm(&sources, &target.join("client"))?;
    python(&sources, &target.join("schemathesis"))?;
    let client = generated_client(&sources, &target.join("client"))?;
    let hub = ServedHub::start(&target)?;
    let begin = Instant::now();
    finish(Command::new("node").arg(client).args([&hub.address, KEY]), LIMIT)?;
    check(&sources, &target.join("schemathesis"), &hub, &options, begin)
}

/// Generates the types of the interface, and compiles the tour with them. Returns its program.
fn generated_client(sources: &Path, target: &Path) -> Result<PathBuf> {
    for file in ["tour.ts", "tsconfig.json"] {
        fs::copy(sources.join(file), target.join(file))?;
    }
    let description = root().join("schema/hub.openapi.json").canonicalize()?;
    let mut generate = Command::new(target.join("node_modules/.bin/openapi-typescript"));
    finish(generate.arg(description).args(["--output", "api.ts"]).current_dir(target), LIMIT)?;
    finish(Command::new(target.join("node_modules/.bin/tsc")).current_dir(target), LIMIT)?;
    Ok(target.join("out/tour.js"))
}

/// Runs all checks of schemathesis in all its phases, first as the local user, then as two users.
fn check(sources: &Path, folder: &Path, hub: &ServedHub, options: &Options, begin: Instant) -> Result<()> {
    for file in ["admin.toml", "users.toml", "users.json"] {
        fs::copy(sources.join(file), folder.join(file))?;
    }
    let description = root().join("schema/hub.openapi.json").canonicalize()?.display().to_string();
    let (served, key) = (format!("{}/openapi.json", hub.address), format!("X-API-Key: {KEY}"));
    for (config, target) in [
        ("admin.toml", [served.as_str(), "--header", &key]),
        // The file, because schemathesis sends the keys of users only with the requests that it derives.
        ("users.toml", [&description, "--url", &hub.address]),
    ] {
        let mut command = Command::new(folder.join("venv/bin/schemathesis"));
        command.current_dir(folder).env("PYTHONDONTWRITEBYTECODE", "1");
        command.args(["--config-file", config, "run"]).args(target);
        command.args(["--checks", "all", "--exclude-path-regex", STREAMS, "--generation-database", "none"]);
        command.args(["--no-color", "--continue-on-failure"]);
        if options.seconds.is_none() || options.seed.is_some() {
            command.args(["--seed", &options.seed.unwrap_or(SEED).to_string()]);
        }
        let mut limit = LIMIT.saturating_sub(begin.elapsed());
        if let Some(seconds) = options.seconds {
            command.args(["--max-time", &seconds.to_string()]);
            limit = Duration::from_secs(seconds) + GRACE;
        }
        finish(&mut command, limit)?;
    }
    Ok(())
}

/// A hub that serves until the value is dropped: the test `rest::served::serves_while_its_file_exists`.
struct ServedHub {
    address: String,
    /// The test ends when the file is removed.
    file: PathBuf,
    program: Child,
}

impl ServedHub {
    /// The time for the start and for the end.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn start(folder: &Path) -> Result<Self> {
        let mut build = cargo();
        build.args(["test", "--no-run", "--quiet", "-p", "duologue-hub", "--all-features", "--test", "it"]);
        let tests = executable(build.current_dir(root()))?;
        let file = folder.join("address");
        let _ = fs::remove_file(&file);
        let log = fs::File::create(folder.join("hub.log"))?;
        let mut command = Command::new(tests);
        command.args(["--exact", "rest::served::serves_while_its_file_exists"]);
        command.env("DUOLOGUE_REST_ADDRESS_FILE", &file).stdout(log.try_clone()?).stderr(log);
        let mut hub = ServedHub { address: String::new(), file, program: command.spawn()? };
        let begin = Instant::now();
        while !hub.file.exists() {
            if let Some(status) = hub.program.try_wait()? {
                return Err(format!("the hub ended early: {status}; see {}/hub.log", folder.display()).into());
            }
            if begin.elapsed() > ServedHub::PATIENCE {
                return Err(format!("the hub has no address after {:?}", ServedHub::PATIENCE).into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        hub.address = fs::read_to_string(&hub.file)?;
        Ok(hub)
    }
}

impl Drop for ServedHub {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.file);
        let begin = Instant::now();
        while matches!(self.program.try_wait(), Ok(None)) {
            if begin.elapsed() > ServedHub::PATIENCE {
                let _ = self.program.kill();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_numbers() {
        let read = |text: &str| {
            let args: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            Options::read(&args).map_err(|error| error.to_string())
        };
        assert_eq!(read(""), Ok(Options::default()));
        assert_eq!(read("--seconds 600 --seed 7"), Ok(Options { seconds: Some(600), seed: Some(7) }));
        assert_eq!(read("--seconds"), Err(USAGE.to_owned()));
        assert_eq!(read("--minutes 1"), Err(USAGE.to_owned()));
        assert_eq!(read("--seed x"), Err("--seed x: use a whole number".to_owned()));
    }
}
