//! Code shared by the Rust agents and clients, foreign and ours: the surface they play, comparing, and reporting.

use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::io::Write as _;
use std::sync::Mutex;
use std::time::Duration;
use tokio::sync::Notify;

/// The surface, the values of its variables, and the report file.
pub struct Surface {
    entries: Vec<Value>,
    lacks: HashSet<String>,
    vars: Mutex<HashMap<String, String>>,
    report: String,
}

impl Surface {
    /// Reads what the environment names; `report` is the variable with the report's path.
    pub fn load(report: &str) -> Self {
        let env = |name: &str| std::env::var(name).unwrap_or_default();
        let text = std::fs::read_to_string(env("INTEROP_SURFACE")).expect("INTEROP_SURFACE names a file");
        let mut surface: Value = serde_json::from_str(&text).expect("the surface is JSON");
        Self {
            entries: serde_json::from_value(surface["agent"].take()).expect("a list"),
            lacks: env("INTEROP_LACKS").split(',').map(str::to_owned).collect(),
            vars: Mutex::new(HashMap::from([("$CWD".to_owned(), env("INTEROP_CWD"))])),
            report: env(report),
        }
    }

    /// Returns the calls of a client in order, without those that the other SDK lacks.
    pub fn entries(&self) -> Vec<&Value> {
        self.entries.iter().filter(|entry| self.knows(row_of(entry))).collect()
    }

    /// Returns the calls of an agent.
    pub fn calls(&self) -> Vec<&Value> {
        self.entries.iter().filter_map(|entry| entry["calls"].as_array()).flatten().collect()
    }

    /// The items of a list in an entry, without what the other SDK lacks.
    pub fn known<'a>(&self, entry: &'a Value, list: &str) -> Vec<&'a Value> {
        let all = entry[list].as_array().map(Vec::as_slice).unwrap_or_default();
        all.iter().filter(|item| self.knows(row_of(item))).collect()
    }

    /// Returns true if the other SDK knows a method or variant.
    pub fn knows(&self, row: &str) -> bool {
        !self.lacks.contains(row)
    }

    /// Gives a variable its value, unless it has one.
    pub fn set(&self, name: &str, value: &str) {
        self.vars.lock().unwrap().entry(name.to_owned()).or_insert_with(|| value.to_owned());
    }

    /// Puts the values of the variables where the surface says $NAME.
    pub fn fill(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => {
                let vars = self.vars.lock().unwrap();
                Value::from(vars.iter().fold(text.clone(), |text, (name, value)| text.replace(name, value)))
            }
            Value::Array(items) => items.iter().map(|item| self.fill(item)).collect(),
            Value::Object(fields) => {
                fields.iter().map(|(key, item)| (key.clone(), self.fill(item))).collect()
            }
            _ => value.clone(),
        }
    }

    /// The first difference: everything expected must be there, more may be. A $NAME not yet known is learnt.
    pub fn difference(&self, expected: &Value, actual: Option<&Value>, at: &str) -> Result<(), String> {
        let Some(actual) = actual else {
            return if self.lacks.contains(at) { Ok(()) } else { Err(format!("{at}: missing")) };
        };
        let expected = &self.fill(expected);
        match expected {
            Value::String(name) if name.starts_with('$') => match actual.as_str() {
                Some(value) => self.set(name, value),
                None => return Err(format!("{at}: no value for {name}")),
            },
            Value::Object(fields) if actual.is_object() => {
                for (key, item) in fields {
                    self.difference(item, actual.get(key), &format!("{at}/{key}"))?;
                }
            }
            Value::Array(items) if actual.as_array().is_some_and(|other| other.len() == items.len()) => {
                for (n, item) in items.iter().enumerate() {
                    self.difference(item, actual.get(n), &format!("{at}/{n}"))?;
                }
            }
            _ if expected == actual => {}
            _ => return Err(format!("{at}: {actual} is not {expected}")),
        }
        Ok(())
    }

    /// The candidate whose params fit (the most demanding one), or the first one and what is wrong with it.
    pub fn pick<'a>(
        &self,
        mut candidates: Vec<&'a Value>,
        actual: &Value,
    ) -> (&'a Value, Result<(), String>) {
        candidates.sort_by_key(|entry| std::cmp::Reverse(entry["params"].to_string().len()));
        let fits = |entry: &&&Value| self.difference(&entry["params"], Some(actual), "").is_ok();
        match candidates.iter().find(fits) {
            Some(entry) => (entry, Ok(())),
            None => (candidates[0], self.difference(&candidates[0]["params"], Some(actual), "")),
        }
    }

    /// Reports a method or variant that was sent.
    pub fn did(&self, row: &str) {
        self.report(row, Ok(()), "");
    }

    /// Reports a value that the other side has sent.
    pub fn expect<T: PartialEq + Debug>(&self, row: &str, actual: T, expected: T) {
        let problem = || format!("{actual:?} is not {expected:?}");
        self.report(row, if actual == expected { Ok(()) } else { Err(problem()) }, "");
    }

    /// Reports one method or variant.
    pub fn report(&self, row: &str, outcome: Result<(), String>, detail: &str) {
        let detail = outcome.as_ref().err().map_or(detail, String::as_str);
        let line = json!({"row": row, "ok": outcome.is_ok(), "detail": detail});
        let mut file =
            std::fs::File::options().append(true).create(true).open(&self.report).expect("a report");
        writeln!(file, "{line}").expect("the report can be written");
    }
}

/// The updates that a client has received since the last prompt.
#[derive(Default)]
pub struct Updates {
    seen: Mutex<Vec<Value>>,
    changed: Notify,
}

impl Updates {
    /// Adds the update of the params of `session/update`. Its session becomes the member `of`.
    pub fn push(&self, mut params: Value) {
        let mut update = params["update"].take();
        update["of"] = params["sessionId"].take();
        self.seen.lock().unwrap().push(update);
        self.changed.notify_one();
    }

    pub fn clear(&self) {
        self.seen.lock().unwrap().clear();
    }

    /// Returns all updates as JSON.
    pub fn text(&self) -> String {
        json!(*self.seen.lock().unwrap()).to_string()
    }

    /// Returns the first update that has these members.
    pub fn find(&self, surface: &Surface, expected: &Value) -> Option<Value> {
        let seen = self.seen.lock().unwrap();
        seen.iter().find(|update| surface.difference(expected, Some(update), "").is_ok()).cloned()
    }

    /// Reports an update that has these members.
    pub fn expect(&self, surface: &Surface, row: &str, expected: &Value) {
        let found = self.find(surface, expected).map(|_| ());
        surface.report(row, found.ok_or_else(|| self.missing(expected)), "");
    }

    /// Waits for an update that has these members.
    pub async fn until(&self, surface: &Surface, expected: &Value) -> Result<Value, String> {
        let wait = async {
            loop {
                if let Some(update) = self.find(surface, expected) {
                    return update;
                }
                self.changed.notified().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), wait).await.map_err(|_| self.missing(expected))
    }

    fn missing(&self, expected: &Value) -> String {
        format!("{expected} did not come: {}", self.text())
    }
}

/// The row of the matrix that an entry, call or update belongs to.
pub fn row_of(item: &Value) -> &str {
    let keys = ["sessionUpdate", "cancel", "method", "notify"];
    keys.iter().find_map(|key| item[*key].as_str()).unwrap_or_default()
}
