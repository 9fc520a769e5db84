//! The inboxes of agents.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::check::cut;
use super::queue::{QueueSql, band_of_priority, expect, lost, next_number, one, queue_sql};
use super::rows::{Filter, int, json, maybe_json, maybe_number, number, small};
use super::writer::{ChangeStep, CountedList, OpenChange};
use crate::error::Error;
use crate::tables::batch::ChangeOutcome;
use crate::tables::messages::{
    InboxKey, MessageQuery, MessageSender, MessageState, NewInboxMessage, StoredMessage,
};
use crate::tables::settings::PageRoom;
use crate::tables::store::SweepReport;
use crate::tables::tasks::TaskFailure;
use crate::tables::values::{Claim, Claimed, JsonText, LeaseKind, LeaseToken, StorePage};
use crate::tables::watch::StoreTopic;

macro_rules! columns {
    () => {
        "seq, agent, id, principal, sender, content, correlation, grp, priority, created, updated, expires, state, attempts, max_attempts, worker, response, error, lease, trace, handed_seq"
    };
}

pub(super) const QUEUE: QueueSql = queue_sql!(Message, "messages", "principal", columns);

pub(super) const COLUMNS: &str = columns!();

const WAITING: i64 = 0;
const DONE: i64 = 2;
const DEAD: i64 = 3;

pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<StoredMessage> {
    let state = match (row.get(12)?, row.get::<_, Option<i64>>(18)?) {
        (WAITING, None) => MessageState::Ready,
        (WAITING, Some(_)) => MessageState::Leased,
        (DONE, _) => MessageState::Done,
        (_, _) => MessageState::Dead,
    };
    Ok(StoredMessage {
        seq: number(row, 0)?,
        agent: row.get(1)?,
        id: row.get(2)?,
        from: MessageSender { principal: row.get(3)?, name: row.get(4)? },
        content: json(row, 5)?,
        correlation_id: row.get(6)?,
        group: row.get(7)?,
        priority: small(row, 8)?,
        created: number(row, 9)?,
        updated: number(row, 10)?,
        expires: maybe_number(row, 11)?,
        state,
        attempts: small(row, 13)?,
        max_attempts: small(row, 14)?,
        worker: row.get(15)?,
        response: maybe_json(row, 16)?,
        error: row.get(17)?,
        trace: row.get(19)?,
        handed_seq: maybe_number(row, 20)?,
    })
}

fn name(key: &InboxKey) -> String {
    format!("the message {:?} for {:?}", key.message, key.agent)
}

const BY_KEY: &str = "agent = ?1 AND principal = ?2 AND id = ?3";

pub(super) fn get(database: &Connection, key: &InboxKey) -> rusqlite::Result<Option<StoredMessage>> {
    let text = format!("SELECT {COLUMNS} FROM messages WHERE {BY_KEY}");
    let mut statement = database.prepare_cached(&text)?;
    statement.query_row([&key.agent, &key.principal, &key.message], read).optional()
}

pub(super) fn list(
    database: &Connection,
    query: &MessageQuery,
    room: PageRoom,
) -> rusqlite::Result<StorePage<StoredMessage>> {
    let state = query.state.map(|state| match state {
        MessageState::Ready => "state = 0 AND lease IS NULL",
        MessageState::Leased => "state = 0 AND lease IS NOT NULL",
        MessageState::Done => "state = 2",
        MessageState::Dead => "state = 3",
    });
    Filter::default()
        .with("agent = ?", query.agent.clone())
        .with("principal = ?", query.principal.clone())
        .with("id = ?", query.id.clone())
        .with("grp = ?", query.group.clone())
        .with("correlation = ?", query.correlation_id.clone())
        .only(state)
        .page(database, (COLUMNS, "messages", "seq"), (query.offset, room), read)
}

/// True if an earlier message of the group has not ended. The groups of different principals have nothing in common.
const HAS_EARLIER: &str =
    "SELECT EXISTS (SELECT 1 FROM messages WHERE agent = ?1 AND principal = ?2 AND grp = ?3 AND state = 0)";

