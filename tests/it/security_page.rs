//! `SECURITY.md`: its table of limits is generated here, and the tests it names exist.

mod effects;
mod server_effects;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::PathBuf;

use duologue_agent::Session;
use duologue_client::exchange::dialogue::{self, Beliefs, DialogueLimits};
use duologue_client::{Command, Limits, exchange, limits, schema};
use duologue_hub::gateway::types::RestSessionView;
use duologue_hub::gateway::{AgentConfig, GatewayLimits};
use duologue_hub::{DeliverySettings, HubSettings, OutboundSettings, OwnerSettings};
use duologue_proxy as proxy;
use duologue_store::{LogSettings, StoreSettings};
use duologue_transcript::{RecorderBuilder, Transcript};

use crate::workspace::{compare_tables, root, rust_files};
use effects::EFFECTS;
use server_effects::SERVER_EFFECTS;

fn page() -> String {
    std::fs::read_to_string(root().join("SECURITY.md")).expect("the page")
}

/// The fields of a struct as `Debug` shows them, so that none is forgotten.
fn fields(of: &str, limits: impl Debug, into: &mut BTreeMap<String, String>) {
    for line in format!("{limits:#?}").lines() {
        if let Some((name, value)) = line.trim().trim_end_matches(',').split_once(": ") {
            into.insert(format!("{of}::{name}"), value.to_owned());
        }
    }
}

/// Returns the limits of the code, by name.
fn limits_of_code() -> BTreeMap<String, String> {
    let mut limits = BTreeMap::new();
    fields("Limits", Limits::default(), &mut limits);
    fields("DialogueLimits", DialogueLimits::default(), &mut limits);
    macro_rules! constants {
        ($($name:path),* $(,)?) => {
            $(limits.insert(stringify!($name).replace(' ', ""), format!("{:?}", $name));)*
        };
    }
    constants!(
        Limits::ID_BYTES,
        Limits::SMALL_REQUEST_BYTES,
        Limits::EARLY_BYTES,
        Limits::NOISE_LINES,
        Limits::NOISE_LINE_BYTES,
        RecorderBuilder::QUEUE_BYTES,
        RecorderBuilder::MEMORY_BYTES,
        Transcript::LINE_BYTES,
        Session::BYTES_TOGETHER,
        schema::PATH_BYTES,
        schema::META_BYTES,
        schema::PLANS,
        schema::PLAN_BYTES,
        schema::CHILD_SESSIONS,
        schema::CHILD_SESSION_BYTES,
        schema::DISPLAY_TERMINALS,
        schema::DISPLAY_TERMINAL_BYTES,
        limits::START_TIMEOUT,
        limits::CANCEL_PATIENCE,
        limits::CLOSE_STEP,
        limits::REAP,
        limits::STDERR_TAIL,
        limits::KEPT_UPDATES,
        limits::KEPT_BYTES,
        limits::KEPT_BYTES_TOGETHER,
        limits::STATE_BYTES,
        limits::OPEN_CALLS,
        limits::OPEN_CALL_BYTES,
        limits::OPEN_CALL_BYTES_TOGETHER,
        limits::CANCELLABLE_ID_BYTES,
        limits::SEEN_MESSAGES,
        limits::HOST_BYTES,
        limits::FILE_THREADS,
        limits::SCAN_BYTES,
        limits::QUESTION_PATHS,
        limits::LISTED_PAGES,
        limits::READ_BYTES,
        limits::TERMINALS,
        limits::TERMINALS_TOGETHER,
        limits::TERMINAL_OUTPUT,
        limits::MOST_TERMINAL_OUTPUT,
        exchange::limits::MESSAGE_BYTES,
        exchange::limits::DIALOGUE_META_BYTES,
        exchange::limits::KEY_CARDS,
        exchange::limits::CARD_KEYS,
        exchange::limits::WORK_RESULTS,
        exchange::limits::WORK_RESULT_BYTES,
        exchange::limits::SIGNATURE_BYTES,
        exchange::limits::CLOCK_SKEW,
        exchange::limits::REPLAY_MESSAGES_PER_SENDER,
        exchange::limits::REPLAY_MESSAGES,
        exchange::limits::STEPS_AHEAD,
        exchange::limits::HOPS,
        exchange::limits::ATTACHMENT_BYTES,
        exchange::limits::ENVELOPE_IDS,
        exchange::limits::ENDED_TASKS,
        exchange::limits::ENDED_TASK_BYTES,
        exchange::limits::OUTPUT_BYTES,
        exchange::limits::OUTPUT_CHUNK_BYTES,
        exchange::limits::OUTPUT_AHEAD,
        exchange::limits::SUBSCRIPTION_MESSAGES,
        exchange::limits::SUBSCRIPTION_BYTES,
        dialogue::MAX_DEPTH,
        proxy::MESSAGES_PER_LINE,
        Beliefs::BYTES,
    );
    limits
}

