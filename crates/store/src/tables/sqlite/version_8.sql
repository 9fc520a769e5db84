-- The end of a delay in wall time, since `not_before` counts from the start of a server. It counts while that is not 0.
ALTER TABLE messages ADD COLUMN due INTEGER;
-- For the share of a principal in an inbox.
CREATE INDEX messages_sender ON messages (agent, principal) WHERE state = 0;
