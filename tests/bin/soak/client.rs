//! The client's part: agents that flood, stall, talk nonsense, ask, die and are killed.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use duologue_client::{Client, Command, Connection, Limits, Session};

use crate::part::Counts;

/// Whatever takes longer than this hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Small, so that every limit is met often and for little.
fn limits() -> Limits {
    let mut limits = Limits::default();
    limits.frame_bytes = 1024 * 1024;
    limits.queue_bytes = 256 * 1024;
    limits.queue_bytes_hard = 384 * 1024;
    limits.stall_timeout = Duration::from_millis(100);
    limits
}

/// One agent, from its start to whatever end it comes to.
pub(crate) async fn visit(mut rng: fastrand::Rng, counts: &'static Counts) {
    let stay = async {
        let Ok(this) = std::env::current_exe() else { return };
        let command = Command::new(this.with_file_name("raw-agent")).args(["/dev/null"]);
        let Ok(agent) = Client::new(()).limits(limits()).spawn(command).await else { return };
        for _ in 0..rng.usize(1..4) {
            if talk(&agent, &mut rng).await.is_err() {
                break;
            }
        }
        match rng.u8(0..4) {
            0 => drop(agent),
            1 => agent.kill(),
            _ => drop(agent.close().await),
        }
    };
    if tokio::time::timeout(PATIENCE, stay).await.is_err() {
        counts.hung.fetch_add(1, Relaxed);
    }
}

/// Some turns in a session.
async fn talk(agent: &Connection, rng: &mut fastrand::Rng) -> duologue_client::Result<()> {
    let session = agent.new_session("/").await?;
    for _ in 0..rng.usize(1..6) {
        let text = words(rng);
        // That a turn fails is what this is about; the next one tells whether the agent lives.
        let _ = turn(&session, &text, rng).await;
    }
    if rng.bool() { session.close().await.map(drop) } else { Ok(()) }
}

fn words(rng: &mut fastrand::Rng) -> String {
    let number = rng.u32(..);
    match rng.u8(0..12) {
        0 | 1 => format!("flood {} {}", rng.u32(1..2000), rng.u32(1..2000)),
        2 => format!("unknown {} 100", rng.u32(1..500)),
        3 => format!("garbage {} {number}", rng.u32(1..200)),
        4 => format!("bad {}", rng.u32(0..200)),
        5 => "ask 20 fs/read_text_file".into(),
        6 => "ask 20 session/request_permission".into(),
        7 => format!("amplify {} {{}}, {}", rng.u32(1..500_000), ["meta", "raw", "unknown"][rng.usize(0..3)]),
        8 => format!("die {}", ["kill", "abort", "exit"][rng.usize(0..3)]),
        9 => format!("line {}", rng.u32(1..2_000_000)),
        10 => "hang".into(),
        _ => "say".into(),
    }
}

async fn turn(session: &Session, text: &str, rng: &mut fastrand::Rng) -> duologue_client::Result<()> {
    let mut turn = session.prompt(text).await?;
    let moment = Duration::from_millis(rng.u64(0..150));
    // A turn that never ends by itself is ended by us.
    let kind = if text == "hang" || text.starts_with("line") { rng.u8(0..3) } else { rng.u8(0..7) };
    match kind {
        0 => {
            tokio::time::sleep(moment).await;
            turn.cancel();
            turn.outcome().await.map(drop)
        }
        1 => {
            tokio::time::sleep(moment).await;
            session.cancel();
            turn.outcome().await.map(drop)
        }
        2 => {
            let _ = tokio::time::timeout(moment, turn.next()).await;
            drop(turn);
            Ok(())
        }
        3 => {
            turn.next().await.transpose()?;
            tokio::time::sleep(moment).await;
            turn.finish().await.map(drop)
        }
        4 => {
            turn.detach();
            let mut updates = session.updates();
            let _ = tokio::time::timeout(moment, updates.next()).await;
            Ok(())
        }
        _ => turn.finish().await.map(drop),
    }
}
