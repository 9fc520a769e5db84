-- True once an agent has begun a message that may not be given out again.
ALTER TABLE messages ADD COLUMN started INTEGER NOT NULL DEFAULT 0;
