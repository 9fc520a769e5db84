//! The client under test on the official Rust SDK, with the scenarios of `tests/bin/subject_client.rs`: written as its
//! documentation does it, with `AcpAgent`, `build_session` and `read_update`.

mod subject;

use std::sync::Arc;
use std::time::{Duration, Instant};

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::util::MatchDispatch;
use agent_client_protocol::v1::schema::{
    CancelNotification, CloseSessionRequest, ContentBlock, InitializeRequest, InitializeResponse,
    SessionNotification, SessionUpdate, StopReason,
};
use agent_client_protocol::v1::{ActiveSession, ConnectionTo, SessionMessage};
use agent_client_protocol::{AcpAgent, Agent, Client, Error};
use futures::{StreamExt, TryStreamExt};
use serde_json::json;
use subject::{AT_ONCE, Asked, Seen, closed, held, in_use, memory, now_ns, ready, say, spread};

type Session = ActiveSession<'static, Agent>;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut asked = Asked::read();
    let agent = asked.agent.clone();
    if asked.scenario == "cycle" {
        return cycle(asked.number(), &agent).await;
    }
    let begun = Instant::now();
    let seen = Arc::new(Seen::default());
    let (counted, closing) = (seen.clone(), Arc::new(std::sync::Mutex::new(begun)));
    let closes = closing.clone();
    // The SDK has no environment of its own for an agent: `clean` is as `turn`.
    let played = Client
        .v1()
        .name("subject")
        .connect_with(AcpAgent::from_args(agent)?, async move |cx: ConnectionTo<Agent>| {
            let played = play(&cx, &mut asked, &counted).await;
            *closes.lock().unwrap() = Instant::now();
            played
        })
        .await;
    if let Err(error) = played {
        seen.end(begun, Err(error.to_string()));
    }
    let begun = *closing.lock().unwrap();
    closed(begun);
    Ok(())
}

async fn initialize(cx: &ConnectionTo<Agent>) -> Result<InitializeResponse, Error> {
    cx.send_request(InitializeRequest::new(ProtocolVersion::V1)).block_task().await
}

async fn new_session(cx: &ConnectionTo<Agent>) -> Result<Session, Error> {
    Ok(cx.build_session("/").block_task().start_session().await?.session)
}

async fn play(cx: &ConnectionTo<Agent>, asked: &mut Asked, seen: &Seen) -> Result<(), Error> {
    let hello = initialize(cx).await?;
    if asked.scenario == "sessions" {
        return sessions(cx, &hello, asked.number(), &asked.text(), &asked.text()).await;
    }
    let mut session = new_session(cx).await?;
    ready();
    match asked.scenario.as_str() {
        "turn" | "clean" => turn(&mut session, &asked.text(), seen, None).await,
        "turns" => {
            let (from, to, text) = (asked.number(), asked.number(), asked.text());
            for number in from..to {
                turn(&mut session, &format!("{text} {number}"), seen, None).await?;
            }
            Ok(())
        }
        "stalled" => {
            let pause = Duration::from_secs(asked.number() as u64);
            turn(&mut session, &asked.text(), seen, Some(pause)).await
        }
        "two" => {
            let mut other = new_session(cx).await?;
            two(&mut session, &mut other, asked.number(), &asked.text(), &asked.text()).await
        }
        // The SDK has no time limit for it.
        "start" => Ok(()),
        other => panic!("{other} is no scenario"),
    }
}

/// The next thing that happens in a turn: an update, or its end.
enum Event {
    Update(SessionUpdate),
    /// Messages that are no update, and unreadable ones. Requests have been rejected.
    Other,
    End(Result<StopReason, Error>),
}

/// As `read_to_string` does it, except that what cannot be read does not end the turn.
async fn next(session: &mut Session) -> Result<Event, Error> {
    match session.read_update().await? {
        SessionMessage::PromptResponse(end) => Ok(Event::End(end.map(|end| end.stop_reason))),
        SessionMessage::Message(dispatch) => {
            let mut event = Event::Other;
            let _ = MatchDispatch::new(dispatch.into_raw())
                .if_notification(async |told: SessionNotification| {
                    event = Event::Update(told.update);
                    Ok(())
                })
                .await
                .otherwise_ignore();
            Ok(event)
        }
        _ => Ok(Event::Other),
    }
}

