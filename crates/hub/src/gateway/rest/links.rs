//! The links of the description: the requests that can follow a response, and the values that they take from it.

use serde_json::Value;
use utoipa::openapi::link::LinkBuilder;
use utoipa::openapi::{OpenApi, RefOr};

use crate::gateway::rest::document::operations;

/// A parameter and the expression of its value.
type LinkParameter = (&'static str, &'static str);

/// Links with the same source and the same parameters.
struct ResponseLinks {
    /// Operations and their statuses.
    from: &'static [(&'static str, &'static str)],
    parameters: &'static [LinkParameter],
    /// Names and operations.
    to: &'static [(&'static str, &'static str)],
    /// The body of the request as JSON, in which texts can be expressions. Empty for none.
    body: &'static str,
}

const PATH_AGENT: LinkParameter = ("agentId", "$request.path.agentId");
const PATH_MESSAGE: LinkParameter = ("messageId", "$request.path.messageId");
const PATH_TASK: LinkParameter = ("taskId", "$request.path.taskId");
const PATH_SESSION: LinkParameter = ("sessionId", "$request.path.sessionId");
const BODY_AGENT: LinkParameter = ("agentId", "$response.body#/agentId");
const BODY_MESSAGE: LinkParameter = ("messageId", "$response.body#/messageId");
const BODY_TASK: LinkParameter = ("taskId", "$response.body#/taskId");
const FIRST_AGENT: LinkParameter = ("agentId", "$response.body#/agents/0/agentId");
const FIRST_MESSAGE: LinkParameter = ("messageId", "$response.body#/messages/0/messageId");
const FIRST_SENDER: LinkParameter = ("sender", "$response.body#/messages/0/sender");
const FIRST_TASK: LinkParameter = ("taskId", "$response.body#/tasks/0/taskId");
const FIRST_OWNER: LinkParameter = ("owner", "$response.body#/tasks/0/owner");

/// The requests about an agent.
const OF_AGENT: &[(&str, &str)] = &[
    ("agent", "get_agent"),
    ("capabilities", "get_capabilities"),
    ("messages", "list_messages"),
    ("newMessage", "send_message"),
    ("tasks", "list_tasks"),
    ("newTask", "create_task"),
    ("deadLetters", "list_dead_letters"),
];
/// The requests of an agent that takes its messages over REST.
const OF_REGISTERED: &[(&str, &str)] =
    &[("heartbeat", "send_heartbeat"), ("claim", "claim_messages"), ("removal", "remove_agent")];
/// The requests about a task.
const OF_TASK: &[(&str, &str)] =
    &[("task", "get_task"), ("events", "watch_task"), ("input", "get_input"), ("cancel", "cancel_task")];
/// The requests about a session.
const OF_SESSION: &[(&str, &str)] = &[
    ("session", "get_session"),
    ("log", "get_session_log"),
    ("input", "get_session_input"),
    ("removal", "erase_session"),
];
/// The first option of the first question.
const FIRST_ANSWER: &str = r#"{"questionId": "$response.body#/questions/0/questionId", "answer": {"optionId": "$response.body#/questions/0/question/options/0/optionId"}}"#;