pub(super) fn enqueue(change: &mut OpenChange<'_>, message: &NewInboxMessage) -> ChangeStep<ChangeOutcome> {
    let NewInboxMessage { agent, id, from, content, correlation_id, group, expires, .. } = message;
    let is_blocked = match group {
        Some(group) => one(change, HAS_EARLIER, params![agent, from.principal, group])?.unwrap_or(false),
        None => false,
    };
    let not_before = QUEUE.not_before(change, message.delay);
    let priority = message.priority.min(9);
    let text = concat!(
        "INSERT INTO messages (seq, agent, principal, id, sender, correlation, grp, priority, created, updated, expires, ",
        "state, band, blocked, not_before, attempts, max_attempts, content, trace, due) ",
        "VALUES (",
        next_number!("messages"),
        ", ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8, ?9, 0, ?10, ?11, ?12, 0, ?13, ?14, ?15, ?8 + (?12 - ?16) / 1000) ",
        "ON CONFLICT DO NOTHING"
    );
    let band = (!is_blocked && not_before == 0).then(|| band(priority));
    let added = change.prepare(text)?.execute(params![
        agent,
        from.principal,
        id,
        from.name,
        correlation_id,
        group,
        priority,
        change.wall(),
        expires.map(int),
        band,
        is_blocked,
        not_before,
        message.max_attempts.max(1),
        content.as_str(),
        message.trace,
        change.now(),
    ])?;
    if added == 0 {
        let earlier = get(change.database, &message.key())?;
        let is_same = earlier.is_some_and(|earlier| {
            earlier.from == *from
                && earlier.content == *content
                && earlier.correlation_id == *correlation_id
                && earlier.group == *group
                && earlier.priority == priority
        });
        return match is_same {
            true => Ok(ChangeOutcome::Duplicate),
            false => Err(Error::RecordConflict { record: name(&message.key()) }.into()),
        };
    }
    add_waiting(change, agent, &from.principal)?;
    change.grows(&from.principal);
    Ok(ChangeOutcome::Done)
}

/// Counts a message that waits. A principal has at most half of the places that others leave, so there is always one for
/// somebody else.
fn add_waiting(change: &mut OpenChange<'_>, agent: &str, principal: &str) -> ChangeStep<()> {
    let (places, setting) = (change.settings.inbox_entries, "StoreSettings::inbox_entries");
    let all = change.added_to(CountedList::Inbox, agent, (places, setting), "the inbox of")?;
    let own = change.added(CountedList::InboxOfSender, &[agent, principal])?;
    let limit = places.saturating_sub(all.abs_diff(own)).div_ceil(2);
    if own > int(limit) {
        let list = format!(
            "the share of {principal:?} in the inbox of {agent:?}, half of the places that others leave,"
        );
        return Err(Error::LimitReached { list, limit, setting }.into());
    }
    change.wake(StoreTopic::Inbox(agent.into()));
    Ok(())
}

fn band(priority: u8) -> i64 {
    match priority {
        ..3 => 0,
        3..6 => 1,
        6..8 => 2,
        _ => 3,
    }
}

pub(super) fn claim(
    change: &mut OpenChange<'_>,
    agent: &str,
    claim: &Claim,
) -> ChangeStep<Claimed<StoredMessage>> {
    change.time = claim.time;
    QUEUE.end_lapsed(change, |change, row| lapse(change, row, TaskFailure::WORKER_LOST).map(drop))?;
    QUEUE.claim(change, agent, claim, read, expire)
}

/// The agent, the principal and the group of a message that has changed.
type Place = (String, String, Option<String>);

fn place(row: &Row<'_>) -> rusqlite::Result<Place> {
    Ok((row.get(0)?, row.get(1)?, row.get(2)?))
}

