//! The state of a run against a server: what it offers, its open connections and the findings so far.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use duologue_http::raw::{RawClient, is_loopback};
use duologue_http::{ConnectOptions, Error as HttpError, RemoteTransport};
use duologue_transcript::Record;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::error::{Error, Result};
use crate::finding::{Finding, Verdict, skip};
use crate::transport::TransportKind;
use crate::transport::http::{HttpConnection, HttpSession};
use crate::transport::web_socket::{SocketConnection, SocketSession};
use crate::transport::wire::{ExchangeLog, ServerWire, initialize};

/// The options of a run.
pub(crate) struct ServerSettings {
    pub(crate) timeout: Duration,
    pub(crate) prompt: String,
    /// The folder of the sessions.
    pub(crate) folder: PathBuf,
    /// The authentication method.
    pub(crate) login: Option<String>,
    /// True if a request without the token has to be refused.
    pub(crate) requires_token: bool,
}

/// The ids of the HTTP connections that were opened and not ended.
pub(crate) type OpenConnections = Rc<RefCell<Vec<String>>>;

/// The state of a run.
pub(crate) struct ServerHarness {
    pub(crate) settings: ServerSettings,
    pub(crate) wire: ServerWire,
    /// A client without the token.
    pub(crate) anonymous: ServerWire,
    pub(crate) has_token: bool,
    /// True if the server is addressed by a loopback name.
    pub(crate) is_loopback: bool,
    transport: RemoteTransport,
    open: OpenConnections,
    /// The reasons for which the checks of a transport are skipped.
    no_http: Option<String>,
    no_web_socket: Option<String>,
    has_agent: bool,
    /// The reason for which no session or no turn could be had.
    untested: Option<String>,
    findings: HashMap<&'static str, Finding>,
}

/// Returns true for the statuses of servers without a transport.
fn is_missing(status: u16) -> bool {
    matches!(status, 200..=299 | 400 | 404..=406 | 415 | 426 | 501)
}

impl ServerHarness {
    /// Probes the transports of the server.
    pub(crate) async fn connect(
        url: &str,
        mut options: ConnectOptions,
        settings: ServerSettings,
    ) -> Result<Self> {
        // The first answer of an agent may take long.
        options.connect_timeout = settings.timeout * 3;
        let log = ExchangeLog::new();
        let wire = |options: &ConnectOptions| {
            let client = RawClient::new(url, options).map_err(Error::Server)?;
            Ok::<_, Error>(ServerWire { client, log: log.clone(), patience: settings.timeout })
        };
        let with_token = wire(&options)?;
        let (transport, has_token) = (options.transport, options.bearer_token.take().is_some());
        let mut harness = ServerHarness {
            anonymous: wire(&options)?,
            wire: with_token,
            settings,
            has_token,
            is_loopback: is_loopback(url),
            transport,
            open: OpenConnections::default(),
            no_http: None,
            no_web_socket: None,
            has_agent: false,
            untested: None,
            findings: HashMap::new(),
        };
        harness.probe(transport).await.map_err(Error::Server)?;
        Ok(harness)
    }

    async fn probe(&mut self, transport: RemoteTransport) -> std::result::Result<(), HttpError> {
        let refused = |status: u16, message: String| match status {
            401 | 403 => Err(HttpError::Refused { status, message }),
            _ => Ok(()),
        };
        let (mut http, mut web_socket) = (None, None);
        if transport != RemoteTransport::WebSocket {
            let headers = [("Content-Type", "application/json")];
            let response = self.wire.head(None, "POST", &headers, &initialize().to_string()).await?;
            let answer = self.wire.read("POST", response).await.ok();
            if let Some(answer) = answer {
                refused(answer.status, answer.shown())?;
                self.open.borrow_mut().extend(answer.connection_id.clone());
                self.has_agent |= answer.status == 200 && answer.connection_id.is_some();
                http = (answer.status != 200 && is_missing(answer.status)).then_some(answer.status);
            }
        }
        if transport != RemoteTransport::Events {
            match self.wire.client.upgrade(&[]).await {
                Ok((mut socket, _)) => _ = socket.send_close(1000).await,
                Err(HttpError::Refused { status, message }) => {
                    refused(status, message)?;
                    web_socket = is_missing(status).then_some(status);
                }
                Err(error @ (HttpError::Unreachable { .. } | HttpError::Timeout { .. })) => {
                    return Err(error);
                }
                Err(_) => {}
            }
        }
        // A server needs one of both. Without any, the checks show the answers.
        if transport == RemoteTransport::Auto && (http.is_none() || web_socket.is_none()) {
            let reason = |name: &str, status| format!("the server has no {name} here (status {status})");
            self.no_http = http.map(|status| reason("HTTP with SSE", status));
            self.no_web_socket = web_socket.map(|status| reason("WebSocket", status));
        }
        self.end_connections().await;
        Ok(())
    }

    /// Returns the reason for which a check is skipped because the server does not have its transport.
    pub(crate) fn missing_transport(&self, check: &str) -> Option<String> {
        match TransportKind::of(check)? {
            TransportKind::Http => self.no_http.clone(),
            TransportKind::WebSocket => self.no_web_socket.clone(),
        }
    }

    /// Returns true if the server has a transport, or has to have it.
    pub(crate) fn has(&self, transport: TransportKind) -> bool {
        let (missing, is_chosen) = match transport {
            TransportKind::Http => (&self.no_http, self.transport != RemoteTransport::WebSocket),
            TransportKind::WebSocket => (&self.no_web_socket, self.transport != RemoteTransport::Events),
        };
        missing.is_none() && is_chosen
    }

