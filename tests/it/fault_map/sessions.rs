//! Rows of `FAULTS.md`: D. Routing and sessions.

use super::Row;

pub(super) const D: &[Row] = &[
    Row {
        id: "D1",
        fault: "Updates that come before the answer that names their session are lost.",
        rule: "An agent holds them until the answer is out, and sends them with it as one piece. A client keeps 256 of them, 1 MiB, the newest, while it waits for such an answer; the rest is counted.",
        shown_by: &[
            "crates/client/tests/it/conformance.rs::updates_before_the_session_is_known_are_not_lost",
            "tests/it/order_rules/sessions.rs::updates_of_unknown_sessions_are_bounded_by_their_number",
            "tests/it/order_rules/sessions.rs::updates_of_unknown_sessions_are_bounded_by_their_bytes",
            "tests/it/order_rules/sessions.rs::buffered_updates_of_one_session_are_not_given_to_another",
            "crates/agent/tests/it/order.rs::updates_of_a_new_session_come_before_its_first_answer",
            "crates/agent/tests/it/order.rs::nothing_of_a_new_session_overtakes_its_kept_updates",
            "tests/it/order_rules/memory.rs::rule_6_updates_buffered_for_a_new_session_never_wait",
        ],
        reason: "",
    },
    Row {
        id: "D2",
        fault: "Updates for sessions nobody knows are kept for ever.",
        rule: "Bounded as in D1, else counted and dropped.",
        shown_by: &[
            "tests/it/order_rules/sessions.rs::updates_for_nobody_leave_nothing_behind",
            "tests/it/hostile_lines/floods.rs::updates_for_nobody_are_counted_and_forgotten",
            "tests/it/order_rules/memory.rs::rule_6_updates_without_a_subscriber_are_not_kept",
        ],
        reason: "",
    },
    Row {
        id: "D3",
        fault: "A request nobody handles is never answered.",
        rule: "An error at once, on both sides, with a session or without: `-32601`, or `-32602` and `-32002` where the params or the session are wrong already. A permission request that nobody can decide is `cancelled`.",
        shown_by: &[
            "tests/it/order_rules/answers.rs::rule_7_what_nobody_handles_is_refused_at_once",
            "tests/it/order_rules/sessions.rs::a_client_refuses_at_once_what_it_does_not_offer",
            "tests/hostile/client.jsonl::a file nobody offered",
            "tests/hostile/client.jsonl::a request that is an agent's own business",
        ],
        reason: "",
    },
    Row {
        id: "D4",
        fault: "Changes of one session overtake each other.",
        rule: "What changes a session waits in line, in the order of the wire; prompts stand in it too.",
        shown_by: &[
            "tests/it/order_rules/sessions.rs::changes_of_a_session_are_applied_in_order",
            "crates/agent/tests/it/order.rs::a_session_that_is_loaded_beside_a_close_survives",
            "crates/client/tests/it/loads.rs::the_agents_word_behind_an_answer_is_the_last_one",
            "crates/agent/tests/it/conformance.rs::a_request_behind_a_close_fails_with_its_session",
            "crates/agent/tests/it/conformance.rs::a_load_waits_for_the_end_of_the_old_turn",
        ],
        reason: "",
    },
    Row {
        id: "D5",
        fault: "The stored id is not the id that was sent.",
        rule: "The SDK stores nothing. The id an agent makes is the one in later requests, in whichever process.",
        shown_by: &[
            "tests/it/order_rules/sessions.rs::the_id_that_an_agent_makes_is_in_all_later_requests",
            "crates/cli/tests/it/run.rs::goes_on_with_sessions",
        ],
        reason: "",
    },
];
