//! `cargo xtask fuzz`: builds the targets of `fuzz/` and runs them, two at a time, from seeds made of what the
//! repository has.

mod report;
mod seeds;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use crate::interop::Result;
use crate::target::passes;
use report::FuzzRun;

/// Targets that run at once.
const JOBS: usize = 2;
/// No input may need more memory or more time than this.
const LIMITS: [&str; 2] = ["-rss_limit_mb=2048", "-timeout=1"];
const USAGE: &str =
    "cargo xtask fuzz [--seconds N | --runs N] [--seed N] [--sanitizer address | none] [TARGET..]";

/// The parsed command line.
struct FuzzOptions {
    /// libFuzzer's own word for when a target is done.
    end: String,
    /// The seed of libFuzzer's choices, which chooses one itself for 0.
    seed: u64,
    sanitizer: Sanitizer,
    targets: Vec<String>,
}

#[derive(Clone, Copy, PartialEq)]
enum Sanitizer {
    Address,
    None,
}

impl Sanitizer {
    fn name(self) -> &'static str {
        match self {
            Sanitizer::Address => "address",
            Sanitizer::None => "none",
        }
    }

    /// Instrumenting for a sanitizer needs a nightly compiler, everything else is stable.
    fn cargo(self) -> Command {
        match self {
            Sanitizer::Address => {
                let mut command = Command::new("rustup");
                command.args(["run", "nightly", "cargo"]);
                command
            }
            Sanitizer::None => Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())),
        }
    }
}

/// The folders.
struct Paths {
    root: PathBuf,
    /// All that is made here: builds, seeds, corpora, logs, and inputs that crash.
    target: PathBuf,
}

impl Paths {
    fn new() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
        Ok(Paths { target: crate::target::folder().join("fuzz"), root })
    }

    /// A folder of one target, made if need be.
    fn folder(&self, kind: &str, target: &str) -> Result<PathBuf> {
        let folder = self.target.join(kind).join(target);
        std::fs::create_dir_all(&folder)?;
        Ok(folder)
    }
}

/// Runs the targets and fails if one has found something.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let paths = Paths::new()?;
    let options = options(args, &targets(&paths)?)?;
    install()?;
    let programs = build(&paths, options.sanitizer)?;
    let dictionary = seeds::dictionary(&paths)?;
    let waiting = Mutex::new(options.targets.iter());
    let runs = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..JOBS {
            scope.spawn(|| {
                while let Some(target) = next(&waiting) {
                    let run = play(&paths, &options, target, &programs, &dictionary)
                        .map_err(|error| error.to_string());
                    runs.lock().unwrap_or_else(PoisonError::into_inner).push((target.clone(), run));
                }
            });
        }
    });
    let mut runs = runs.into_inner().unwrap_or_else(PoisonError::into_inner);
    runs.sort_by(|(left, _), (right, _)| left.cmp(right));
    report::print(&paths, options.sanitizer.name(), runs)
}

fn next<'a>(waiting: &Mutex<impl Iterator<Item = &'a String>>) -> Option<&'a String> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner).next()
}

fn options(args: &[String], all: &[String]) -> Result<FuzzOptions> {
    let mut options =
        FuzzOptions { end: "-max_total_time=60".into(), seed: 0, sanitizer: best(), targets: Vec::new() };
    let mut args = args.iter().map(String::as_str);
    while let Some(arg) = args.next() {
        let number =
            |text: Option<&str>| text.and_then(|text| text.replace('_', "").parse::<u64>().ok()).ok_or(USAGE);
        match arg {
            "--seconds" => options.end = format!("-max_total_time={}", number(args.next())?),
            "--runs" => options.end = format!("-runs={}", number(args.next())?),
            "--seed" => options.seed = number(args.next())?,
            "--sanitizer" => {
                options.sanitizer = match args.next() {
                    Some("address") => Sanitizer::Address,
                    Some("none") => Sanitizer::None,
                    _ => return Err(USAGE.into()),
                }
            }
            target if all.iter().any(|known| known == target) => options.targets.push(target.to_owned()),
            _ => return Err(format!("{USAGE}\ntargets: {}", all.join(" ")).into()),
        }
    }
    if options.targets.is_empty() {
        options.targets = all.to_owned();
    }
    Ok(options)
}

