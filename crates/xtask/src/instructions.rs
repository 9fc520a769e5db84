//! `cargo xtask instructions [--write | PATH..]`: the cost of one item of each hot path, in instructions and allocations.
//!
//! The time on a busy machine hides a change of a few percent. The instructions that callgrind counts show it in one run.
//! They depend on the compiler and on the C library. The baseline names both, and with others nothing is compared.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use duologue_test_support::skipped;

use super::interop::Result;

/// The largest allowed ratio to the baseline's instructions. A path that improves by as much fails too, until the baseline is
/// rewritten: otherwise the gain could be lost again unseen.
const MOST: f64 = 1.05;

/// The largest allowed difference from the baseline's allocations of one item. They are not always whole numbers, since
/// a buffer that grows allocates once for many items.
const ALLOCATIONS: f64 = 0.1;

/// The functions in which callgrind counts: `duologue_microbench::counted`, however it is mangled.
const COUNTED: &str = "*duologue_microbench*counted*";

/// Counts, and compares with the baseline or with `--write` replaces it. With names it is those paths alone.
#[expect(clippy::print_stdout, reason = "this is the program's output")]
pub(crate) fn run(args: &[String]) -> Result<()> {
    let (options, wanted): (Vec<&String>, Vec<&String>) = args.iter().partition(|arg| arg.starts_with('-'));
    let write = match options.as_slice() {
        [] => false,
        [flag] if *flag == "--write" => true,
        _ => return Err("cargo xtask instructions [--write | PATH..]".into()),
    };
    if write && !wanted.is_empty() {
        return Err("`--write` takes no path: it counts all of them and rewrites the whole baseline".into());
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../microbench");
    let file = folder.join("instructions.txt");
    let baseline = Baseline::read(&std::fs::read_to_string(&file).unwrap_or_default());
    let before: Vec<&str> = baseline.costs.iter().map(|cost| cost.name.as_str()).collect();
    // Building takes minutes, so a misspelled path is reported first. A new path is in the sources alone.
    if let Some(name) = unknown(&wanted, &before)
        && !before.is_empty()
        && !in_sources(&folder.join("src"), name)?
    {
        return Err(no_path(name, &before).into());
    }
    let toolchain = toolchain()?;
    let compares = baseline.toolchain == toolchain;
    let programs = build()?;
    let names = output_of(&mut Command::new(programs.join("hot-path")))?;
    let names: Vec<&str> = names.lines().collect();
    if let Some(name) = unknown(&wanted, &names) {
        return Err(no_path(name, &names).into());
    }
    let allocations = allocations(&programs)?;
    let mut counted = Baseline { toolchain, costs: Vec::new() };
    let mut changed = Vec::new();
    for name in names {
        if !wanted.is_empty() && !wanted.iter().any(|wanted| is_of(name, wanted)) {
            continue;
        }
        let instructions = count(&programs, name)?;
        let allocations =
            *allocations.get(name).ok_or_else(|| format!("{name}: its allocations are not known"))?;
        let cost = Cost { name: name.into(), instructions, allocations };
        let before = baseline.costs.iter().find(|cost| cost.name == name);
        match before {
            Some(before) => println!("{cost}  {:+.1} %", percent(before, &cost)),
            None => println!("{cost}  not in the baseline"),
        }
        if let Some(change) = change(before, &cost) {
            changed
                .push(format!("{change}\n    callgrind_annotate {}", callgrind(&programs, name).display()));
        }
        counted.costs.push(cost);
    }
    if write {
        return Ok(std::fs::write(file, counted.to_string())?);
    }
    if !compares {
        let (theirs, ours) = (baseline.toolchain, counted.toolchain);
        skipped("instructions", format_args!("the baseline is of {theirs}, and this machine has {ours}"));
        return Ok(());
    }
    if changed.is_empty() {
        return Ok(());
    }
    Err(format!(
        "more than {:.0} % of the instructions or {ALLOCATIONS} allocations off the baseline, or not in it:\n{}\n\
         The command under a path shows the functions of its instructions; with `--tree=caller` also their callers, so\n\
         that the functions that allocate are above `__rust_alloc`.\n\
         If the cost is intended: `cargo xtask instructions --write`, which takes no path and rewrites the whole baseline,\n\
         and commit crates/microbench/instructions.txt with the change.",
        (MOST - 1.0) * 100.0,
        changed.join("\n")
    )
    .into())
}

/// Returns true if a path is the wanted one, or belongs to the wanted group.
fn is_of(name: &str, wanted: &str) -> bool {
    name.strip_prefix(wanted.trim_end_matches('/'))
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns the first wanted name that is no path.
fn unknown<'a>(wanted: &[&'a String], names: &[&str]) -> Option<&'a str> {
    wanted.iter().map(|wanted| wanted.as_str()).find(|wanted| !names.iter().any(|name| is_of(name, wanted)))
}

