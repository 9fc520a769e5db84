//! Secrets that the configuration has or names, such as the environment of an agent.

use std::collections::BTreeMap;
use std::path::Path;

use duologue_rpc::SecretText;
use serde::Deserialize;

use crate::error::Error;
use crate::secret_source::SecretSource;

/// The variables of an agent's environment.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct AgentEnvironment(pub BTreeMap<String, SecretSetting>);

/// A secret of the configuration: a variable of an agent, or the key of callbacks.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "toml::Value")]
#[non_exhaustive]
pub enum SecretSetting {
    /// The value itself. All readers of the configuration know it.
    Text(SecretText),
    /// A variable or a file with the value. It is read when the gateway is opened.
    Source(SecretSource),
}

/// The error of a value in another form. It has nothing of the value, which can be a secret.
const FORM: &str = "a secret is a text, or a table with one member: `env` with a name, or `file` with a path";

impl TryFrom<toml::Value> for SecretSetting {
    type Error = &'static str;

    fn try_from(value: toml::Value) -> Result<Self, &'static str> {
        match value {
            toml::Value::String(text) => Ok(SecretSetting::Text(text.into())),
            value => match SecretSource::try_from(value) {
                Ok(SecretSource::Command(_)) | Err(_) => Err(FORM),
                Ok(source) => Ok(SecretSetting::Source(source)),
            },
        }
    }
}

impl AgentEnvironment {
    /// Makes the paths of files relative to a folder.
    pub(crate) fn resolve(&mut self, folder: &Path) {
        for value in self.0.values_mut() {
            value.resolve(folder);
        }
    }

    /// Returns the names and the values. It blocks.
    pub(crate) fn read(&self, agent: &str) -> Result<Vec<(String, SecretText)>, Error> {
        let read = |(name, value): (&String, &SecretSetting)| {
            let value = value.read(|| format!("agents.env.{name} of {agent:?}"))?;
            Ok((name.clone(), value))
        };
        self.0.iter().map(read).collect()
    }
}

impl SecretSetting {
    /// Makes the path of a file relative to a folder.
    pub(crate) fn resolve(&mut self, folder: &Path) {
        if let SecretSetting::Source(source) = self {
            source.resolve(folder);
        }
    }

    /// Returns the secret. It blocks. An error names the place of the secret.
    pub(crate) fn read(&self, place: impl FnOnce() -> String) -> Result<SecretText, Error> {
        match self {
            SecretSetting::Text(text) => Ok(text.clone()),
            SecretSetting::Source(source) => source
                .value()
                .map_err(|why| Error::Secret { place: place(), reason: format!("{source:?}: {why}") }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret_source::tests::secret_file;

    fn environment(values: &str) -> Result<AgentEnvironment, toml::de::Error> {
        toml::from_str(values)
    }

    fn read(values: &str) -> Result<String, String> {
        let read = environment(values).unwrap().read("writer").map_err(|error| error.to_string())?;
        Ok(read
            .iter()
            .map(|(name, value)| format!("{name}={}", value.as_str()))
            .collect::<Vec<_>>()
            .join(" "))
    }

    #[test]
    fn a_value_is_a_text_or_has_a_source() {
        let (folder, path) = secret_file("a \"key\"\r\n");
        assert_eq!(read(&format!("A = \"\"\nB = {{ file = {path:?} }}")).unwrap(), "A= B=a \"key\"");
        let mut relative = environment("B = { file = \"secret\" }").unwrap();
        relative.resolve(folder.path());
        assert!(relative.read("writer").is_ok());
        let (name, value) = std::env::vars().find(|(_, value)| !value.trim().is_empty()).unwrap();
        assert_eq!(read(&format!("C = {{ env = {name:?} }}")).unwrap(), format!("C={value}"));
    }

    #[cfg(unix)]
    #[test]
    fn a_source_without_a_value_is_refused_with_its_place() {
        let set_mode = |path: &Path| {
            std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o604)).unwrap();
        };
        let (_empty_folder, empty) = secret_file(" \n");
        let (_nul_folder, nul) = secret_file("swordfish\0");
        let (_shared_folder, shared) = secret_file("swordfish");
        set_mode(&shared);
        for (source, part) in [
            ("env = \"DUOLOGUE_ABSENT\"".to_owned(), "the variable is not set"),
            ("file = \"/absent/key\"".to_owned(), "No such file"),
            ("file = \"/dev/zero\"".to_owned(), "not a regular file"),
            (format!("file = {empty:?}"), "it is empty"),
            (format!("file = {nul:?}"), "NUL"),
            (format!("file = {shared:?}"), "use `chmod o=`"),
        ] {
            let fault = read(&format!("KEY = {{ {source} }}")).unwrap_err();
            assert!(fault.starts_with("agents.env.KEY of \"writer\"") && fault.contains(part), "{fault}");
            assert!(!fault.contains("swordfish"), "{fault}");
        }
    }

    #[test]
    fn a_value_in_another_form_is_refused_without_its_text() {
        for value in
            ["7", "[\"swordfish\"]", "{ key = \"swordfish\" }", "{ command = [\"swordfish\"] }", "{}"]
        {
            let error = environment(&format!("KEY = {value}")).unwrap_err();
            assert_eq!(error.message(), FORM, "{value}");
        }
    }

    #[test]
    fn values_are_not_shown() {
        let shown = format!("{:?}", environment("A = \"swordfish\"\nB = { env = \"KEY\" }").unwrap());
        assert!(shown.contains("[redacted]") && shown.contains("env = \"KEY\""), "{shown}");
        assert!(!shown.contains("swordfish"), "{shown}");
    }
}
