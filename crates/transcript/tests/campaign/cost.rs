//! The cost of recording a conversation: the same one with and without, in turns.

use std::time::{Duration, Instant};

use duologue_agent::{Agent, Prompt, Server, StopReason, Turn};
use duologue_client::Client;
use duologue_transcript::{Recorder, Side};

use duologue_test_support::{Wire, measured, runs};

/// Rounds of each variant. The median counts.
const ROUNDS: usize = 9;

/// Says as many words as the prompt asks for, as a model does.
struct Model;

const WORDS: [&str; 12] = [
    "The ",
    "function ",
    "returns ",
    "early",
    ", so ",
    "`config.toml`",
    " is never read",
    ".\n",
    "- ",
    "I'll ",
    "check ",
    "it again",
];

impl Agent for Model {
    async fn prompt(&self, turn: &Turn, prompt: Prompt) -> duologue_agent::Result<StopReason> {
        let mut message = turn.message();
        for word in WORDS.iter().cycle().take(prompt.text().parse().unwrap_or_default()) {
            message.push(*word).await?;
        }
        Ok(StopReason::EndTurn)
    }
}

/// Measures a turn of so many updates.
async fn turn(updates: u64, recorder: Option<&Recorder>) -> Duration {
    let (ours, theirs) = Wire::Pipes.pair();
    let serving = tokio::spawn(Server::new(Model).serve(theirs));
    let client = Client::new(());
    let client = match recorder {
        Some(recorder) => client.tap(recorder.tap(Side::Client)),
        None => client,
    };
    let agent = client.connect(ours).await.expect("an agent");
    let session = agent.new_session("/tmp").await.expect("a session");
    let began = Instant::now();
    let mut turn = session.prompt(updates.to_string()).await.expect("a turn");
    let mut seen = 0;
    while let Some(update) = turn.next().await {
        update.expect("an update");
        seen += 1;
    }
    let took = began.elapsed();
    assert_eq!(seen, updates);
    agent.close().await;
    serving.await.expect("no panic").expect("served");
    took
}

/// Returns the CPU time of this process, in ticks of a hundredth of a second.
fn worked() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
}

/// The largest allowed ratio of durations.
const LIMIT: f64 = 1.05;

/// Asserts nothing about the times, as they depend on the machine. The printed measure says if the limit is exceeded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cost_of_recording_is_measured() {
    let updates = runs(2_000);
    let folder = tempfile::tempdir().expect("a folder");
    let (mut times, mut work) = ([const { Vec::new() }; 3], [0; 3]);
    for _ in 0..ROUNDS {
        for (recording, (times, work)) in times.iter_mut().zip(&mut work).enumerate() {
            let before = worked();
            let path = folder.path().join("talk.jsonl");
            let recorder = match recording {
                0 => None,
                1 => Some(Recorder::builder().keep_secrets().replace(&path).expect("a file")),
                _ => Some(Recorder::builder().replace(&path).expect("a file")),
            };
            let mut took = turn(updates, recorder.as_ref()).await;
            if let Some(recorder) = recorder {
                let began = Instant::now();
                recorder.finish().await.expect("written");
                took += began.elapsed();
                *work += worked() - before;
                let lines =
                    std::fs::read(&path).expect("a file").iter().filter(|byte| **byte == b'\n').count();
                assert!(lines as u64 > updates, "all of it is recorded");
            } else {
                *work += worked() - before;
            }
            times.push(took);
        }
    }
    let middle = times.map(|mut times: Vec<Duration>| {
        times.sort_unstable();
        times[ROUNDS / 2].as_secs_f64()
    });
    let more = |[without, kept, redacted]: [f64; 3]| {
        format!(
            "{:+.1} % ({:+.1} % with secrets left in)",
            (redacted / without - 1.0) * 100.0,
            (kept / without - 1.0) * 100.0
        )
    };
    let [unrecorded, _, recorded] = middle;
    let verdict = if recorded > unrecorded * LIMIT { "short: " } else { "" };
    measured(format_args!(
        "{verdict}time {}, work {}; {:.0} updates/s unrecorded",
        more(middle),
        more(work.map(|ticks| ticks as f64)),
        updates as f64 / unrecorded
    ));
}
