//! Tests of the streams of a connection.

use std::time::Duration;

use super::*;

const LIMITS: StreamLimits = StreamLimits {
    bytes: 10_000,
    frames: 100,
    closed_bytes: 1000,
    kept_for: Duration::from_secs(600),
    streams: 4,
    streams_setting: "Options::streams",
};

fn session(id: &str) -> StreamId {
    StreamId::Session(id.into())
}

fn update(session: &str) -> Bytes {
    format!(r#"{{"jsonrpc":"2.0","method":"u","params":{{"sessionId":"{session}"}}}}"#).into()
}

fn push(table: &mut StreamTable, frame: impl Into<Bytes>) {
    table.push(frame.into(), Instant::now() + Duration::from_secs(10));
}

/// Takes all frames of a stream and returns their cursors.
fn take(table: &mut StreamTable, id: &StreamId) -> Vec<u64> {
    std::iter::from_fn(|| table.take(id))
        .map(|frame| frame.cursor.expect("a cursor").parse().expect("a number"))
        .collect()
}

fn open(
    table: &mut StreamTable,
    id: &StreamId,
    cursor: Option<&str>,
    takes_over: bool,
) -> Option<ResumeRefused> {
    table.open(id, cursor, takes_over, 1).err()
}

#[test]
fn each_stream_has_numbers_of_its_own() {
    let mut table = StreamTable::new(LIMITS);
    for frame in [update("a"), update("b"), update("a"), Bytes::from_static(b"{\"method\":\"n\"}")] {
        push(&mut table, frame);
    }
    assert_eq!(take(&mut table, &session("a")), [1, 2]);
    assert_eq!(take(&mut table, &session("b")), [1]);
    assert_eq!(take(&mut table, &StreamId::Connection), [1]);
    assert_eq!((table.waiting, table.held_total), Default::default());
}

#[test]
fn cursors_of_the_agent_are_removed() {
    let mut table = StreamTable::new(LIMITS);
    push(&mut table, &br#"{"method":"n","params":{"_meta":{"acp/cursor":{"a":[1]}}}}"#[..]);
    let frame = table.take(&StreamId::Connection).expect("a frame");
    assert_eq!(frame.text, &br#"{"method":"n","params":{"_meta":{}}}"#[..]);
}

#[test]
fn a_response_belongs_to_the_session_of_its_request() {
    let mut table = StreamTable::new(LIMITS);
    assert_eq!(open(&mut table, &session("a"), None, false), None);
    table.note_client_frame(br#"{"id":1,"method":"session/prompt","params":{"sessionId":"a"}}"#, None);
    table.note_client_frame(br#"{"id":2,"method":"session/new","params":{}}"#, None);
    table.note_client_frame(br#"{"id":3,"method":"x"}"#, Some("a"));
    for id in [1, 2, 3, 3] {
        push(&mut table, format!(r#"{{"id":{id},"result":{{}}}}"#));
    }
    assert_eq!(take(&mut table, &session("a")), [1, 2]);
    assert_eq!(take(&mut table, &StreamId::Connection), [1, 2]);
}

/// A response on another stream could overtake the messages before it.
#[test]
fn the_responses_to_requests_with_one_id_belong_to_their_session() {
    let mut table = StreamTable::new(LIMITS);
    assert_eq!(open(&mut table, &session("a"), None, false), None);
    let prompt = br#"{"id":1,"method":"session/prompt","params":{"sessionId":"a"}}"#;
    for _ in 0..2 {
        table.note_client_frame(prompt, None);
    }
    for _ in 0..3 {
        push(&mut table, r#"{"id":1,"result":{}}"#);
        push(&mut table, update("a"));
    }
    assert_eq!(take(&mut table, &session("a")), [1, 2, 3, 4, 5]);
    assert_eq!(take(&mut table, &StreamId::Connection), [1]);
}

#[test]
fn a_continued_request_belongs_to_its_session() {
    let mut table = StreamTable::new(LIMITS);
    assert_eq!(open(&mut table, &session("a"), None, false), None);
    let meta = r#"{"duologue":{"after":{},"requests":[6,"x"]}}"#;
    let resume =
        format!(r#"{{"id":1,"method":"session/resume","params":{{"sessionId":"a","_meta":{meta}}}}}"#);
    table.note_client_frame(resume.as_bytes(), None);
    for id in ["1", "6", "\"x\"", "7"] {
        push(&mut table, format!(r#"{{"id":{id},"result":{{}}}}"#));
    }
    assert_eq!(
        (take(&mut table, &session("a")).len(), take(&mut table, &StreamId::Connection).len()),
        (3, 1)
    );
}

#[test]
fn a_withdrawal_follows_its_request() {
    let mut table = StreamTable::new(LIMITS);
    let cancel = r#"{"method":"$/cancel_request","params":{"requestId":"q"}}"#;
    push(&mut table, r#"{"id":"q","method":"session/request_permission","params":{"sessionId":"a"}}"#);
    push(&mut table, cancel);
    assert_eq!(take(&mut table, &session("a")), [1, 2]);
    table.note_client_frame(br#"{"id":"q","result":{}}"#, None);
    push(&mut table, cancel);
    assert_eq!(take(&mut table, &StreamId::Connection), [1]);
}

#[test]
fn a_response_waits_for_the_stream_of_its_session() {
    let mut table = StreamTable::new(LIMITS);
    let load = br#"{"id":1,"method":"session/load","params":{"sessionId":"a"}}"#;
    let response = r#"{"id":1,"result":{}}"#;
    table.note_client_frame(load, None);
    push(&mut table, update("a"));
    push(&mut table, response);
    let due = table.next_due().expect("a held response");
    assert_eq!(open(&mut table, &session("a"), None, false), None);
    assert_eq!(take(&mut table, &session("a")), [1, 2], "behind the replay");
    assert_eq!(table.next_due(), None);
    // Without a stream it gets onto that of the connection.
    table.note_client_frame(br#"{"id":1,"method":"session/load","params":{"sessionId":"b"}}"#, None);
    push(&mut table, response);
    table.release_due(due);
    assert_eq!(take(&mut table, &StreamId::Connection), Vec::<u64>::new());
    table.release_due(due + Duration::from_secs(60));
    assert_eq!(take(&mut table, &StreamId::Connection), [1]);
    assert_eq!((table.waiting, table.held_total), Default::default());
}

#[test]
fn a_client_resumes_behind_its_cursor() {
    let mut table = StreamTable::new(LIMITS);
    let a = session("a");
    (0..5).for_each(|_| push(&mut table, update("a")));
    assert_eq!(open(&mut table, &a, Some("1"), false), Some(ResumeRefused::InvalidCursor), "never sent");
    assert_eq!(open(&mut table, &a, None, false), None);
    assert_eq!(take(&mut table, &a), [1, 2, 3, 4, 5]);
    assert_eq!(open(&mut table, &a, Some("2"), false), Some(ResumeRefused::InUse));
    assert_eq!(open(&mut table, &a, Some("2"), true), None);
    assert_eq!(table.waiting.frames, 3);
    // A later position is valid too, because the client may have received more than it has first stated.
    assert_eq!(open(&mut table, &a, Some("4"), true), None);
    assert_eq!(table.waiting.frames, 1);
    assert_eq!(take(&mut table, &a), [5]);
    // A client that takes over without a cursor has received nothing.
    assert_eq!(open(&mut table, &a, None, true), None);
    assert_eq!(take(&mut table, &a), [1, 2, 3, 4, 5]);
    assert!(table.close(&a, 1) && !table.close(&a, 1));
    // A client of the published protocol goes on with new frames.
    push(&mut table, update("a"));
    assert_eq!(open(&mut table, &a, None, false), None);
    assert_eq!(take(&mut table, &a), [6]);
    for invalid in ["7", "x", "-1", "99999999999999999999"] {
        assert_eq!(open(&mut table, &a, Some(invalid), true), Some(ResumeRefused::InvalidCursor));
    }
    assert_eq!((table.waiting, table.held_total), Default::default());
}

#[test]
fn taken_frames_are_evicted_and_waiting_ones_are_not() {
    let mut table = StreamTable::new(LIMITS);
    let a = session("a");
    assert_eq!(open(&mut table, &a, None, false), None);
    let mut last = 0;
    for _ in 0..2 {
        let before = last;
        while table.has_room() {
            push(&mut table, update("a"));
            last += 1;
        }
        assert_eq!(take(&mut table, &a), (before + 1..=last).collect::<Vec<_>>());
    }
    (0..50).for_each(|_| push(&mut table, update("b")));
    assert!(table.taken.bytes <= LIMITS.bytes && table.taken.frames <= LIMITS.frames);
    assert_eq!(open(&mut table, &a, Some("1"), true), Some(ResumeRefused::CursorGone));
    assert_eq!(open(&mut table, &a, None, true), Some(ResumeRefused::CursorGone));
    assert_eq!(open(&mut table, &a, Some(&(last - 3).to_string()), true), None);
    assert_eq!(take(&mut table, &a), [last - 2, last - 1, last]);
    assert_eq!(take(&mut table, &session("b")).len(), 50);
}

#[test]
fn resumes_do_not_make_the_table_grow() {
    let mut table = StreamTable::new(LIMITS);
    let a = session("a");
    (0..20).for_each(|_| push(&mut table, update("a")));
    for _ in 0..100 {
        assert_eq!(open(&mut table, &a, None, true), None);
        assert_eq!(take(&mut table, &a).len(), 20);
    }
    assert_eq!(table.evictable.len(), 20);
}

#[test]
fn an_unread_stream_stops_the_others_for_a_time_only() {
    let mut table = StreamTable::new(LIMITS);
    let (a, b) = (session("a"), session("b"));
    assert_eq!(open(&mut table, &a, None, false), None);
    while table.has_room() {
        push(&mut table, update("b"));
    }
    assert_eq!(table.drop_unread(), 1);
    assert!(table.has_room());
    assert_eq!((table.taken, table.waiting), Default::default());
    // The client is refused once.
    assert_eq!(open(&mut table, &b, None, false), Some(ResumeRefused::CursorGone));
    assert_eq!(open(&mut table, &b, None, false), None);
    push(&mut table, update("b"));
    assert_eq!(take(&mut table, &b).len(), 1);
    // Nothing is dropped for a client that is absent.
    table.close(&a, 1);
    table.close(&b, 1);
    push(&mut table, update("b"));
    assert_eq!(table.drop_unread(), 0);
}

#[test]
fn a_closed_session_begins_anew() {
    let mut table = StreamTable::new(LIMITS);
    let a = session("a");
    let closing = |table: &mut StreamTable| {
        table.note_client_frame(br#"{"id":1,"method":"session/close","params":{"sessionId":"a"}}"#, None);
        push(table, r#"{"id":1,"result":{}}"#);
    };
    assert_eq!(open(&mut table, &a, None, true), None);
    push(&mut table, update("a"));
    closing(&mut table);
    assert_eq!(take(&mut table, &a), [1, 2]);
    push(&mut table, update("a"));
    // The server may not know yet that the client has left the response.
    assert_eq!(table.open(&a, None, true, 2).err(), None);
    assert_eq!(take(&mut table, &a), [3]);
    closing(&mut table);
    assert_eq!(take(&mut table, &a), [4]);
    table.close(&a, 2);
    // Streams of closed sessions make room.
    for id in ["b", "c", "d"] {
        assert_eq!(open(&mut table, &session(id), None, false), None, "{id}");
    }
    assert_eq!((table.streams.len(), table.taken), (LIMITS.streams, FrameTotal::default()));
    assert!(open(&mut table, &a, None, true).is_some());
}

/// The response to a prompt is not the end of a session, although the client closes it with the same id.
#[test]
fn a_response_that_is_for_one_of_two_requests_ends_no_session() {
    let a = session("a");
    let note = |table: &mut StreamTable, method: &str, session: &str| {
        let frame = format!(r#"{{"id":1,"method":"session/{method}","params":{{"sessionId":"{session}"}}}}"#);
        table.note_client_frame(frame.as_bytes(), None);
    };
    // The last one is a prompt of another session. All responses but the last one belong to `a`.
    for methods in [
        [("prompt", "a"), ("close", "a")],
        [("close", "a"), ("prompt", "a")],
        [("prompt", "b"), ("close", "a")],
    ] {
        let mut table = StreamTable::new(LIMITS);
        assert_eq!(open(&mut table, &a, None, true), None);
        push(&mut table, update("a"));
        methods.iter().for_each(|(method, session)| note(&mut table, method, session));
        push(&mut table, r#"{"id":1,"result":{"stopReason":"end_turn"}}"#);
        assert!(!table.streams[&a].is_closed, "{methods:?}");
        push(&mut table, update("a"));
        assert_eq!(take(&mut table, &a), [1, 2, 3]);
        // A client that has lost the response reads all of it again.
        assert_eq!(open(&mut table, &a, Some("0"), true), None);
        assert_eq!(take(&mut table, &a), [1, 2, 3]);
        push(&mut table, r#"{"id":1,"result":{}}"#);
        assert!(!table.streams[&a].is_closed && table.client_requests.is_empty(), "{methods:?}");
        // The id is free again.
        note(&mut table, "close", "a");
        push(&mut table, r#"{"id":1,"result":{}}"#);
        assert!(table.streams[&a].is_closed);
    }
}

#[test]
fn a_session_goes_on_when_a_child_of_it_ends() {
    let mut table = StreamTable::new(LIMITS);
    let root = "67e55044-10b1-426f-9247-bb680e5fe0c8";
    assert_eq!(open(&mut table, &session(root), None, true), None);
    for (id, is_closed) in [(format!("{root}~1"), false), (root.to_owned(), true)] {
        let close = format!(r#"{{"id":1,"method":"session/close","params":{{"sessionId":"{id}"}}}}"#);
        table.note_client_frame(close.as_bytes(), None);
        push(&mut table, r#"{"id":1,"result":{}}"#);
        assert_eq!(table.streams[&session(root)].is_closed, is_closed, "{id}");
    }
}

/// Opens a session, sends an update in it, and closes it.
fn play_session(table: &mut StreamTable, id: &str, text: &str) {
    let stream = session(id);
    assert_eq!(open(table, &stream, None, true), None);
    push(table, format!(r#"{{"method":"u","params":{{"sessionId":"{id}","t":"{text}"}}}}"#));
    let close = format!(r#"{{"id":1,"method":"session/close","params":{{"sessionId":"{id}"}}}}"#);
    table.note_client_frame(close.as_bytes(), None);
    push(table, r#"{"id":1,"result":{}}"#);
    assert_eq!(take(table, &stream), [1, 2]);
    table.close(&stream, 1);
}

#[test]
fn closed_sessions_cost_a_bounded_number_of_bytes() {
    let mut table = StreamTable::new(StreamLimits { streams: 100, ..LIMITS });
    for number in 0..1000 {
        play_session(&mut table, &number.to_string(), "");
        assert!(table.over_bytes <= LIMITS.closed_bytes && table.taken.bytes == table.over_bytes);
    }
    // That of the connection, and those whose client can still come back.
    assert!((2..10).contains(&table.streams.len()), "{}", table.streams.len());
    assert_eq!(table.over.len(), table.streams.len() - 1);
    assert_eq!(table.evictable.len(), table.taken.frames);
    assert!(table.client_requests.is_empty());
    assert_eq!(open(&mut table, &session("999"), Some("1"), true), None);
    assert_eq!(take(&mut table, &session("999")), [2]);
    assert_eq!(open(&mut table, &session("0"), Some("1"), true), Some(ResumeRefused::InvalidCursor));
    // The last one is kept, however long it is.
    play_session(&mut table, "long", &"x".repeat(5000));
    assert_eq!((table.over.len(), table.streams.len()), (1, 3));
    assert_eq!(open(&mut table, &session("long"), Some("0"), true), None);
}

#[tokio::test(start_paused = true)]
async fn taken_frames_are_kept_for_a_time() {
    let mut table = StreamTable::new(LIMITS);
    let a = session("a");
    assert_eq!(open(&mut table, &a, None, true), None);
    (0..3).for_each(|_| push(&mut table, update("a")));
    assert_eq!(take(&mut table, &a), [1, 2, 3]);
    tokio::time::advance(LIMITS.kept_for + Duration::from_secs(1)).await;
    push(&mut table, update("a"));
    assert_eq!(take(&mut table, &a), [4]);
    assert_eq!((table.taken.frames, table.evictable.len()), (1, 1));
    assert_eq!(open(&mut table, &a, Some("2"), true), Some(ResumeRefused::CursorGone));
    assert_eq!(open(&mut table, &a, Some("3"), true), None);
    // A frame that waits again is kept from then on.
    tokio::time::advance(LIMITS.kept_for * 2).await;
    assert_eq!(take(&mut table, &a), [4]);
    assert_eq!(open(&mut table, &a, Some("3"), true), None);
}

#[test]
fn the_number_of_streams_is_limited() {
    let mut table = StreamTable::new(LIMITS);
    for id in ["a", "b", "c", "d", "e"] {
        push(&mut table, update(id));
    }
    assert_eq!(table.streams.len(), LIMITS.streams);
    assert_eq!(take(&mut table, &StreamId::Connection), [1, 2]);
    let refused = open(&mut table, &session("d"), None, false).expect("a refusal");
    assert!(refused.to_string().contains("4") && refused.to_string().contains("Options::streams"));
}
