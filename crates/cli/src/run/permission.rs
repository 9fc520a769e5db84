//! What a tool may do: what the command line allows, else what the user says.

use anstyle::Style;
use duologue_client::Permissions;
use duologue_schema::{RequestPermissionOutcome, RequestPermissionRequest, ToolKind};

use super::desk::Desk;
use super::rows::Span;
use crate::ui::{BAD, BOLD, DIM, MARK};

/// Who decides what no rule covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Otherwise {
    Allow,
    Ask,
    Refuse,
}

/// The answers to questions for permission.
pub(super) fn permissions(allowed: &[String], otherwise: Otherwise, desk: Desk) -> Permissions {
    let rules =
        allowed.iter().map(|kind| ToolKind::from(kind.as_str())).fold(Permissions::new(), Permissions::allow);
    rules.ask(move |request| {
        let desk = desk.clone();
        async move {
            match otherwise {
                Otherwise::Allow => request.outcome(true),
                Otherwise::Ask => ask(request, &desk).await,
                Otherwise::Refuse => {
                    let title = request.tool_call.title.as_deref().unwrap_or("a tool call");
                    let kind = request.tool_call.kind.as_ref().map_or("…", ToolKind::as_str);
                    let text =
                        format!("refused, with nobody to ask (--yes or --allow {kind} allows it): {title}");
                    desk.note(vec![Span::new(BAD, "✗ "), Span::line(Style::new(), &text)]).await;
                    request.outcome(false)
                }
            }
        }
    })
}

async fn ask(request: RequestPermissionRequest, desk: &Desk) -> RequestPermissionOutcome {
    let title = request.tool_call.title.as_deref().unwrap_or_default();
    let mut text = vec![
        Span::new(MARK, "? "),
        Span::plain("May it do this?  "),
        Span::line(BOLD, title),
        Span::plain("\n"),
    ];
    for (number, option) in (1..).zip(&request.options) {
        text.extend([
            Span::new(MARK, &format!("  {number}  ")),
            // A name may say anything, so it comes last.
            Span::line(DIM, &format!("{:<15}", option.kind.as_str().replace('_', " "))),
            Span::line(Style::new(), &option.name),
            Span::plain("\n"),
        ]);
    }
    let keys = Span::new(DIM, &format!("[1-{}, y, n] ", request.options.len()));
    let (mut about, mut complaint) = (Some(request.tool_call.clone()), None);
    loop {
        let question = text.iter().cloned().chain(complaint).chain([keys.clone()]).collect();
        let Some(line) = desk.ask(about.take(), question).await else {
            return RequestPermissionOutcome::Cancelled;
        };
        if let Some(outcome) = chosen(&request, line.trim()) {
            return outcome;
        }
        complaint = Some(Span::new(BAD, &format!("  there is no answer {}\n", line.trim())));
    }
}

/// The option a line means, by its number or by yes and no.
fn chosen(request: &RequestPermissionRequest, line: &str) -> Option<RequestPermissionOutcome> {
    match line.to_lowercase().as_str() {
        "y" | "yes" => Some(request.outcome(true)),
        "n" | "no" => Some(request.outcome(false)),
        number => {
            let index = number.parse::<usize>().ok()?.checked_sub(1)?;
            request
                .options
                .get(index)
                .map(|option| RequestPermissionOutcome::selected(option.option_id.clone()))
        }
    }
}
