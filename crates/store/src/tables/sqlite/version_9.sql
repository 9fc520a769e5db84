-- The number of the task whose output a post has. A purge leaves the posts of a task that is open.
ALTER TABLE outbox ADD COLUMN task INTEGER;
