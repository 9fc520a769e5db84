//! The hub: from an update of the agent to the frame for a client, without the process, the log and the connection.

use std::hint::black_box;
use std::time::Duration;

use duologue_hub::{
    Abilities, ClientKey, ClientView, OwnerAction, OwnerInput, OwnerSettings, SessionOwner, project,
};
use duologue_schema::SessionId;

use crate::played::SESSION;
use crate::{Path, Work};

const UPDATES: u64 = 10_000;

pub(crate) const PATHS: &[Path] = &[Path::new("hub/update", UPDATES, update)];

/// Updates of 40 bytes of text in a turn. Each is recorded, and is a frame when its record is written.
fn update() -> Work {
    let (client, session) = (ClientKey::new("client"), SessionId::from(SESSION));
    let text = "x".repeat(40);
    let line = format!(
        r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"{SESSION}","update":{{"sessionUpdate":"agent_message_chunk","content":{{"type":"text","text":"{text}"}},"messageId":"c6d3a1de-6c3f-4c4e-a8a1-5a9e36f0b7cd"}}}}}}"#
    );
    let prompt = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{{"sessionId":"{SESSION}","prompt":[]}}}}"#
    );
    let (now, abilities) = (Duration::ZERO, Abilities::default());
    let mut owner = SessionOwner::new(session.clone(), OwnerSettings::default(), 0);
    owner.handle(now, OwnerInput::Attached { client: &client, abilities });
    owner.handle(now, OwnerInput::FromClient { client: &client, number: 1, line: prompt.as_bytes() });
    owner.handle(now, OwnerInput::Written(owner.end()));
    assert!(owner.has_turn(), "a turn runs");
    let mut frames = Vec::new();
    Box::new(move || {
        let view = ClientView { client: &client, session: &session, abilities };
        for _ in 0..UPDATES {
            let actions = owner.handle(now, OwnerInput::FromAgent(black_box(line.as_bytes())));
            let position = owner.end();
            owner.handle(now, OwnerInput::Written(position));
            for action in actions {
                let OwnerAction::Append(record) = action else { continue };
                project(&view, position, &record, |_| None, &mut frames).expect("a record");
            }
            assert_eq!(black_box(&frames).len(), 1);
            frames.clear();
        }
    })
}
