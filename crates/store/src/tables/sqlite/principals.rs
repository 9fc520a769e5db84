//! Principals, and the keys of requests that run once.

use duologue_rpc::SecretText;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::queue::one;
use super::rows::{Filter, int, maybe_json, maybe_number, name_list, number, parsed};
use super::writer::{ChangeStep, CountedList, OpenChange, Stop};
use super::{messages, tasks};
use crate::error::Error;
use crate::tables::batch::ChangeOutcome;
use crate::tables::principals::{SeenAnswer, SeenId, SeenKey, StoredPrincipal};
use crate::tables::settings::PageRoom;
use crate::tables::store::SweepReport;
use crate::tables::values::{JsonText, StorePage};

pub(super) const COLUMNS: &str = "id, roles, key_hash, webhook_secret, disabled, created, expires";

pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<StoredPrincipal> {
    Ok(StoredPrincipal {
        id: row.get(0)?,
        roles: parsed(row, 1)?,
        key_hash: row.get(2)?,
        webhook_secret: row.get::<_, Option<String>>(3)?.map(SecretText::from),
        disabled: row.get(4)?,
        created: number(row, 5)?,
        expires: maybe_number(row, 6)?,
    })
}

pub(super) fn get(database: &Connection, id: &str) -> rusqlite::Result<Option<StoredPrincipal>> {
    let text = format!("SELECT {COLUMNS} FROM principals WHERE id = ?1");
    database.prepare_cached(&text)?.query_row([id], read).optional()
}

pub(super) fn by_key(database: &Connection, hash: &[u8; 32]) -> rusqlite::Result<Option<StoredPrincipal>> {
    let text = format!("SELECT {COLUMNS} FROM principals WHERE key_hash = ?1");
    database.prepare_cached(&text)?.query_row([hash], read).optional()
}

pub(super) fn list(
    database: &Connection,
    offset: u64,
    room: PageRoom,
) -> rusqlite::Result<StorePage<StoredPrincipal>> {
    Filter::default().page(database, (COLUMNS, "principals", "id"), (offset, room), read)
}

pub(super) fn put(change: &mut OpenChange<'_>, principal: &StoredPrincipal) -> ChangeStep<ChangeOutcome> {
    if let Some(hash) = &principal.key_hash {
        // Two principals with one key could act for each other.
        if by_key(change.database, hash)?.is_some_and(|other| other.id != principal.id) {
            let record = format!("the API key of the principal {:?}", principal.id);
            return Err(Error::RecordConflict { record }.into());
        }
    }
    let text = "INSERT INTO principals VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (id) DO UPDATE SET \
                roles = ?2, key_hash = ?3, webhook_secret = ?4, disabled = ?5, expires = ?7";
    change.prepare(text)?.execute(params![
        principal.id,
        name_list(&principal.roles),
        principal.key_hash,
        principal.webhook_secret.as_ref().map(SecretText::as_str),
        principal.disabled,
        change.wall(),
        principal.expires.map(int),
    ])?;
    Ok(ChangeOutcome::Done)
}

pub(super) fn remove(change: &mut OpenChange<'_>, id: &str) -> ChangeStep<ChangeOutcome> {
    let count = change.prepare("DELETE FROM principals WHERE id = ?1")?.execute([id])?;
    Ok(ChangeOutcome::Count(count as u64))
}

/// The reason for which the work of a principal that is disabled ends.
pub(super) const REMOVED: &str = "its principal was removed from the configuration of the server";

/// The principals with work that would start, or that a receiver would learn of.
const AT_WORK: &str = "SELECT DISTINCT owner FROM (SELECT owner FROM tasks WHERE ended = 0 \
     UNION ALL SELECT owner FROM tasks WHERE ended = 1 AND callback_queued = 0 \
         AND (callback IS NOT NULL OR stream_endpoint IS NOT NULL) \
     UNION ALL SELECT principal FROM messages WHERE state = 0 \
     UNION ALL SELECT principal FROM outbox WHERE state = 'pending')";

pub(super) fn keep(
    change: &mut OpenChange<'_>,
    kept: &[String],
    prefixes: &[String],
) -> ChangeStep<ChangeOutcome> {
    let is_kept = |id: &String| {
        kept.contains(id) || prefixes.iter().any(|prefix| id.len() > prefix.len() && id.starts_with(prefix))
    };
    let (known, others): (Vec<_>, Vec<_>) =
        names(change, "SELECT id FROM principals")?.into_iter().partition(is_kept);
    for id in known {
        // A key can have moved from one of them to another.
        change.prepare("UPDATE principals SET disabled = 0, key_hash = NULL WHERE id = ?1")?.execute([id])?;
    }
    let mut count = 0;
    for id in others {
        count += disable(change, &id)?;
    }
    for id in names(change, AT_WORK)?.into_iter().filter(|id| !is_kept(id)) {
        count += disable(change, &id)?;
        tasks::end_of_owner(change, &id)?;
        messages::end_of_sender(change, &id)?;
    }
    Ok(ChangeOutcome::Count(count))
}

