//! Posts to addresses outside.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::check::cut;
use super::messages::rows;
use super::queue::{expect, lost, one};
use super::rows::{Filter, from_micros, int, json, number, outbox_kind, outbox_state, small, uint};
use super::writer::{ChangeStep, CountedList, OpenChange, QueueBounds};
use crate::error::Error;
use crate::tables::batch::ChangeOutcome;
use crate::tables::outbox::{NewDelivery, OutboxEntry, OutboxQuery, OutboxState};
use crate::tables::settings::PageRoom;
use crate::tables::store::SweepReport;
use crate::tables::values::{Claim, Claimed, LeaseKind, LeaseToken, Leased, StorePage};
use crate::tables::watch::StoreTopic;

pub(super) const COLUMNS: &str = "id, stream, position, url, body, kind, principal, attempts, ready, state, last_error, created, updated, trace";

pub(super) const RENEW: &str =
    "UPDATE outbox SET lease_end = ?4 WHERE id = ?1 AND lease = ?2 AND lease_end > ?3";

pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<OutboxEntry> {
    Ok(OutboxEntry {
        id: number(row, 0)?,
        stream: row.get(1)?,
        position: number(row, 2)?,
        url: row.get(3)?,
        body: json(row, 4)?,
        kind: outbox_kind::get(row, 5)?,
        principal: row.get(6)?,
        attempts: small(row, 7)?,
        not_before: from_micros(row.get::<_, Option<i64>>(8)?.unwrap_or_default()),
        state: outbox_state::get(row, 9)?,
        last_error: row.get(10)?,
        created: number(row, 11)?,
        updated: number(row, 12)?,
        trace: row.get(13)?,
    })
}

pub(super) fn get(database: &Connection, id: u64) -> rusqlite::Result<Option<OutboxEntry>> {
    let text = format!("SELECT {COLUMNS} FROM outbox WHERE id = ?1");
    database.prepare_cached(&text)?.query_row([int(id)], read).optional()
}

pub(super) fn list(
    database: &Connection,
    query: &OutboxQuery,
    room: PageRoom,
) -> rusqlite::Result<StorePage<OutboxEntry>> {
    // An index with a condition needs the condition in the text.
    let given_up = (query.state == Some(OutboxState::GivenUp)).then_some("state = 'given_up'");
    Filter::default()
        .with("principal = ?", query.principal.clone())
        .with("stream = ?", query.stream.clone())
        .with("state = ?", query.state.map(|state| outbox_state::name(state).to_owned()))
        .only(given_up)
        .page(database, (COLUMNS, "outbox", "id"), (query.offset, room), read)
}

pub(super) fn stream_end(database: &Connection, stream: &str) -> rusqlite::Result<Option<u64>> {
    let text = "SELECT max(position) FROM outbox WHERE stream = ?1";
    let end: Option<i64> = database.prepare_cached(text)?.query_row([stream], |row| row.get(0))?;
    Ok(end.map(uint))
}

