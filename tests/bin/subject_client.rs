//! The client under test on our own SDK: `subject-client SCENARIO [ARG…] -- AGENT [ARG…]`.
//!
//! `cargo xtask reliability` plays it against agents that do not behave, beside a program of the
//! same name on the official SDK. The prompts tell the agent its actions. They are TEXT here:
//! `turn TEXT`, `clean TEXT` (with a clean environment), `turns FROM TO TEXT` (the number behind the
//! text), `start SECONDS` (for that long at most), `stalled SECONDS TEXT` (one update is taken, then none for that long),
//! `two ROUNDS TEXT OTHER` (nobody takes what the first session says, while another one talks),
//! `sessions COUNT TEXT FLOOD`, `cycle COUNT` (starts and closes).

#[path = "../../crates/xtask/interop/rust/src/subject.rs"]
#[allow(unreachable_pub, dead_code, reason = "the same file is a module of the program on the official SDK")]
mod subject;

use std::time::{Duration, Instant};

use duologue_client::schema::{ContentBlock, SessionUpdate};
use duologue_client::{Client, Command, Connection, Result, Session, Turn};
use futures::{StreamExt, TryStreamExt};
use serde_json::json;
use subject::{AT_ONCE, Asked, Seen, closed, held, in_use, memory, now_ns, ready, say, spread};

#[tokio::main]
async fn main() {
    let mut asked = Asked::read();
    let begun = Instant::now();
    if let Err(error) = play(&mut asked).await {
        Seen::default().end(begun, Err(error.to_string()));
    }
}

async fn play(asked: &mut Asked) -> Result<()> {
    let command = || {
        let (program, args) = asked.agent.split_first().expect("an agent");
        Command::new(program).args(args)
    };
    if asked.scenario == "cycle" {
        return cycle(asked.args[0].parse().expect("a number"), command).await;
    }
    let clean = asked.scenario == "clean";
    let command = if clean { command().clean_env() } else { command() };
    let mut client = Client::new(());
    if asked.scenario == "start" {
        client = client.start_timeout(Duration::from_secs(asked.number() as u64));
    }
    let agent = client.spawn(command).await?;
    let played = with(&agent, asked).await;
    let begun = Instant::now();
    agent.close().await;
    if let Err(error) = played {
        Seen::default().end(begun, Err(error.to_string()));
    }
    closed(begun);
    Ok(())
}

async fn with(agent: &Connection, asked: &mut Asked) -> Result<()> {
    if asked.scenario == "sessions" {
        return sessions(agent, asked.number(), &asked.text(), &asked.text()).await;
    }
    let session = agent.new_session("/").await?;
    ready();
    match asked.scenario.as_str() {
        "turn" | "clean" => turn(&session, &asked.text(), None).await,
        "turns" => {
            let (from, to, text) = (asked.number(), asked.number(), asked.text());
            for number in from..to {
                turn(&session, &format!("{text} {number}"), None).await?;
            }
            Ok(())
        }
        "stalled" => {
            let pause = Duration::from_secs(asked.number() as u64);
            turn(&session, &asked.text(), Some(pause)).await
        }
        "two" => {
            let other = agent.new_session("/").await?;
            two(&session, &other, asked.number(), &asked.text(), &asked.text()).await
        }
        "start" => Ok(()),
        other => panic!("{other} is no scenario"),
    }
}

/// One turn, with a pause behind its first update. That it fails is a result; that the next cannot begin is the error.
async fn turn(session: &Session, text: &str, mut pause: Option<Duration>) -> Result<()> {
    let begun = Instant::now();
    let mut turn = session.prompt(text).await?;
    let seen = Seen::default();
    let mut end = None;
    while let Some(update) = turn.next().await {
        match update {
            Ok(update) => seen.update(text_of(&update)),
            Err(error) => end = Some(error),
        }
        if let Some(pause) = pause.take() {
            tokio::time::sleep(pause).await;
        }
    }
    let end = match end {
        Some(error) => Err(error),
        None => turn.outcome().await,
    };
    seen.end(begun, end.map(|end| format!("{:?}", end.stop_reason)).map_err(|error| error.to_string()));
    Ok(())
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

/// Nobody reads the first session beyond its first update. The second one runs turns, and then
/// the first is cancelled.
async fn two(first: &Session, other: &Session, rounds: usize, text: &str, small: &str) -> Result<()> {
    let (mut turns, mut called, mut stalled) = (Vec::new(), Vec::new(), 0);
    for round in 0..rounds {
        let mut unheard = first.prompt(text).await?;
        unheard.next().await.transpose()?;
        if round % 20 == 0 {
            // Until there is no more room for what it says.
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let begun = Instant::now();
        other.prompt(small).await?.finish().await?;
        turns.push(begun.elapsed());
        called.push(now_ns());
        unheard.cancel();
        // Stalled or cancelled: it is over.
        stalled += usize::from(unheard.outcome().await.is_err());
    }
    say(&json!({"turns": spread(turns), "called": called, "stalled": stalled}));
    Ok(())
}

async fn sessions(agent: &Connection, count: usize, text: &str, flood: &str) -> Result<()> {
    // The first session and its turn are not counted, as they fill caches.
    agent.new_session("/").await?.prompt(text).await?.finish().await?;
    ready();
    let idle = in_use();
    let begun = Instant::now();
    let opening = futures::stream::iter(0..count).map(|_| agent.new_session("/"));
    let sessions: Vec<Session> = opening.buffer_unordered(AT_ONCE).try_collect().await?;
    let open = in_use();
    say(&json!({"open_kib": memory("VmRSS:"), "ms": begun.elapsed().as_millis() as u64}));

    let turns = futures::stream::iter(&sessions).map(async |session| {
        let begun = Instant::now();
        count_updates(session.prompt(text).await?).await?;
        Result::<_>::Ok(begun.elapsed())
    });
    let took: Vec<Duration> = turns.buffer_unordered(AT_ONCE).try_collect().await?;
    say(&json!({"turns": spread(took), "kib": memory("VmRSS:")}));

    let begun = Instant::now();
    let floods = futures::stream::iter(sessions.iter().take(AT_ONCE))
        .map(async |session| count_updates(session.prompt(flood).await?).await);
    let updates: Vec<u64> = floods.buffer_unordered(AT_ONCE).try_collect().await?;
    let updates: u64 = updates.into_iter().sum();
    say(&json!({
        "updates": updates,
        "per_second": (updates as f64 / begun.elapsed().as_secs_f64()) as u64,
        "peak_kib": memory("VmHWM:"),
        "kib": memory("VmRSS:"),
    }));

    let begun = Instant::now();
    if agent.capabilities().session_capabilities.close.is_some() {
        let closing = futures::stream::iter(&sessions).map(|session| session.close().into_future());
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

async fn count_updates(mut turn: Turn) -> Result<u64> {
    let mut updates = 0;
    while let Some(update) = turn.next().await {
        update?;
        updates += 1;
    }
    turn.outcome().await?;
    Ok(updates)
}

/// Starts and closes the agent again and again; prints the resources after a warm-up and at the end.
async fn cycle(count: usize, command: impl Fn() -> Command) -> Result<()> {
    let warm = (count / 10).clamp(1, 100);
    for round in 0..count {
        if round == warm {
            say(&held());
        }
        Client::new(()).spawn(command()).await?.close().await;
    }
    say(&held());
    Ok(())
}