/// One turn, with a pause behind its first update. That it fails is a result; that the connection does is the error.
async fn turn(session: &mut Session, text: &str, seen: &Seen, pause: Option<Duration>) -> Result<(), Error> {
    let begun = Instant::now();
    session.send_prompt(text)?;
    loop {
        match next(session).await? {
            Event::Update(update) => {
                seen.update(text_of(&update));
                if let (1, Some(pause)) = (seen.updates(), pause) {
                    tokio::time::sleep(pause).await;
                }
            }
            Event::Other => {}
            Event::End(end) => {
                seen.end(begun, end.map(|end| format!("{end:?}")).map_err(|error| error.to_string()));
                return Ok(());
            }
        }
    }
}

fn text_of(update: &SessionUpdate) -> Option<&str> {
    match update {
        SessionUpdate::AgentMessageChunk(chunk) => match &chunk.content {
            ContentBlock::Text(text) => Some(&text.text),
            _ => None,
        },
        _ => None,
    }
}

/// Everything up to the end of the turn; says how many updates that were.
async fn rest(session: &mut Session) -> Result<u64, Error> {
    let mut updates = 0;
    loop {
        match next(session).await? {
            Event::Update(_) => updates += 1,
            Event::Other => {}
            Event::End(end) => return end.map(|_| updates),
        }
    }
}

async fn two(
    first: &mut Session,
    other: &mut Session,
    rounds: usize,
    text: &str,
    small: &str,
) -> Result<(), Error> {
    let (mut turns, mut called) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        first.send_prompt(text)?;
        next(first).await?;
        if round % 20 == 0 {
            // Until there is no more room for what it says.
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let begun = Instant::now();
        other.send_prompt(small)?;
        rest(other).await?;
        turns.push(begun.elapsed());
        called.push(now_ns());
        let cancel = CancelNotification::new(first.session_id().clone());
        first.connection().send_notification(cancel)?;
        let _ = rest(first).await;
    }
    say(&json!({"turns": spread(turns), "called": called}));
    Ok(())
}

async fn sessions(
    cx: &ConnectionTo<Agent>,
    hello: &InitializeResponse,
    count: usize,
    text: &str,
    flood: &str,
) -> Result<(), Error> {
    let mut first = new_session(cx).await?;
    first.send_prompt(text)?;
    rest(&mut first).await?;
    drop(first);
    ready();
    let idle = in_use();
    let begun = Instant::now();
    let opening = futures::stream::iter(0..count).map(|_| new_session(cx));
    let mut sessions: Vec<Session> = opening.buffer_unordered(AT_ONCE).try_collect().await?;
    let open = in_use();
    say(&json!({"open_kib": memory("VmRSS:"), "ms": begun.elapsed().as_millis() as u64}));

    let turns = futures::stream::iter(&mut sessions).map(async |session| {
        let begun = Instant::now();
        session.send_prompt(text)?;
        rest(session).await?;
        Result::<_, Error>::Ok(begun.elapsed())
    });
    let took: Vec<Duration> = turns.buffer_unordered(AT_ONCE).try_collect().await?;
    say(&json!({"turns": spread(took), "kib": memory("VmRSS:")}));

    let begun = Instant::now();
    let floods = futures::stream::iter(sessions.iter_mut().take(AT_ONCE)).map(async |session| {
        session.send_prompt(flood)?;
        rest(session).await
    });
    let updates: Vec<u64> = floods.buffer_unordered(AT_ONCE).try_collect().await?;
    let updates: u64 = updates.into_iter().sum();
    say(&json!({
        "updates": updates,
        "per_second": (updates as f64 / begun.elapsed().as_secs_f64()) as u64,
        "peak_kib": memory("VmHWM:"),
        "kib": memory("VmRSS:"),
    }));

    let begun = Instant::now();
    if hello.agent_capabilities.session_capabilities.close.is_some() {
        let closing = futures::stream::iter(&sessions).map(async |session| {
            cx.send_request(CloseSessionRequest::new(session.session_id().clone())).block_task().await
        });
        closing.buffer_unordered(AT_ONCE).try_for_each(async |_| Ok(())).await?;
    }
    drop(sessions);
    tokio::time::sleep(Duration::from_millis(500)).await;
    say(&json!({
        "left_kib": memory("VmRSS:"),
        "heap": {"idle": idle, "open": open, "left": in_use()},
        "ms": begun.elapsed().as_millis() as u64,
    }));
    Ok(())
}

async fn cycle(count: usize, agent: &[String]) -> Result<(), Error> {
    let warm = (count / 10).clamp(1, 100);
    for round in 0..count {
        if round == warm {
            say(&held());
        }
        let agent = AcpAgent::from_args(agent)?;
        let once = async |cx: ConnectionTo<Agent>| initialize(&cx).await.map(drop);
        Client.v1().name("subject").connect_with(agent, once).await?;
    }
    say(&held());
    Ok(())
}
