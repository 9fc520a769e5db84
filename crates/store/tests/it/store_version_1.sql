CREATE TABLE schema_version (version INTEGER NOT NULL) STRICT;
INSERT INTO schema_version VALUES (0);

CREATE TABLE agents (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, source TEXT NOT NULL, endpoint TEXT NOT NULL, card TEXT NOT NULL,
    capabilities TEXT NOT NULL, domains TEXT NOT NULL, tags TEXT NOT NULL, provider TEXT, status TEXT NOT NULL,
    last_seen INTEGER, created INTEGER NOT NULL, updated INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX agents_owner ON agents (owner);

-- The names of agents: 0 are capabilities, 1 domains, 2 tags.
CREATE TABLE agent_names (
    kind INTEGER NOT NULL, name TEXT NOT NULL, agent TEXT NOT NULL, PRIMARY KEY (kind, name, agent)
) STRICT, WITHOUT ROWID;
CREATE INDEX agent_names_agent ON agent_names (agent);

-- The state is 0 waiting or leased, 2 done, 3 dead. `band` is set if a claim may take the row now. A row waits behind an
-- earlier one of its group if `blocked` is 1, and until `not_before` if that is not 0.
CREATE TABLE messages (
    seq INTEGER PRIMARY KEY, agent TEXT NOT NULL, principal TEXT NOT NULL, id TEXT NOT NULL, sender TEXT NOT NULL,
    correlation TEXT, grp TEXT, priority INTEGER NOT NULL, created INTEGER NOT NULL, updated INTEGER NOT NULL,
    expires INTEGER, state INTEGER NOT NULL, band INTEGER, blocked INTEGER NOT NULL, not_before INTEGER NOT NULL,
    attempts INTEGER NOT NULL, max_attempts INTEGER NOT NULL, lease INTEGER, lease_end INTEGER, worker TEXT,
    error TEXT, response TEXT, content TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX messages_key ON messages (agent, principal, id);
CREATE INDEX messages_ready ON messages (agent, band, seq) WHERE band IS NOT NULL;
CREATE INDEX messages_group ON messages (agent, grp, seq) WHERE grp IS NOT NULL AND state = 0;
CREATE INDEX messages_delayed ON messages (agent, not_before) WHERE not_before > 0;
CREATE INDEX messages_lease ON messages (agent, lease_end) WHERE lease IS NOT NULL;
CREATE INDEX messages_expiry ON messages (expires) WHERE expires IS NOT NULL AND state = 0;
CREATE INDEX messages_dead ON messages (seq) WHERE state = 3;

CREATE TABLE tasks (
    seq INTEGER PRIMARY KEY, owner TEXT NOT NULL, agent TEXT NOT NULL, id TEXT NOT NULL, sender TEXT NOT NULL,
    kind TEXT NOT NULL, priority INTEGER NOT NULL, state TEXT NOT NULL, ended INTEGER NOT NULL,
    started INTEGER NOT NULL, progress INTEGER NOT NULL, callback TEXT, stream_endpoint TEXT, session TEXT,
    timeout_ms INTEGER, expires INTEGER, retry_safe INTEGER NOT NULL, band INTEGER, blocked INTEGER NOT NULL,
    not_before INTEGER NOT NULL, attempts INTEGER NOT NULL, max_attempts INTEGER NOT NULL, lease INTEGER,
    lease_end INTEGER, worker TEXT, dead INTEGER NOT NULL, version INTEGER NOT NULL, created INTEGER NOT NULL,
    updated INTEGER NOT NULL, started_at INTEGER, completed INTEGER, error TEXT, result TEXT,
    metadata TEXT NOT NULL, parameters TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX tasks_key ON tasks (owner, agent, id);
CREATE INDEX tasks_agent ON tasks (agent, seq);
CREATE INDEX tasks_owner ON tasks (owner, seq);
CREATE INDEX tasks_ready ON tasks (agent, band, seq) WHERE band IS NOT NULL;
CREATE INDEX tasks_delayed ON tasks (agent, not_before) WHERE not_before > 0;
CREATE INDEX tasks_lease ON tasks (agent, lease_end) WHERE lease IS NOT NULL;
CREATE INDEX tasks_expiry ON tasks (expires) WHERE expires IS NOT NULL AND started = 0 AND ended = 0;
CREATE INDEX tasks_dead ON tasks (seq) WHERE dead = 1;
CREATE INDEX tasks_duration ON tasks (agent, kind, completed) WHERE state = 'completed';

CREATE TABLE questions (
    seq INTEGER PRIMARY KEY, owner TEXT NOT NULL, agent TEXT NOT NULL, task TEXT NOT NULL, id TEXT NOT NULL,
    state TEXT NOT NULL, answered_by TEXT, created INTEGER NOT NULL, ended INTEGER, answer TEXT, body TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX questions_key ON questions (owner, agent, task, id);
CREATE INDEX questions_open ON questions (seq) WHERE state = 'open';

-- `ready` is the time from which a claim may take the row. It is not set behind another row of the stream.
CREATE TABLE outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT, stream TEXT NOT NULL, position INTEGER NOT NULL, url TEXT NOT NULL,
    kind TEXT NOT NULL, principal TEXT NOT NULL, attempts INTEGER NOT NULL, state TEXT NOT NULL, ready INTEGER,
    lease INTEGER, lease_end INTEGER, worker TEXT, last_error TEXT, created INTEGER NOT NULL,
    updated INTEGER NOT NULL, body TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX outbox_stream ON outbox (stream, position);
CREATE INDEX outbox_ready ON outbox (ready, id) WHERE ready IS NOT NULL;
CREATE INDEX outbox_pending ON outbox (stream, position) WHERE state = 'pending';
CREATE INDEX outbox_lease ON outbox (lease_end) WHERE lease IS NOT NULL;
CREATE INDEX outbox_principal ON outbox (principal);

CREATE TABLE seen (
    principal TEXT NOT NULL, scope TEXT NOT NULL, key TEXT NOT NULL, digest BLOB NOT NULL, expires INTEGER NOT NULL,
    response TEXT, PRIMARY KEY (principal, scope, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX seen_expiry ON seen (expires);

CREATE TABLE principals (
    id TEXT PRIMARY KEY, roles TEXT NOT NULL, key_hash BLOB, webhook_secret TEXT, disabled INTEGER NOT NULL,
    created INTEGER NOT NULL, expires INTEGER
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX principals_key ON principals (key_hash) WHERE key_hash IS NOT NULL;

UPDATE schema_version SET version = 1;
INSERT INTO messages (agent, principal, id, sender, grp, priority, created, updated, state, band, blocked, not_before,
    attempts, max_attempts, content)
VALUES ('tester', 'alice', 'm1', 'a', 'g', 4, 1, 1, 0, 1, 0, 0, 0, 5, '"one"'),
       ('tester', 'alice', 'm2', 'a', 'g', 4, 1, 1, 0, NULL, 1, 0, 0, 5, '"two"');
INSERT INTO tasks (owner, agent, id, sender, kind, priority, state, ended, started, progress, callback, retry_safe, band,
    blocked, not_before, attempts, max_attempts, lease, lease_end, worker, dead, version, created, updated, metadata,
    parameters)
VALUES ('alice', 'tester', 'running', 'a', 'work', 4, 'working', 0, 1, 50, 'https://example.com', 0, NULL,
        0, 0, 1, 5, 77, 1000, 'w', 0, 2, 1, 2, 'null', '{}'),
       ('alice', 'tester', 'done', 'a', 'work', 4, 'completed', 1, 1, 100, 'https://example.com', 0, NULL,
        0, 0, 1, 5, NULL, NULL, NULL, 0, 3, 1, 2, 'null', '{}');
