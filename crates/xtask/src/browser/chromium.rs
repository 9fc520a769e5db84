//! Chromium, driven over its debugging pipe: messages of JSON that end with a NUL, in through its fd 3, out
//! through its fd 4.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::interop::Result;

/// The time limit of every wait for the browser.
const LIMIT: Duration = Duration::from_secs(30);

/// The browser, which ends when this is dropped.
pub(crate) struct Browser {
    child: Child,
    input: ChildStdin,
    output: Receiver<Value>,
    asked: u64,
    events: Vec<Value>,
}

/// A page that is open.
pub(crate) struct BrowserPage<'a> {
    browser: &'a mut Browser,
    url: String,
    target: String,
    session: String,
}

impl Browser {
    /// Starts it, with its files in `dir`.
    pub(crate) fn start(dir: &Path) -> Result<Self> {
        let profile = dir.join("profile");
        let _ = std::fs::remove_dir_all(&profile);
        let program = ["chromium", "chromium-browser", "google-chrome"]
            .into_iter()
            .find(|name| Command::new(name).arg("--version").output().is_ok_and(|it| it.status.success()))
            .ok_or("there is no chromium; on Debian: apt-get install -y chromium")?;
        // A shell can move descriptors, which std cannot.
        let mut child = Command::new("sh")
            .args(["-c", r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null"#, program])
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
                "--remote-debugging-pipe",
            ])
            .arg(format!("--user-data-dir={}", profile.display()))
            .args(["--window-size=1280,900", "about:blank"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(dir.join("chromium.log"))?)
            .spawn()?;
        let input = child.stdin.take().ok_or("no stdin")?;
        let mut stdout = BufReader::new(child.stdout.take().ok_or("no stdout")?);
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut message = Vec::new();
            while stdout.read_until(0, &mut message).is_ok_and(|read| read > 0) {
                if message.pop() == Some(0)
                    && let Ok(message) = serde_json::from_slice(&message)
                    && sender.send(message).is_err()
                {
                    return;
                }
                message.clear();
            }
        });
        Ok(Browser { child, input, output, asked: 0, events: Vec::new() })
    }

    fn call(&mut self, session: Option<&str>, method: &str, params: Value) -> Result<Value> {
        self.asked += 1;
        let mut message = json!({ "id": self.asked, "method": method, "params": params });
        if let Some(session) = session {
            message["sessionId"] = session.into();
        }
        self.input.write_all(format!("{message}\0").as_bytes())?;
        loop {
            let message = self
                .output
                .recv_timeout(LIMIT)
                .map_err(|_| format!("the browser is silent after {method}"))?;
            if message["id"] != self.asked {
                self.events.push(message);
                continue;
            }
            return match message.get("error") {
                Some(error) => Err(format!("{method}: {error}").into()),
                None => Ok(message["result"].clone()),
            };
        }
    }

    /// Opens a page and waits until it has been read.
    pub(crate) fn open(&mut self, url: &str) -> Result<BrowserPage<'_>> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let target =
            text(&self.call(None, "Target.createTarget", json!({ "url": "about:blank" }))?["targetId"]);
        let attach = json!({ "targetId": target, "flatten": true });
        let session = text(&self.call(None, "Target.attachToTarget", attach)?["sessionId"]);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            self.call(Some(&session), &format!("{domain}.enable"), json!({}))?;
        }
        self.events.clear();
        self.call(Some(&session), "Page.navigate", json!({ "url": url }))?;
        let mut page = BrowserPage { browser: self, url: url.to_owned(), target, session };
        page.wait("document.readyState === 'complete' && location.protocol === 'file:'")?;
        Ok(page)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.call(None, "Browser.close", json!({}));
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(5) {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl BrowserPage<'_> {
    fn call(&mut self, method: &str, params: Value) -> Result<Value> {
        self.browser.call(Some(&self.session), method, params)
    }

    /// The value of an expression.
    pub(crate) fn eval(&mut self, expression: &str) -> Result<Value> {
        let params = json!({ "expression": expression, "returnByValue": true, "userGesture": true });
        let answer = self.call("Runtime.evaluate", params)?;
        match answer.get("exceptionDetails") {
            Some(details) => Err(format!("{expression}: {details}").into()),
            None => Ok(answer["result"]["value"].clone()),
        }
    }

    /// Waits until an expression is true.
    pub(crate) fn wait(&mut self, expression: &str) -> Result<()> {
        let start = Instant::now();
        while self.eval(expression)? != true {
            if start.elapsed() > LIMIT {
                return Err(format!("never true: {expression}").into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Clicks into the middle of an element, wherever that is.
    pub(crate) fn click(&mut self, selector: &str) -> Result<()> {
        let place = format!(
            "(() => {{ const it = document.querySelector({selector:?}); it.scrollIntoView({{ block: 'center' }}); \
             const box = it.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; }})()"
        );
        // Twice: what comes into view takes its real size then, and moves.
        self.eval(&place)?;
        let place = self.eval(&place)?;
        for kind in ["mousePressed", "mouseReleased"] {
            let event =
                json!({ "type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", event)?;
        }
        Ok(())
    }

    /// Types into what has the focus.
    pub(crate) fn type_text(&mut self, text: &str) -> Result<()> {
        self.call("Input.insertText", json!({ "text": text })).map(drop)
    }

    /// Presses a key that stands for itself.
    pub(crate) fn key(&mut self, key: &str) -> Result<()> {
        for kind in ["keyDown", "keyUp"] {
            self.call("Input.dispatchKeyEvent", json!({ "type": kind, "key": key, "text": key }))?;
        }
        Ok(())
    }

    /// Returns the errors on the console and the requests to the network.
    fn complaints(&mut self) -> Vec<String> {
        let is_ours = |event: &Value| event["sessionId"] == self.session.as_str();
        let events: Vec<Value> = self.browser.events.drain(..).filter(is_ours).collect();
        let page = self.url.split('#').next().unwrap_or_default();
        events
            .into_iter()
            .filter(|event| match event["method"].as_str() {
                Some("Runtime.exceptionThrown") => true,
                Some("Runtime.consoleAPICalled") => event["params"]["type"] == "error",
                Some("Log.entryAdded") => event["params"]["entry"]["level"] == "error",
                Some("Network.requestWillBeSent") => {
                    !event["params"]["request"]["url"].as_str().is_some_and(|url| url.starts_with(page))
                }
                _ => false,
            })
            .map(|event| event["params"].to_string())
            .collect()
    }

    /// Takes one complaint for granted, and wants to see it.
    pub(crate) fn expect_error(&mut self, text: &str) -> Result<()> {
        self.eval("0")?;
        match self.complaints().as_slice() {
            [one] if one.contains(text) => Ok(()),
            others => Err(format!("not one complaint of {text:?}: {others:?}").into()),
        }
    }

    /// Closes the page, which must have been quiet.
    pub(crate) fn close(mut self) -> Result<()> {
        self.eval("0")?;
        let complaints = self.complaints();
        let target = json!({ "targetId": self.target });
        self.browser.call(None, "Target.closeTarget", target)?;
        if complaints.is_empty() {
            Ok(())
        } else {
            Err(format!("{}: {}", self.url, complaints.join("\n")).into())
        }
    }
}