/// Lets the next message of a group out, and counts a message that does not wait any more.
fn ended(change: &mut OpenChange<'_>, (agent, principal, group): Place) -> ChangeStep<()> {
    change.count(CountedList::Inbox, &[&agent], -1);
    change.count(CountedList::InboxOfSender, &[&agent, &principal], -1);
    if let Some(group) = group {
        unblock(change, [&agent, &principal, &group])?;
    }
    change.wake(StoreTopic::Inbox(agent));
    Ok(())
}

/// Lets the first message of a group out: that of an agent, a principal and a name.
pub(super) fn unblock(change: &mut OpenChange<'_>, group: [&str; 3]) -> ChangeStep<()> {
    let text = concat!(
        "UPDATE messages SET blocked = 0, band = CASE WHEN not_before > 0 THEN NULL ELSE ",
        band_of_priority!(),
        " END WHERE blocked = 1 AND seq = (SELECT seq FROM messages WHERE agent = ?1 AND principal = ?2 AND grp = ?3 ",
        "AND state = 0 ORDER BY seq LIMIT 1)"
    );
    change.prepare(text)?.execute(group)?;
    Ok(())
}

pub(super) fn start(change: &mut OpenChange<'_>, lease: LeaseToken) -> ChangeStep<ChangeOutcome> {
    expect(lease, LeaseKind::Message)?;
    let text =
        "UPDATE messages SET started = 1, updated = ?4 WHERE seq = ?1 AND lease = ?2 AND lease_end > ?3";
    let values = params![lease.entry, lease.secret, change.now(), change.wall()];
    match change.prepare(text)?.execute(values)? {
        0 => Err(lost(lease).into()),
        _ => Ok(ChangeOutcome::Done),
    }
}

pub(super) fn ack(
    change: &mut OpenChange<'_>,
    lease: LeaseToken,
    response: Option<&JsonText>,
) -> ChangeStep<ChangeOutcome> {
    expect(lease, LeaseKind::Message)?;
    let text = concat!(
        "UPDATE messages SET state = 2, lease = NULL, lease_end = NULL, response = ?4, error = NULL, updated = ?5 ",
        "WHERE seq = ?1 AND lease = ?2 AND lease_end > ?3 RETURNING agent, principal, grp"
    );
    let values =
        params![lease.entry, lease.secret, change.now(), response.map(JsonText::as_str), change.wall()];
    let place = change.prepare(text)?.query_row(values, place).optional()?;
    ended(change, place.ok_or_else(|| lost(lease))?)?;
    Ok(ChangeOutcome::Done)
}

/// Returns a message to its place, or makes it a dead letter after its last attempt. ?1 is the row, ?2 the lease if
/// it has to be valid at ?3, ?4 the end of the delay, which `due` has in wall time.
const RETURN: &str = concat!(
    "UPDATE messages SET lease = NULL, lease_end = NULL, worker = NULL, error = coalesce(?5, error), updated = ?6, ",
    "state = CASE WHEN attempts >= max_attempts THEN 3 ELSE 0 END, ",
    "not_before = CASE WHEN attempts >= max_attempts THEN 0 ELSE ?4 END, due = ?6 + (?4 - ?3) / 1000, ",
    "band = CASE WHEN attempts >= max_attempts OR ?4 > 0 THEN NULL ELSE ",
    band_of_priority!(),
    " END WHERE seq = ?1 AND (?2 IS NULL OR lease = ?2 AND lease_end > ?3) RETURNING agent, principal, grp, state"
);

/// Returns a message, and returns true if it is a dead letter now.
fn give_back(
    change: &mut OpenChange<'_>,
    row: i64,
    lease: Option<i64>,
    not_before: i64,
    error: Option<&str>,
) -> ChangeStep<Option<bool>> {
    let values = params![row, lease, change.now(), not_before, error, change.wall()];
    let read = |row: &Row<'_>| Ok((place(row)?, row.get::<_, i64>(3)? == DEAD));
    let Some((place, is_dead)) = change.prepare(RETURN)?.query_row(values, read).optional()? else {
        return Ok(None);
    };
    if is_dead {
        ended(change, place)?;
    } else {
        change.wake(StoreTopic::Inbox(place.0));
    }
    Ok(Some(is_dead))
}

