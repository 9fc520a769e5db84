//! The command line of an agent.

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;

/// The program of an agent with its arguments, folder and environment.
///
/// The environment is inherited, because agents need keys and tools from it.
/// [`clean_env`](Self::clean_env) inherits only a short list. No shell is involved.
///
/// ```
/// use duologue_client::Command;
///
/// let command = Command::new("npx").args(["-y", "some-agent"]).env("RUST_LOG", "debug");
/// # let _ = command;
/// ```
pub struct Command {
    inner: std::process::Command,
    stderr: Option<Box<dyn Write + Send>>,
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Command").field("inner", &self.inner).finish_non_exhaustive()
    }
}

/// The variables of a clean environment, besides `LC_*` and `XDG_*`.
const KEPT: [&str; 10] =
    ["HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG", "TMPDIR", "TZ", "SYSTEMROOT"];

impl Command {
    /// Creates a command for a program, given as a path or as a name on the `PATH`.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Command { inner: std::process::Command::new(program), stderr: None }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.inner.arg(arg);
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.inner.args(args);
        self
    }

    /// Sets the working folder of the program. Sessions have folders of their own.
    #[must_use]
    pub fn cwd(mut self, dir: impl AsRef<Path>) -> Self {
        self.inner.current_dir(dir);
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.inner.env(name, value);
        self
    }

    /// Copies the stderr of the agent to the stderr of this program. The end of it is kept in any case, see
    /// [`Connection::stderr`](crate::Connection::stderr).
    #[must_use]
    pub fn show_stderr(self) -> Self {
        self.stderr_to(std::io::stderr())
    }

    /// Copies the stderr of the agent to `writer`, on a thread of its own. Output that a slow writer does
    /// not accept in time is skipped, and a line of its own has the number of skipped bytes.
    #[must_use]
    pub fn stderr_to(mut self, writer: impl Write + Send + 'static) -> Self {
        self.stderr = Some(Box::new(writer));
        self
    }

    /// Inherits only the variables for home, user, path, shell, terminal, language, time zone, temporary and
    /// XDG folders. Variables that [`env`](Self::env) sets are kept.
    ///
    /// This affects only the agent itself. Programs in terminals of a [`LocalHost`](crate::LocalHost) are started by
    /// this program and inherit its whole environment. [`LocalHost::without_terminals`](crate::LocalHost::without_terminals)
    /// disables them.
    #[must_use]
    pub fn clean_env(mut self) -> Self {
        let set: Vec<_> = self
            .inner
            .get_envs()
            .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
            .collect();
        self.inner.env_clear();
        let kept = std::env::vars_os().filter(|(name, value)| {
            let Some(name) = name.to_str() else { return false };
            // A value with this beginning is an exported shell function.
            let function = value.as_encoded_bytes().starts_with(b"()");
            !function && (KEPT.contains(&name) || name.starts_with("LC_") || name.starts_with("XDG_"))
        });
        self.inner.envs(kept).envs(set);
        self
    }

    pub(crate) fn program(&self) -> String {
        self.inner.get_program().to_string_lossy().into_owned()
    }

    pub(crate) fn take_stderr(&mut self) -> Option<Box<dyn Write + Send>> {
        self.stderr.take()
    }

    pub(crate) fn into_std(self) -> std::process::Command {
        self.inner
    }
}

impl From<std::process::Command> for Command {
    fn from(inner: std::process::Command) -> Self {
        Command { inner, stderr: None }
    }
}
