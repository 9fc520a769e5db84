//! Removal of environment variables whose values are redacted. Otherwise a program would be started with the value
//! `[secret]`.

use std::ops::Range;

use crate::redact::json_scan::{Edits, PathStep, member};
use crate::redact::placeholders::SECRET;

/// Finds such variables in a line: `"env": [{"name": "…", "value": "[secret]"}]`.
#[derive(Debug, Default)]
pub(super) struct SecretEnv {
    /// The span of each variable in the open list, and true if its value is a secret.
    list: Vec<(Range<usize>, bool)>,
    drop: Vec<Range<usize>>,
}

/// Returns true if the path ends at a list of variables.
fn is_list(frames: &[PathStep<'_>]) -> bool {
    matches!(frames, [.., holder, list] if list.member.is_none() && holder.member.as_deref() == Some("env"))
}

/// Returns true if the path ends at a variable in such a list.
fn is_variable(frames: &[PathStep<'_>]) -> bool {
    frames.split_last().is_some_and(|(_, outer)| is_list(outer))
}

impl SecretEnv {
    pub(super) fn open(&mut self, frames: &[PathStep<'_>], start: usize) {
        if is_variable(frames) {
            self.list.push((start..start, false));
        }
    }

    pub(super) fn string(&mut self, frames: &[PathStep<'_>], text: &str) {
        if text == SECRET && member(frames) == Some("value") && is_variable(frames) {
            self.list.last_mut().into_iter().for_each(|(_, secret)| *secret = true);
        }
    }

    pub(super) fn close(&mut self, frames: &[PathStep<'_>], end: usize) {
        if is_variable(frames) {
            self.list.last_mut().into_iter().for_each(|(span, _)| span.end = end);
        } else if is_list(frames) {
            let list = std::mem::take(&mut self.list);
            // A comma is removed with the variable after it. The first variables take the comma after them.
            let mut kept = false;
            for (at, (span, secret)) in list.iter().enumerate() {
                let before = at.checked_sub(1).and_then(|at| list.get(at)).filter(|_| kept);
                let after = list.get(at + 1);
                if *secret {
                    let start = before.map_or(span.start, |(before, _)| before.end);
                    let end = if kept { span.end } else { after.map_or(span.end, |(after, _)| after.start) };
                    self.drop.push(start..end);
                }
                kept |= !secret;
            }
        }
    }

    pub(super) fn drop_from(&mut self, edits: &mut Edits) {
        for span in self.drop.drain(..) {
            edits.replace(span, "");
        }
    }
}
