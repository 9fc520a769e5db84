//! The command line of the benchmark. `cargo xtask bench` parses it too, to find mistakes before it builds anything.

use super::workloads::{WORKLOADS, Workload};

/// The usage line.
pub const USAGE: &str = "cargo xtask bench [remote | hub] [--quick | --rust] [--rounds N] [WORKLOAD..]

Plays all and writes BENCHMARKS.md and BENCHMARKS.svg; with --quick, --rust or a workload it only prints.
  --quick     small and few times, with the official Rust SDK alone: shows that it plays, not how fast
  --rust      at full size, with the official Rust SDK alone: neither node nor Python is needed
  remote      plays over a network instead, and writes BENCHMARKS-REMOTE.md unless --quick or --rust is given
  hub         prints the load figures of a hub and its store instead; takes --quick and --rounds N
  --rounds N  how often each pair plays each workload: 5 times, or 2 with --quick, if it is not said (hub: 3 and 1)

Workloads:";

/// The parsed options.
#[derive(Clone, Debug, Default)]
pub struct CommandLine {
    /// To say how it is used.
    pub help: bool,
    /// To play small.
    pub quick: bool,
    /// To play with the official Rust SDK alone.
    pub rust: bool,
    /// Rounds that each pair plays of each workload.
    pub rounds: Option<usize>,
    /// To play over a network.
    pub remote: bool,
    /// To measure a hub and its store.
    pub hub: bool,
    /// Which workloads; none stands for all.
    pub workloads: Vec<&'static Workload>,
}

impl CommandLine {
    /// Reads the words of a command line, or says what is wrong with them.
    pub fn read(args: &[String]) -> Result<Self, String> {
        let (mut options, mut args) = (CommandLine::default(), args.iter().peekable());
        options.remote = args.next_if(|arg| *arg == "remote").is_some();
        options.hub = !options.remote && args.next_if(|arg| *arg == "hub").is_some();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--help" | "-h" => options.help = true,
                "--quick" => options.quick = true,
                "--rust" if !options.hub => options.rust = true,
                "--rounds" => {
                    let number = args.next().and_then(|number| number.parse().ok());
                    let number = number.filter(|number| *number > 0);
                    options.rounds = Some(number.ok_or("--rounds needs a number, at least 1")?);
                }
                word if options.hub => {
                    return Err(format!("`{word}`: for a hub there are --quick, --rounds N and --help"));
                }
                option if option.starts_with('-') => {
                    return Err(format!(
                        "there is no option `{option}`; there are --quick, --rust, --rounds N and --help"
                    ));
                }
                name if options.remote => {
                    return Err(format!("`{name}`: over a network there are no workloads"));
                }
                name => {
                    let workload = WORKLOADS.iter().find(|workload| workload.name == name);
                    let workload = workload.ok_or_else(|| {
                        let all: Vec<_> = WORKLOADS.iter().map(|workload| workload.name).collect();
                        format!("there is no workload `{name}`; there are {}", all.join(", "))
                    })?;
                    // Once is enough.
                    if !options.workloads.iter().any(|other| other.name == name) {
                        options.workloads.push(workload);
                    }
                }
            }
        }
        Ok(options)
    }

    /// Returns true if the official Rust SDK is the only other SDK.
    pub fn rust_alone(&self) -> bool {
        self.quick || self.rust
    }

    /// Returns true if everything is played at the size of the page.
    pub fn whole(&self) -> bool {
        !self.hub && !self.rust_alone() && self.workloads.is_empty()
    }
}

/// Returns the usage and the list of workloads.
pub fn usage() -> String {
    let workloads = WORKLOADS.iter().map(|workload| format!("\n  {:<4} {}", workload.name, workload.title));
    USAGE.to_owned() + &workloads.collect::<String>()
}
