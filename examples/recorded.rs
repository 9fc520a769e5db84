//! Tests with a recording: its messages are compared with a snapshot, and it stands in for the agent.
//!
//! It was made with `duologue run hello -- duologue record -o drafting.jsonl -- drafting-agent`.

use duologue_client::{Client, StopReason, Transport};
use duologue_transcript::{Replay, Transcript, assert_transcript};

/// Another test of this program changes the working directory.
const RECORDING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/transcripts/drafting.jsonl");

#[test]
fn the_recording_is_the_snapshot() {
    assert_transcript!(Transcript::load(RECORDING), @r#"
    ## connection

    → initialize v1 duologue 0.1.0
      can _meta = {"duologue":{"messageClear":true}}
      can fs readTextFile writeTextFile
      can session compaction configOptions.boolean notices
      can terminal
    ← initialize v1

    ## session [session-1]

    → session/new [cwd]
    ← session/new ok
    → session/prompt "hello"
    ← agent_thought [message-1] "A first draft shows that I am at it."
    ← agent_message [message-2] "Let me think about this for a moment …"
    ← agent_message_clear [message-2]
    ← agent_message [message-2] "You said “hello”, and I mean it."
    ← session/prompt end_turn

    ## end

    → end of output
    ← end of output
    the agent's process ended with code 0
    "#);
}

#[tokio::test]
async fn a_client_is_tested_without_the_agent() -> Result<(), Box<dyn std::error::Error>> {
    let (ours, theirs) = Transport::memory();
    let replay = tokio::spawn(Replay::new(Transcript::load(RECORDING)?).serve(theirs));

    let agent = Client::new(()).connect(ours).await?;
    let session = agent.new_session("/tmp").await?;
    let reply = session.prompt("hello").await?.finish().await?;
    assert_eq!(*reply.stop_reason(), StopReason::EndTurn);
    assert_eq!(reply.text, "You said “hello”, and I mean it.");

    agent.close().await;
    let report = replay.await??;
    assert!(report.differences.is_empty(), "{report:?}");
    Ok(())
}
