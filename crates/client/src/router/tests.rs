//! Tests of the routes of updates, and of the sessions that are open.

use duologue_schema::OPEN_CALL_BYTES;

use super::*;
use crate::limits::KEPT_BYTES_TOGETHER;

/// Returns a session that was restored.
fn restored(router: &Router, id: &SessionId) -> Arc<SessionEntry> {
    let (entry, restore) = router.register(id, &[]);
    router.end_restore(&entry, restore, true);
    entry
}

/// A weak pointer keeps the memory of its target, 1.6 KiB per session, for the life of the connection.
#[test]
fn a_session_without_handles_is_removed() {
    let router = Router::new(false, Box::new(|_, _| {}));
    let id = SessionId::from("a");
    let (first, again) = (restored(&router, &id), restored(&router, &id));
    drop(first);
    assert!(router.knows(&id));
    router.forget(&again, again.restored());
    assert!(!router.knows(&id));
    drop(again);
    assert!(router.lock().slots.is_empty());
}

#[test]
fn a_long_id_of_a_session_is_not_kept() {
    let router = Router::new(false, Box::new(|_, _| {}));
    let named = |bytes: usize| SessionId::from("x".repeat(bytes));
    router.opening();
    assert!(router.knows(&named(Limits::ID_BYTES)));
    assert!(!router.knows(&named(Limits::ID_BYTES + 1)));
    // The bytes of a line include its id.
    for _ in 0..3 {
        router.update(
            named(KEPT_BYTES / 2).as_str(),
            SessionUpdate::agent_message("x"),
            KEPT_BYTES / 2 + 100,
        );
    }
    router.update(named(KEPT_BYTES).as_str(), SessionUpdate::agent_message("x"), KEPT_BYTES + 100);
    assert_eq!((router.lock().early.len(), router.dropped()), (1, 3));
}

#[test]
fn the_kept_updates_of_all_sessions_are_limited() {
    let router = Router::new(false, Box::new(|_, _| {}));
    let ids: Vec<SessionId> = (0..40).map(|number| SessionId::from(number.to_string())).collect();
    let sessions: Vec<_> = ids.iter().map(|id| router.register(id, &[]).0).collect();
    for id in ids.iter().cycle().take(80) {
        router.update(id.as_str(), SessionUpdate::agent_message("x"), KEPT_BYTES / 2);
    }
    let kept = || router.shared.kept.load(Relaxed);
    assert_eq!(kept(), KEPT_BYTES_TOGETHER);
    assert_eq!(router.dropped(), 80 - (KEPT_BYTES_TOGETHER / (KEPT_BYTES / 2)) as u64);
    drop(sessions);
    assert_eq!(kept(), 0);
}

fn announce(router: &Router, session: &SessionId, title: usize) {
    let call = duologue_schema::ToolCall::new("a", "x".repeat(title));
    router.update(session.as_str(), call.into(), title);
}

fn knows_call(entry: &SessionEntry) -> bool {
    entry.complete(&mut ToolCallUpdate::new("a"))
}

#[test]
fn the_open_calls_of_all_sessions_are_bounded() {
    let router = Router::new(false, Box::new(|_, _| {}));
    let ids: Vec<SessionId> = (0..100).map(|number| SessionId::from(number.to_string())).collect();
    let mut sessions: Vec<_> = ids.iter().map(|id| router.register(id, &[]).0).collect();
    ids.iter().for_each(|id| announce(&router, id, OPEN_CALL_BYTES / 2));
    let total = || router.shared.call_bytes.load(Relaxed);
    assert!(total() <= OPEN_CALL_BYTES_TOGETHER);
    let most = OPEN_CALL_BYTES_TOGETHER / (OPEN_CALL_BYTES / 2);
    let known = |sessions: &[Arc<SessionEntry>]| sessions.iter().filter(|entry| knows_call(entry)).count();
    assert_eq!(known(&sessions), most - 1);
    // A session that ends makes room for another.
    sessions.swap_remove(0);
    announce(&router, &ids[99], OPEN_CALL_BYTES / 2);
    assert_eq!(known(&sessions), most - 1);
    drop(sessions);
    assert_eq!(total(), 0);
}