const LINKS: &[ResponseLinks] = &[
    ResponseLinks {
        from: &[("list_agents", "200"), ("list_registry", "200")],
        parameters: &[FIRST_AGENT],
        to: OF_AGENT,
        body: "",
    },
    ResponseLinks {
        from: &[("put_agent", "200"), ("put_agent", "201")],
        parameters: &[BODY_AGENT],
        to: OF_AGENT,
        body: "",
    },
    ResponseLinks {
        from: &[("put_agent", "200"), ("put_agent", "201"), ("send_heartbeat", "200")],
        parameters: &[BODY_AGENT],
        to: OF_REGISTERED,
        body: "",
    },
    ResponseLinks {
        from: &[("send_message", "200"), ("send_message", "202")],
        parameters: &[BODY_AGENT, BODY_MESSAGE],
        to: &[("message", "get_message")],
        body: "",
    },
    ResponseLinks {
        from: &[("send_message", "200"), ("send_message", "202")],
        parameters: &[BODY_AGENT],
        to: &[("inbox", "list_messages"), ("claim", "claim_messages")],
        body: "",
    },
    ResponseLinks {
        from: &[("list_messages", "200")],
        parameters: &[PATH_AGENT, FIRST_MESSAGE, FIRST_SENDER],
        to: &[("message", "get_message")],
        body: "",
    },
    ResponseLinks {
        from: &[("claim_messages", "200")],
        parameters: &[PATH_AGENT, FIRST_MESSAGE],
        to: &[("ack", "ack_message"), ("nack", "nack_message")],
        body: r#"{"lease": "$response.body#/messages/0/lease"}"#,
    },
    ResponseLinks {
        from: &[("ack_message", "200"), ("nack_message", "200")],
        parameters: &[PATH_AGENT, PATH_MESSAGE],
        to: &[("message", "get_message")],
        body: "",
    },
    ResponseLinks {
        from: &[("list_dead_letters", "200")],
        parameters: &[PATH_AGENT, FIRST_MESSAGE, FIRST_SENDER],
        to: &[("resend", "resend_dead_letter"), ("drop", "drop_dead_letter")],
        body: "",
    },
    ResponseLinks {
        from: &[("create_task", "200"), ("create_task", "202")],
        parameters: &[BODY_AGENT, BODY_TASK],
        to: OF_TASK,
        body: "",
    },
    ResponseLinks {
        from: &[("list_tasks", "200")],
        parameters: &[PATH_AGENT, FIRST_TASK, FIRST_OWNER],
        to: OF_TASK,
        body: "",
    },
    ResponseLinks {
        from: &[("cancel_task", "200"), ("cancel_task", "202"), ("answer_input", "200")],
        parameters: &[PATH_AGENT, PATH_TASK],
        to: &[("task", "get_task")],
        body: "",
    },
    ResponseLinks {
        from: &[("get_input", "200")],
        parameters: &[PATH_AGENT, PATH_TASK],
        to: &[("answer", "answer_input")],
        body: FIRST_ANSWER,
    },
    ResponseLinks {
        from: &[("get_task", "200")],
        parameters: &[("sessionId", "$response.body#/sessionId")],
        to: &[("session", "get_session"), ("log", "get_session_log")],
        body: "",
    },
    ResponseLinks {
        from: &[("list_sessions", "200")],
        parameters: &[("sessionId", "$response.body#/sessions/0/sessionId")],
        to: OF_SESSION,
        body: "",
    },
    ResponseLinks {
        from: &[("get_session", "200"), ("answer_session_input", "200")],
        parameters: &[("sessionId", "$response.body#/sessionId")],
        to: OF_SESSION,
        body: "",
    },
    ResponseLinks {
        from: &[("get_session_input", "200")],
        parameters: &[PATH_SESSION],
        to: &[("answer", "answer_session_input")],
        body: FIRST_ANSWER,
    },
    ResponseLinks {
        from: &[("get_session_log", "200")],
        parameters: &[PATH_SESSION, ("after", "$response.body#/next")],
        to: &[("nextPage", "get_session_log")],
        body: "",
    },
];

/// Adds the links to the responses of a description.
pub(crate) fn add_links(document: &mut OpenApi) {
    for item in document.paths.paths.values_mut() {
        for (_, operation) in operations(item) {
            let Some(id) = operation.operation_id.clone() else { continue };
            for (status, response) in &mut operation.responses.responses {
                let RefOr::T(response) = response else { continue };
                let is_source = |links: &&ResponseLinks| links.from.contains(&(&*id, &**status));
                for links in LINKS.iter().filter(is_source) {
                    for (name, target) in links.to {
                        let mut link = LinkBuilder::new().operation_id(*target);
                        for (parameter, expression) in links.parameters {
                            link = link.parameter(*parameter, *expression);
                        }
                        let body: Option<Value> = serde_json::from_str(links.body).ok();
                        response.links.insert((*name).to_owned(), link.request_body(body).build().into());
                    }
                }
            }
        }
    }
}
