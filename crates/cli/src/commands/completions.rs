//! `duologue completions`.

use std::fmt::Write as _;

use clap::builder::{PossibleValue, StyledStr};
use clap::{Arg, Command};
use clap_complete::Shell;

/// Returns the completions of a shell.
pub(crate) fn script(shell: Shell, command: &mut Command) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, command, "duologue", &mut script);
    if shell == Shell::Fish {
        let mut values = String::new();
        for command in command.get_subcommands() {
            let condition = format!("__fish_duologue_using_subcommand {}", command.get_name());
            add_values(command, &condition, &mut values);
            for inner in command.get_subcommands() {
                let condition = format!("{condition}; and __fish_seen_subcommand_from {}", inner.get_name());
                add_values(inner, &condition, &mut values);
            }
        }
        script.extend(values.into_bytes());
    }
    script
}

/// Adds the values of the positional arguments for fish. The generator completes the values of options alone.
fn add_values(command: &Command, condition: &str, script: &mut String) {
    let values = command.get_positionals().flat_map(Arg::get_possible_values);
    let row = |value: PossibleValue| {
        let help = value.get_help().map(StyledStr::to_string).unwrap_or_default();
        format!("{}\\t'{}'", escaped(value.get_name()), escaped(&help))
    };
    let rows: Vec<_> = values.filter(|value| !value.is_hide_set()).map(row).collect();
    if !rows.is_empty() {
        let _ = writeln!(script, "complete -c duologue -n \"{condition}\" -f -a \"{}\"", rows.join("\n"));
    }
}

/// Escapes a text between single quotes that are between double quotes.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '\'' => escaped.push_str("\\\\'"),
            '\\' | '"' | '$' => escaped.extend(['\\', char]),
            '\n' => escaped.push(' '),
            char => escaped.push(char),
        }
    }
    escaped
}