pub(super) fn push(change: &mut OpenChange<'_>, new: &NewDelivery) -> ChangeStep<ChangeOutcome> {
    let end = stream_end(change.database, &new.stream)?;
    if end.is_some_and(|end| end >= new.position) {
        let text = format!("SELECT {COLUMNS} FROM outbox WHERE stream = ?1 AND position = ?2");
        let earlier =
            change.prepare(&text)?.query_row(params![new.stream, int(new.position)], read).optional()?;
        let is_same = earlier.is_some_and(|earlier| {
            earlier.url == new.url
                // A post that has ended has no body any more.
                && (earlier.body == new.body || earlier.state != OutboxState::Pending)
                && earlier.kind == new.kind
                && earlier.principal == new.principal
        });
        return match is_same {
            true => Ok(ChangeOutcome::Duplicate),
            false => {
                let record = format!("position {} of the stream {:?}", new.position, new.stream);
                Err(Error::RecordConflict { record }.into())
            }
        };
    }
    let text = "SELECT EXISTS (SELECT 1 FROM outbox WHERE stream = ?1 AND state = 'pending')";
    let is_blocked = end.is_some() && one(change, text, [&new.stream])?.unwrap_or(false);
    let text = "INSERT INTO outbox (stream, position, url, kind, principal, attempts, state, ready, created, updated, \
                body, trace, task) VALUES (?1, ?2, ?3, ?4, ?5, 0, 'pending', ?6, ?7, ?7, ?8, ?9, ?10)";
    change.prepare(text)?.execute(params![
        new.stream,
        int(new.position),
        new.url,
        outbox_kind::name(new.kind),
        new.principal,
        (!is_blocked).then_some(0),
        change.wall(),
        new.body.as_str(),
        new.trace,
        new.task.map(int),
    ])?;
    let limit = (change.settings.outbox_entries, "StoreSettings::outbox_entries");
    change.added_to(CountedList::Outbox, &new.principal, limit, "the outbox of")?;
    change.wake(StoreTopic::Outbox);
    Ok(ChangeOutcome::Done)
}

pub(super) fn claim(change: &mut OpenChange<'_>, claim: &Claim) -> ChangeStep<Claimed<OutboxEntry>> {
    change.time = claim.time;
    end_lapsed(change)?;
    let max = claim.max.min(usize::try_from(change.settings.page_entries).unwrap_or(usize::MAX));
    let now = change.now();
    let text = "SELECT id FROM outbox WHERE ready <= ?1 ORDER BY ready, id LIMIT ?2";
    let due = rows(change, text, params![now, max as i64])?;
    let end = change.after(claim.lease);
    let text = format!(
        "UPDATE outbox SET ready = NULL, lease = ?2, lease_end = ?3, worker = ?4, attempts = attempts + 1 \
         WHERE id = ?1 RETURNING {COLUMNS}"
    );
    let mut entries = Vec::with_capacity(due.len());
    for row in due {
        let secret = change.lease_secret();
        let entry = change.prepare(&text)?.query_row(params![row, secret, end, claim.worker], read)?;
        entries.push(Leased { entry, lease: LeaseToken { kind: LeaseKind::Delivery, entry: row, secret } });
    }
    if !entries.is_empty() {
        QueueBounds::lower(&mut change.bounds(LeaseKind::Delivery).lease_end, end);
        change.wake(StoreTopic::Sweep);
    }
    let mut next_due = None;
    if entries.len() < claim.max {
        let text = "SELECT min(due) FROM (SELECT min(ready) AS due FROM outbox WHERE ready IS NOT NULL \
                    UNION ALL SELECT min(lease_end) FROM outbox WHERE lease IS NOT NULL)";
        next_due = one::<Option<i64>>(change, text, [])?.flatten().map(from_micros);
    }
    Ok(Claimed { entries, next_due })
}

/// The stream and the principal of a post that has changed.
type Place = (String, String);

fn place(row: &Row<'_>) -> rusqlite::Result<Place> {
    Ok((row.get(0)?, row.get(1)?))
}

/// Lets the next post of a stream out.
fn ended(change: &mut OpenChange<'_>, (stream, principal): Place, ended: i64) -> ChangeStep<()> {
    change.count(CountedList::Outbox, &[&principal], -ended);
    let text = "UPDATE outbox SET ready = 0 WHERE ready IS NULL AND lease IS NULL AND id = \
                (SELECT id FROM outbox WHERE stream = ?1 AND state = 'pending' ORDER BY position LIMIT 1)";
    change.prepare(text)?.execute([stream])?;
    change.wake(StoreTopic::Outbox);
    Ok(())
}

