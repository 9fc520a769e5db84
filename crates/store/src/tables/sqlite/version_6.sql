-- The groups of different principals have nothing in common. A message that waited for one of another principal goes on.
DROP INDEX messages_group;
CREATE INDEX messages_group ON messages (agent, principal, grp, seq) WHERE grp IS NOT NULL AND state = 0;
UPDATE messages SET blocked = 0, band = CASE WHEN not_before > 0 THEN NULL WHEN priority < 3 THEN 0 WHEN priority < 6 THEN 1
    WHEN priority < 8 THEN 2 ELSE 3 END
    WHERE blocked = 1 AND seq = (SELECT min(earlier.seq) FROM messages AS earlier WHERE earlier.agent = messages.agent
        AND earlier.principal = messages.principal AND earlier.grp = messages.grp AND earlier.state = 0);
