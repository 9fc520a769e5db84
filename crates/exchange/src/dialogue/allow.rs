//! Authorization of verified messages by sender, recipient and task.

use duologue_schema::dialogue::{AgentUri, DialogueMessage, MessageType};

/// The messages that are accepted, by sender, recipient and task. The list is checked after the
/// signature, so the sender is authentic.
///
/// A message is accepted if one rule allows it. An empty list allows nothing. A verifier without a
/// list uses [`everyone`](Self::everyone).
///
/// ```
/// use duologue_exchange::dialogue::{AllowList, AllowRule};
///
/// let list = AllowList::new()
///     .rule(AllowRule::sender("agent://buyer.example").task("getCarDetails").task("negotiatePrice"))
///     .rule(AllowRule::anyone().to("agent://cars.example/info"));
/// # let _ = list;
/// ```
#[derive(Clone, Debug, Default)]
pub struct AllowList {
    rules: Vec<AllowRule>,
}

impl AllowList {
    /// Creates a list that allows nothing.
    #[must_use]
    pub fn new() -> Self {
        AllowList::default()
    }

    /// Creates a list that allows everything.
    #[must_use]
    pub fn everyone() -> Self {
        AllowList::new().rule(AllowRule::anyone())
    }

    /// Adds a rule.
    #[must_use]
    pub fn rule(mut self, rule: AllowRule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Returns true if a rule allows the message.
    #[must_use]
    pub fn allows(&self, message: &DialogueMessage) -> bool {
        self.rules.iter().any(|rule| rule.allows(message))
    }
}

/// A rule of an [`AllowList`]. Properties that it does not name may have any value.
#[derive(Clone, Debug)]
pub struct AllowRule {
    sender: Option<AgentUri>,
    recipients: Vec<AgentUri>,
    tasks: Vec<String>,
}

impl AllowRule {
    /// Allows messages from this sender.
    #[must_use]
    pub fn sender(sender: impl Into<AgentUri>) -> Self {
        AllowRule { sender: Some(sender.into()), ..AllowRule::anyone() }
    }

    /// Allows messages from every sender.
    #[must_use]
    pub fn anyone() -> Self {
        AllowRule { sender: None, recipients: Vec::new(), tasks: Vec::new() }
    }

    /// Restricts the rule to this recipient and the others added this way.
    #[must_use]
    pub fn to(mut self, recipient: impl Into<AgentUri>) -> Self {
        self.recipients.push(recipient.into());
        self
    }

    /// Restricts the rule to this task and the others added this way.
    ///
    /// An `error` or `termination` without a task is allowed too, because it requests nothing.
    #[must_use]
    pub fn task(mut self, task: impl Into<String>) -> Self {
        self.tasks.push(task.into());
        self
    }

    fn allows(&self, message: &DialogueMessage) -> bool {
        let sender = self.sender.as_ref().is_none_or(|sender| *sender == message.sender_id);
        let recipient = self.recipients.is_empty() || self.recipients.contains(&message.recipient_id);
        let asks_nothing = matches!(message.message_type, MessageType::Error | MessageType::Termination);
        let fits = message.content.task.as_ref().map_or(asks_nothing, |task| self.tasks.contains(task));
        sender && recipient && (self.tasks.is_empty() || fits)
    }
}

#[cfg(test)]
mod tests {
    use duologue_schema::dialogue::DialogueContent;

    use super::*;

    fn message(sender: &str, recipient: &str, task: Option<&str>) -> DialogueMessage {
        let message = DialogueMessage::new(
            "m",
            "s",
            sender,
            recipient,
            "2026-03-01T12:00:00Z",
            1,
            MessageType::Request,
        );
        match task {
            Some(task) => message.content(DialogueContent::new().task(task)),
            None => message,
        }
    }

    #[test]
    fn a_rule_matches_all_its_properties() {
        let list = AllowList::new()
            .rule(AllowRule::sender("agent://a").to("agent://x").to("agent://y").task("buy").task("sell"))
            .rule(AllowRule::sender("agent://b"));
        let allows = |sender, recipient, task| list.allows(&message(sender, recipient, task));
        assert!(allows("agent://a", "agent://x", Some("buy")));
        assert!(allows("agent://a", "agent://y", Some("sell")));
        assert!(!allows("agent://a", "agent://z", Some("buy")));
        assert!(!allows("agent://a", "agent://x", Some("lend")));
        assert!(!allows("agent://a", "agent://x", None));
        assert!(allows("agent://b", "agent://z", None));
        assert!(!allows("agent://c", "agent://x", Some("buy")));
        // URIs are compared as a whole: a URI does not cover those below it.
        assert!(!allows("agent://b/c", "agent://z", None));
    }

    #[test]
    fn errors_and_terminations_need_no_task() {
        let list = AllowList::new().rule(AllowRule::sender("agent://a").task("buy"));
        for (kind, allowed) in [
            (MessageType::Termination, true),
            (MessageType::Error, true),
            (MessageType::Confirm, false),
            (MessageType::Unknown("shout".into()), false),
        ] {
            let mut message = message("agent://a", "agent://x", None);
            message.message_type = kind;
            assert_eq!(list.allows(&message), allowed, "{message:?}");
        }
    }

    #[test]
    fn an_empty_list_allows_nothing() {
        let message = message("agent://a", "agent://x", None);
        assert!(!AllowList::new().allows(&message));
        assert!(AllowList::everyone().allows(&message));
    }
}
