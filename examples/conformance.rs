//! A test that any agent can have, and one that any client can have.

use duologue_client::Client;
use duologue_conformance::{Command, Suite};
use duologue_testkit::{Faults, MockAgent};

#[test]
fn the_agent_keeps_to_the_protocol() -> duologue_conformance::Result<()> {
    Suite::new(|| Command::new(env!("CARGO_BIN_EXE_echo-agent"))).run_blocking()?.assert_passed();
    Ok(())
}

#[tokio::test]
async fn the_client_tolerates_log_lines_and_torn_messages() -> Result<(), Box<dyn std::error::Error>> {
    let agent = "noise,fragment=7".parse::<Faults>()?.apply(MockAgent::new().spawn()?)?;
    let session = Client::new(()).connect(agent).await?.new_session("/tmp").await?;
    let reply = session.prompt("hello").await?.finish().await?;
    assert!(reply.text.starts_with("Hello!"));
    Ok(())
}