pub(super) fn delivered(change: &mut OpenChange<'_>, lease: LeaseToken) -> ChangeStep<ChangeOutcome> {
    expect(lease, LeaseKind::Delivery)?;
    let text = "UPDATE outbox SET state = 'delivered', lease = NULL, lease_end = NULL, worker = NULL, updated = ?4, \
                body = 'null' WHERE id = ?1 AND lease = ?2 AND lease_end > ?3 RETURNING stream, principal";
    let values = params![lease.entry, lease.secret, change.now(), change.wall()];
    let place = change.prepare(text)?.query_row(values, place).optional()?;
    ended(change, place.ok_or_else(|| lost(lease))?, 1)?;
    Ok(ChangeOutcome::Done)
}

pub(super) fn failed(
    change: &mut OpenChange<'_>,
    lease: LeaseToken,
    delay: Duration,
    error: String,
) -> ChangeStep<ChangeOutcome> {
    expect(lease, LeaseKind::Delivery)?;
    let ready = if delay.is_zero() { 0 } else { change.after(delay) };
    let text = "UPDATE outbox SET ready = ?4, last_error = ?5, lease = NULL, lease_end = NULL, worker = NULL, \
                updated = ?6 WHERE id = ?1 AND lease = ?2 AND lease_end > ?3";
    let error = cut(change.settings, error);
    let values = params![lease.entry, lease.secret, change.now(), ready, error, change.wall()];
    if change.prepare(text)?.execute(values)? == 0 {
        return Err(lost(lease).into());
    }
    change.wake(StoreTopic::Outbox);
    Ok(ChangeOutcome::Done)
}

pub(super) fn give_up(
    change: &mut OpenChange<'_>,
    lease: LeaseToken,
    error: String,
    whole_stream: bool,
) -> ChangeStep<ChangeOutcome> {
    expect(lease, LeaseKind::Delivery)?;
    let error = cut(change.settings, error);
    let text = "UPDATE outbox SET state = 'given_up', lease = NULL, lease_end = NULL, worker = NULL, last_error = ?4, \
                updated = ?5, body = 'null' WHERE id = ?1 AND lease = ?2 AND lease_end > ?3 RETURNING stream, principal";
    let values = params![lease.entry, lease.secret, change.now(), error, change.wall()];
    let place = change.prepare(text)?.query_row(values, place).optional()?;
    let place = place.ok_or_else(|| lost(lease))?;
    let mut count = 1;
    if whole_stream {
        let text = "UPDATE outbox SET state = 'given_up', ready = NULL, last_error = ?2, updated = ?3, body = 'null' \
                    WHERE stream = ?1 AND state = 'pending'";
        count += change.prepare(text)?.execute(params![place.0, error, change.wall()])? as u64;
    }
    ended(change, place, int(count))?;
    Ok(ChangeOutcome::Count(count))
}

const RETURN: &str = "UPDATE outbox SET ready = 0, lease = NULL, lease_end = NULL, worker = NULL, \
                      last_error = 'lease_lost' WHERE lease IS NOT NULL AND lease_end <= ?1";

/// Returns posts to their place whose lease is over.
fn end_lapsed(change: &mut OpenChange<'_>) -> ChangeStep<u64> {
    let now = change.now();
    if change.bounds(LeaseKind::Delivery).lease_end.is_none_or(|end| end > now) {
        return Ok(0);
    }
    let count = change.prepare(RETURN)?.execute([now])? as u64;
    let first = one::<Option<i64>>(change, "SELECT min(lease_end) FROM outbox WHERE lease IS NOT NULL", [])?;
    change.bounds(LeaseKind::Delivery).lease_end = first.flatten();
    if count > 0 {
        change.wake(StoreTopic::Outbox);
    }
    Ok(count)
}

pub(super) fn sweep(change: &mut OpenChange<'_>, report: &mut SweepReport) -> ChangeStep<()> {
    report.deliveries_returned += end_lapsed(change)?;
    Ok(())
}

pub(super) fn end_all_leases(change: &mut OpenChange<'_>, report: &mut SweepReport) -> ChangeStep<()> {
    report.deliveries_returned += change.prepare(RETURN)?.execute([i64::MAX])? as u64;
    change.prepare("UPDATE outbox SET ready = 0 WHERE ready > 0")?.execute([])?;
    Ok(())
}
