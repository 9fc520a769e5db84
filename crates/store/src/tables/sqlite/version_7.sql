-- The principals whose sessions have to be removed, after their records.
CREATE TABLE erasures (principal TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