    pub(crate) fn log_length(&self) -> usize {
        self.wire.log.len()
    }

    pub(crate) fn log_since(&self, mark: usize) -> Vec<Record> {
        self.wire.log.since(mark)
    }

    /// Returns the finding of a check, if it has run.
    pub(crate) fn finding(&self, check: &str) -> Option<&Finding> {
        self.findings.get(check)
    }

    pub(crate) fn store(&mut self, check: &'static str, finding: Finding) {
        self.findings.insert(check, finding);
    }

    /// Returns the skip of a finding if a check that tests one of its causes has failed.
    pub(crate) fn explanation(&self, finding: &Finding) -> Option<Finding> {
        finding.causes.iter().find_map(|cause| {
            let found = self.finding(cause)?;
            if found.verdict == Verdict::Warn && finding.verdict != Verdict::Warn {
                return None;
            }
            found.explains(cause)
        })
    }

    /// Returns true if the server has answered `initialize`.
    pub(crate) fn has_agent(&self) -> bool {
        self.has_agent
    }

    pub(crate) fn untested(&self) -> Option<String> {
        self.untested.clone()
    }

    /// Registers a connection, which is ended after the check.
    pub(crate) fn register(&self, id: Option<String>) {
        self.open.borrow_mut().extend(id);
    }

    /// Ends the HTTP connections of a check. A server that does not end them is reported by a check.
    pub(crate) async fn end_connections(&mut self) {
        let open = std::mem::take(&mut *self.open.borrow_mut());
        for id in open {
            let headers = [("Acp-Connection-Id", id.as_str())];
            let ending = self.wire.client.send("DELETE", None, &headers, "");
            let _ = timeout(Duration::from_secs(2), ending).await;
        }
    }

    /// Returns an error if a check that this one needs has failed.
    pub(crate) fn needs(&self, check: &'static str) -> std::result::Result<(), Finding> {
        match self.finding(check).and_then(|finding| finding.explains(check)) {
            Some(skipped) => Err(skipped),
            None => Ok(()),
        }
    }

    /// Opens a connection over HTTP.
    pub(crate) async fn http(&mut self) -> std::result::Result<HttpConnection, Finding> {
        self.needs("http-initialize")?;
        let opened = HttpConnection::open(&self.wire).await;
        let connection = opened.map_err(|finding| finding.needed("`initialize` over HTTP"))?;
        self.register(Some(connection.id.clone()));
        self.has_agent = true;
        Ok(connection)
    }

    /// Opens a connection over a WebSocket.
    pub(crate) async fn socket(&mut self) -> std::result::Result<SocketConnection, Finding> {
        self.needs("ws-upgrade")?;
        self.needs("ws-initialize")?;
        let opened = SocketConnection::open(&self.wire).await;
        let connection = opened.map_err(|finding| finding.needed("`initialize` over a WebSocket"))?;
        self.has_agent = true;
        Ok(connection)
    }

    /// Opens a connection over HTTP with its stream, a session and the stream of the session.
    pub(crate) async fn http_session(&mut self) -> std::result::Result<HttpSession, Finding> {
        self.needs("sse-opens")?;
        let mut connection = self.http().await?;
        connection.open_stream().await.map_err(|finding| finding.needed("the stream of the connection"))?;
        let session = self.new_session(&mut connection, "sse-connection-answers").await?;
        let stream = connection.stream_of(&session).await?;
        Ok(HttpSession { connection, id: session, stream })
    }

    /// Opens a connection over a WebSocket with a session.
    pub(crate) async fn socket_session(&mut self) -> std::result::Result<SocketSession, Finding> {
        let mut connection = self.socket().await?;
        let id = self.new_session(&mut connection, "ws-turn").await?;
        Ok(SocketSession { connection, id })
    }

    /// Opens a session, and logs in first if the agent requires it.
    async fn new_session(
        &mut self,
        connection: &mut impl AgentCalls,
        check: &'static str,
    ) -> std::result::Result<String, Finding> {
        let params = json!({"cwd": self.settings.folder, "mcpServers": []});
        let mut response = connection
            .call("session/new", &params)
            .await
            .map_err(|finding| self.needs(check).err().unwrap_or(finding))?;
        if response["error"]["code"] == -32000
            && let Some(method) = &self.settings.login
        {
            connection.call("authenticate", &json!({"methodId": method})).await?;
            response = connection.call("session/new", &params).await?;
        }
        match response["result"]["sessionId"].as_str() {
            Some(id) => Ok(id.to_owned()),
            None => {
                let reason = format!("session/new is answered with {}", response_text(&response));
                let folder = self.settings.folder.display();
                self.untested = Some(format!("{reason} (folder {folder})"));
                Err(skip(format!("there is no session: {reason}")))
            }
        }
    }

    /// Stores that the agent answers no prompt, and returns the finding of the check that needs a turn.
    pub(crate) fn no_turn(&mut self, reason: &str) -> Finding {
        self.untested = Some(reason.to_owned());
        skip(format!("there is no turn: {reason}"))
    }
}

/// Returns a response as a finding shows it.
pub(crate) fn response_text(response: &Value) -> String {
    match &response["error"] {
        Value::Null => response["result"].to_string().chars().take(200).collect(),
        error => format!("error {} ({})", error["code"], error["message"].as_str().unwrap_or_default()),
    }
}

/// A connection that sends requests to the agent.
pub(crate) trait AgentCalls {
    /// Sends a request that belongs to no session, and returns its response.
    async fn call(&mut self, method: &str, params: &Value) -> std::result::Result<Value, Finding>;
}
