//! The conformance suite against this crate's agent, and a client against an agent with a fault.

use duologue_client::Client;
use duologue_conformance::{Command, Suite};
use duologue_testkit::{Faults, MockAgent};

#[tokio::test]
async fn the_agent_conforms_and_a_client_survives_noise() -> Result<(), Box<dyn std::error::Error>> {
    Suite::new(|| Command::new(env!("CARGO_BIN_EXE_outside-agent"))).run().await?.assert_passed();

    let agent = "noise,fragment=7".parse::<Faults>()?.apply(MockAgent::new().spawn()?)?;
    let client = Client::new(()).connect(agent).await?;
    let session = client.new_session(std::env::temp_dir()).await?;
    assert!(session.prompt("hello").await?.finish().await?.text.contains("Hello!"));
    Ok(())
}
