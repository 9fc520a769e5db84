//! The table of all faults: their names, values and effects.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::process::CrashSignal;
use super::value::{at, number, or, size, time};

/// Declares each fault: its field, the reader of its value, its name, the syntax of the value, and its effect.
/// A value in brackets is optional; its default is at the end of the effect.
macro_rules! faults {
    ($($(#[$doc:meta])* $field:ident: $type:ty = $read:expr, $name:literal $value:literal $about:literal;)*) => {
        /// A combination of faults for one agent, such as `noise,fragment=7`, parsed with [`str::parse`].
        ///
        /// `duologue mock --faults list` describes all of them. Random choices have the seed 0 if [`seed`](Self::seed)
        /// sets no other one.
        #[derive(Clone, Debug, Default)]
        pub struct Faults {
            /// The specification of each fault.
            given: Vec<String>,
            /// The seed of random choices.
            pub(super) seed: u64,
            $($(#[$doc])* pub(super) $field: $type,)*
        }

        /// All faults.
        const TABLE: &[FaultRow] = &[$(FaultRow {
            name: $name,
            value: $value,
            about: $about,
            set: |faults, text| {
                let read: fn(&str) -> Result<$type, String> = $read;
                faults.$field = read(text)?;
                Ok(())
            },
        },)*];
    };
}

faults! {
    slow: Option<Duration> = |text| or(text, SLOW, time),
        "slow" "[=TIME]" "waits before each frame (50ms)";
    fragment: Option<FragmentSize> = |text| or(text, FragmentSize::Random, fragment),
        "fragment" "[=BYTES]" "writes lines in fragments, which can split characters (1 to 16 bytes at random)";
    coalesce: bool = none,
        "coalesce" "" "writes notifications together with the next response or request, in one write";
    noise: bool = none,
        "noise" "" "writes lines that are no messages: a banner, colours, log lines, blank lines, invalid UTF-8";
    bom: bool = none,
        "bom" "" "begins each line with a byte order mark";
    crlf: bool = none,
        "crlf" "" "ends each line with CR LF";
    surrogates: bool = none,
        "surrogates" "" "ends the text of each update in half a surrogate pair";
    unknown: bool = none,
        "unknown" "" "adds unknown fields to each message, and an update of an unknown kind to each turn";
    stray: bool = none,
        "stray" "" "sends responses to unknown requests, before each response";
    twice: bool = none,
        "twice" "" "repeats each response: at once, and again after the next frame";
    early: Option<usize> = |text| or(text, 5, number),
        "early" "[=N]" "sends N updates of a new session before the response that creates it (5)";
    late: Option<usize> = |text| or(text, 5, number),
        "late" "[=N]" "sends N updates of a turn after its response (5)";
    strangers: Option<usize> = |text| or(text, 1000, number),
        "strangers" "[=N]" "sends N updates in each turn, each of another unknown session (1000)";
    /// The number of updates, and the bytes of text in each.
    flood: Option<(usize, usize)> = |text| or(text, (10_000, 1024), flood),
        "flood" "[=NxBYTES]" "sends N updates with BYTES of text each, in each turn (10000x1KiB)";
    big: Option<usize> = |text| or(text, 16 << 20, size),
        "big" "[=BYTES]" "sends an update in each turn whose line has BYTES without its end (16MiB)";
    deep: Option<usize> = |text| or(text, 1000, number),
        "deep" "[=LEVELS]" "sends an update with LEVELS of nested arrays, in each turn (1000)";
    endless: Option<usize> = |text| or(text, 1 << 30, size),
        "endless" "[=BYTES]" "writes BYTES of a line without an end in a turn, then nothing more (1GiB)";
    permissions: Option<usize> = |text| or(text, 100, number),
        "permissions" "[=N]" "sends N permission requests at once in each turn, and ends it after all responses (100)";
    same_id: bool = none,
        "same-id" "" "sends two permission requests with one id in each turn, and ends it after both responses";
    endless_load: bool = none,
        "endless-load" "" "sends updates without end at `session/load`, one each millisecond";
    /// The number of bytes, and the frame after which they are written.
    stderr: Option<(usize, usize)> = stderr,
        "stderr" "=BYTES[@FRAME]" "writes BYTES to stderr, and waits until they are read (before anything else)";
    hang: Option<usize> = frame,
        "hang" "=FRAME" "writes nothing more after FRAME, and does not exit";
    deaf: Option<usize> = frame,
        "deaf" "=FRAME" "reads nothing more after FRAME, and does not exit";
    close_stdout: Option<usize> = frame,
        "close-stdout" "=FRAME" "closes its stdout after FRAME, and continues to read";
    torn: Option<usize> = first_frame,
        "torn" "=FRAME" "writes half of FRAME and exits with code 1";
    exit: Option<(u8, usize)> = exit,
        "exit" "=[CODE@]FRAME" "writes a line to stderr and exits with CODE after FRAME (1)";
    crash: Option<(CrashSignal, usize)> = crash,
        "crash" "=[SIGNAL@]FRAME" "is killed after FRAME by KILL, SEGV, ABRT or TERM (KILL)";
    straggler: bool = |text| on_unix(none(text)?),
        "straggler" "" "starts a child that keeps stdout open for ten minutes";
    wrapper: Option<WrapperMode> = wrapper,
        "wrapper" "[=setsid]" "runs the agent as a child, as npx does; with setsid in another process group";
    ignore_eof: bool = none,
        "ignore-eof" "" "does not exit when its stdin ends";
    ignore_term: bool = |text| on_unix(none(text)?),
        "ignore-term" "" "does not exit at SIGTERM";
}

struct FaultRow {
    name: &'static str,
    /// The syntax of the value.
    value: &'static str,
    about: &'static str,
    set: fn(&mut Faults, &str) -> Result<(), String>,
}

/// The length of the fragments of a line.
#[derive(Clone, Copy, Debug)]
pub(super) enum FragmentSize {
    Of(usize),
    Random,
}

/// The place of an agent behind a wrapper process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WrapperMode {
    /// In the process group of the wrapper.
    Group,
    /// In a session of its own, where no signal to the group reaches it.
    Session,
}

/// Faults that act on the agent's process and not on its messages.
const PROCESS_FAULTS: &[&str] =
    &["stderr", "torn", "exit", "crash", "straggler", "wrapper", "ignore-eof", "ignore-term"];

const SLOW: Duration = Duration::from_millis(50);

/// Sets of faults of which only one can be chosen, since it undoes the others or nothing follows it.
const EITHER: &[&[&str]] =
    &[&["fragment", "coalesce"], &["crash", "exit", "torn", "hang", "endless", "close-stdout"]];

/// Returns a description of all faults, one a line, and of their values. A star marks those that act on a process.
#[must_use]
pub fn help() -> String {
    let line = |row: &FaultRow| {
        let mark = if PROCESS_FAULTS.contains(&row.name) { '*' } else { ' ' };
        format!("{:26}{mark} {}\n", format!("{}{}", row.name, row.value), row.about)
    };
    let mut text: String = TABLE.iter().map(line).collect();
    text.push_str(
        "\n* acts on the process of the agent. The other faults also apply to the stream of another agent, with the \
         library `duologue-testkit`.\n\
         FRAME counts the messages that the agent writes: 1 is the response to `initialize`, 2 the response to \
         `session/new`, 3 the commands of the session, 4 the first message of a turn; 0 is before it reads or writes \
         anything. So hang=0 never responds, torn=2 ends in the middle of the response to `session/new`, exit=3@5 and \
         crash=SEGV@5 end it in a turn, stderr=1MiB@2 writes to stderr before a turn.\n\
         Sizes are written as 4096, 64KiB, 16MiB: big=64KiB, flood=1000x1KiB. Times as 50ms, 2s: slow=50ms.\n",
    );
    text
}

impl Faults {
    /// Sets the seed of random choices. Equal seeds make equal choices.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Returns true if the agent has to run as the child of a wrapper process, which the caller starts.
    #[doc(hidden)]
    #[must_use]
    pub fn has_wrapper(&self) -> bool {
        self.wrapper.is_some()
    }

    /// Returns an error if a fault acts on the agent's process, so that it cannot be applied to a stream.
    pub(super) fn expect_stream(&self) -> Result<(), InvalidFault> {
        match PROCESS_FAULTS.iter().find(|name| self.has(name)) {
            Some(name) => Err(InvalidFault(format!(
                "the fault {name} acts on the process of an agent and not on a stream; the command `duologue mock` has it"
            ))),
            None => Ok(()),
        }
    }

    fn read(spec: &str) -> Result<Self, String> {
        let mut faults = Faults::default();
        if spec.trim().is_empty() {
            return Ok(faults);
        }
        for fault in spec.split(',').map(str::trim) {
            let (name, value) = fault.split_once('=').unwrap_or((fault, ""));
            let row = TABLE
                .iter()
                .find(|row| row.name == name)
                .ok_or_else(|| format!("there is no fault {name:?}; {}", known_names()))?;
            if faults.has(name) {
                return Err(format!("the fault {name} is given twice"));
            }
            if let Some(other) = EITHER
                .iter()
                .filter(|set| set.contains(&name))
                .flat_map(|set| set.iter())
                .find(|other| faults.has(other))
            {
                return Err(format!("the faults {other} and {name} exclude each other: choose one"));
            }
            (row.set)(&mut faults, value)
                .map_err(|reason| format!("{fault}: {reason}; it is written {name}{}", row.value))?;
            faults.given.push(fault.to_owned());
        }
        if faults.ignore_term && matches!(faults.crash, Some((CrashSignal::Term, _))) {
            return Err("an agent with ignore-term cannot die by TERM: choose one".into());
        }
        Ok(faults)
    }

    fn has(&self, name: &str) -> bool {
        self.given.iter().any(|given| given.split('=').next() == Some(name))
    }
}

impl FromStr for Faults {
    type Err = InvalidFault;

    /// Parses a list such as `slow=50ms,noise,crash=SEGV@12`. An empty list has no faults.
    fn from_str(spec: &str) -> Result<Self, InvalidFault> {
        Faults::read(spec).map_err(InvalidFault)
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.given.join(","))
    }
}

/// The error of a fault that is unknown, badly written, or impossible here.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct InvalidFault(String);

/// Returns the names of all faults, for an error message.
fn known_names() -> String {
    let names: Vec<&str> = TABLE.iter().map(|row| row.name).collect();
    format!("the faults are {}", names.join(", "))
}

fn none(text: &str) -> Result<bool, String> {
    if text.is_empty() { Ok(true) } else { Err("it takes no value".into()) }
}

fn on_unix<T>(value: T) -> Result<T, String> {
    if cfg!(unix) { Ok(value) } else { Err("this system cannot do that".into()) }
}

fn fragment(text: &str) -> Result<FragmentSize, String> {
    match size(text)? {
        0 => Err("a piece has a byte or more".into()),
        bytes => Ok(FragmentSize::Of(bytes)),
    }
}

fn frame(text: &str) -> Result<Option<usize>, String> {
    number(text).map(Some)
}

fn first_frame(text: &str) -> Result<Option<usize>, String> {
    match number(text)? {
        0 => Err("the first frame is 1".into()),
        frame => Ok(Some(frame)),
    }
}

fn flood(text: &str) -> Result<(usize, usize), String> {
    let (count, bytes) = text.split_once('x').ok_or("it needs a number and a size")?;
    Ok((number(count)?, size(bytes)?))
}

fn stderr(text: &str) -> Result<Option<(usize, usize)>, String> {
    let (bytes, frame) = text.split_once('@').unwrap_or((text, "0"));
    Ok(Some((size(bytes)?, number(frame)?)))
}

fn exit(text: &str) -> Result<Option<(u8, usize)>, String> {
    let (code, frame) = at(text)?;
    let code = code.map_or(Ok(1), |code| code.parse().map_err(|_| format!("{code:?} is no exit code")))?;
    Ok(Some((code, frame)))
}

fn crash(text: &str) -> Result<Option<(CrashSignal, usize)>, String> {
    let (signal, frame) = at(text)?;
    let name = signal.unwrap_or("KILL");
    let signal = CrashSignal::ALL.into_iter().find(|signal| signal.name() == name);
    let signal = signal.ok_or_else(|| format!("{name:?} is no signal to die by"))?;
    on_unix(Some((signal, frame)))
}

fn wrapper(text: &str) -> Result<Option<WrapperMode>, String> {
    match text {
        "" => Ok(Some(WrapperMode::Group)),
        "setsid" => on_unix(Some(WrapperMode::Session)),
        other => Err(format!("{other:?} is no way to run an agent")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(spec: &str) -> Result<Faults, String> {
        Faults::read(spec)
    }

    #[test]
    fn each_fault_is_parsed_by_its_name() {
        for row in TABLE {
            let value = match row.value {
                needed if needed.starts_with('=') => "=1",
                _ => "",
            };
            let fault = format!("{}{value}", row.name);
            let faults = read(&fault).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(faults.to_string(), fault);
            let error = read(&format!("{}=?", row.name)).unwrap_err();
            assert!(error.contains(row.name), "{error}");
        }
    }

    #[test]
    fn the_examples_in_the_help_are_parsed() {
        let help = help();
        let (_, notes) = help.split_once("\n\n").unwrap();
        let words = notes.split([' ', ',', '\n']).map(|word| word.trim_end_matches(['.', ':']));
        let examples: Vec<_> = words.filter(|word| word.contains('=')).collect();
        assert!(examples.len() > 5, "{examples:?}");
        examples.into_iter().for_each(|example| drop(read(example).unwrap()));
    }

    #[test]
    fn random_choices_have_the_same_seed_in_each_run() {
        assert_eq!(read("noise").unwrap().seed, read("noise").unwrap().seed);
    }

    #[test]
    fn the_help_marks_the_faults_that_no_stream_has() {
        let help = help();
        for row in TABLE {
            let value = if row.value.starts_with('=') { "=1" } else { "" };
            let is_rejected = read(&format!("{}{value}", row.name)).unwrap().expect_stream().is_err();
            let line =
                help.lines().find(|line| line.starts_with(&format!("{}{}", row.name, row.value))).unwrap();
            assert_eq!(line.contains("* "), is_rejected, "{line}");
        }
    }

    #[test]
    fn invalid_faults_are_rejected() {
        for (spec, complaint) in [
            ("quick", "there is no fault \"quick\"; the faults are slow, fragment, "),
            ("noise,", "there is no fault \"\""),
            ("noise,noise", "the fault noise is given twice"),
            ("hang=3,crash=4", "the faults hang and crash exclude each other: choose one"),
            ("coalesce,fragment=2", "the faults coalesce and fragment exclude each other: choose one"),
            ("noise=3", "noise=3: it takes no value; it is written noise"),
            (
                "crash=BOOM@3",
                "crash=BOOM@3: \"BOOM\" is no signal to die by; it is written crash=[SIGNAL@]FRAME",
            ),
            ("exit=700@3", "exit=700@3: \"700\" is no exit code; it is written exit=[CODE@]FRAME"),
            ("hang", "hang: \"\" is no number; it is written hang=FRAME"),
            ("fragment=0", "fragment=0: a piece has a byte or more"),
            ("torn=0", "torn=0: the first frame is 1"),
            ("big=3TB", "big=3TB: \"3TB\" is no size: write it as 4096, 64KiB, 16MiB or 1GiB"),
            ("big=99999999999GiB", "\"99999999999GiB\" is too large"),
            ("slow=soon", "slow=soon: \"soon\" is no time"),
        ] {
            let error = read(spec).unwrap_err();
            assert!(error.contains(complaint), "{spec}: {error}");
        }
    }

    #[test]
    fn values_are_parsed() {
        let faults = read("slow=2s, fragment=7,crash=SEGV@12,stderr=1_000KiB@3,flood=3x2MiB").unwrap();
        assert_eq!(faults.slow, Some(Duration::from_secs(2)));
        assert!(matches!(faults.fragment, Some(FragmentSize::Of(7))));
        assert_eq!(faults.crash, Some((CrashSignal::Segv, 12)));
        assert_eq!(faults.stderr, Some((1000 << 10, 3)));
        assert_eq!(faults.flood, Some((3, 2 << 20)));
        assert_eq!(faults.exit, None);
    }
}
