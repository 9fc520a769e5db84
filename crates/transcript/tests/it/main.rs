//! Tests of recordings through the public interface.

mod between_agents;
mod canonical;
mod damage;
mod describe;
mod planted;
mod protocol_2;
mod record_files;
mod record_streams;
mod recorder;
mod redact;
mod redact_properties;
mod redact_rules;
mod rendering;
mod replays;
mod streamed_secrets;
mod taps;

/// Returns the settings of a random test with this number of cases, or with `DUOLOGUE_RUNS` in a campaign.
fn random_cases(gate: u64) -> proptest::test_runner::Config {
    let cases = u32::try_from(duologue_test_support::runs(gate)).unwrap_or(u32::MAX);
    proptest::test_runner::Config { cases, failure_persistence: None, ..Default::default() }
}
