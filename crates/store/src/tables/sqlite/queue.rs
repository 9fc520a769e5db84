//! The queue that messages and tasks have in common: bands, delays and leases.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use rusqlite::{OptionalExtension as _, Row, params};

use super::rows::{from_micros, text_bytes};
use super::writer::{ChangeStep, OpenChange, QueueBounds};
use crate::error::Error;
use crate::tables::batch::ChangeOutcome;
use crate::tables::values::{Claim, Claimed, LeaseKind, LeaseToken, Leased};
use crate::tables::watch::StoreTopic;

/// The band of a row as an expression.
macro_rules! band_of_priority {
    () => {
        "CASE WHEN priority < 3 THEN 0 WHEN priority < 6 THEN 1 WHEN priority < 8 THEN 2 ELSE 3 END"
    };
}
pub(super) use band_of_priority;

/// A number for a row that no row of the table has had, as an expression.
macro_rules! next_number {
    ($table:literal) => {
        concat!(
            "(SELECT max(removed.seq, coalesce((SELECT max(seq) FROM ",
            $table,
            "), 0)) + 1 FROM last_numbers AS removed WHERE list = '",
            $table,
            "')"
        )
    };
}
pub(super) use next_number;

/// The bands in the order of their turns: 8 of 15 for the highest, then 4, 2 and 1, spread evenly.
const TURNS: [usize; 15] = [3, 2, 3, 1, 3, 2, 3, 0, 3, 2, 3, 1, 3, 2, 3];

/// The place in [`TURNS`] of each agent, for messages and tasks.
#[derive(Debug, Default)]
pub(super) struct Turns([HashMap<Box<str>, usize>; 2]);

/// The most places in memory. An agent whose place is lost begins again.
const PLACES: usize = 50_000;

impl Turns {
    fn place(&mut self, kind: LeaseKind, agent: &str) -> &mut usize {
        let [messages, tasks] = &mut self.0;
        let places = if kind == LeaseKind::Task { tasks } else { messages };
        if places.len() >= PLACES && !places.contains_key(agent) {
            places.clear();
        }
        places.entry(agent.into()).or_default()
    }
}

/// The statements of a queue.
pub(super) struct QueueSql {
    pub(super) kind: LeaseKind,
    pub(super) ready: &'static str,
    /// The same without the principals in ?4. It reads the first rows of each principal that waits, and not those
    /// of the others behind them.
    pub(super) ready_of_others: &'static str,
    pub(super) lease: &'static str,
    pub(super) promote: &'static str,
    pub(super) has_delay: &'static str,
    pub(super) next_of_agent: &'static str,
    pub(super) lapsed: &'static str,
    pub(super) first_lease: &'static str,
    pub(super) renew: &'static str,
}

/// Makes the statements of a table. Only messages and tasks have bands, but all have leases.
macro_rules! queue_sql {
    ($kind:ident, $table:literal, $owner:literal, $columns:ident) => {
        QueueSql {
            kind: LeaseKind::$kind,
            ready: concat!(
                "SELECT seq, expires FROM ",
                $table,
                " WHERE agent = ?1 AND band = ?2 ORDER BY seq LIMIT ?3"
            ),
            ready_of_others: concat!(
                "WITH RECURSIVE waiting (owner) AS (SELECT min(",
                $owner,
                ") FROM ",
                $table,
                " WHERE agent = ?1 AND band = ?2 UNION ALL SELECT (SELECT min(",
                $owner,
                ") FROM ",
                $table,
                " WHERE agent = ?1 AND band = ?2 AND ",
                $owner,
                " > waiting.owner) FROM waiting WHERE waiting.owner IS NOT NULL) ",
                "SELECT seq, expires FROM waiting CROSS JOIN ",
                $table,
                " ON seq IN (SELECT own.seq FROM ",
                $table,
                " AS own WHERE own.agent = ?1 AND own.band = ?2 AND own.",
                $owner,
                " = waiting.owner ORDER BY own.seq LIMIT ?3) ",
                "WHERE waiting.owner NOT IN (SELECT value FROM json_each(?4)) ORDER BY seq LIMIT ?3"
            ),
            lease: concat!(
                "UPDATE ",
                $table,
                " SET band = NULL, lease = ?2, lease_end = ?3, worker = ?4, attempts = attempts + 1 WHERE seq = ?1 RETURNING ",
                $columns!()
            ),
            promote: concat!(
                "UPDATE ",
                $table,
                " SET not_before = 0, band = CASE WHEN blocked = 1 THEN NULL ELSE ",
                crate::tables::sqlite::queue::band_of_priority!(),
                " END WHERE agent = ?1 AND not_before > 0 AND not_before <= ?2"
            ),
            has_delay: concat!("SELECT EXISTS (SELECT 1 FROM ", $table, " WHERE not_before > 0)"),
            next_of_agent: concat!(
                "SELECT min(due) FROM (SELECT min(not_before) AS due FROM ",
                $table,
                " WHERE agent = ?1 AND not_before > 0 UNION ALL SELECT min(lease_end) FROM ",
                $table,
                " WHERE agent = ?1 AND lease IS NOT NULL)"
            ),
            lapsed: concat!(
                "SELECT seq FROM ",
                $table,
                " WHERE lease IS NOT NULL AND lease_end <= ?1 LIMIT ?2"
            ),
            first_lease: concat!("SELECT min(lease_end) FROM ", $table, " WHERE lease IS NOT NULL"),
            renew: concat!(
                "UPDATE ",
                $table,
                " SET lease_end = ?4 WHERE seq = ?1 AND lease = ?2 AND lease_end > ?3"
            ),
        }
    };
}
pub(super) use queue_sql;

