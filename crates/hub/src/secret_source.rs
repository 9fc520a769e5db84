//! The sources of secrets that are not in the configuration.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use duologue_client::{AgentProcess, Pipes};
use duologue_rpc::SecretText;
use duologue_transcript::private_file::{may_all_use, replaceable_by_others};
use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, copy, sink};
use tokio::time::timeout;
use zeroize::Zeroizing;

/// The longest output of a command, in bytes.
const OUTPUT_BYTES: u64 = 64 * 1024;

/// The source of a secret that is not in the configuration: a token that the gateway sends as `Authorization: Bearer TOKEN`, or a
/// variable of an agent's environment, which has no command.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "toml::Value")]
#[non_exhaustive]
pub enum SecretSource {
    /// The name of a variable of the gateway's environment.
    Env(String),
    /// A file, which not all users of the system may read or change, and which no other user owns or can replace. Relative to the
    /// file of the configuration.
    File(PathBuf),
    /// A program with its arguments. It writes the secret to its standard output.
    Command(Vec<String>),
}

/// The error of a source in another form. It has nothing of the value, which can be a secret.
const FORM: &str =
    "a source has one member: `env` with a name, `file` with a path, or `command` with a list of words";

impl TryFrom<toml::Value> for SecretSource {
    type Error = &'static str;

    fn try_from(value: toml::Value) -> Result<Self, &'static str> {
        let toml::Value::Table(members) = value else { return Err(FORM) };
        let mut members = members.into_iter();
        let (Some((name, value)), None) = (members.next(), members.next()) else { return Err(FORM) };
        match (name.as_str(), value) {
            ("env", toml::Value::String(name)) => Ok(SecretSource::Env(name)),
            ("file", toml::Value::String(path)) => Ok(SecretSource::File(path.into())),
            ("command", words) => words.try_into().map(SecretSource::Command).map_err(|_| FORM),
            _ => Err(FORM),
        }
    }
}

/// Shows the source and no arguments, which can be secrets.
impl fmt::Debug for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretSource::Env(name) => write!(f, "env = {name:?}"),
            SecretSource::File(path) => write!(f, "file = {path:?}"),
            SecretSource::Command(words) => write!(f, "command = {:?} …", words.first()),
        }
    }
}

impl SecretSource {
    /// Makes the path of a file or a program relative to a folder.
    pub(crate) fn resolve(&mut self, folder: &Path) {
        match self {
            SecretSource::File(file) => *file = folder.join(&*file),
            SecretSource::Command(words) => resolve_program(words, folder),
            SecretSource::Env(_) => {}
        }
    }

    /// Returns a token. A program or a file has `limit` for it.
    pub(crate) async fn token(&self, limit: Duration) -> Result<SecretText, String> {
        let text = self.read(limit).await?;
        let text = text.trim();
        match !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic()) {
            true => Ok(text.into()),
            false => Err("it is not a token of visible ASCII characters".to_owned()),
        }
    }

    /// Returns the value for a variable of an environment. It blocks. Line ends at its end are no part of it.
    pub(crate) fn value(&self) -> Result<SecretText, String> {
        let text = match self {
            SecretSource::Env(name) => variable(name)?,
            SecretSource::File(path) => file_text(path)?,
            SecretSource::Command(_) => return Err("a command is for `auth` alone".to_owned()),
        };
        match text.trim_end_matches(['\r', '\n']) {
            value if value.trim().is_empty() => Err("it is empty".to_owned()),
            value if value.contains('\0') => Err("it has a NUL character".to_owned()),
            value => Ok(value.into()),
        }
    }

    async fn read(&self, limit: Duration) -> Result<Zeroizing<String>, String> {
        match self {
            SecretSource::Env(name) => variable(name),
            SecretSource::File(path) => {
                let path = path.clone();
                let read = tokio::task::spawn_blocking(move || file_text(&path));
                match timeout(limit, read).await {
                    Ok(read) => read.map_err(|error| error.to_string())?,
                    Err(_) => Err(format!("it was not read within {limit:?}; raise `limits.auth_seconds`")),
                }
            }
            // A program that takes too long ends with this.
            SecretSource::Command(words) => timeout(limit, output(words)).await.unwrap_or_else(|_| {
                Err(format!("it did not end within {limit:?}; raise `limits.auth_seconds`"))
            }),
        }
    }
}