/// Returns the error for an unknown path. It lists the paths of the same group, or else the groups.
fn no_path(wanted: &str, names: &[&str]) -> String {
    let group = |name: &str| name.split('/').next().unwrap_or_default().to_owned();
    let mut others: Vec<String> =
        names.iter().filter(|name| group(name) == group(wanted)).map(ToString::to_string).collect();
    if others.is_empty() {
        others = names.iter().map(|name| group(name)).collect();
        others.dedup();
    }
    format!("there is no path `{wanted}`; there are {}", others.join(", "))
}

/// Returns true if the sources contain a path or a group of this name.
fn in_sources(folder: &Path, wanted: &str) -> Result<bool> {
    let wanted = wanted.trim_end_matches('/');
    if wanted.is_empty() {
        return Ok(false);
    }
    for file in std::fs::read_dir(folder)? {
        let path = file?.path();
        if path.is_file() {
            let text = std::fs::read_to_string(path)?;
            if text.contains(&format!("\"{wanted}\"")) || text.contains(&format!("\"{wanted}/")) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Returns the difference of the instructions in percent.
fn percent(before: &Cost, now: &Cost) -> f64 {
    (now.instructions / before.instructions - 1.0) * 100.0
}

/// Describes the difference from the baseline, if it is too large.
fn change(before: Option<&Cost>, now: &Cost) -> Option<String> {
    let Some(before) = before else {
        return Some(format!("{} is not in the baseline", now.name));
    };
    let mut parts = Vec::new();
    if now.instructions > before.instructions * MOST || now.instructions * MOST < before.instructions {
        let percent = percent(before, now);
        parts.push(format!("{:.0} → {:.0} ({percent:+.1} %)", before.instructions, now.instructions));
    }
    if (now.allocations - before.allocations).abs() > ALLOCATIONS {
        parts.push(format!("allocations {:.2} → {:.2}", before.allocations, now.allocations));
    }
    (!parts.is_empty()).then(|| format!("{} {}", now.name, parts.join(", ")))
}

/// The counts and their compiler. `Display` writes the committed file.
#[derive(Default)]
struct Baseline {
    toolchain: String,
    costs: Vec<Cost>,
}

/// The cost of one item of a path.
struct Cost {
    name: String,
    instructions: f64,
    allocations: f64,
}

impl Baseline {
    fn read(text: &str) -> Self {
        let mut baseline = Baseline::default();
        for line in text.lines() {
            if let Some(toolchain) = line.strip_prefix(TOOLCHAIN) {
                baseline.toolchain = toolchain.into();
            } else if let [name, instructions, allocations] = *line.split_whitespace().collect::<Vec<_>>()
                && let (Ok(instructions), Ok(allocations)) = (instructions.parse(), allocations.parse())
            {
                baseline.costs.push(Cost { name: name.into(), instructions, allocations });
            }
        }
        baseline
    }
}

/// The begin of the line of the file that names the compiler and the C library.
const TOOLCHAIN: &str = "# Of ";

impl fmt::Display for Baseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "# The cost of one item of each hot path. Written by `cargo xtask instructions --write`."
        )?;
        writeln!(f, "{TOOLCHAIN}{}", self.toolchain)?;
        writeln!(f, "# {:30} {:>12} {:>12}", "path", "instructions", "allocations")?;
        self.costs.iter().try_for_each(|cost| writeln!(f, "{cost}"))
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cost { name, instructions, allocations } = self;
        write!(f, "{name:32} {instructions:>12.0} {allocations:>12.2}")
    }
}

/// Returns the versions that the counts depend on.
fn toolchain() -> Result<String> {
    let rustc = output_of(Command::new("rustc").arg("-vV"))?;
    let host = rustc.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default();
    let version = rustc.lines().next().unwrap_or_default();
    // Its allocator and its `memcpy` are counted too.
    let libc = output_of(Command::new("getconf").arg("GNU_LIBC_VERSION")).unwrap_or_default();
    Ok(format!("{version}, {host}, {}", libc.trim()))
}

