//! Rows of `FAULTS.md`: I. Recordings; J. The gateway.

use super::Row;

pub(super) const I: &[Row] = &[
    Row {
        id: "I1",
        fault: "A last line that was cut makes the file useless.",
        rule: "It is left out, with a warning; damage elsewhere is an error with its line.",
        shown_by: &[
            "crates/transcript/tests/it/recorder.rs::a_recording_cut_at_every_byte_is_read_and_gone_on_with",
            "crates/cli/tests/it/show.rs::of_a_damaged_file_the_rest_is_shown",
            "fuzz/fuzz_targets/transcript.rs",
        ],
        reason: "",
    },
    Row {
        id: "I2",
        fault: "The next record fuses with the torn one.",
        rule: "Going on cuts the file back to its last record; a full disk ends the recording, not the conversation.",
        shown_by: &[
            "crates/transcript/tests/it/recorder.rs::a_recording_cut_at_every_byte_is_read_and_gone_on_with",
            "crates/transcript/tests/it/recorder.rs::a_full_disk_is_an_error_of_its_own",
            "crates/transcript/src/record/recorder.rs::a_disk_that_fills_up_ends_the_recording_and_nothing_else",
            "crates/cli/tests/it/record.rs::when_the_file_takes_no_more_the_conversation_goes_on",
            "crates/cli/tests/it/limits.rs::a_limit_of_the_file_size_ends_the_recording_and_not_the_conversation",
        ],
        reason: "",
    },
    Row {
        id: "I3",
        fault: "Blocks of NULs after a loss of power.",
        rule: "A NUL is no JSON: the line is named, or cut off at the end.",
        shown_by: &[
            "crates/transcript/tests/it/damage.rs::a_block_of_nuls_is_never_taken_for_nothing",
            "crates/transcript/tests/it/damage.rs::a_recording_goes_on_behind_a_tail_of_nuls",
        ],
        reason: "Records have no checksum: a letter that the disk changed into another is not seen. The format stays one that people edit.",
    },
    Row {
        id: "I4",
        fault: "A slow disk stops the conversation.",
        rule: "A bounded queue: the wire waits for it by default, or lines are left out and counted.",
        shown_by: &[
            "crates/transcript/tests/it/recorder.rs::on_a_slow_disk_the_wire_waits_and_nothing_is_lost",
            "crates/transcript/tests/it/recorder.rs::a_lossy_recorder_leaves_lines_out_and_says_how_many",
            "crates/rpc/tests/it/wire.rs::a_tap_without_room_holds_up_both_directions",
        ],
        reason: "",
    },
];

pub(super) const J: &[Row] = &[
    Row { id: "J1", fault: "DNS rebinding.", rule: "—", shown_by: &[], reason: "There is no gateway yet." },
    Row {
        id: "J2",
        fault: "WebSockets opened by a page.",
        rule: "—",
        shown_by: &[],
        reason: "There is no gateway yet.",
    },
    Row {
        id: "J3",
        fault: "No login, or ids for one.",
        rule: "—",
        shown_by: &[],
        reason: "There is no gateway yet.",
    },
    Row {
        id: "J4",
        fault: "Headers that never end.",
        rule: "—",
        shown_by: &[],
        reason: "There is no gateway yet.",
    },
    Row { id: "J5", fault: "HTTP/2 resets.", rule: "—", shown_by: &[], reason: "There is no gateway yet." },
    Row {
        id: "J6",
        fault: "Events lost, doubled or of another session after a reconnect.",
        rule: "—",
        shown_by: &[],
        reason: "There is no gateway yet.",
    },
    Row {
        id: "J7",
        fault: "A permission request that nobody can decide.",
        rule: "—",
        shown_by: &[],
        reason: "There is no gateway yet.",
    },
    Row {
        id: "J8",
        fault: "Content types and sizes of bodies.",
        rule: "—",
        shown_by: &[],
        reason: "There is no gateway yet.",
    },
    Row {
        id: "J9",
        fault: "Sessions that nobody comes back to.",
        rule: "—",
        shown_by: &[],
        reason: "There is no gateway yet.",
    },
    Row {
        id: "J10",
        fault: "No limit on the number of requests.",
        rule: "—",
        shown_by: &[],
        reason: "There is no gateway yet.",
    },
];
