-- The principals whose sessions have to be removed, after their records.
CREATE TABLE erasures (principal TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
-- The last chunk of a task's output is due as its callback is. The streams of tasks that have ended without a callback to send stay as they are.
UPDATE tasks SET callback_queued = 1 WHERE ended = 1 AND callback IS NULL;
DROP INDEX tasks_callback;
CREATE INDEX tasks_callback ON tasks (seq)
    WHERE ended = 1 AND callback_queued = 0 AND (callback IS NOT NULL OR stream_endpoint IS NOT NULL);
