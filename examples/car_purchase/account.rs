//! A summary of the messages between the agents, from the recordings.

use std::fmt;
use std::path::Path;

use duologue_client::rpc::ResponseOutcome;
use duologue_client::schema::Request;
use duologue_client::schema::dialogue::{
    AgentUri, Belief, DialogueMessage, DialogueRequest, DialogueResponse,
};
use duologue_transcript::{ParsedLine, Transcript, TranscriptEntry, printable};

use crate::Result;
use crate::partner::recording;

/// The messages between buyer and seller, with the nested dialogues of the seller.
pub(crate) struct Account {
    with_seller: Vec<Spoken>,
    with_details: Vec<Spoken>,
}

/// A message, and whether the other side refused it.
struct Spoken {
    message: DialogueMessage,
    refused: bool,
}

impl Account {
    pub(crate) fn read(folder: &Path) -> Result<Self> {
        Ok(Account {
            with_seller: spoken(&recording(folder, "seller"))?,
            with_details: spoken(&recording(folder, "car-details"))?,
        })
    }
}

fn spoken(recording: &Path) -> Result<Vec<Spoken>> {
    let transcript = Transcript::load(recording)?;
    let entries = transcript.entries();
    let mut spoken = Vec::new();
    for entry in &entries {
        let ParsedLine::Request { method, params: Some(params), answer, .. } = &entry.parsed else {
            continue;
        };
        if method == DialogueRequest::METHOD {
            let request: DialogueRequest = serde_json::from_str(params.get())?;
            let refused = answer.and_then(|answer| entries.get(answer)).is_some_and(is_refusal);
            spoken.push(Spoken { message: request.message.parse()?, refused });
        }
    }
    Ok(spoken)
}

fn is_refusal(answer: &TranscriptEntry<'_>) -> bool {
    let ParsedLine::Response { outcome: ResponseOutcome::Result(result), .. } = &answer.parsed else {
        return true;
    };
    serde_json::from_str(result.get()).is_ok_and(|answer: DialogueResponse| answer.error.is_some())
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for spoken in &self.with_seller {
            write(f, "", spoken)?;
            let id = &spoken.message.message_id;
            let because = |nested: &&Spoken| nested.message.metadata.parent_message_id.as_ref() == Some(id);
            self.with_details.iter().filter(because).try_for_each(|nested| write(f, "    ", nested))?;
        }
        Ok(())
    }
}

fn write(f: &mut fmt::Formatter<'_>, indent: &str, spoken: &Spoken) -> fmt::Result {
    let DialogueMessage {
        session_id, interaction_step, message_type, sender_id, recipient_id, content, ..
    } = &spoken.message;
    let refused = if spoken.refused { ", which is refused" } else { "" };
    let (from, to) = (name(sender_id), name(recipient_id));
    let mut line = |text: String| writeln!(f, "{indent}{}", printable(&text));
    line(format!("{session_id} {interaction_step}. {from} to {to}, {message_type}{refused}:"))?;
    if let Some(words) = &content.natural_language {
        line(format!("   {words}"))?;
    }
    if let Some(error) = content.error() {
        line(format!("   {} ({})", error.error_message, error.error_code))?;
    }
    for Belief { entity, attribute, value, confidence, .. } in content.beliefs() {
        line(format!("   (the {attribute} of {entity} is {}, confidence {confidence:.1})", value.get()))?;
    }
    Ok(())
}

/// Returns the short name of an agent.
fn name(agent: &AgentUri) -> &str {
    agent.as_str().rsplit('/').next().unwrap_or_default()
}
