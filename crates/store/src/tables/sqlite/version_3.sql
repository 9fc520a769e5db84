-- The trace context of the request that a row comes from.
ALTER TABLE messages ADD COLUMN trace TEXT;
ALTER TABLE tasks ADD COLUMN trace TEXT;
ALTER TABLE outbox ADD COLUMN trace TEXT;
-- For the numbers of an operator.
CREATE INDEX tasks_counts ON tasks (agent, state, priority, created);
CREATE INDEX messages_waiting ON messages (agent, priority, created) WHERE state = 0 AND lease IS NULL;
