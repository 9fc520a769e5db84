-- The greatest numbers of removed tasks and messages. A new number exceeds these and those of all rows, so none is used twice.
-- AUTOINCREMENT would need a copy of both tables, and writes one more row for each new task and message. A removal alone writes here.
CREATE TABLE last_numbers (list TEXT PRIMARY KEY, seq INTEGER NOT NULL) STRICT, WITHOUT ROWID;
-- Posts can name tasks that were removed before.
INSERT INTO last_numbers SELECT 'tasks', coalesce(max(max(coalesce(task, 0), CASE
    WHEN stream GLOB 'chunk:[0-9]*.[0-9]*' OR stream GLOB 'callback:[0-9]*.[0-9]*'
    THEN CAST(substr(stream, instr(stream, ':') + 1) AS INTEGER) ELSE 0 END)), 0) FROM outbox;
INSERT INTO last_numbers VALUES ('messages', 0);
CREATE TRIGGER tasks_last_number AFTER DELETE ON tasks
    WHEN old.seq > (SELECT seq FROM last_numbers WHERE list = 'tasks')
    BEGIN UPDATE last_numbers SET seq = old.seq WHERE list = 'tasks'; END;
CREATE TRIGGER messages_last_number AFTER DELETE ON messages
    WHEN old.seq > (SELECT seq FROM last_numbers WHERE list = 'messages')
    BEGIN UPDATE last_numbers SET seq = old.seq WHERE list = 'messages'; END;
-- For a message whose principal is not known, and for the messages of a principal.
DROP INDEX messages_key;
CREATE UNIQUE INDEX messages_key ON messages (agent, id, principal);
CREATE INDEX messages_principal ON messages (principal, agent);
CREATE INDEX messages_correlation ON messages (agent, correlation, principal) WHERE correlation IS NOT NULL;
-- For a task whose owner is not known, for the open tasks of an owner and of an agent, and for lists of both.
CREATE INDEX tasks_id ON tasks (agent, id);
CREATE INDEX tasks_session ON tasks (session, owner) WHERE session IS NOT NULL;
DROP INDEX tasks_agent;
CREATE INDEX tasks_agent ON tasks (agent, seq, owner);
DROP INDEX tasks_owner;
CREATE INDEX tasks_owner ON tasks (owner, seq, agent);
CREATE INDEX tasks_open ON tasks (owner, seq, agent) WHERE ended = 0;
CREATE INDEX tasks_open_of_agent ON tasks (agent, seq, owner) WHERE ended = 0;
-- Dead letters stay, so their number grows.
DROP INDEX messages_dead;
CREATE INDEX messages_dead ON messages (agent, seq, principal) WHERE state = 3;
DROP INDEX tasks_dead;
CREATE INDEX tasks_dead ON tasks (agent, seq, owner) WHERE dead = 1;
-- For claims that leave out principals.
CREATE INDEX messages_ready_of ON messages (agent, band, principal) WHERE band IS NOT NULL;
CREATE INDEX tasks_ready_of ON tasks (agent, band, owner) WHERE band IS NOT NULL;
-- A task whose last posts are due is not removed by a purge.
DROP INDEX tasks_ended;
CREATE INDEX tasks_ended ON tasks (completed)
    WHERE ended = 1 AND dead = 0 AND (callback_queued = 1 OR (callback IS NULL AND stream_endpoint IS NULL));
CREATE INDEX outbox_waiting ON outbox (principal) WHERE state = 'pending';
CREATE INDEX outbox_given_up ON outbox (stream) WHERE state = 'given_up';
CREATE INDEX questions_owner ON questions (owner);
CREATE INDEX questions_answered ON questions (answered_by) WHERE answered_by IS NOT NULL;
CREATE INDEX agents_life ON agents (coalesce(last_seen, updated)) WHERE status <> 'offline' AND source <> 'config';
