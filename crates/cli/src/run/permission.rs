//! Permission for tools: the rules of the command line, then the answer of the user.

use std::cell::Cell;

use duologue_client::{Host as _, HostContext, HostResult, LocalHost, Permissions};
use duologue_schema::{
    PermissionOption, RequestPermissionOutcome, RequestPermissionRequest, RequestPermissionResponse, ToolKind,
};

use super::audit::{AuditEntry, Decider};
use super::question::QuestionText;
use super::ui_queue::UiQueue;

/// The decision on requests that no rule covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DefaultAnswer {
    Allow,
    Ask,
    Refuse,
}

/// The state of a question that no rule and no earlier answer covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    NotAsked,
    Asked,
    Answered,
}

tokio::task_local! {
    /// The question that this task answers.
    static PROGRESS: Cell<Progress>;
}

/// The rules of the command line.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    allowed: Vec<ToolKind>,
    otherwise: DefaultAnswer,
}

impl Rules {
    pub(super) fn new(allowed: &[String], otherwise: DefaultAnswer) -> Self {
        Rules { allowed: allowed.iter().map(|kind| ToolKind::from(kind.as_str())).collect(), otherwise }
    }

    /// Returns the rules as a host has them.
    pub(super) fn permissions(&self, ui: UiQueue) -> Permissions {
        let (otherwise, allowed) = (self.otherwise, self.allowed.clone());
        self.allowed.iter().cloned().fold(Permissions::new(), Permissions::allow).ask(move |_, request| {
            let ui = ui.clone();
            // Such a request has several options that allow it.
            let is_allowed = request.tool_call.kind.as_ref().is_some_and(|kind| allowed.contains(kind));
            async move {
                let reached = |progress| {
                    let _ = PROGRESS.try_with(|reached| reached.set(progress));
                };
                reached(Progress::Asked);
                let outcome = match otherwise {
                    DefaultAnswer::Allow => Some(request.outcome(true)),
                    DefaultAnswer::Ask => ask(request, &ui).await,
                    DefaultAnswer::Refuse if is_allowed => Some(RequestPermissionOutcome::Cancelled),
                    DefaultAnswer::Refuse => Some(request.outcome(false)),
                };
                if outcome.is_some() {
                    reached(Progress::Answered);
                }
                outcome.unwrap_or(RequestPermissionOutcome::Cancelled)
            }
        })
    }

    /// Answers a question for permission, and enters the answer into the audit trail.
    pub(super) async fn answer(
        &self,
        local: &LocalHost,
        context: &HostContext,
        request: RequestPermissionRequest,
        ui: &UiQueue,
    ) -> HostResult<RequestPermissionResponse> {
        let entry = ui.begin(AuditEntry::of_permission(&request)).await;
        let answered = async {
            let response = local.request_permission(context, request.clone()).await?;
            Ok((response, PROGRESS.with(Cell::get)))
        };
        let (response, progress) = PROGRESS.scope(Cell::new(Progress::NotAsked), answered).await?;
        let is_choice = request.has_several(true);
        let by = match (progress, self.otherwise) {
            // The turn ended before the user answered.
            (Progress::Asked, _) => return Ok(response),
            (Progress::Answered, DefaultAnswer::Ask) => Decider::User,
            (Progress::Answered, _) if is_choice => Decider::SeveralOptions,
            (Progress::Answered, DefaultAnswer::Allow) => Decider::Rule("--yes".into()),
            (Progress::Answered, DefaultAnswer::Refuse) => Decider::NoUser,
            (Progress::NotAsked, _) => {
                match request.tool_call.kind.as_ref().filter(|kind| self.allowed.contains(kind)) {
                    Some(kind) => Decider::Rule(format!("--allow {}", kind.as_str())),
                    None => Decider::EarlierAnswer,
                }
            }
        };
        entry.decided(&request, &response.outcome, by).await;
        Ok(response)
    }
}

/// Sends the question to the user. Returns `None` without an answer.
async fn ask(request: RequestPermissionRequest, ui: &UiQueue) -> Option<RequestPermissionOutcome> {
    let mut complaint = None;
    loop {
        let is_new = complaint.is_none();
        let text = QuestionText::choose("May it do this?", &request.options, complaint.take());
        let line = ui.ask_about(request.tool_call.clone(), is_new, text).await?;
        match chosen(&request, line.trim()) {
            Ok(outcome) => return Some(outcome),
            Err(reason) => complaint = Some(reason),
        }
    }
}

/// Returns the option that a line selects, by its number or by yes and no, or the reason for which it selects none.
fn chosen(request: &RequestPermissionRequest, line: &str) -> Result<RequestPermissionOutcome, String> {
    let allow = match line.to_lowercase().as_str() {
        "y" | "yes" => true,
        "n" | "no" => false,
        number => {
            let index = number.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
            let option = index.and_then(|index| request.options.get(index));
            let selected =
                |option: &PermissionOption| RequestPermissionOutcome::selected(option.option_id.clone());
            return option.map(selected).ok_or_else(|| format!("there is no answer {line}"));
        }
    };
    if request.has_several(allow) {
        return Err(format!(
            "{line} fits several answers; type a number from 1 to {}",
            request.options.len()
        ));
    }
    Ok(request.outcome(allow))
}

#[cfg(test)]
mod tests {
    use duologue_schema::{
        PermissionOption, PermissionOptionKind, RequestPermissionOutcome, RequestPermissionRequest,
        ToolCallUpdate,
    };

    use super::chosen;

    #[test]
    fn a_line_selects_by_its_number_or_by_yes_and_no() {
        let option = |id: &str, kind| PermissionOption::new(id, id, kind);
        let options = vec![
            option("never", PermissionOptionKind::RejectAlways),
            option("no", PermissionOptionKind::RejectOnce),
            option("all", PermissionOptionKind::AllowAlways),
            option("yes", PermissionOptionKind::AllowOnce),
        ];
        let request = RequestPermissionRequest::new("s", ToolCallUpdate::new("t"), options);
        let selected = |line: &str| match chosen(&request, line).ok()? {
            RequestPermissionOutcome::Selected(selected) => Some(selected.option_id.to_string()),
            other => panic!("{line}: {other:?}"),
        };
        for (lines, id) in [
            (&["y", "Y", "yes", "YES", "4"][..], Some("yes")),
            (&["n", "N", "no", "No", "2"], Some("no")),
            (&["1"], Some("never")),
            (&["3"], Some("all")),
            (&["", "0", "5", "-1", "+", "1.", "yep", "v", "18446744073709551616"], None),
        ] {
            for line in lines {
                assert_eq!(selected(line).as_deref(), id, "{line:?}");
            }
        }
    }

    #[test]
    fn yes_selects_none_of_several_answers() {
        let option = |id: &str, kind| PermissionOption::new(id, id, kind);
        let options = vec![
            option("sqlite", PermissionOptionKind::AllowOnce),
            option("postgres", PermissionOptionKind::AllowOnce),
            option("always", PermissionOptionKind::AllowAlways),
            option("no", PermissionOptionKind::RejectOnce),
        ];
        let request = RequestPermissionRequest::new("s", ToolCallUpdate::new("t"), options);
        assert_eq!(
            chosen(&request, "Y"),
            Err("Y fits several answers; type a number from 1 to 4".to_owned())
        );
        assert_eq!(chosen(&request, "n"), Ok(RequestPermissionOutcome::selected("no")));
        assert_eq!(chosen(&request, "2"), Ok(RequestPermissionOutcome::selected("postgres")));
    }
}
