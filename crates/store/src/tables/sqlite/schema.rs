//! The tables of the database, their versions, and the migration from earlier ones.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension as _};

use super::failure;
use crate::error::{Error, Result};

/// The scripts that lead from each version to the next. The first one begins with nothing. A script is never
/// changed after a release.
const MIGRATIONS: [&str; 11] = [
    include_str!("version_1.sql"),
    include_str!("version_2.sql"),
    include_str!("version_3.sql"),
    include_str!("version_4.sql"),
    include_str!("version_5.sql"),
    include_str!("version_6.sql"),
    include_str!("version_7.sql"),
    include_str!("version_8.sql"),
    include_str!("version_9.sql"),
    include_str!("version_10.sql"),
    include_str!("version_11.sql"),
];

/// The version that this program writes.
pub(super) const VERSION: i64 = MIGRATIONS.len() as i64;

/// Returns the version of a database. It is zero if it has no tables at all.
fn version(database: &Connection) -> rusqlite::Result<Option<i64>> {
    let tables: i64 = database.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if tables == 0 {
        return Ok(Some(0));
    }
    let has_version = "SELECT count(*) FROM sqlite_schema WHERE name = 'schema_version'";
    if database.query_row(has_version, [], |row| row.get::<_, i64>(0))? == 0 {
        return Ok(None);
    }
    database.query_row("SELECT version FROM schema_version", [], |row| row.get(0)).optional()
}

/// Brings a database to [`VERSION`]. Each step is one transaction.
pub(super) fn migrate(database: &Connection, path: &Path) -> Result<()> {
    let failed = |error| failure(path, error);
    let found = version(database).map_err(failed)?;
    let damaged = |reason: &str| Error::StoreDamaged { path: path.into(), reason: reason.into() };
    let found = found.ok_or_else(|| damaged("it is not a database of this program"))?;
    if found > VERSION {
        return Err(Error::NewerVersion { path: path.into(), found, known: VERSION });
    }
    let done = usize::try_from(found).map_err(|_| damaged("its version is negative"))?;
    for (script, version) in MIGRATIONS.iter().zip(1..).skip(done) {
        let text =
            format!("BEGIN IMMEDIATE; {script}; UPDATE schema_version SET version = {version}; COMMIT;");
        if let Err(error) = database.execute_batch(&text) {
            if !database.is_autocommit() {
                let _ = database.execute_batch("ROLLBACK");
            }
            return Err(failed(error));
        }
    }
    Ok(())
}

/// Returns the steps of the plan of a statement.
#[cfg(test)]
pub(super) fn query_plan(database: &Connection, text: &str) -> rusqlite::Result<Vec<String>> {
    let mut statement = database.prepare(&format!("EXPLAIN QUERY PLAN {text}"))?;
    let values = vec![1; statement.parameter_count()];
    let steps = statement.query_map(rusqlite::params_from_iter(values), |row| row.get(3))?;
    steps.collect()
}