/// Returns the limits of a server, by name. Settings without a number by default are none.
fn limits_of_server() -> BTreeMap<String, String> {
    let mut limits = BTreeMap::new();
    fields("OwnerSettings", OwnerSettings::default(), &mut limits);
    fields("GatewayLimits", GatewayLimits::default(), &mut limits);
    fields("LogSettings", LogSettings::default(), &mut limits);
    fields("StoreSettings", StoreSettings::default(), &mut limits);
    fields("OutboundSettings", OutboundSettings::default(), &mut limits);
    fields("DeliverySettings", DeliverySettings::default(), &mut limits);
    limits.retain(|_, value| value.starts_with(|first: char| first.is_ascii_digit()));
    let hub = HubSettings::new(|| Command::new("agent"), "data");
    limits.insert("HubSettings::spare_process".to_owned(), format!("{:?}", hub.spare_process));
    let mut constant = |name: &str, value: u64| limits.insert(name.to_owned(), value.to_string());
    constant("LogSettings::SMALL_TAIL_BYTES", LogSettings::SMALL_TAIL_BYTES as u64);
    constant("LogSettings::RESERVE_BYTES", LogSettings::RESERVE_BYTES);
    let gateway = GatewayLimits::default();
    constant("GatewayLimits::page_logins", gateway.page_logins as u64);
    constant("GatewayLimits::page_login_seconds", gateway.page_login_seconds);
    let agent: AgentConfig = serde_json::from_value(serde_json::json!({"id": "a"})).expect("an agent");
    constant("AgentConfig::idle_seconds", agent.idle_seconds);
    constant("AgentConfig::max_idle_sessions", agent.max_idle_sessions as u64);
    constant("AgentConfig::max_asking_tasks", agent.max_asking_tasks as u64);
    constant("RestSessionView::LOG_BYTES", RestSessionView::LOG_BYTES as u64);
    constant("RestSessionView::LOG_RECORDS", RestSessionView::LOG_RECORDS as u64);
    limits
}

/// Returns `16 MiB`, `10 s` or `65,536` for a value that `Debug` has written. The name of a number has its unit.
fn shown(name: &str, value: &str) -> String {
    for unit in ["ms", "s"] {
        if let Some(number) = value.strip_suffix(unit) {
            return format!("{} {unit}", grouped(number.parse().expect("a whole number")));
        }
    }
    let number: u64 = value.parse().unwrap_or_else(|_| panic!("{name} = {value} is no number"));
    let is_size = ["BYTES", "TAIL", "OUTPUT"].iter().any(|word| name.to_uppercase().contains(word));
    for (unit, size) in [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if is_size && number.is_multiple_of(size) {
            return format!("{} {unit}", number / size);
        }
    }
    let unit = if name.ends_with("_seconds") { " s" } else { "" };
    grouped(number) + unit
}

fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|group| std::str::from_utf8(group).ok()).collect();
    groups.join(",")
}

#[test]
fn the_table_has_every_limit_as_it_is() {
    let tables = [(limits_of_code(), EFFECTS), (limits_of_server(), SERVER_EFFECTS)];
    compare_tables("SECURITY.md", &tables.map(|(limits, effects)| table(limits, effects)));
}

/// The title of each table of limits.
const TITLE: &str = "| limit | default | effect at the limit |";

/// The limits of a configuration file have their table in the guide too, under their names in the file.
#[test]
fn the_guide_has_the_limits_of_a_hub() {
    let limits = limits_of_server();
    let rows = SERVER_EFFECTS.iter().filter_map(|(name, effect)| {
        let key = name.strip_prefix("GatewayLimits::")?;
        let value = shown(name, &limits[*name]);
        // The last word of a number is what it counts.
        let unit = match (key, key.rsplit('_').next()) {
            ("requests_per_minute", _) => "requests in a minute",
            ("call_depth", _) => "calls",
            (_, Some(counted)) if !value.contains(' ') => counted,
            _ => "",
        };
        let value = format!("{value} {unit}").trim_end().to_owned();
        Some(format!("| `{key}` | {value} | {effect} |"))
    });
    let head = [TITLE, "| --- | --- | --- |"].map(str::to_owned);
    compare_tables("docs/src/hub.md", &[head.into_iter().chain(rows).collect()]);
}