/// AddressSanitizer where there is a nightly compiler.
fn best() -> Sanitizer {
    let nightly = Command::new("rustup")
        .args(["run", "nightly", "rustc", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if nightly.is_ok_and(|status| status.success()) { Sanitizer::Address } else { Sanitizer::None }
}

fn targets(paths: &Paths) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for file in std::fs::read_dir(paths.root.join("fuzz/fuzz_targets"))? {
        names.extend(file?.path().file_stem().map(|name| name.to_string_lossy().into_owned()));
    }
    names.sort();
    Ok(names)
}

fn install() -> Result<()> {
    let cargo = || Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let there = cargo().args(["fuzz", "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    if !there.success() {
        // Without optimizing: it starts programs, and is ready in a third of the time.
        passes(cargo().args(["install", "--debug", "--locked", "--quiet", "cargo-fuzz"]))?;
    }
    Ok(())
}

/// Builds all targets at once; the folder of the programs.
fn build(paths: &Paths, sanitizer: Sanitizer) -> Result<PathBuf> {
    // Builds with and without a sanitizer keep out of each other's way.
    let folder = paths.target.join(format!("build-{}", sanitizer.name()));
    let mut cargo = sanitizer.cargo();
    cargo.args(["fuzz", "build", "--sanitizer", sanitizer.name(), "--fuzz-dir"]).arg(paths.root.join("fuzz"));
    cargo.arg("--target-dir").arg(&folder).current_dir(&paths.root);
    // The one that runs this, which may be another than the one that shall build.
    cargo.env_remove("RUSTUP_TOOLCHAIN");
    passes(&mut cargo)?;
    for triple in std::fs::read_dir(&folder)? {
        let programs = triple?.path().join("release");
        if programs.join("framer").exists() {
            return Ok(programs);
        }
    }
    Err(format!("cargo fuzz left no programs in {}", folder.display()).into())
}

/// Returns the longest input of a target, in bytes. It is short for a target that does much work with each byte.
fn longest(target: &str) -> usize {
    match target {
        "log" | "paths" => 64,
        "fold" | "output" => 256,
        "framer" => 1024,
        "escapes" | "socket" | "transcript" => 2048,
        _ => 4096,
    }
}

/// Runs one target to its end or to its first crash.
fn play(
    paths: &Paths,
    options: &FuzzOptions,
    target: &str,
    programs: &Path,
    dictionary: &Path,
) -> Result<FuzzRun> {
    let (corpus, seeds) = (paths.folder("corpus", target)?, paths.folder("seeds", target)?);
    seeds::write(paths, target, &seeds, longest(target))?;
    let artifacts = paths.folder("artifacts", target)?;
    let log = paths.target.join(format!("{target}.log"));
    let status = Command::new(programs.join(target))
        .args([&corpus, &seeds])
        .args(LIMITS)
        .args([&options.end, "-print_final_stats=1"])
        .arg(format!("-seed={}", options.seed))
        .arg(format!("-max_len={}", longest(target)))
        .arg(format!("-dict={}", dictionary.display()))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .stdout(Stdio::null())
        .stderr(File::create(&log)?)
        .status()?;
    let mut run = FuzzRun::read(&log, status)?;
    // On a busy machine any input may look slow, so it runs again alone.
    if let Some(input) = run.slow_input() {
        let again =
            Command::new(programs.join(target)).args(LIMITS).arg(input).stderr(Stdio::null()).status()?;
        run.slow_again(again.success());
    }
    Ok(run)
}