/// Makes the path of a program relative to a folder. A name without a `/` is looked up in `PATH`.
pub(crate) fn resolve_program(words: &mut [String], folder: &Path) {
    if let Some(program) = words.first_mut()
        && program.contains('/')
    {
        *program = folder.join(&*program).to_string_lossy().into_owned();
    }
}

/// Returns the value of a variable of this process. The text of the original error can have it.
fn variable(name: &str) -> Result<Zeroizing<String>, String> {
    let value = std::env::var(name).map(Zeroizing::new);
    value.map_err(|_| "the variable is not set, or is not UTF-8".to_owned())
}

/// Returns the text of a regular file that not all users may use, and none may replace. A pipe can be without an end.
fn file_text(path: &Path) -> Result<Zeroizing<String>, String> {
    use std::io::Read as _;

    if !std::fs::metadata(path).map_err(|error| error.to_string())?.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let found = file.metadata().map_err(|error| error.to_string())?;
    if may_all_use(&found) {
        return Err("all users can read or change the file; use `chmod o=`".to_owned());
    }
    if let Some(fault) = replaceable_by_others(path, &found).map_err(|error| error.to_string())? {
        return Err(fault);
    }
    let mut text = Zeroizing::new(String::new());
    file.take(OUTPUT_BYTES + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    match text.len() as u64 > OUTPUT_BYTES {
        true => Err(format!("it is over {OUTPUT_BYTES} bytes")),
        false => Ok(text),
    }
}

/// Returns the output of a program that succeeds. Its process group ends with it, and with this future.
async fn output(words: &[String]) -> Result<Zeroizing<String>, String> {
    let mut words = words.iter();
    let mut command = Command::new(words.next().map_or("false", String::as_str));
    command.args(words);
    let (mut process, Pipes { stdin, stdout, mut stderr, .. }) =
        AgentProcess::start(command).map_err(|error| error.to_string())?;
    drop(stdin);
    let mut text = Zeroizing::new(String::new());
    let read = async {
        let read = stdout.take(OUTPUT_BYTES + 1).read_to_string(&mut text).await;
        match read.map_err(|error| error.kind().to_string())? as u64 > OUTPUT_BYTES {
            true => Err(format!("its output is over {OUTPUT_BYTES} bytes")),
            false => Ok(()),
        }
    };
    // It can have secrets, and is not logged.
    let ignored = async {
        let _ = copy(&mut stderr, &mut sink()).await;
        Ok::<_, String>(())
    };
    let ended = async {
        let status = process.wait().await;
        // Programs in the background could hold the output.
        process.kill();
        match status {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(format!("the program has failed: {status}")),
            None => Err("the program has ended without a status".to_owned()),
        }
    };
    tokio::try_join!(read, ignored, ended)?;
    Ok(text)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Write as _;

    use duologue_transcript::private_file::private;
    use tempfile::TempDir;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// Writes a file that its user alone can read.
    pub(crate) fn secret_file(text: &str) -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        private().write(true).create_new(true).open(&path).unwrap().write_all(text.as_bytes()).unwrap();
        (folder, path)
    }

    pub(crate) fn source(text: &str) -> SecretSource {
        #[derive(Deserialize)]
        struct Entry {
            auth: SecretSource,
        }
        toml::from_str::<Entry>(&format!("auth = {{ {text} }}")).unwrap().auth
    }

    #[cfg(unix)]
    pub(crate) fn shell(script: &str) -> SecretSource {
        source(&format!("command = [\"sh\", \"-c\", {script:?}]"))
    }

    #[tokio::test]
    async fn a_token_is_read_from_a_variable_or_a_file() {
        let is_token = |value: &str| !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_graphic());
        let (name, value) = std::env::vars().find(|(_, value)| is_token(value)).unwrap();
        let read = source(&format!("env = {name:?}")).token(LONG).await.unwrap();
        assert_eq!(read.as_str(), value);
        let (_folder, file) = secret_file("a-token\n");
        let read = source(&format!("file = {file:?}")).token(LONG).await.unwrap();
        assert_eq!(read.as_str(), "a-token");
    }

    #[test]
    fn a_source_in_another_form_is_refused_without_its_text() {
        for text in [
            "\"swordfish\"",
            "{ token = \"swordfish\" }",
            "{ command = \"a swordfish\" }",
            "{}",
            "{ env = 1 }",
            "{ env = \"A\", file = \"swordfish\" }",
        ] {
            let error = toml::from_str::<SecretSource>(&format!("auth = {text}")).err();
            let error = error.map_or_else(String::new, |error| error.to_string());
            let refused = SecretSource::try_from(
                toml::from_str::<toml::Table>(&format!("auth = {text}")).unwrap()["auth"].clone(),
            );
            let reason = refused.expect_err("no source");
            assert!(!reason.contains("swordfish") && !error.contains("unknown variant"), "{reason}");
        }
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_source_without_a_token_fails_without_its_text() {
        for (source, part) in [
            (source("env = \"DUOLOGUE_ABSENT\""), "the variable is not set"),
            (source("file = \"/absent/token\""), "No such file"),
            (source("file = \"/dev/zero\""), "not a regular file"),
            (shell("echo swordfish; exit 3"), "exit status: 3"),
            (shell("echo swordfish a"), "visible ASCII"),
            (shell(": swordfish; yes | head -c 70000"), "over 65536 bytes"),
            (shell("true"), "visible ASCII"),
        ] {
            let fault = source.token(LONG).await.unwrap_err();
            assert!(fault.contains(part) && !fault.contains("swordfish"), "{fault}");
        }
        let (_folder, file) = secret_file(&"a".repeat(70_000));
        let source = source(&format!("file = {file:?}"));
        let long = source.token(LONG).await.unwrap_err();
        assert!(long.contains("over 65536 bytes"), "{long}");
        let set = |path: &Path, mode| {
            std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        };
        set(&file, 0o644);
        let shared = source.token(LONG).await.unwrap_err();
        assert!(shared.contains("chmod o="), "{shared}");
        set(&file, 0o600);
        set(file.parent().unwrap(), 0o777);
        let replaceable = source.token(LONG).await.unwrap_err();
        assert!(replaceable.contains("use `chmod o-w` or `chmod +t`"), "{replaceable}");
        let late = shell("sleep 600").token(Duration::ZERO).await.unwrap_err();
        assert!(late.contains("limits.auth_seconds"), "{late}");
    }

    /// A child of the program keeps one end of a pipe open, whose other end the test reads.
    #[cfg(unix)]
    #[tokio::test]
    async fn the_children_of_a_program_end_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        // It holds the output of the program too.
        let child = format!("sleep 600 3> {} &", pipe.display());
        for (script, limit, is_token) in [
            (format!("{child} echo a-token"), LONG, true),
            (format!("{child} wait"), Duration::from_secs(1), false),
        ] {
            let path = pipe.clone();
            let open = tokio::task::spawn_blocking(move || std::fs::read(path));
            let read = shell(&script).token(limit).await;
            assert_eq!(read.is_ok(), is_token, "{read:?}");
            // A child that has ended before it has opened the pipe.
            drop(std::fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap());
            // The end of the pipe is the end of the child.
            assert_eq!(tokio::time::timeout(LONG, open).await.unwrap().unwrap().unwrap(), b"");
        }
    }
}
