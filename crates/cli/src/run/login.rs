//! Logins: those by a request, and those by a program in the terminal.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, Write as _};
use std::process::Stdio;

use duologue_client::Error as ClientError;
use duologue_schema::AuthMethod;

use super::agent_session::{AgentSession, SessionEnd};
use super::details::{MARGIN, shell_words};
use super::input;
use super::output;
use super::rows::{self, Span};
use crate::commands::AgentSessionArgs;
use crate::error::{Error, Result};
use crate::ui::{BOLD, DIM, MARK};

/// Limit on the characters of a command that is offered to be run. The user has to see all of it.
const LONGEST_COMMAND: usize = 1000;

/// A program that logs in, in the terminal of the user.
pub(super) struct TerminalLogin {
    words: Vec<String>,
    env: BTreeMap<String, String>,
}

/// A login in a terminal, by the convention that is older than the method of type `terminal`.
#[derive(serde::Deserialize)]
struct OldTerminalLogin {
    command: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
}

impl TerminalLogin {
    /// Returns the program of the method with this id, if it has one.
    pub(super) fn find(
        methods: &[AuthMethod],
        id: &str,
        args: &AgentSessionArgs,
    ) -> io::Result<Option<Self>> {
        let method = methods.iter().find(|method| method.id().is_some_and(|known| known.as_str() == id));
        method.map_or(Ok(None), |method| TerminalLogin::of(method, args))
    }

    fn of(method: &AuthMethod, args: &AgentSessionArgs) -> io::Result<Option<Self>> {
        if let AuthMethod::Terminal(terminal) = method {
            let mut words = args.agent.words();
            if words.is_empty() {
                words = vec![std::env::current_exe()?.to_string_lossy().into_owned(), "mock".to_owned()];
            }
            words.extend(terminal.args.iter().cloned());
            return Ok(Some(TerminalLogin { words, env: terminal.env.clone() }));
        }
        let old = || method.as_agent()?.meta?.get::<OldTerminalLogin>(AuthMethod::TERMINAL_META);
        Ok(old().map(|OldTerminalLogin { command, args, env }| TerminalLogin {
            words: [command].into_iter().chain(args).collect(),
            env,
        }))
    }

    /// Returns the command line, as a shell reads it.
    fn line(&self) -> String {
        // `env` takes any name of a variable.
        let env = self.env.iter().map(|(name, value)| format!("{name}={value}"));
        let env: Vec<String> =
            ["env".to_owned()].into_iter().filter(|_| !self.env.is_empty()).chain(env).collect();
        shell_words(&[env, self.words.clone()].concat())
    }
}

impl AgentSession {
    /// Runs the program of a login, if the user sees its command and agrees.
    pub(super) async fn log_in(&mut self, login: &TerminalLogin, method: &str) -> Result<(), SessionEnd> {
        let line = login.line();
        if !self.output.can_ask() || !input::is_interactive() || line.chars().count() > LONGEST_COMMAND {
            let text = format!("{method} logs in in a terminal; run this first, then try again:\n  {line}");
            return Err(Error::Login(text).into());
        }
        self.output.leave()?;
        let question = [
            Span::new(MARK, "? "),
            Span::plain("Run this program of the agent to log in?\n"),
            Span::plain(MARGIN),
            Span::line(BOLD, &line),
            Span::plain("\n"),
            Span::new(DIM, "[y, n] "),
        ];
        let rows = rows::hanging(&question, output::size().width.saturating_sub(1), false);
        loop {
            // Input from before the question does not answer it.
            input::discard_typed();
            write!(io::stdout(), "{}", rows.join("\n"))?;
            io::stdout().flush()?;
            let read = tokio::task::spawn_blocking(|| {
                let mut answer = String::new();
                io::stdin().lock().read_line(&mut answer).map(|bytes| (bytes > 0).then_some(answer))
            });
            let answer = self.uninterrupted(read).await?.map_err(io::Error::other)??;
            match answer.as_deref().map(str::trim) {
                Some("y" | "yes") => break,
                Some("n" | "no") | None => {
                    return Err(Error::Login(format!("{method}: you did not run the program")).into());
                }
                Some(_) => {}
            }
        }
        let Some((program, args)) = login.words.split_first() else { return Ok(()) };
        let mut command = tokio::process::Command::new(program);
        command.args(args).envs(&login.env).stdin(Stdio::inherit()).kill_on_drop(true);
        let failed = |error: io::Error| Error::Login(format!("{method}: {program}: {error}"));
        let mut child = command.spawn().map_err(failed)?;
        let status = self.uninterrupted(child.wait()).await?.map_err(failed)?;
        if status.success() {
            return Ok(());
        }
        Err(Error::Login(format!("{method}: the program failed ({status})")).into())
    }
}

/// Adds the possible logins to an error that demands one.
pub(super) fn explain(error: ClientError, args: &AgentSessionArgs) -> Error {
    let ClientError::AuthRequired { methods, message } = &error else { return error.into() };
    // A login that was tried and did not help is not proposed again.
    let tried = |id: &str| args.login.as_deref() == Some(id);
    let others: Vec<_> =
        methods.iter().filter(|method| !method.id().is_some_and(|id| tried(id.as_str()))).collect();
    let mut text = match &args.login {
        Some(login) => {
            format!("the agent still requires a login after --login {}: {message}", shell_words(&[login]))
        }
        None => format!("the agent requires a login: {message}"),
    };
    match (&args.login, others.is_empty()) {
        (None, true) => text.push_str("\nit offers no way to log in from here"),
        (None, false) => text.push_str("\ntry again with:"),
        (Some(_), true) => {
            text.push_str("\nit offers no other login; check the account, or ask the agent for the reason")
        }
        (Some(_), false) => text.push_str("\ntry another login:"),
    }
    for method in others {
        let id = method.id().map(|id| format!("--login {}", shell_words(&[id.as_str()])));
        let what = match (TerminalLogin::of(method, args).ok().flatten(), id) {
            (Some(login), Some(id)) => format!("{id}, which runs {}", login.line()),
            (Some(login), None) => format!("(first, in a terminal) {}", login.line()),
            (None, Some(id)) if method.as_agent().is_some() => id,
            (None, _) => continue,
        };
        let name = method.name().unwrap_or_default();
        let about = method.description().map(|text| format!(" ({text})")).unwrap_or_default();
        text.push_str(&format!("\n  {what}  {name}{about}"));
    }
    Error::Login(text)
}