fn table(mut limits: BTreeMap<String, String>, effects: &[(&str, &str)]) -> Vec<String> {
    let mut table = vec![TITLE.to_owned(), "| --- | --- | --- |".to_owned()];
    for (name, effect) in effects {
        let value = limits.remove(*name).unwrap_or_else(|| panic!("{name} is no limit, or there twice"));
        table.push(format!("| `{name}` | {} | {effect} |", shown(name, &value)));
    }
    assert!(limits.is_empty(), "limits without a row: {limits:?}");
    table
}

/// The settings of a server that are described in another place of the page, because most of them are no limits.
const WITHOUT_TABLE: [&str; 2] = ["HubSettings", "GatewaySettings"];

#[test]
fn no_settings_of_a_server_are_forgotten() {
    let known = limits_of_server();
    for folder in ["hub", "store"] {
        for file in rust_files(&root().join(format!("crates/{folder}/src"))) {
            let source = std::fs::read_to_string(file).expect("a source file");
            let types = source.lines().filter_map(|line| line.strip_prefix("pub struct "));
            for name in types.filter_map(|line| line.split_once(" {")).map(|(name, _)| name) {
                let has_rows = known.keys().any(|limit| limit.starts_with(&format!("{name}::")));
                let is_known = has_rows || WITHOUT_TABLE.contains(&name);
                assert!(is_known || !name.ends_with("Settings"), "{name} is not in SECURITY.md");
            }
        }
    }
}

#[test]
fn the_memory_of_a_client_adds_up() {
    let Limits { frame_bytes, queue_bytes_hard, in_flight, in_flight_bytes, output_bytes_hard, .. } =
        Limits::default();
    let parts = [
        ("a line", frame_bytes),
        ("queued updates", queue_bytes_hard + frame_bytes),
        ("requests", in_flight_bytes.max(frame_bytes) + in_flight * Limits::SMALL_REQUEST_BYTES),
        ("prepared responses", limits::HOST_BYTES),
        ("unread responses", output_bytes_hard + frame_bytes),
        ("updates", limits::KEPT_BYTES_TOGETHER + limits::KEPT_BYTES),
        ("open calls", limits::OPEN_CALL_BYTES_TOGETHER),
    ];
    let terminals = limits::TERMINALS * limits::MOST_TERMINAL_OUTPUT;
    let words: Vec<String> = page().split_whitespace().map(str::to_owned).collect();
    let page = words.join(" ");
    let sum: usize = parts.iter().map(|(_, bytes)| bytes).sum();
    let sentence = format!("is {} MiB, and {} MiB with `LocalHost`:", sum >> 20, (sum + terminals) >> 20);
    assert!(page.contains(&sentence), "{sentence}");
    for (part, bytes) in parts.into_iter().chain([("terminals", terminals)]) {
        let sentence = format!("{part} {}", bytes >> 20);
        assert!(page.contains(&sentence), "{sentence}");
    }
}

/// A limit that is added to a list of them has to be added above.
#[test]
fn no_limit_is_forgotten() {
    let known = limits_of_code();
    for (file, module) in [("client", "limits"), ("exchange", "exchange::limits")] {
        let file = root().join(format!("crates/{file}/src/limits.rs"));
        let source = std::fs::read_to_string(file).expect("the limits");
        for line in source.lines().filter_map(|line| line.strip_prefix("pub const ")) {
            let (name, _) = line.split_once(':').expect("a type");
            assert!(
                known.contains_key(&format!("{module}::{name}")),
                "{module}::{name} is not in SECURITY.md"
            );
        }
    }
}

#[test]
fn the_tests_and_files_it_names_exist() {
    for name in
        page().split('`').skip(1).step_by(2).filter(|name| name.contains('/') && !name.starts_with('/'))
    {
        assert!(root().join(name).exists(), "SECURITY.md names {name}, which is not there");
    }
}

#[test]
fn a_path_may_have_as_many_bytes_as_it_says() {
    let most = schema::PATH_BYTES;
    let path = |bytes: usize| PathBuf::from(format!("/{}", "x".repeat(bytes - 1)));
    assert_eq!(duologue_client::schema::path_fault(&path(most)), None);
    assert!(duologue_client::schema::path_fault(&path(most + 1)).is_some());
}
