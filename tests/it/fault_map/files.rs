//! Rows of `FAULTS.md`: H. Files, programs, people, secrets.

use super::Row;

pub(super) const H: &[Row] = &[
    Row {
        id: "H1",
        fault: "A sibling whose name begins like the root passes for it.",
        rule: "Paths are opened beneath the root, part by part; no strings are compared.",
        shown_by: &["crates/client/tests/it/local_host/paths.rs::no_path_leads_out_of_the_project"],
        reason: "",
    },
    Row {
        id: "H2",
        fault: "A link leads out of the root.",
        rule: "Followed inside, refused outside; the root itself may be a link.",
        shown_by: &[
            "crates/client/tests/it/local_host/paths.rs::no_path_leads_out_of_the_project",
            "crates/client/tests/it/local_host/paths.rs::links_and_dots_that_stay_inside_are_followed",
            "fuzz/fuzz_targets/paths.rs",
        ],
        reason: "",
    },
    Row {
        id: "H3",
        fault: "A link takes a folder's place between the check and the use.",
        rule: "Check and use are one call on an open folder; a write is a new file that takes the old one's place.",
        shown_by: &[
            "crates/client/tests/it/local_host/race.rs::no_exchange_of_folders_and_links_lets_anything_out",
            "crates/client/tests/it/local_host/files.rs::a_file_is_seen_before_or_after_a_write",
        ],
        reason: "",
    },
    Row {
        id: "H4",
        fault: "Reading is checked and writing is not.",
        rule: "One resolver; every attack is tried for reading, for writing and as a program's folder.",
        shown_by: &[
            "crates/client/tests/it/local_host/paths.rs::no_path_leads_out_of_the_project",
            "crates/client/tests/it/local_host/paths.rs::no_path_of_any_parts_leads_out_of_the_project",
        ],
        reason: "",
    },
    Row {
        id: "H4b",
        fault: "A path that is relative, too long or has a NUL in it.",
        rule: "`-32602` before any handler sees it.",
        shown_by: &[
            "tests/hostile/agent.jsonl::a folder that is relative",
            "tests/hostile/agent.jsonl::a folder with a NUL",
            "tests/hostile/agent.jsonl::a folder that is too long",
            "tests/hostile/agent.jsonl::a further folder that is relative",
            "tests/hostile/agent.jsonl::loading from a folder that is relative",
            "crates/client/tests/it/local_host/paths.rs::no_path_leads_out_of_the_project",
        ],
        reason: "",
    },
    Row {
        id: "H5",
        fault: "Devices, pipes, `/proc`.",
        rule: "Regular files only, 8 MiB at once.",
        shown_by: &[
            "crates/client/tests/it/local_host/files.rs::an_unreadable_file_is_an_error_with_a_reason",
            "crates/client/tests/it/local_host/files.rs::a_huge_file_costs_its_answer_only",
            "crates/client/tests/it/local_host/paths.rs::no_path_leads_out_of_the_project",
        ],
        reason: "",
    },
    Row {
        id: "H6",
        fault: "The root is wider than the user thinks.",
        rule: "Roots are named by the program, each session has its own folders of them.",
        shown_by: &[
            "crates/client/tests/it/local_host/sessions.rs::a_session_has_its_own_folders_of_the_roots",
            "crates/client/tests/it/local_host/sessions.rs::a_resumed_session_has_the_folders_it_is_resumed_with",
        ],
        reason: "",
    },
    Row {
        id: "H7",
        fault: "A terminal's command is read by a shell.",
        rule: "A program and its arguments are words. A `command` without arguments that looks like a command line is run by `/bin/sh`, for many agents send one; an agent that may run programs may run that one (`SECURITY.md`).",
        shown_by: &[
            "crates/client/tests/it/local_host/terminals.rs::programs_run_and_tell_how_they_ended",
            "crates/client/tests/it/local_host/terminals.rs::a_program_that_cannot_run_is_an_error_with_a_reason",
        ],
        reason: "",
    },
    Row {
        id: "H8",
        fault: "Output is cut at the wrong end, or in a character.",
        rule: "The longest end within the limit that begins with a character; half a character waits.",
        shown_by: &[
            "crates/client/tests/it/local_host/terminals.rs::output_is_cut_at_its_front_between_characters",
            "crates/client/tests/it/local_host/terminals.rs::a_flood_costs_what_is_kept",
            "crates/schema/src/output_tail.rs::is_the_longest_end_within_the_limit",
            "fuzz/fuzz_targets/output.rs",
        ],
        reason: "",
    },
    Row {
        id: "H9",
        fault: "Escapes and directions in an agent's text move the cursor or turn words around.",
        rule: "What is shown is escaped, in the terminal and in pipes.",
        shown_by: &[
            "crates/cli/tests/it/terminal.rs::a_hostile_agent_leaves_the_screen_alone",
            "crates/cli/tests/it/run.rs::leaves_no_escape_sequence_in_a_pipe",
            "crates/cli/tests/it/errand.rs::leaves_no_escape_sequence",
            "crates/cli/tests/campaign/terminal/hostile.rs::no_payload_is_obeyed_wherever_it_stands",
            "crates/cli/tests/it/check.rs::escapes_of_an_agent_are_not_printed",
            "fuzz/fuzz_targets/escapes.rs",
        ],
        reason: "",
    },
    Row {
        id: "H10",
        fault: "A question for permission hides what it is about.",
        rule: "It is filled in from all updates of the call, and `run` shows all of that; no id that stands twice is chosen; whatever goes wrong is no yes.",
        shown_by: &[
            "crates/cli/tests/it/terminal/consent.rs::a_question_shows_the_command_and_not_just_the_title",
            "crates/cli/tests/it/terminal/consent.rs::a_long_change_can_be_paged_through_before_it_is_allowed",
            "crates/client/tests/it/local_host/permissions.rs::a_permission_request_has_the_whole_call",
            "crates/client/tests/it/local_host/permissions.rs::once_is_requested_again_and_only_offered_options_count",
            "crates/client/tests/it/local_host/permissions.rs::a_rule_chooses_no_id_that_stands_twice",
            "crates/client/tests/it/local_host/permissions.rs::a_failed_permission_request_is_never_a_yes",
            "crates/cli/tests/it/terminal.rs::questions_end_with_their_turn_and_begin_with_themselves",
        ],
        reason: "",
    },
    Row {
        id: "H11",
        fault: "Everything is allowed by a helper.",
        rule: "Without a policy the answer is no.",
        shown_by: &[
            "crates/client/tests/it/local_host/permissions.rs::an_answer_is_one_of_those_that_fit",
            "crates/cli/tests/it/run.rs::refuses_what_nobody_allowed",
        ],
        reason: "",
    },
    Row {
        id: "H12",
        fault: "Secrets in recordings.",
        rule: "Taken out before the disk, at one point; the file is its owner's.",
        shown_by: &[
            "crates/transcript/tests/it/recorder.rs::two_hundred_planted_secrets_leave_none_in_the_file",
            "crates/transcript/tests/it/recorder.rs::the_file_is_its_owners_and_nothing_is_overwritten_or_followed",
            "crates/transcript/tests/it/planted.rs::in_every_place_and_spelling",
            "crates/transcript/tests/it/planted.rs::environment_headers_and_logins",
            "crates/cli/tests/it/record.rs::secrets_reach_the_agent_and_not_the_file",
        ],
        reason: "",
    },
    Row {
        id: "H13",
        fault: "Errors tell the other side what it should not know.",
        rule: "They repeat nothing of what was sent but ids and the name of a method, nothing of a panic, and our own hold no data.",
        shown_by: &[
            "tests/it/order_rules/noise.rs::no_error_repeats_what_was_sent",
            "tests/it/order_rules/noise.rs::a_panic_message_is_not_sent",
            "crates/schema/tests/it/wire.rs::a_payload_is_never_echoed",
            "crates/exchange/tests/it/dialogues/handling.rs::an_error_repeats_nothing_of_a_message_that_cannot_be_read",
        ],
        reason: "What a handler's own error says is its author's: it is the message of the answer.",
    },
];
