//! `cargo xtask interop --recorded`: a real client and real agents through the `duologue` command. What `acpx` and an agent say
//! is recorded between them, validated, redacted, compared with a second recording, and played back to `acpx` and to our client.

use super::real::{Model, RunFolder, environment};
use super::{InteropPaths, Result, finish, install};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The recorded agent, its command, and the prompt. The model answers `SHELLTOOL` with a tool call.
const WALKTHROUGHS: [(&str, &str, &str); 3] = [
    ("the official Python SDK's example agent", "", "Say hello"),
    ("gemini", "gemini --acp", "SHELLTOOL"),
    ("opencode", "opencode acp", "SHELLTOOL"),
];
const LIMIT: Duration = Duration::from_secs(120);

/// Runs all of it and prints a line for each.
#[expect(clippy::print_stdout, reason = "this is the program's output")]
pub(super) fn run(paths: &InteropPaths) -> Result<()> {
    let target = std::path::absolute(&paths.target)?;
    install::npm(&paths.sources.join("real"), &target.join("real"))?;
    let example = install::python_example(paths)?;
    let duologue = install::duologue()?;
    let model = Model::start(&paths.sources.join("real/model.py"))?;
    let mut bad = 0;
    for (name, command, prompt) in WALKTHROUGHS {
        let program = command.split(' ').next().filter(|program| !program.is_empty());
        let place = RunFolder::new(
            paths,
            &format!("recorded-{}", program.unwrap_or("python")),
            &target.join("real/node_modules/.bin"),
        )?;
        let command = if command.is_empty() { example.clone() } else { command.to_owned() };
        let walkthrough = Walkthrough {
            duologue: &duologue,
            environment: environment(program.unwrap_or_default(), model.port),
            place,
            command,
            prompt,
        };
        match walkthrough.run() {
            Ok(seen) => println!("{name}: {seen}"),
            Err(error) => {
                bad += 1;
                println!("{name}: FAIL: {error}");
            }
        }
    }
    if bad > 0 { Err(format!("{bad} recorded sessions failed").into()) } else { Ok(()) }
}

/// One agent's way through the command.
struct Walkthrough<'a> {
    duologue: &'a Path,
    environment: Vec<(&'static str, String)>,
    place: RunFolder,
    command: String,
    prompt: &'a str,
}

impl Walkthrough<'_> {
    fn run(&self) -> Result<String> {
        let [first, second, again, ours] = ["first", "second", "again", "ours"].map(|name| self.file(name));
        self.acpx(&self.recording(&first, &self.command))?;
        self.acpx(&self.recording(&second, &self.command))?;
        let frames = fs::read_to_string(&first)?.matches("\"frame\":").count();
        let verdicts = self.duologue(&["validate".as_ref(), first.as_os_str()], &[0, 1])?;
        let (total, faults) = (verdicts.lines().count(), verdicts.matches("\"ok\":false").count());
        if total < frames {
            return Err(format!("{frames} frames, but {total} verdicts").into());
        }
        let text = self.duologue(&["show".as_ref(), "--redact".as_ref(), first.as_os_str()], &[0])?;
        if !text.contains("[session-1]") || text.contains(&self.place.project.display().to_string()) {
            return Err(format!("the redacted text names what it should not:\n{text}").into());
        }
        // The same conversation twice is the same snapshot. What agents log, and whether acpx has the
        // patience to let them end by themselves, is not.
        self.duologue(&["diff".as_ref(), "--wire".as_ref(), first.as_os_str(), second.as_os_str()], &[0])?;

        let replay = format!("{} replay {}", self.duologue.display(), first.display());
        self.acpx(&self.recording(&again, &replay))?;
        self.duologue(&["diff".as_ref(), "--wire".as_ref(), first.as_os_str(), again.as_os_str()], &[0])?;

        let recording = self.recording(&ours, &replay);
        let mut run = vec![
            OsStr::new("run"),
            "--yes".as_ref(),
            "--cwd".as_ref(),
            self.place.project.as_os_str(),
            self.prompt.as_ref(),
            "--".as_ref(),
        ];
        run.extend(recording.split(' ').map(OsStr::new));
        self.duologue(&run, &[0])?;
        // Our client introduces itself differently, so the folded conversations are compared.
        self.duologue(&["diff".as_ref(), "--fold".as_ref(), first.as_os_str(), ours.as_os_str()], &[0])?;
        Ok(format!(
            "recorded twice with acpx ({frames} frames, {faults} of {total} not valid), equal; replayed to acpx and to our client, equal"
        ))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.place.home.with_file_name(format!("{name}.jsonl"))
    }

    /// The command that records `agent` into a file.
    fn recording(&self, file: &Path, agent: &str) -> String {
        format!("{} record -o {} -- {agent}", self.duologue.display(), file.display())
    }

    /// One turn that `acpx` drives.
    fn acpx(&self, agent: &str) -> Result<()> {
        let mut command = Command::new("acpx");
        command.args(["--agent", agent, "--approve-all", "--format", "json", "--timeout", "60", "--cwd"]);
        command.arg(&self.place.project).args(["exec", self.prompt]);
        self.finish(command)
    }

    /// Runs our command, which has to end with one of these codes, and returns what it prints.
    fn duologue(&self, args: &[&OsStr], codes: &[i32]) -> Result<String> {
        let mut command = Command::new(self.duologue);
        let output = self.in_place(command.args(args)).stdin(Stdio::null()).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        match output.status.code() {
            Some(code) if codes.contains(&code) => Ok(text),
            _ => {
                let shown = args.join(OsStr::new(" "));
                let stderr = String::from_utf8_lossy(&output.stderr);
                Err(format!("duologue {}: {}\n{text}{stderr}", shown.display(), output.status).into())
            }
        }
    }

    fn finish(&self, mut command: Command) -> Result<()> {
        let log = self.place.home.with_file_name("acpx.log");
        let file = File::create(&log)?;
        self.in_place(&mut command).stdout(file.try_clone()?).stderr(file);
        finish(&mut command, LIMIT)
            .map_err(|error| format!("acpx: {error}\n{}", fs::read_to_string(log).unwrap_or_default()).into())
    }

    fn in_place<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command.env("PATH", &self.place.path).env("HOME", &self.place.home).current_dir(&self.place.project);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)))
    }
}