pub(super) fn nack(
    change: &mut OpenChange<'_>,
    lease: LeaseToken,
    delay: Duration,
    error: Option<String>,
) -> ChangeStep<ChangeOutcome> {
    expect(lease, LeaseKind::Message)?;
    let not_before = QUEUE.not_before(change, delay);
    let error = error.map(|error| cut(change.settings, error));
    match give_back(change, lease.entry, Some(lease.secret), not_before, error.as_deref())? {
        Some(true) => Ok(ChangeOutcome::Dead),
        Some(false) => Ok(ChangeOutcome::Done),
        None => Err(lost(lease).into()),
    }
}

/// Ends a lease. `code` is the reason for a message that an agent has begun. Returns true if it is a dead letter now.
fn lapse(change: &mut OpenChange<'_>, row: i64, code: &str) -> ChangeStep<bool> {
    if one(change, "SELECT started FROM messages WHERE seq = ?1", [row])?.unwrap_or(false) {
        let error = format!(
            "{code}: its worker was lost after an agent had begun it, so it is not delivered again; send it again, or allow \
             that with `\"retry\": \"safe\"` in the `metadata` of its `message`"
        );
        kill(change, row, &error)?;
        return Ok(true);
    }
    Ok(give_back(change, row, None, 0, Some("lease_lost"))?.unwrap_or_default())
}

/// Makes a message a dead letter. ?1 is the row, ?2 the lease if it has to be valid at ?3.
const KILL: &str = concat!(
    "UPDATE messages SET state = 3, band = NULL, not_before = 0, blocked = 0, lease = NULL, lease_end = NULL, ",
    "worker = NULL, error = ?4, updated = ?5 WHERE seq = ?1 AND (?2 IS NULL OR lease = ?2 AND lease_end > ?3) ",
    "RETURNING agent, principal, grp"
);

pub(super) fn reject(
    change: &mut OpenChange<'_>,
    lease: LeaseToken,
    error: String,
) -> ChangeStep<ChangeOutcome> {
    expect(lease, LeaseKind::Message)?;
    let error = cut(change.settings, error);
    let values = params![lease.entry, lease.secret, change.now(), error, change.wall()];
    let place = change.prepare(KILL)?.query_row(values, place).optional()?;
    ended(change, place.ok_or_else(|| lost(lease))?)?;
    Ok(ChangeOutcome::Dead)
}

fn expire(change: &mut OpenChange<'_>, row: i64) -> ChangeStep<()> {
    kill(change, row, TaskFailure::EXPIRED)
}

/// Makes a message a dead letter, also if a worker has it.
fn kill(change: &mut OpenChange<'_>, row: i64, error: &str) -> ChangeStep<()> {
    let values = params![row, None::<i64>, change.now(), error, change.wall()];
    let place = change.prepare(KILL)?.query_row(values, place)?;
    ended(change, place)
}

/// Makes the waiting messages of a principal that is disabled dead letters.
pub(super) fn end_of_sender(change: &mut OpenChange<'_>, principal: &str) -> ChangeStep<()> {
    let error = format!("{}: {}", TaskFailure::PRINCIPAL_REMOVED, super::principals::REMOVED);
    let waiting = rows(change, "SELECT seq FROM messages WHERE principal = ?1 AND state = 0", [principal])?;
    waiting.into_iter().try_for_each(|row| kill(change, row, &error))
}

