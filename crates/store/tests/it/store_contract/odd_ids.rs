//! Ids that are no words: quotes, NUL, SQL, other scripts. Each is one id, in every place.

use duologue_store::{
    AgentQuery, ChangeOutcome, ExportPosition, MessageSender, NewInboxMessage, NewQuestion, NewTask,
    RegisteredAgent, RegistrySource, SeenId, SeenKey, Store, StoreChange, StoredPrincipal, StoredTaskKey,
    TaskQuery,
};

use super::{change, claim_at, json, on_each_store};

on_each_store!(odd_ids_are_ids);

const IDS: [&str; 14] = [
    "'",
    "\"",
    "a'; DROP TABLE messages; --",
    "\0",
    "a\0b",
    "a",
    "%",
    "_",
    "*",
    "?1",
    "日本語",
    "é",
    "e\u{301}",
    " ",
];

fn odd_ids_are_ids(store: &dyn Store) {
    for id in IDS {
        let mut message = NewInboxMessage::new(
            id,
            id,
            MessageSender::new(id, id),
            json(&serde_json::to_string(id).expect("JSON")),
        );
        (message.group, message.correlation_id) = (Some(id.into()), Some(id.into()));
        change(store, StoreChange::Enqueue(message));
        let mut agent = RegisteredAgent::new(id, id, RegistrySource::Rest, id);
        (agent.capabilities, agent.provider) = (vec![id.into()], Some(id.into()));
        change(store, StoreChange::PutAgent(agent));
        let key = StoredTaskKey::new(id, id, id);
        change(store, StoreChange::CreateTask(NewTask::new(key.clone(), id, id, json("0"))));
        change(store, StoreChange::AddQuestion(NewQuestion::new(key, id, json("0"))));
        change(store, StoreChange::Remember(SeenId::new(SeenKey::new(id, id, id), id, u64::MAX)));
        change(store, StoreChange::PutPrincipal(StoredPrincipal::new(id)));
    }
    for id in IDS {
        let claimed = store.claim_messages(id, &claim_at(1, 9)).expect("claimed").entries;
        assert_eq!(claimed.len(), 1, "{id:?}");
        let entry = &claimed[0].entry;
        assert_eq!([&entry.agent, &entry.id, &entry.from.name, &entry.from.principal], [id; 4]);
        assert_eq!(
            (entry.group.as_deref(), entry.content.parse::<String>().expect("text").as_str()),
            (Some(id), id)
        );
        let mut query = AgentQuery::default();
        (query.capability, query.provider) = (Some(id.into()), Some(id.into()));
        let found = store.agents(&query).expect("a list");
        assert_eq!((found.total, found.items[0].id.as_str()), (1, id));
        let mut query = TaskQuery::default();
        (query.owner, query.id) = (Some(id.into()), Some(id.into()));
        assert_eq!(store.tasks(&query).expect("a list").total, 1, "{id:?}");
        assert!(store.question(&StoredTaskKey::new(id, id, id), id).expect("read").is_some());
        assert_eq!(store.principal(id).expect("read").expect("a principal").id, id);
        store.export(id, &ExportPosition::default()).expect("a page");
    }
    for id in IDS {
        // The message, the task, its question, the key and the agent: of this principal alone.
        let erase = StoreChange::ErasePrincipal { principal: id.into() };
        assert_eq!(change(store, erase), ChangeOutcome::Count(5), "{id:?}");
    }
}
