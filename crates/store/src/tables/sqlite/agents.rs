//! The registry of agents.

use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::queue::one;
use super::rows::{Filter, int, json, maybe_number, name_list, number, parsed, source, status};
use super::tasks;
use super::writer::{ChangeStep, CountedList, OpenChange};
use crate::error::Error;
use crate::tables::agents::{AgentQuery, RegisteredAgent, RegistrySource, RegistryStatus};
use crate::tables::batch::ChangeOutcome;
use crate::tables::settings::PageRoom;
use crate::tables::values::StorePage;
use crate::tables::watch::StoreTopic;

pub(super) const COLUMNS: &str = "id, owner, source, endpoint, card, capabilities, domains, tags, provider, status, \
                       last_seen, created, updated";

pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<RegisteredAgent> {
    Ok(RegisteredAgent {
        id: row.get(0)?,
        owner: row.get(1)?,
        source: source::get(row, 2)?,
        endpoint: row.get(3)?,
        card: json(row, 4)?,
        capabilities: parsed(row, 5)?,
        domains: parsed(row, 6)?,
        tags: parsed(row, 7)?,
        provider: row.get(8)?,
        status: status::get(row, 9)?,
        last_seen: maybe_number(row, 10)?,
        created: number(row, 11)?,
        updated: number(row, 12)?,
    })
}

pub(super) fn get(database: &Connection, id: &str) -> rusqlite::Result<Option<RegisteredAgent>> {
    let text = format!("SELECT {COLUMNS} FROM agents WHERE id = ?1");
    database.prepare_cached(&text)?.query_row([id], read).optional()
}

pub(super) fn list(
    database: &Connection,
    query: &AgentQuery,
    room: PageRoom,
) -> rusqlite::Result<StorePage<RegisteredAgent>> {
    Filter::default()
        .with("id IN (SELECT agent FROM agent_names WHERE kind = 0 AND name = ?)", query.capability.clone())
        .with("id IN (SELECT agent FROM agent_names WHERE kind = 1 AND name = ?)", query.domain.clone())
        .with("id IN (SELECT agent FROM agent_names WHERE kind = 2 AND name = ?)", query.tag.clone())
        .with("provider = ?", query.provider.clone())
        .with("status = ?", query.status.map(|it| status::name(it).to_owned()))
        .with("owner = ?", query.owner.clone())
        .with("source = ?", query.source.map(|it| source::name(it).to_owned()))
        .page(database, (COLUMNS, "agents", "id"), (query.offset, room), read)
}

pub(super) fn put(change: &mut OpenChange<'_>, agent: &RegisteredAgent) -> ChangeStep<ChangeOutcome> {
    let earlier: Option<String> = one(change, "SELECT owner FROM agents WHERE id = ?1", [&agent.id])?;
    let is_new = earlier.is_none();
    if earlier.is_some_and(|owner| owner != agent.owner) {
        return Err(Error::RecordConflict { record: format!("the agent {:?}", agent.id) }.into());
    }
    let text = "INSERT INTO agents (id, owner, source, endpoint, card, capabilities, domains, tags, provider, status, \
                last_seen, created, updated) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?12) \
                ON CONFLICT (id) DO UPDATE SET source = ?3, endpoint = ?4, card = ?5, capabilities = ?6, \
                domains = ?7, tags = ?8, provider = ?9, status = ?10, last_seen = ?11, updated = ?12";
    change.prepare(text)?.execute(params![
        agent.id,
        agent.owner,
        source::name(agent.source),
        agent.endpoint,
        agent.card.as_str(),
        name_list(&agent.capabilities),
        name_list(&agent.domains),
        name_list(&agent.tags),
        agent.provider,
        status::name(agent.status),
        agent.last_seen.map(int),
        change.wall(),
    ])?;
    change.prepare("DELETE FROM agent_names WHERE agent = ?1")?.execute([&agent.id])?;
    for (kind, names) in [&agent.capabilities, &agent.domains, &agent.tags].into_iter().enumerate() {
        for name in names {
            let text = "INSERT OR IGNORE INTO agent_names VALUES (?1, ?2, ?3)";
            change.prepare(text)?.execute(params![kind as i64, name, agent.id])?;
        }
    }
    if is_new {
        let limit = (change.settings.agents_per_owner, "StoreSettings::agents_per_owner");
        change.added_to(CountedList::Agents, &agent.owner, limit, "the list of agents of")?;
        if agent.source != RegistrySource::Config {
            change.grows(&agent.owner);
        }
    }
    change.wake(StoreTopic::Registry);
    Ok(ChangeOutcome::Done)
}

pub(super) fn remove(change: &mut OpenChange<'_>, id: &str) -> ChangeStep<ChangeOutcome> {
    let text = "DELETE FROM agents WHERE id = ?1 RETURNING owner";
    let Some(owner) = one::<String>(change, text, [id])? else { return Ok(ChangeOutcome::Count(0)) };
    change.prepare("DELETE FROM agent_names WHERE agent = ?1")?.execute([id])?;
    change.count(CountedList::Agents, &[&owner], -1);
    tasks::end_of_agent(change, id, u64::MAX)?;
    change.wake(StoreTopic::Registry);
    Ok(ChangeOutcome::Count(1))
}

pub(super) fn heartbeat(
    change: &mut OpenChange<'_>,
    id: &str,
    state: RegistryStatus,
) -> ChangeStep<ChangeOutcome> {
    let values = params![id, status::name(state), change.wall()];
    // A sign of life alone wakes nobody.
    let same = "UPDATE agents SET last_seen = ?3 WHERE id = ?1 AND status = ?2";
    if change.prepare(same)?.execute(values)? == 1 {
        return Ok(ChangeOutcome::Done);
    }
    let text = "UPDATE agents SET last_seen = ?3, status = ?2 WHERE id = ?1";
    if change.prepare(text)?.execute(values)? == 0 {
        return Err(Error::NoRecord { record: format!("the agent {id:?}") }.into());
    }
    change.wake(StoreTopic::Registry);
    change.wake(StoreTopic::Sweep);
    Ok(ChangeOutcome::Done)
}

pub(super) fn mark_stale(change: &mut OpenChange<'_>, seen_before: u64) -> ChangeStep<ChangeOutcome> {
    let text = "UPDATE agents SET status = 'offline' WHERE status <> 'offline' AND source <> 'config' \
                AND coalesce(last_seen, updated) < ?1";
    let count = change.prepare(text)?.execute([int(seen_before)])? as u64;
    if count > 0 {
        change.wake(StoreTopic::Registry);
    }
    Ok(ChangeOutcome::Count(count))
}
