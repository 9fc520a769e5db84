-- Nobody reads the bodies of posts that have ended.
UPDATE outbox SET body = 'null' WHERE state <> 'pending';

-- The bytes of a record: those of its texts that can be long, and 256 for the rest.
ALTER TABLE messages ADD COLUMN bytes INTEGER AS (256 + octet_length(content) + coalesce(octet_length(response), 0));
ALTER TABLE tasks ADD COLUMN bytes INTEGER AS (256 + octet_length(parameters) + octet_length(metadata) + coalesce(octet_length(result), 0) + coalesce(octet_length(error), 0));
ALTER TABLE questions ADD COLUMN bytes INTEGER AS (256 + octet_length(body) + coalesce(octet_length(answer), 0));
ALTER TABLE outbox ADD COLUMN bytes INTEGER AS (256 + octet_length(body));
ALTER TABLE seen ADD COLUMN bytes INTEGER AS (256 + coalesce(octet_length(response), 0));
ALTER TABLE agents ADD COLUMN bytes INTEGER AS (256 + octet_length(card));

-- The bytes of the records of each principal. The triggers keep them, so that no change of a record is forgotten.
CREATE TABLE stored (principal TEXT PRIMARY KEY, bytes INTEGER NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO stored SELECT principal, sum(bytes) FROM (
    SELECT principal, bytes FROM messages
    UNION ALL SELECT owner AS principal, bytes FROM tasks
    UNION ALL SELECT owner AS principal, bytes FROM questions
    UNION ALL SELECT principal, bytes FROM outbox
    UNION ALL SELECT principal, bytes FROM seen
    UNION ALL SELECT owner AS principal, bytes FROM agents
) GROUP BY principal;

CREATE TRIGGER messages_added AFTER INSERT ON messages BEGIN
    INSERT INTO stored VALUES (new.principal, new.bytes) ON CONFLICT (principal) DO UPDATE SET bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER messages_changed AFTER UPDATE OF content, response ON messages WHEN new.bytes <> old.bytes BEGIN
    UPDATE stored SET bytes = bytes + new.bytes - old.bytes WHERE principal = new.principal;
END;
CREATE TRIGGER messages_removed AFTER DELETE ON messages BEGIN
    UPDATE stored SET bytes = bytes - old.bytes WHERE principal = old.principal;
    DELETE FROM stored WHERE principal = old.principal AND bytes <= 0;
END;

CREATE TRIGGER tasks_added AFTER INSERT ON tasks BEGIN
    INSERT INTO stored VALUES (new.owner, new.bytes) ON CONFLICT (principal) DO UPDATE SET bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER tasks_changed AFTER UPDATE OF parameters, metadata, result, error ON tasks WHEN new.bytes <> old.bytes BEGIN
    UPDATE stored SET bytes = bytes + new.bytes - old.bytes WHERE principal = new.owner;
END;
CREATE TRIGGER tasks_removed AFTER DELETE ON tasks BEGIN
    UPDATE stored SET bytes = bytes - old.bytes WHERE principal = old.owner;
    DELETE FROM stored WHERE principal = old.owner AND bytes <= 0;
END;

CREATE TRIGGER questions_added AFTER INSERT ON questions BEGIN
    INSERT INTO stored VALUES (new.owner, new.bytes) ON CONFLICT (principal) DO UPDATE SET bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER questions_changed AFTER UPDATE OF body, answer ON questions WHEN new.bytes <> old.bytes BEGIN
    UPDATE stored SET bytes = bytes + new.bytes - old.bytes WHERE principal = new.owner;
END;
CREATE TRIGGER questions_removed AFTER DELETE ON questions BEGIN
    UPDATE stored SET bytes = bytes - old.bytes WHERE principal = old.owner;
    DELETE FROM stored WHERE principal = old.owner AND bytes <= 0;
END;

CREATE TRIGGER outbox_added AFTER INSERT ON outbox BEGIN
    INSERT INTO stored VALUES (new.principal, new.bytes) ON CONFLICT (principal) DO UPDATE SET bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER outbox_changed AFTER UPDATE OF body ON outbox WHEN new.bytes <> old.bytes BEGIN
    UPDATE stored SET bytes = bytes + new.bytes - old.bytes WHERE principal = new.principal;
END;
CREATE TRIGGER outbox_removed AFTER DELETE ON outbox BEGIN
    UPDATE stored SET bytes = bytes - old.bytes WHERE principal = old.principal;
    DELETE FROM stored WHERE principal = old.principal AND bytes <= 0;
END;

CREATE TRIGGER seen_added AFTER INSERT ON seen BEGIN
    INSERT INTO stored VALUES (new.principal, new.bytes) ON CONFLICT (principal) DO UPDATE SET bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER seen_changed AFTER UPDATE OF response ON seen WHEN new.bytes <> old.bytes BEGIN
    UPDATE stored SET bytes = bytes + new.bytes - old.bytes WHERE principal = new.principal;
END;
CREATE TRIGGER seen_removed AFTER DELETE ON seen BEGIN
    UPDATE stored SET bytes = bytes - old.bytes WHERE principal = old.principal;
    DELETE FROM stored WHERE principal = old.principal AND bytes <= 0;
END;

CREATE TRIGGER agents_added AFTER INSERT ON agents BEGIN
    INSERT INTO stored VALUES (new.owner, new.bytes) ON CONFLICT (principal) DO UPDATE SET bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER agents_changed AFTER UPDATE OF card ON agents WHEN new.bytes <> old.bytes BEGIN
    UPDATE stored SET bytes = bytes + new.bytes - old.bytes WHERE principal = new.owner;
END;
CREATE TRIGGER agents_removed AFTER DELETE ON agents BEGIN
    UPDATE stored SET bytes = bytes - old.bytes WHERE principal = old.owner;
    DELETE FROM stored WHERE principal = old.owner AND bytes <= 0;
END;

-- For the removal of what has ended of one principal.
CREATE INDEX messages_ended_of ON messages (principal, updated) WHERE state = 2;
CREATE INDEX tasks_ended_of ON tasks (owner, completed)
    WHERE ended = 1 AND dead = 0 AND (callback_queued = 1 OR (callback IS NULL AND stream_endpoint IS NULL));
CREATE INDEX outbox_ended_of ON outbox (principal, updated) WHERE state <> 'pending';
