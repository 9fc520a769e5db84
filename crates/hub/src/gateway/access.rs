//! Principals and their permissions.

use std::sync::Arc;

use serde::Deserialize;

use crate::gateway::config::{LOCAL_PRINCIPAL, PrincipalConfig};

/// The role that has all permissions.
pub(crate) const ADMIN: &str = "admin";
/// The pattern of every agent.
pub(crate) const ALL_AGENTS: &str = "*";

/// An action on an agent, for which a principal needs a permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Action {
    /// Find the agent and read its card.
    Discover,
    /// Send it messages, and read one's own.
    Message,
    /// Give it tasks, and read, cancel and answer one's own.
    Task,
    /// Use its sessions over ACP, and read the logs of one's own.
    Session,
    /// Take and acknowledge its messages, register it and send its heartbeat. The principal that is the agent has this
    /// permission, and no rule gives it: it is not parsed.
    #[serde(skip_deserializing)]
    Act,
    /// Read the metrics and the numbers of all principals.
    Operate,
}

/// A permission of a role.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct AccessRule {
    /// The role.
    pub role: String,
    /// The actions.
    pub actions: Vec<Action>,
    /// The ids of the agents. `*` is every agent.
    pub agents: Vec<String>,
}

/// The sender of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Principal {
    /// The id, which is the owner of what it creates.
    pub id: Arc<str>,
    /// Its roles.
    pub roles: Vec<String>,
    /// The agent that it is.
    pub agent: Option<String>,
}

/// The sender of a request, and the end of its key or token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Authenticated {
    pub(crate) principal: Principal,
    /// In milliseconds since 1970.
    pub(crate) expires: Option<u64>,
}

impl Principal {
    /// Returns the user who has the token of the data folder.
    #[must_use]
    pub fn local() -> Self {
        Principal { id: LOCAL_PRINCIPAL.into(), roles: vec![ADMIN.to_owned()], agent: None }
    }

    /// Returns a principal of the configuration.
    pub(crate) fn of(config: &PrincipalConfig) -> Self {
        let PrincipalConfig { id, roles, agent, .. } = config;
        Principal { id: id.as_str().into(), roles: roles.clone(), agent: agent.clone() }
    }

    /// Returns true for a principal with all permissions.
    #[must_use]
    pub fn is_admin(&self) -> bool {
        self.roles.iter().any(|role| role == ADMIN)
    }

    /// Returns true if the principal may send in this name: its own, or that of the agent that it is.
    #[must_use]
    pub fn is_sender(&self, from: &str) -> bool {
        self.is_admin() || *self.id == *from || self.agent.as_deref() == Some(from)
    }
}

/// Decides about actions.
///
/// The gateway asks it for each request and each entry of a list. Whatever it does not allow is refused, and the
/// refusal looks like that of an agent that does not exist.
pub trait AccessPolicy: Send + Sync + 'static {
    /// Returns true if a principal may do something with an agent.
    fn allows(&self, principal: &Principal, action: Action, agent: &str) -> bool;
}

/// The table of the configuration file.
#[derive(Clone, Debug, Default)]
pub struct AccessTable {
    rules: Vec<AccessRule>,
}

impl AccessTable {
    /// Creates the table from rules.
    #[must_use]
    pub fn new(rules: Vec<AccessRule>) -> Self {
        AccessTable { rules }
    }
}

impl AccessPolicy for AccessTable {
    fn allows(&self, principal: &Principal, action: Action, agent: &str) -> bool {
        if principal.is_admin() {
            return true;
        }
        // An agent acts for itself and for no other agent.
        if action == Action::Act && principal.agent.as_deref() == Some(agent) {
            return true;
        }
        let allows = |role: &String| self.rules.iter().any(|rule| rule.allows(role, action, agent));
        action != Action::Act && principal.roles.iter().any(allows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_allowed_without_a_rule() {
        let rule = |role: &str, actions: &[Action], agents: &[&str]| AccessRule {
            role: role.to_owned(),
            actions: actions.to_vec(),
            agents: agents.iter().map(|&agent| agent.to_owned()).collect(),
        };
        let table = AccessTable::new(vec![
            rule("user", &[Action::Discover], &["*"]),
            rule("user", &[Action::Task, Action::Act], &["writer"]),
        ]);
        let user = Principal { id: "u".into(), roles: vec!["user".into()], agent: None };
        let agent = Principal { id: "a".into(), roles: vec![], agent: Some("writer".into()) };
        for (principal, action, on, is_allowed) in [
            (&user, Action::Discover, "other", true),
            (&user, Action::Task, "writer", true),
            (&user, Action::Task, "other", false),
            (&user, Action::Message, "writer", false),
            (&user, Action::Act, "writer", false),
            (&agent, Action::Act, "writer", true),
            (&agent, Action::Act, "other", false),
            (&agent, Action::Discover, "writer", false),
        ] {
            assert_eq!(table.allows(principal, action, on), is_allowed, "{principal:?} {action:?} {on}");
        }
        let nobody = AccessTable::default();
        assert!(!nobody.allows(&user, Action::Discover, "writer"));
        assert!(nobody.allows(&Principal::local(), Action::Act, "writer"));
        assert!(user.is_sender("u") && !user.is_sender("writer") && agent.is_sender("writer"));
    }
}
