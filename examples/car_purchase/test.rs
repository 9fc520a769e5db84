//! The purchase as a process: its output, the messages on both connections, and a forger between them.

use std::process::Command;

use duologue_transcript::{Transcript, assert_transcript};
use tempfile::{TempDir, tempdir};

const CAR_PURCHASE: &str = env!("CARGO_BIN_EXE_car-purchase");

/// A purchase that goes well, and the folder it leaves its recordings in.
fn purchase() -> (TempDir, String) {
    let folder = tempdir().expect("a folder");
    let output = Command::new(CAR_PURCHASE).arg(folder.path()).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    (folder, String::from_utf8(output.stdout).expect("text"))
}

fn recording(folder: &TempDir, role: &str) -> duologue_transcript::Result<Transcript> {
    Transcript::load(folder.path().join(role).with_extension("jsonl"))
}

#[test]
fn the_user_reads_the_messages() {
    let (_folder, account) = purchase();
    insta::assert_snapshot!(account, @r"
    s1 1. buyer to seller, request:
       Is the 2023 Camry from your advertisement still there? Tell me about it.
        s2 1. seller to details, request:
           A buyer asks about a 2023 Toyota Camry. What is on file?
        s2 2. details to seller, response:
           One match: 15,000 miles, in excellent condition, no accidents, with backup camera, lane assist, listed at $18,000.
           (the asking_price of vehicle:12345ABCDEFG67890 is 18000, confidence 1.0)
        s2 3. seller to details, termination:
           That is all, thank you.
    s1 2. seller to buyer, response:
       It is: 15,000 miles, in excellent condition, no accidents, with backup camera, lane assist. I ask $18,000.
       (the asking_price of vehicle:12345ABCDEFG67890 is 18000, confidence 1.0)
    s1 3. buyer to seller, propose:
       The Camry looks good. Would you take $16,000?
    s1 4. seller to buyer, reject:
       I cannot go that low. For $17,000 it is yours.
    s1 5. buyer to seller, propose:
       Let us meet halfway, at $16,500.
    s1 6. seller to buyer, accept:
       Agreed: $16,500.
    s1 7. buyer to seller, termination:
       Thank you. I come by tomorrow with the money.

    The car is bought for $16,500.
    ");
}

#[test]
fn the_seller_sells() {
    let (folder, _) = purchase();
    assert_transcript!(recording(&folder, "seller"), @r#"
    ## connection

    → initialize v1
      can _meta = {"duologue":{"agentId":"[agent-1]","dialogue":{},"envelope":{"v":[1]},"messageClear":true}}
    ← initialize v1 car-dealer 0.1.0 "Car dealer"
      can _meta = {"duologue":{"agentId":"[agent-2]","dialogue":{},"envelope":{"v":[1]}}}

    ## session [session-1]

    → session/new [cwd]
    ← session/new ok
    → _session/dialogue step 1 request request-action [session-1.message-1] signed
      agent://buyer to agent://seller in [session-1.dialogue-1]
      automotive.sales getCarDetails {"make":"Toyota","model":"Camry","year":2023}
      "Is the 2023 Camry from your advertisement still there? Tell me about it."
      metadata {"correlation_id":"s1"}
    ← _session/dialogue delivered [session-1.message-1] in [session-1.dialogue-1]
    ← _session/dialogue step 2 response inform-ref [session-1.message-2] re [session-1.message-1] signed
      agent://seller to agent://buyer in [session-1.dialogue-1]
      automotive.sales getCarDetails {"accident_history":[],"asking_price":18000,"condition":"excellent","features":["backup camera","lane assist"],"make":"Toyota","mileage":15000,"model":"Camry","vin":"12345ABCDEFG67890","year":2023}
      "It is: 15,000 miles, in excellent condition, no accidents, with backup camera, lane assist. I ask $18,000."
      after [session-1.message-1]
      believes vehicle:12345ABCDEFG67890 asking_price = 18000 (1.0)
      metadata {"correlation_id":"s1"}
    → _session/dialogue delivered [session-1.message-2] in [session-1.dialogue-1]
    → _session/dialogue step 3 propose [session-1.message-3] re [session-1.message-2] signed
      agent://buyer to agent://seller in [session-1.dialogue-1]
      automotive.sales negotiatePrice {"asking_price":18000,"offer_price":16000}
      "The Camry looks good. Would you take $16,000?"
      after [session-1.message-2]
      metadata {"correlation_id":"s1"}
    ← _session/dialogue delivered [session-1.message-3] in [session-1.dialogue-1]
    ← _session/dialogue step 4 reject [session-1.message-4] re [session-1.message-3] signed
      agent://seller to agent://buyer in [session-1.dialogue-1]
      automotive.sales negotiatePrice {"counter_offer":{"asking_price":18000,"offer_price":17000}}
      "I cannot go that low. For $17,000 it is yours."
      metadata {"correlation_id":"s1"}
    → _session/dialogue delivered [session-1.message-4] in [session-1.dialogue-1]
    → _session/dialogue step 5 propose [session-1.message-5] re [session-1.message-4] signed
      agent://buyer to agent://seller in [session-1.dialogue-1]
      automotive.sales negotiatePrice {"asking_price":18000,"offer_price":16500}
      "Let us meet halfway, at $16,500."
      after [session-1.message-2] [session-1.message-4]
      metadata {"correlation_id":"s1"}
    ← _session/dialogue delivered [session-1.message-5] in [session-1.dialogue-1]
    ← _session/dialogue step 6 accept [session-1.message-6] re [session-1.message-5] signed
      agent://seller to agent://buyer in [session-1.dialogue-1]
      automotive.sales negotiatePrice {"asking_price":18000,"offer_price":16500}
      "Agreed: $16,500."
      metadata {"correlation_id":"s1"}
    → _session/dialogue delivered [session-1.message-6] in [session-1.dialogue-1]
    → _session/dialogue step 7 termination closing [session-1.message-7] re [session-1.message-6] signed
      agent://buyer to agent://seller in [session-1.dialogue-1]
      automotive.sales negotiatePrice
      "Thank you. I come by tomorrow with the money."
      metadata {"correlation_id":"s1"}
    ← _session/dialogue delivered [session-1.message-7] in [session-1.dialogue-1]
    "#);
}

#[test]
fn the_details_agent_looks_the_car_up() {
    let (folder, _) = purchase();
    assert_transcript!(recording(&folder, "car-details"), @r#"
    ## connection

    → initialize v1
      can _meta = {"duologue":{"agentId":"[agent-1]","dialogue":{},"envelope":{"v":[1]},"messageClear":true}}
    ← initialize v1 car-dealer 0.1.0 "Car dealer"
      can _meta = {"duologue":{"agentId":"[agent-2]","dialogue":{},"envelope":{"v":[1]}}}

    ## session [session-1]

    → session/new [cwd]
    ← session/new ok
    → _session/dialogue step 1 request request-action [session-1.message-1] signed
      agent://seller to agent://details in [session-1.dialogue-1]
      automotive.data getDetailedCarInfo {"make":"Toyota","model":"Camry","year":2023}
      "A buyer asks about a 2023 Toyota Camry. What is on file?"
      after [session-1.message-2]
      metadata {"correlation_id":"s1","parent_message_id":"[session-1.message-2]","parent_session_id":"[session-1.dialogue-2]"}
    ← _session/dialogue delivered [session-1.message-1] in [session-1.dialogue-1]
    ← _session/dialogue step 2 response inform-ref [session-1.message-3] re [session-1.message-1] signed
      agent://details to agent://seller in [session-1.dialogue-1]
      automotive.data getDetailedCarInfo {"accident_history":[],"asking_price":18000,"condition":"excellent","features":["backup camera","lane assist"],"make":"Toyota","mileage":15000,"model":"Camry","vin":"12345ABCDEFG67890","year":2023}
      "One match: 15,000 miles, in excellent condition, no accidents, with backup camera, lane assist, listed at $18,000."
      believes vehicle:12345ABCDEFG67890 asking_price = 18000 (1.0)
      metadata {"correlation_id":"s1","parent_message_id":"[session-1.message-2]","parent_session_id":"[session-1.dialogue-2]"}
    → _session/dialogue delivered [session-1.message-3] in [session-1.dialogue-1]
    → _session/dialogue step 3 termination closing [session-1.message-4] re [session-1.message-3] signed
      agent://seller to agent://details in [session-1.dialogue-1]
      automotive.data getDetailedCarInfo
      "That is all, thank you."
      metadata {"correlation_id":"s1","parent_message_id":"[session-1.message-2]","parent_session_id":"[session-1.dialogue-2]"}
    ← _session/dialogue delivered [session-1.message-4] in [session-1.dialogue-1]
    "#);
}

/// A forger between the seller and the details agent makes the car look better than it is.
#[cfg(target_os = "linux")]
#[test]
fn an_altered_message_is_rejected_and_nothing_is_bought() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempdir().expect("a folder");
    let between = folder.path().join("between.sh");
    let script = format!("#!/bin/sh\n{CAR_PURCHASE} \"$@\" | sed -u 's/:15000/:1500/'\n");
    std::fs::write(&between, script).expect("a script");
    std::fs::set_permissions(&between, std::fs::Permissions::from_mode(0o700)).expect("a program");

    let output = Command::new(CAR_PURCHASE)
        .arg(folder.path())
        .env("CAR_DETAILS_AGENT", &between)
        .output()
        .expect("it starts");
    assert!(!output.status.success());
    insta::assert_snapshot!(String::from_utf8_lossy(&output.stderr), @"car-purchase: another agent failed (SERVER_ERROR)");
    insta::assert_snapshot!(String::from_utf8_lossy(&output.stdout), @r"
    s1 1. buyer to seller, request:
       Is the 2023 Camry from your advertisement still there? Tell me about it.
        s2 1. seller to details, request:
           A buyer asks about a 2023 Toyota Camry. What is on file?
        s2 2. details to seller, response, which is refused:
           One match: 15,000 miles, in excellent condition, no accidents, with backup camera, lane assist, listed at $18,000.
           (the asking_price of vehicle:12345ABCDEFG67890 is 18000, confidence 1.0)
        s2 2. details to seller, error:
           a message of this agent was rejected (UNAUTHORIZED) (SERVER_ERROR)
        s2 3. seller to details, termination:
           That is all, thank you.
    s1 2. seller to buyer, error:
       another agent failed (SERVER_ERROR)
    s1 3. buyer to seller, termination:
       Then I keep looking.
    ");
}
