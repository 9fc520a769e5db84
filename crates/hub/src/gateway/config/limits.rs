//! The limits of a gateway, `limits` in its file.

use serde::Deserialize;

/// The limits of a gateway.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct GatewayLimits {
    /// The longest body of a request, in bytes. 1 MiB by default.
    pub body_bytes: usize,
    /// The seconds in which a body has to arrive. 30 by default.
    pub body_seconds: u64,
    /// The seconds that a `sync` message, a claim or a request without room for its response waits at most. 30 by default.
    pub sync_seconds: u64,
    /// The seconds after which a task without a timeout of its own ends. 86,400 by default.
    pub task_seconds: u64,
    /// The seconds for which a question of a task waits for its answer. 86,400 by default.
    pub question_seconds: u64,
    /// The requests of a principal over REST in a minute. Those of `/acp` and `/attach` are not counted. 6,000 by default.
    pub requests_per_minute: u32,
    /// The requests that wait, stream or read pages at once, of all principals. One counts until its response has been
    /// sent. 1,024 by default.
    pub open_requests: usize,
    /// The same, of one principal. 256 by default.
    pub principal_requests: usize,
    /// The open connections of a principal, with its WebSockets and streams. 320 by default, a quarter of those that the
    /// server accepts.
    pub principal_connections: usize,
    /// The bytes of the pages and records of a principal that are read and sent at once. Further reads wait,
    /// for `sync_seconds` at most. A page, or a part of an export, takes 4 MiB until it was read. 67,108,864 by default, 64 MiB.
    pub principal_response_bytes: usize,
    /// The sessions of a principal at one agent whose process or client is there. A session has one process at most. 256 by
    /// default.
    pub principal_sessions: usize,
    /// The bytes of the logs of a principal at one agent, at which its new sessions are refused. 21,474,836,480 by default, 20 GiB.
    pub principal_disk_bytes: u64,
    /// The bytes of the agents, messages, tasks, questions, posts and remembered keys of a principal, with 256 for each record.
    /// Beyond it new agents, messages, tasks and questions are refused, and work that has begun goes on. 4,294,967,296 by
    /// default, 4 GiB.
    pub principal_stored_bytes: u64,
    /// The bytes of the disk that are kept for the ends of work and for removals. With less room new work is refused, and turns
    /// fail. 67,108,864 by default, 64 MiB.
    pub reserved_disk_bytes: u64,
    /// The seconds for which an agent that takes its messages over REST has them at most. 300 by default.
    pub lease_seconds: u64,
    /// The seconds for which the key of a request that runs once is remembered. 86,400 by default.
    pub idempotency_seconds: u64,
    /// The seconds for which ended messages, tasks and posts are kept. Dead letters stay. 2,592,000 by default, 30 days.
    pub retention_seconds: u64,
    /// The bytes of an answer, as JSON, that are kept as the result of work. 1 MiB by default, 4,128,768 at most.
    pub result_bytes: usize,
    /// The seconds for which an attached agent can continue a connection that was lost. Then its running work counts as
    /// lost. 300 by default.
    pub attachment_seconds: u64,
    /// The calls of a chain of agents that call each other: with 1 an agent that was called calls no other. 4 by default.
    pub call_depth: usize,
    /// The tasks of other agents that the agent of a session waits for at a time. 16 by default.
    pub open_calls: usize,
    /// The seconds in which the command of `agents.auth` has to end. 10 by default.
    pub auth_seconds: u64,
    /// The logins of the page at a time, of all principals. 256 by default.
    pub page_logins: usize,
    /// The seconds after which a login of the page ends. 43,200 by default.
    pub page_login_seconds: u64,
}

impl Default for GatewayLimits {
    fn default() -> Self {
        GatewayLimits {
            body_bytes: 1 << 20,
            body_seconds: 30,
            sync_seconds: 30,
            task_seconds: 86_400,
            question_seconds: 86_400,
            requests_per_minute: 6_000,
            open_requests: 1_024,
            principal_requests: 256,
            principal_connections: 320,
            principal_response_bytes: 64 << 20,
            principal_sessions: 256,
            principal_disk_bytes: 20 << 30,
            principal_stored_bytes: 4 << 30,
            reserved_disk_bytes: 64 << 20,
            lease_seconds: 300,
            idempotency_seconds: 86_400,
            retention_seconds: 30 * 86_400,
            result_bytes: 1 << 20,
            attachment_seconds: 300,
            call_depth: 4,
            open_calls: 16,
            auth_seconds: 10,
            page_logins: 256,
            page_login_seconds: 43_200,
        }
    }
}
