-- The number with which an agent has last got a message. A message that is sent again has another one.
ALTER TABLE messages ADD COLUMN handed_seq INTEGER;
-- The time at which an agent has last got a task.
ALTER TABLE tasks ADD COLUMN handed_at INTEGER;