/// Disables a principal, which need not be known, and removes its secrets. Returns one if it was not disabled.
fn disable(change: &mut OpenChange<'_>, id: &str) -> ChangeStep<u64> {
    let text = "INSERT INTO principals VALUES (?1, '[]', NULL, NULL, 1, ?2, NULL) ON CONFLICT (id) DO UPDATE SET \
                key_hash = NULL, webhook_secret = NULL, disabled = 1 \
                WHERE disabled = 0 OR key_hash IS NOT NULL OR webhook_secret IS NOT NULL";
    let count = change.prepare(text)?.execute(params![id, change.wall()])? as u64;
    if count > 0 {
        change.has_erased();
    }
    Ok(count)
}

/// Refuses work of a principal that is disabled.
pub(super) fn require_enabled(change: &OpenChange<'_>, id: &str) -> ChangeStep<()> {
    match one(change, "SELECT disabled FROM principals WHERE id = ?1", [id])? {
        Some(true) => {
            Err(Error::WrongState { record: format!("the principal {id:?}"), state: "disabled".into() }
                .into())
        }
        _ => Ok(()),
    }
}

fn names(change: &OpenChange<'_>, sql: &str) -> rusqlite::Result<Vec<String>> {
    change.prepare(sql)?.query_map([], |row| row.get(0))?.collect()
}

pub(super) const SEEN: &str = "principal, scope, key, digest, response, expires";

pub(super) fn read_seen(row: &Row<'_>) -> rusqlite::Result<SeenAnswer> {
    Ok(SeenAnswer {
        key: SeenKey { principal: row.get(0)?, scope: row.get(1)?, key: row.get(2)? },
        digest: row.get(3)?,
        response: maybe_json(row, 4)?,
        expires: number(row, 5)?,
    })
}

pub(super) fn remembered(
    database: &Connection,
    key: &SeenKey,
    wall: u64,
) -> rusqlite::Result<Option<SeenAnswer>> {
    let text =
        format!("SELECT {SEEN} FROM seen WHERE principal = ?1 AND scope = ?2 AND key = ?3 AND expires > ?4");
    let mut statement = database.prepare_cached(&text)?;
    statement.query_row(params![key.principal, key.scope, key.key, int(wall)], read_seen).optional()
}

pub(super) fn remember(change: &mut OpenChange<'_>, seen: &SeenId) -> ChangeStep<ChangeOutcome> {
    let key = &seen.key;
    if let Some(earlier) = remembered(change.database, key, change.time.wall)? {
        return match earlier.digest == seen.digest {
            true => Err(Stop::Repeated(earlier)),
            false => Err(Error::KeyReused { key: key.key.clone() }.into()),
        };
    }
    // The row is there if the key has expired.
    let text = "DELETE FROM seen WHERE principal = ?1 AND scope = ?2 AND key = ?3";
    let removed = change.prepare(text)?.execute([&key.principal, &key.scope, &key.key])?;
    change.count(CountedList::Seen, &[&key.principal], -(removed as i64));
    let text =
        "INSERT INTO seen (principal, scope, key, digest, expires, response) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    change.prepare(text)?.execute(params![
        key.principal,
        key.scope,
        key.key,
        seen.digest,
        int(seen.expires),
        seen.response.as_ref().map(JsonText::as_str),
    ])?;
    let limit = (change.settings.seen_per_principal, "StoreSettings::seen_per_principal");
    change.added_to(CountedList::Seen, &key.principal, limit, "the list of remembered keys of")?;
    Ok(ChangeOutcome::Done)
}

pub(super) fn set_response(
    change: &mut OpenChange<'_>,
    key: &SeenKey,
    response: &JsonText,
) -> ChangeStep<ChangeOutcome> {
    let text = "UPDATE seen SET response = ?4 WHERE principal = ?1 AND scope = ?2 AND key = ?3";
    let values = [&key.principal, &key.scope, &key.key, response.as_str()];
    let count = change.prepare(text)?.execute(values)?;
    Ok(ChangeOutcome::Count(count as u64))
}

pub(super) fn sweep(change: &mut OpenChange<'_>, report: &mut SweepReport) -> ChangeStep<()> {
    let limit = int(change.settings.page_entries);
    let expired: Vec<(String, String, String)> = {
        let text = "SELECT principal, scope, key FROM seen WHERE expires <= ?1 LIMIT ?2";
        let mut statement = change.prepare(text)?;
        let keys =
            statement.query_map([change.wall(), limit], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        keys.collect::<rusqlite::Result<_>>()?
    };
    report.has_more |= expired.len() as i64 >= limit;
    report.keys_removed += expired.len() as u64;
    for (principal, scope, key) in expired {
        let text = "DELETE FROM seen WHERE principal = ?1 AND scope = ?2 AND key = ?3";
        change.prepare(text)?.execute([&principal, &scope, &key])?;
        change.count(CountedList::Seen, &[&principal], -1);
    }
    Ok(())
}