#[test]
fn a_long_update_or_response_leaves_the_state_unchanged() {
    let router = Router::new(false, Box::new(|_, _| {}));
    let id = SessionId::from("a");
    let (entry, _) = router.register(&id, &[]);
    let titled = |title: &str| duologue_schema::SessionInfoUpdate::new().title(title).into();
    router.update("a", titled("first"), STATE_BYTES);
    router.update("a", titled("second"), STATE_BYTES + 1);
    assert_eq!(entry.read_state(SessionState::clone).title.as_deref(), Some("first"));

    let modes = |length: usize| {
        let mode = duologue_schema::SessionMode::new("a", "x".repeat(length));
        SessionModeState::new("a", vec![mode])
    };
    entry.begin_state(Opened { modes: Some(&modes(9)), ..Opened::default() });
    assert_eq!(entry.read_state(SessionState::clone).modes, Some(modes(9)));
    entry.begin_state(Opened { modes: Some(&modes(STATE_BYTES)), ..Opened::default() });
    assert_eq!(entry.read_state(SessionState::clone).modes, None);
}

/// A conversation has no limit, so neither has its state.
#[test]
fn the_state_of_a_conversation_has_no_limit() {
    let router = Router::new(true, Box::new(|_, _| {}));
    let (entry, _) = router.register(&SessionId::from("a"), &[]);
    let long = "x".repeat(STATE_BYTES);
    let titled = duologue_schema::SessionInfoUpdate::new().title(long.clone());
    router.update("a", titled.into(), STATE_BYTES + 100);
    assert_eq!(entry.read_state(SessionState::clone).title.as_ref(), Some(&long));
    let mode = duologue_schema::SessionMode::new("a", long);
    let modes = SessionModeState::new("a", vec![mode]);
    entry.begin_state(Opened { modes: Some(&modes), ..Opened::default() });
    assert_eq!(entry.read_state(SessionState::clone).modes, Some(modes));
    let option = SessionConfigOption::boolean("a", "x".repeat(STATE_BYTES), true);
    let options = duologue_schema::ConfigOptionUpdate::new(vec![option.clone()]);
    entry.change_state(&options.into());
    assert_eq!(entry.read_state(SessionState::clone).config_options, [option]);
}

#[test]
fn a_restored_session_reuses_the_entry_with_handles() {
    let router = Router::new(false, Box::new(|_, _| {}));
    let id = SessionId::from("a");
    let closed = restored(&router, &id);
    router.forget(&closed, closed.restored());
    let restored = restored(&router, &id);
    assert!(Arc::ptr_eq(&closed, &restored) && router.knows(&id));
}

/// Folders that a refused load named are not open to the agent.
#[test]
fn the_host_has_the_folders_of_open_sessions_alone() {
    type Calls = Arc<Mutex<Vec<Option<Vec<PathBuf>>>>>;
    let calls = Calls::default();
    let seen = calls.clone();
    let hook = move |_: &SessionId, folders: Option<&[PathBuf]>| {
        seen.lock_unpoisoned().push(folders.map(<[_]>::to_vec));
    };
    let router = Router::new(false, Box::new(hook));
    let id = SessionId::from("a");
    let [one, other] = ["/one", "/other"].map(|path| vec![PathBuf::from(path)]);
    let new = || std::mem::take(&mut *calls.lock_unpoisoned());

    let (entry, refused) = router.register(&id, &one);
    router.end_restore(&entry, refused, false);
    assert_eq!(new(), [Some(one.clone()), None]);
    // A late answer changes nothing.
    router.end_restore(&entry, refused, false);

    let (_, restored) = router.register(&id, &one);
    router.end_restore(&entry, restored, true);
    assert_eq!(new(), [Some(one.clone())]);
    let (_, refused) = router.register(&id, &other);
    router.end_restore(&entry, refused, false);
    assert_eq!(new(), [Some(other.clone()), Some(one.clone())]);

    // The session has the folders of the later load, also if the earlier one is refused behind it.
    let (_, earlier) = router.register(&id, &other);
    let (_, later) = router.register(&id, &one);
    router.end_restore(&entry, later, true);
    router.end_restore(&entry, earlier, false);
    assert_eq!(new().pop(), Some(Some(one)));
    router.forget(&entry, entry.restored());
    assert_eq!(new(), [None]);
}
