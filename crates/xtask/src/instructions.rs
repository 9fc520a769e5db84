//! `cargo xtask instructions [--write] [PATH..]`: what one item of each hot path costs in instructions.
//!
//! Time on a busy machine says little about a change of a few percent; how many instructions callgrind counts says it
//! in one run. They depend on the compiler and on the C library, so the baseline names both, and nothing is compared
//! where they are others.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::interop::Result;

/// How many times the baseline's instructions a path may take. One that takes less by as much has to be written down,
/// or what was gained could be lost again unseen.
const MOST: f64 = 1.05;

/// Which functions callgrind counts in: `duologue_microbench::counted`, however it is mangled.
const COUNTED: &str = "*duologue_microbench*counted*";

/// Counts, and compares with the baseline or with `--write` replaces it. With names it is those paths alone.
#[expect(clippy::print_stdout, reason = "this is the program's output")]
pub(crate) fn run(args: &[String]) -> Result<()> {
    let (options, wanted): (Vec<&String>, Vec<&String>) = args.iter().partition(|arg| arg.starts_with("--"));
    let write = match options.as_slice() {
        [] => false,
        [flag] if *flag == "--write" && wanted.is_empty() => true,
        _ => return Err("cargo xtask instructions [--write | PATH..]".into()),
    };
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../microbench/instructions.txt");
    let baseline = Baseline::read(&std::fs::read_to_string(&file).unwrap_or_default());
    let toolchain = toolchain()?;
    let compares = baseline.toolchain == toolchain;
    let programs = build()?;
    let allocations: BTreeMap<String, String> =
        said(&mut Command::new(programs.join("hot-path-allocations")))?
            .lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(name, count)| (name.into(), count.into()))
            .collect();
    let mut counted = Baseline { toolchain, costs: Vec::new() };
    let mut changed = Vec::new();
    for name in said(&mut Command::new(programs.join("hot-path")))?.lines() {
        if !wanted.is_empty() && !wanted.iter().any(|wanted| *wanted == name) {
            continue;
        }
        let instructions = count(&programs, name)?;
        let allocations = allocations.get(name).cloned().unwrap_or_default();
        let cost = Cost { name: name.into(), instructions, allocations };
        let before = baseline.costs.iter().find(|cost| cost.name == name).map(|cost| cost.instructions);
        match before {
            Some(before) => println!("{cost}  {:+.1} %", (instructions / before - 1.0) * 100.0),
            None => println!("{cost}  not in the baseline"),
        }
        if before.is_none_or(|before| instructions > before * MOST || instructions * MOST < before) {
            changed.push(name.to_owned());
        }
        counted.costs.push(cost);
    }
    if write {
        return Ok(std::fs::write(file, counted.to_string())?);
    }
    if !compares {
        println!(
            "nothing was compared: the baseline is of {}\n               and this machine has {}",
            baseline.toolchain, counted.toolchain
        );
        return Ok(());
    }
    if changed.is_empty() {
        return Ok(());
    }
    Err(format!(
        "more than {:.0} % off the baseline, or not in it: {}\nif it has to be so, `cargo xtask instructions --write` and commit the result",
        (MOST - 1.0) * 100.0,
        changed.join(", ")
    )
    .into())
}

/// What was counted, and with which compiler. It shows as the file that is committed.
#[derive(Default)]
struct Baseline {
    toolchain: String,
    costs: Vec<Cost>,
}

/// What one item of a path costs.
struct Cost {
    name: String,
    instructions: f64,
    allocations: String,
}

impl Baseline {
    fn read(text: &str) -> Self {
        let mut baseline = Baseline::default();
        for line in text.lines() {
            if let Some(toolchain) = line.strip_prefix(TOOLCHAIN) {
                baseline.toolchain = toolchain.into();
            } else if let [name, instructions, allocations] = *line.split_whitespace().collect::<Vec<_>>()
                && let Ok(instructions) = instructions.parse()
            {
                baseline.costs.push(Cost {
                    name: name.into(),
                    instructions,
                    allocations: allocations.into(),
                });
            }
        }
        baseline
    }
}

/// Before the line of the file that says what it was compiled with.
const TOOLCHAIN: &str = "# Of ";

impl fmt::Display for Baseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "# What one item of each hot path costs. Written by `cargo xtask instructions --write`."
        )?;
        writeln!(f, "{TOOLCHAIN}{}", self.toolchain)?;
        writeln!(f, "# {:30} {:>12} {:>12}", "path", "instructions", "allocations")?;
        self.costs.iter().try_for_each(|cost| writeln!(f, "{cost}"))
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cost { name, instructions, allocations } = self;
        write!(f, "{name:32} {instructions:>12.0} {allocations:>12}")
    }
}

/// What the counts depend on.
fn toolchain() -> Result<String> {
    let rustc = said(Command::new("rustc").arg("-vV"))?;
    let host = rustc.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default();
    let version = rustc.lines().next().unwrap_or_default();
    // Its allocator and its `memcpy` are counted too.
    let libc = said(Command::new("getconf").arg("GNU_LIBC_VERSION")).unwrap_or_default();
    Ok(format!("{version}, {host}, {}", libc.trim()))
}

/// Builds the programs that go the paths, and says where they are.
fn build() -> Result<PathBuf> {
    let mut cargo = crate::target::cargo();
    cargo.args(["build", "--release", "--package", "duologue-microbench", "--bins"]);
    // Flags of somebody's own would make another program of it.
    cargo.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    if !cargo.status()?.success() {
        return Err("the hot paths could not be built".into());
    }
    Ok(crate::target::folder().join("release"))
}

/// The instructions of one item of a path.
fn count(programs: &Path, name: &str) -> Result<f64> {
    let file = programs.join("hot-path.callgrind");
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--quiet", &format!("--toggle-collect={COUNTED}")]);
    valgrind.arg(format!("--callgrind-out-file={}", file.display()));
    let items = said(valgrind.arg(programs.join("hot-path")).arg(name)).map_err(|error| {
        format!("{error}\nis valgrind installed? It is a package of that name, in Debian and elsewhere")
    })?;
    let counts = std::fs::read_to_string(file)?;
    let total =
        counts.lines().find_map(|line| line.strip_prefix("totals: ")).ok_or("callgrind wrote no total")?;
    match total.trim().parse::<f64>()? / items.trim().parse::<f64>()? {
        0.0 => Err(format!("{name}: nothing was counted in `{COUNTED}`").into()),
        instructions => Ok(instructions),
    }
}

/// What a program prints, if it succeeds.
fn said(command: &mut Command) -> Result<String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim()).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}
