-- True once an agent has begun a message that may not be given out again.
ALTER TABLE messages ADD COLUMN started INTEGER NOT NULL DEFAULT 0;
-- For retention: what has ended, by the time of its end.
CREATE INDEX messages_ended ON messages (updated) WHERE state = 2;
CREATE INDEX tasks_ended ON tasks (completed) WHERE ended = 1 AND dead = 0;
CREATE INDEX outbox_ended ON outbox (updated) WHERE state <> 'pending';
