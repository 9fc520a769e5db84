-- Callbacks of tasks that end without a worker. Those that ended before had none.
ALTER TABLE tasks ADD COLUMN callback_queued INTEGER NOT NULL DEFAULT 0;
UPDATE tasks SET callback_queued = 1 WHERE ended = 1;
CREATE INDEX tasks_callback ON tasks (seq) WHERE ended = 1 AND callback IS NOT NULL AND callback_queued = 0;