/// The first rows of a band, with their expiry.
type BandHeads = VecDeque<(i64, Option<i64>)>;

impl QueueSql {
    /// Leases rows. `expire` ends one whose time is over, which is not delivered.
    pub(super) fn claim<T>(
        &self,
        change: &mut OpenChange<'_>,
        agent: &str,
        claim: &Claim,
        read: fn(&Row<'_>) -> rusqlite::Result<T>,
        expire: fn(&mut OpenChange<'_>, i64) -> ChangeStep<()>,
    ) -> ChangeStep<Claimed<T>> {
        self.promote(change, agent)?;
        let max = claim.max.min(usize::try_from(change.settings.page_entries).unwrap_or(usize::MAX));
        let (wall, end) = (change.wall(), change.after(claim.lease));
        let mut place = *change.turns().place(self.kind, agent);
        let mut heads: [Option<BandHeads>; 4] = Default::default();
        let (mut claimed, mut bytes) = (Vec::new(), 0);
        let except = (!claim.except.is_empty()).then(|| serde_json::Value::from(&*claim.except).to_string());
        let database = change.database;
        let mut lease = database.prepare_cached(self.lease)?;
        'claims: while claimed.len() < max && bytes < change.settings.page_bytes {
            let first = place;
            for turn in first..first + TURNS.len() {
                let Some((band, heads)) = TURNS
                    .get(turn % TURNS.len())
                    .and_then(|band| Some((*band as i64, heads.get_mut(*band)?)))
                else {
                    break 'claims;
                };
                let row = loop {
                    // A band is read as far as this claim can need it.
                    let limit = max - claimed.len();
                    let rows = match heads {
                        Some(rows) => rows,
                        None => heads.insert(self.heads(change, agent, band, limit, except.as_deref())?),
                    };
                    match rows.pop_front() {
                        None => break None,
                        Some((row, Some(expires))) if expires <= wall => {
                            expire(change, row)?;
                            if rows.is_empty() {
                                *heads = None;
                            }
                        }
                        Some((row, _)) => break Some(row),
                    }
                };
                let Some(row) = row else { continue };
                let secret = change.lease_secret();
                let read = |row: &Row<'_>| Ok((text_bytes(row)?, read(row)?));
                let (length, entry) = lease.query_row(params![row, secret, end, claim.worker], read)?;
                bytes += length;
                claimed.push(Leased { entry, lease: LeaseToken { kind: self.kind, entry: row, secret } });
                place = (turn + 1) % TURNS.len();
                continue 'claims;
            }
            break;
        }
        if !claimed.is_empty() {
            *change.turns().place(self.kind, agent) = place;
            QueueBounds::lower(&mut change.bounds(self.kind).lease_end, end);
            change.wake(StoreTopic::Sweep);
        }
        let next_due = if claimed.len() >= claim.max {
            None
        } else if bytes >= change.settings.page_bytes {
            Some(from_micros(change.now()))
        } else {
            self.next_due(change, agent)?
        };
        Ok(Claimed { entries: claimed, next_due })
    }

    fn heads(
        &self,
        change: &OpenChange<'_>,
        agent: &str,
        band: i64,
        limit: usize,
        except: Option<&str>,
    ) -> rusqlite::Result<BandHeads> {
        let head = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let limit = limit as i64;
        match except {
            Some(except) => {
                let mut statement = change.prepare(self.ready_of_others)?;
                statement.query_map(params![agent, band, limit, except], head)?.collect()
            }
            None => change.prepare(self.ready)?.query_map(params![agent, band, limit], head)?.collect(),
        }
    }

    /// Returns rows of an agent to their bands whose delay is over.
    fn promote(&self, change: &mut OpenChange<'_>, agent: &str) -> ChangeStep<()> {
        let now = change.now();
        if change.bounds(self.kind).delay_end.is_none_or(|end| end > now) {
            return Ok(());
        }
        change.prepare(self.promote)?.execute(params![agent, now])?;
        // The next delay of all agents would take a look at all delayed rows.
        if !change.prepare(self.has_delay)?.query_row([], |row| row.get(0))? {
            change.bounds(self.kind).delay_end = None;
        }
        Ok(())
    }

    /// Returns the next time at which a row of an agent is due.
    fn next_due(&self, change: &mut OpenChange<'_>, agent: &str) -> ChangeStep<Option<Duration>> {
        let QueueBounds { lease_end, delay_end } = *change.bounds(self.kind);
        if lease_end.is_none() && delay_end.is_none() {
            return Ok(None);
        }
        let next: Option<i64> = change.prepare(self.next_of_agent)?.query_row([agent], |row| row.get(0))?;
        Ok(next.map(from_micros))
    }

    /// Ends leases whose time is over, at most a page of them. Returns true if there may be more.
    pub(super) fn end_lapsed(
        &self,
        change: &mut OpenChange<'_>,
        mut end: impl FnMut(&mut OpenChange<'_>, i64) -> ChangeStep<()>,
    ) -> ChangeStep<bool> {
        let now = change.now();
        if change.bounds(self.kind).lease_end.is_none_or(|end| end > now) {
            return Ok(false);
        }
        let limit = change.settings.page_entries;
        let rows: Vec<i64> = {
            let mut statement = change.prepare(self.lapsed)?;
            statement
                .query_map(params![now, limit as i64], |row| row.get(0))?
                .collect::<rusqlite::Result<_>>()?
        };
        for row in &rows {
            end(change, *row)?;
        }
        let first = change.prepare(self.first_lease)?.query_row([], |row| row.get(0))?;
        change.bounds(self.kind).lease_end = first;
        Ok(rows.len() as u64 >= limit)
    }

    /// Returns the seconds of a delay as the column `not_before`, which is zero without one.
    pub(super) fn not_before(&self, change: &mut OpenChange<'_>, delay: Duration) -> i64 {
        if delay.is_zero() {
            return 0;
        }
        let end = change.after(delay);
        QueueBounds::lower(&mut change.bounds(self.kind).delay_end, end);
        end
    }
}

pub(super) fn lost(lease: LeaseToken) -> Error {
    Error::LeaseLost { record: lease.name() }
}

/// Refuses a lease of another kind.
pub(super) fn expect(lease: LeaseToken, kind: LeaseKind) -> Result<(), Error> {
    if lease.kind == kind { Ok(()) } else { Err(lost(lease)) }
}

/// Continues a lease.
pub(super) fn renew(
    change: &mut OpenChange<'_>,
    lease: LeaseToken,
    lasts: Duration,
) -> ChangeStep<ChangeOutcome> {
    let sql = match lease.kind {
        LeaseKind::Message => super::messages::QUEUE.renew,
        LeaseKind::Task => super::tasks::QUEUE.renew,
        LeaseKind::Delivery => super::outbox::RENEW,
    };
    let (now, end) = (change.now(), change.after(lasts));
    if change.prepare(sql)?.execute(params![lease.entry, lease.secret, now, end])? == 0 {
        return Err(lost(lease).into());
    }
    QueueBounds::lower(&mut change.bounds(lease.kind).lease_end, end);
    Ok(ChangeOutcome::Done)
}

/// Lets the attempt of a lease count as the first.
pub(super) fn continue_work(change: &mut OpenChange<'_>, lease: LeaseToken) -> ChangeStep<ChangeOutcome> {
    let sql = match lease.kind {
        LeaseKind::Message => {
            "UPDATE messages SET attempts = 1 WHERE seq = ?1 AND lease = ?2 AND lease_end > ?3"
        }
        LeaseKind::Task => "UPDATE tasks SET attempts = 1 WHERE seq = ?1 AND lease = ?2 AND lease_end > ?3",
        // Each attempt of a post sends it.
        LeaseKind::Delivery => return Err(lost(lease).into()),
    };
    let now = change.now();
    match change.prepare(sql)?.execute(params![lease.entry, lease.secret, now])? {
        0 => Err(lost(lease).into()),
        _ => Ok(ChangeOutcome::Done),
    }
}

/// Records that an agent gets a message or a task.
pub(super) fn hand_over(change: &mut OpenChange<'_>, lease: LeaseToken) -> ChangeStep<ChangeOutcome> {
    let (sql, value) = match lease.kind {
        LeaseKind::Message => (
            "UPDATE messages SET handed_seq = ?4 WHERE seq = ?1 AND lease = ?2 AND lease_end > ?3",
            lease.entry,
        ),
        LeaseKind::Task => (
            "UPDATE tasks SET handed_at = ?4 WHERE seq = ?1 AND lease = ?2 AND lease_end > ?3",
            change.wall(),
        ),
        LeaseKind::Delivery => return Err(lost(lease).into()),
    };
    match change.prepare(sql)?.execute(params![lease.entry, lease.secret, change.now(), value])? {
        0 => Err(lost(lease).into()),
        _ => Ok(ChangeOutcome::Done),
    }
}

/// Returns one value of a row, if there is a row.
pub(super) fn one<T: rusqlite::types::FromSql>(
    change: &OpenChange<'_>,
    sql: &str,
    values: impl rusqlite::Params,
) -> rusqlite::Result<Option<T>> {
    change.prepare(sql)?.query_row(values, |row| row.get(0)).optional()
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use rusqlite::StatementStatus;

    use super::*;
    use crate::tables::SqliteStore;
    use crate::tables::batch::{StoreBatch, StoreChange};
    use crate::tables::messages::{MessageSender, NewInboxMessage};
    use crate::tables::settings::StoreSettings;
    use crate::tables::store::Store as _;
    use crate::tables::values::{JsonText, StoreTime};

    #[test]
    fn there_are_so_many_places_and_no_more() {
        let mut turns = Turns::default();
        for number in 0..PLACES {
            *turns.place(LeaseKind::Task, &number.to_string()) = 1;
        }
        assert_eq!(*turns.place(LeaseKind::Task, "0"), 1);
        assert_eq!(*turns.place(LeaseKind::Task, "another"), 0);
        assert_eq!((turns.0[1].len(), turns.0[0].len()), (1, 0));
    }

    /// Creates messages that wait from now on.
    fn enqueue(store: &SqliteStore, principal: &str, ids: Range<usize>, delay: Duration) {
        let mut batch = StoreBatch::new(NOW);
        for id in ids {
            let from = MessageSender::new(principal, principal);
            let mut message = NewInboxMessage::new("writer", id.to_string(), from, JsonText::default());
            message.delay = delay;
            batch.push(StoreChange::Enqueue(message));
        }
        store.apply(batch).unwrap();
    }

    const NOW: StoreTime = StoreTime::new(Duration::from_secs(1), 1000);

    /// Claims a message. Returns its principal, and the steps of the statements of the queue.
    fn claim(store: &SqliteStore, now: StoreTime, except: &[&str]) -> (Option<String>, i32) {
        let except = except.iter().map(ToString::to_string).collect();
        let claim = Claim::new(now, Duration::from_secs(99), "hub").except(except);
        let claimed = store.claim_messages("writer", &claim).unwrap().entries.pop();
        let QueueSql { ready, ready_of_others, promote, has_delay, next_of_agent, .. } =
            crate::tables::sqlite::messages::QUEUE;
        let steps = store.change(|writer| {
            writer.transaction(|change| {
                let texts = [ready, ready_of_others, promote, has_delay, next_of_agent];
                Ok(texts
                    .map(|text| change.prepare(text).map(|text| text.reset_status(StatementStatus::VmStep)))
                    .into_iter()
                    .sum::<rusqlite::Result<i32>>()?)
            })
        });
        (claimed.map(|leased| leased.entry.from.principal), steps.unwrap())
    }

    /// Lets 20 and then 2,000 messages of a principal wait in front of another one.
    fn behind_many(
        delays: [u64; 2],
        claim: impl Fn(&SqliteStore) -> (Option<String>, i32),
    ) -> [(Option<String>, i32); 2] {
        let store = SqliteStore::in_memory(StoreSettings::default()).unwrap();
        let [first, last] = delays.map(Duration::from_secs);
        [0..20, 20..2000].map(|ids| {
            let next = ids.end..ids.end + 1;
            enqueue(&store, "alice", ids, first);
            enqueue(&store, "bob", next, last);
            claim(&store)
        })
    }

    #[test]
    fn the_rows_of_a_principal_that_is_left_out_are_not_read() {
        for (except, found) in [(&["alice"][..], Some("bob")), (&["alice", "bob"], None)] {
            let claims = behind_many([0, 0], |store| claim(store, NOW, except));
            assert!(claims.iter().all(|(of, steps)| of.as_deref() == found && *steps < 500), "{claims:?}");
        }
    }

    #[test]
    fn the_rows_whose_delay_goes_on_are_not_read() {
        let later = StoreTime::new(NOW.now + Duration::from_secs(1), NOW.wall + 1000);
        let claims = behind_many([999, 1], |store| claim(store, later, &[]));
        assert!(claims.iter().all(|(of, steps)| of.as_deref() == Some("bob") && *steps < 500), "{claims:?}");
    }
}