/// Builds the programs that run the paths, and returns their folder.
fn build() -> Result<PathBuf> {
    let mut cargo = crate::target::cargo();
    cargo.args(["build", "--release", "--package", "duologue-microbench", "--bins"]);
    // Flags of somebody's own would make another program of it.
    cargo.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    // An incremental build has less inlined and counts up to a tenth more.
    cargo.env("CARGO_INCREMENTAL", "0");
    crate::target::passes(&mut cargo)?;
    Ok(crate::target::folder().join("release"))
}

/// The allocations of one item of every path.
fn allocations(programs: &Path) -> Result<BTreeMap<String, f64>> {
    let mut allocations = BTreeMap::new();
    for line in output_of(&mut Command::new(programs.join("hot-path-allocations")))?.lines() {
        let (name, count) =
            line.split_once(' ').ok_or_else(|| format!("{line}: no path and its allocations"))?;
        allocations.insert(name.to_owned(), count.parse()?);
    }
    Ok(allocations)
}

/// Returns the file that callgrind writes for a path, one each, for `callgrind_annotate`.
fn callgrind(programs: &Path, name: &str) -> PathBuf {
    programs.join(format!("hot-path-{}.callgrind", name.replace('/', "-")))
}

/// The instructions of one item of a path.
fn count(programs: &Path, name: &str) -> Result<f64> {
    let file = callgrind(programs, name);
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--quiet", &format!("--toggle-collect={COUNTED}")]);
    valgrind.arg(format!("--callgrind-out-file={}", file.display()));
    let items = output_of(valgrind.arg(programs.join("hot-path")).arg(name)).map_err(|error| {
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

/// Returns the output of a program, if it succeeds.
fn output_of(command: &mut Command) -> Result<String> {
    let output = command.output();
    let program = command.get_program().to_string_lossy();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{program}: {}\n{}", output.status, errors.trim()).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::{Baseline, Cost, change, is_of, no_path, unknown};

    fn cost(instructions: f64, allocations: f64) -> Cost {
        Cost { name: "agent/update".into(), instructions, allocations }
    }

    fn changed(instructions: f64, allocations: f64) -> Option<String> {
        change(Some(&cost(4806.0, 1.0)), &cost(instructions, allocations))
    }

    #[test]
    fn differences_from_the_baseline_are_reported_both_ways() {
        assert_eq!(
            changed(5265.0, 2.0).as_deref(),
            Some("agent/update 4806 → 5265 (+9.6 %), allocations 1.00 → 2.00")
        );
        assert_eq!(changed(4400.0, 1.0).as_deref(), Some("agent/update 4806 → 4400 (-8.4 %)"));
        assert_eq!(changed(4900.0, 1.13).as_deref(), Some("agent/update allocations 1.00 → 1.13"));
        assert_eq!(changed(4806.0, 0.0).as_deref(), Some("agent/update allocations 1.00 → 0.00"));
        assert_eq!(change(None, &cost(1.0, 0.0)).as_deref(), Some("agent/update is not in the baseline"));
    }

    #[test]
    fn a_little_off_the_baseline_is_nothing() {
        assert_eq!(changed(4806.0, 1.0), None);
        assert_eq!(changed(5000.0, 1.05), None);
        assert_eq!(changed(4600.0, 0.95), None);
    }

    #[test]
    fn a_group_or_a_path_is_found_and_nothing_else() {
        assert!(is_of("agent/update", "agent/update"));
        assert!(is_of("agent/update", "agent") && is_of("agent/update", "agent/"));
        assert!(!is_of("agent/update_1k", "agent/update"));
        assert!(!is_of("agent/update", "age") && !is_of("agent/update", "") && !is_of("agent/update", "/"));

        let names = ["agent/update", "agent/update_1k", "fold/append"];
        let [right, typo, group] = ["agent/update", "agent/typo", "nope"].map(String::from);
        assert_eq!(unknown(&[&right], &names), None);
        assert_eq!(unknown(&[&right, &typo], &names), Some("agent/typo"));
        assert_eq!(
            no_path(&typo, &names),
            "there is no path `agent/typo`; there are agent/update, agent/update_1k"
        );
        assert_eq!(no_path(&group, &names), "there is no path `nope`; there are agent, fold");
    }

    #[test]
    fn the_committed_baseline_is_read_whole() {
        let text = include_str!("../../microbench/instructions.txt");
        assert_eq!(Baseline::read(text).to_string(), text);
    }
}