pub(super) fn resend(
    change: &mut OpenChange<'_>,
    key: &InboxKey,
    expires: Option<u64>,
) -> ChangeStep<ChangeOutcome> {
    let record = || name(key);
    let found = get(change.database, key)?.ok_or_else(|| Error::NoRecord { record: record() })?;
    if found.state != MessageState::Dead {
        return Err(Error::WrongState { record: record(), state: format!("{:?}", found.state) }.into());
    }
    super::principals::require_enabled(change, &key.principal)?;
    let is_blocked = match &found.group {
        Some(group) => one(change, HAS_EARLIER, params![key.agent, key.principal, group])?.unwrap_or(false),
        None => false,
    };
    let text = concat!(
        "UPDATE messages SET seq = ",
        next_number!("messages"),
        ", state = 0, attempts = 0, started = 0, error = NULL, ",
        "blocked = ?2, band = ?3, expires = ?4, updated = ?5 WHERE seq = ?1"
    );
    let band = (!is_blocked).then(|| band(found.priority));
    let values = params![int(found.seq), is_blocked, band, expires.map(int), change.wall()];
    change.prepare(text)?.execute(values)?;
    add_waiting(change, &key.agent, &key.principal)?;
    Ok(ChangeOutcome::Done)
}

pub(super) fn remove(change: &mut OpenChange<'_>, key: &InboxKey) -> ChangeStep<ChangeOutcome> {
    let Some(found) = get(change.database, key)? else { return Ok(ChangeOutcome::Count(0)) };
    match found.state {
        MessageState::Leased => {
            return Err(Error::WrongState { record: name(key), state: "leased".into() }.into());
        }
        MessageState::Ready | MessageState::Done | MessageState::Dead => {}
    }
    change.prepare("DELETE FROM messages WHERE seq = ?1")?.execute([int(found.seq)])?;
    if found.state == MessageState::Ready {
        ended(change, (found.agent, found.from.principal, found.group))?;
    }
    Ok(ChangeOutcome::Count(1))
}

const EXPIRED: &str = "SELECT seq FROM messages WHERE state = 0 AND lease IS NULL AND expires <= ?1 LIMIT ?2";

/// Reads the first column of all rows.
pub(super) fn rows(
    change: &OpenChange<'_>,
    sql: &str,
    values: impl rusqlite::Params,
) -> rusqlite::Result<Vec<i64>> {
    change.prepare(sql)?.query_map(values, |row| row.get(0))?.collect()
}

pub(super) fn sweep(change: &mut OpenChange<'_>, report: &mut SweepReport) -> ChangeStep<()> {
    report.has_more |= QUEUE.end_lapsed(change, |change, row| {
        match lapse(change, row, TaskFailure::WORKER_LOST)? {
            true => report.messages_dead += 1,
            false => report.messages_returned += 1,
        }
        Ok(())
    })?;
    let limit = int(change.settings.page_entries);
    let expired = rows(change, EXPIRED, [change.wall(), limit])?;
    report.has_more |= expired.len() as i64 >= limit;
    report.messages_dead += expired.len() as u64;
    expired.into_iter().try_for_each(|row| expire(change, row))
}

/// Ends the leases of an earlier life. Delays go on with what is left of them.
pub(super) fn end_all_leases(change: &mut OpenChange<'_>, report: &mut SweepReport) -> ChangeStep<()> {
    for row in rows(change, "SELECT seq FROM messages WHERE lease IS NOT NULL", [])? {
        match lapse(change, row, TaskFailure::RESTARTED)? {
            true => report.messages_dead += 1,
            false => report.messages_returned += 1,
        }
    }
    let text = concat!(
        "UPDATE messages SET not_before = 0, band = CASE WHEN blocked = 1 THEN NULL ELSE ",
        band_of_priority!(),
        " END WHERE not_before > 0 AND coalesce(due, 0) <= ?1"
    );
    let wall = [change.wall()];
    change.prepare(text)?.execute(wall)?;
    // The monotonic clock begins at zero. A wall clock that was set back makes no delay longer than it was.
    let text =
        "UPDATE messages SET not_before = max(1, min(due - ?1, due - updated) * 1000) WHERE not_before > 0";
    change.prepare(text)?.execute(wall)?;
    Ok(())
}
