//! Every type of message in both directions, signed, over the pipes of a process.

use duologue_client::{Client, Exchange};

use super::walkthrough::{AGENT, CLIENT, Listener, walkthrough};
use duologue_test_support::in_time;

/// The messages of the side that opens the dialogue: all twelve types.
const SENT: &str = "\
request signed: Paint the door.
confirm signed: I see it.
query signed: Which colour is that?
clarify signed: What is teal?
inform signed: I have looked.
response signed: Very much.
update signed: And more by the minute.
propose signed: The gate, for fifty?
accept signed: Agreed.
reject signed: Not today.
error signed: It rains.
termination signed: Until tomorrow.";

/// The responses.
const ANSWERED: &str = "\
response signed: It is painted.
response signed: Teal.
inform signed: A blue that is green.
query signed: Do you like it?
reject signed: For forty.
propose signed: The window too?";

#[tokio::test]
async fn every_type_in_both_directions() {
    in_time(async {
        let listener = Listener::default();
        let exchange = Exchange::new().dialogue(listener.dialogues(CLIENT));
        let command = std::process::Command::new(env!("CARGO_BIN_EXE_twin-agent"));
        let agent = Client::new(()).exchange(exchange).spawn(command).await.unwrap();
        let session = agent.new_session("/tmp").await.unwrap();
        let says = async |text: &str| session.prompt(text).await.unwrap().finish().await.unwrap().text;

        assert_eq!(walkthrough(&session.peer_agent(), AGENT).await.unwrap(), ANSWERED);
        // The last one has its receipt before it is handled.
        let heard = loop {
            let heard = says("listened").await;
            if heard.contains("termination") {
                break heard;
            }
        };
        assert_eq!(heard, SENT);

        assert_eq!(says("talk").await, ANSWERED);
        while !listener.heard().contains("termination") {
            tokio::task::yield_now().await;
        }
        assert_eq!(listener.heard(), SENT);
    })
    .await;
}
