//! The memory that decoding the most frequent types costs.

use std::hint::black_box;

use allocation_counter::measure;
use duologue_schema::{ClientRequest, ContentBlock, SessionNotification, SessionUpdate};

#[test]
fn sizes() {
    assert!(size_of::<ContentBlock>() <= 64, "{}", size_of::<ContentBlock>());
    assert!(size_of::<SessionUpdate>() <= 96, "{}", size_of::<SessionUpdate>());
}

fn allocations(text: &str) -> u64 {
    measure(|| drop(black_box(serde_json::from_str::<SessionNotification>(text).unwrap()))).count_total
}

#[test]
fn a_chunk_allocates_its_texts_and_nothing_else() {
    let chunk = |content: &str| {
        format!(r#"{{"sessionId":"s1","update":{{"sessionUpdate":"agent_message_chunk",{content}}}}}"#)
    };
    let plain = chunk(r#""content":{"type":"text","text":"hello"}"#);
    let named = chunk(r#""messageId":"m1","content":{"type":"text","text":"hello"}"#);
    let wrong = chunk(r#""messageId":7,"content":{"type":"text","text":"hello"}"#);
    // The text and the id of its session; an id that was there before costs nothing.
    assert_eq!([&plain, &plain].map(|chunk| allocations(chunk)), [2, 1]);
    assert_eq!([&named, &named].map(|chunk| allocations(chunk)), [2, 1]);
    assert_eq!(allocations(&wrong), 1);
}

#[test]
fn a_big_meta_costs_its_text() {
    let numbers = "[1,2,3,4,5,6,7,8,9],".repeat(10_000);
    let text = format!(r#"{{"sessionId":"s","prompt":[],"_meta":{{"a":[{numbers}0]}}}}"#);
    let raw: &serde_json::value::RawValue = serde_json::from_str(&text).unwrap();
    let info = measure(|| assert!(ClientRequest::decode("session/prompt", Some(raw)).unwrap().is_ok()));
    assert!(info.bytes_max < text.len() as u64 + 4096, "{} for {}", info.bytes_max, text.len());
}
