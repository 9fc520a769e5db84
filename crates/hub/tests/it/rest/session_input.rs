//! The questions of the sessions of editors, answered over REST.

use duologue_client::{Client, Connection};
use duologue_http::{ConnectOptions, RemoteLink, connect};
use duologue_schema::{
    CreateElicitationRequest, CreateElicitationResponse, RequestPermissionOutcome, RequestPermissionRequest,
    RequestPermissionResponse,
};
use duologue_test_support::in_time;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::remote_agents::{ended_task, until};
use crate::rest::hosted::writer;
use crate::rest::recorder::recorded;
use crate::rest::world::{ADMIN, ALICE, BOB, Call, RestWorld, events};

/// A question that an editor shows. It receives the option that its user chooses, and is closed when it is withdrawn.
type Shown = oneshot::Sender<&'static str>;

/// An editor of alice.
struct Editor {
    connection: Connection,
    _link: RemoteLink,
    shown: mpsc::UnboundedReceiver<Shown>,
}

impl Editor {
    async fn connect(world: &RestWorld) -> Self {
        let (sender, shown) = mpsc::unbounded_channel();
        let client = Client::new(())
            .on_with(
                sender.clone(),
                async |sender: mpsc::UnboundedSender<Shown>, _, _: RequestPermissionRequest| {
                    let outcome = RequestPermissionOutcome::selected(chosen(&sender).await);
                    Ok(RequestPermissionResponse::from(outcome))
                },
            )
            .on_with(sender, async |sender: mpsc::UnboundedSender<Shown>, _, _: CreateElicitationRequest| {
                chosen(&sender).await;
                Ok(CreateElicitationResponse::cancel())
            });
        let mut options = ConnectOptions::default();
        options.bearer_token = Some(ALICE.into());
        let (transport, link) =
            connect(&format!("ws://{}/acp/writer", world.address), options).await.unwrap();
        Editor { connection: client.connect(transport).await.unwrap(), _link: link, shown }
    }

    /// Waits until a question is shown.
    async fn question(&mut self) -> Shown {
        in_time(self.shown.recv()).await.expect("a question")
    }
}

/// Shows a question, and waits for the choice of the user.
async fn chosen(shown: &mpsc::UnboundedSender<Shown>) -> &'static str {
    let (sender, choice) = oneshot::channel();
    let _ = shown.send(sender);
    choice.await.expect("a choice")
}

async fn world() -> RestWorld {
    RestWorld::start(&format!("{}roots = [\"/tmp\"]", writer())).await
}

/// Returns the events of the hub in the log of a session.
async fn hub_events(world: &RestWorld, session: &str) -> Vec<Value> {
    let page = world.get(ALICE, &format!("/sessions/{session}/log?limit=1000")).await.expect(200);
    let records = page["records"].as_array().unwrap().iter();
    records.map(|record| record["record"].clone()).filter(|record| !record["hub"].is_null()).collect()
}

/// Returns the records of the answers to questions in the log of a session.
async fn answers(world: &RestWorld, session: &str) -> Vec<Value> {
    let mut events = hub_events(world, session).await;
    events.retain(|record| record["hub"]["event"] == "answered");
    events
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_over_rest_is_that_of_one_more_client() {
    let world = world().await;
    let mut editor = Editor::connect(&world).await;
    let session = in_time(editor.connection.session_in("/tmp").create()).await.unwrap();
    let id = session.id().to_string();
    let input = format!("/sessions/{id}/input");
    let none = json!({"sessionId": id, "questions": []});
    assert_eq!(world.get(ALICE, &input).await.expect(200), none);
    let yes = json!({"answer": {"optionId": "allow-once"}});
    world.post(ALICE, &input, &yes).await.refused(409, "conflict");

    let turn = in_time(session.prompt("permission")).await.unwrap();
    let mut shown = editor.question().await;
    let open = world.get(ALICE, &input).await.expect(200);
    let question = &open["questions"][0];
    let number = question["questionId"].as_str().unwrap();
    assert_eq!(open["questions"].as_array().unwrap().len(), 1, "{open}");
    assert_eq!((&question["state"], &question["question"]["type"]), (&json!("open"), &json!("permission")));
    assert_eq!(question["question"]["toolCall"]["title"], "Change notes.txt");
    assert_eq!(question["question"]["sessionId"], Value::Null);
    let found = world.get(ALICE, &format!("/sessions/{id}")).await.expect(200);
    assert!(question["createdAt"].as_u64() >= found["createdAt"].as_u64(), "{question}");
    assert_eq!(found["awaiting"], true);
    for (query, total) in [("awaiting=true", 1), ("awaiting=false", 0), ("", 1)] {
        let listed = world.get(ALICE, &format!("/sessions?{query}")).await.expect(200);
        assert_eq!(listed["pagination"]["total"], total, "{query}");
    }
    world.get(ALICE, "/sessions?awaiting=1").await.refused(400, "invalid_parameter");

    // Nobody else sees the question, and a wrong answer leaves it open.
    for key in [BOB, ADMIN] {
        for response in [world.get(key, &input).await, world.post(key, &input, &yes).await] {
            response.refused(404, "not_found");
            assert_eq!(response.text, world.get(key, "/sessions/absent/input").await.text);
        }
    }
    for wrong in [json!({"optionId": "odd"}), json!({"optionId": null}), json!("allow-once"), json!(1)] {
        let why = world.post(ALICE, &input, json!({"answer": wrong})).await.refused(400, "invalid_parameter");
        assert!(why.starts_with("answer"), "{why}");
    }
    for other in ["1", "x"] {
        let body = json!({"questionId": other, "answer": {"optionId": "allow-once"}});
        world.post(ALICE, &input, body).await.refused(409, "conflict");
    }
    assert_eq!(world.get(ALICE, &input).await.expect(200), open);

    // The first answer counts.
    let answer = json!({"questionId": number, "answer": {"optionId": "allow-once"}});
    let answered = world.post(ALICE, &input, &answer).await.expect(200);
    assert_eq!(answered, json!({"sessionId": id, "questionId": number, "status": "answered"}));
    world.post(ALICE, &input, &answer).await.refused(409, "conflict");
    assert_eq!(world.get(ALICE, &input).await.expect(200), none);
    in_time(shown.closed()).await;
    assert!(in_time(turn.finish()).await.unwrap().text.contains("You allowed it."));
    assert_eq!(world.get(ALICE, &format!("/sessions/{id}")).await.expect(200)["awaiting"], false);

    let answers = answers(&world, &id).await;
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert_eq!((&answers[0]["hub"]["client"], &answers[0]["from"]), (&json!("rest:alice"), &json!("client")));
    assert_eq!(answers[0]["hub"]["question"].to_string(), number);
    assert_eq!(answers[0]["frame"]["result"]["outcome"]["optionId"], "allow-once");
    let place = format!("session={id:?} question={number:?}");
    let lines: Vec<_> =
        recorded("duologue::audit").into_iter().filter(|line| line.contains(&place)).collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    for part in [r#"principal="alice" agent="writer""#, r#"option="allow_once" allowed=true"#] {
        assert!(lines[0].contains(part), "{lines:?}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_behind_that_of_the_editor_is_refused() {
    let world = world().await;
    let mut editor = Editor::connect(&world).await;
    let session = in_time(editor.connection.session_in("/tmp").create()).await.unwrap();
    let input = format!("/sessions/{}/input", session.id());
    let turn = in_time(session.prompt("permission")).await.unwrap();
    let shown = editor.question().await;
    let open = world.get(ALICE, &input).await.expect(200);
    shown.send("allow-once").expect("an open question");
    assert!(in_time(turn.finish()).await.unwrap().text.contains("You allowed it."));
    let late =
        json!({"questionId": open["questions"][0]["questionId"], "answer": {"optionId": "reject-once"}});
    world.post(ALICE, &input, &late).await.refused(409, "conflict");
    assert_eq!(world.get(ALICE, &input).await.expect(200)["questions"], json!([]));
    let answers = answers(&world, session.id().as_str()).await;
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert_ne!(answers[0]["hub"]["client"], "rest:alice");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_is_answered_while_the_editor_is_away() {
    let world = world().await;
    let send = async |connection: Option<&str>, id: u32, method: &str, params: Value| {
        let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let call = Call::new("POST", "/acp/writer").key(ALICE).json(line);
        let call = if let Some(id) = connection { call.header("acp-connection-id", id) } else { call };
        world.send(&call).await
    };
    let initialized = send(None, 1, "initialize", json!({"protocolVersion": 1})).await;
    let connection = initialized.header("acp-connection-id");
    let new = json!({"cwd": "/tmp", "mcpServers": []});
    assert_eq!(send(connection, 2, "session/new", new).await.status, 202);
    let stream = |path: &str| Call::new("GET", path).key(ALICE).header("accept", "text/event-stream");
    let opened = stream("/acp/writer").header("acp-connection-id", connection.expect("an id"));
    world.open(&opened).await.until("sessionId").await;
    // From here on it is away.
    let id = world.get(ALICE, "/sessions").await.expect(200)["sessions"][0]["sessionId"].clone();
    let id = id.as_str().unwrap().to_owned();
    let prompt = json!({"sessionId": id, "prompt": [{"type": "text", "text": "permission"}]});
    assert_eq!(send(connection, 3, "session/prompt", prompt).await.status, 202);
    let mut log = world.open(&stream(&format!("/sessions/{id}/log"))).await;
    log.until("session/request_permission").await;
    // Without an option the tool call is cancelled.
    let answered = world.post(ALICE, &format!("/sessions/{id}/input"), json!({"answer": null})).await;
    answered.expect(200);
    log.until(r#""event":"answer""#).await;
    let answers = answers(&world, &id).await;
    assert_eq!(answers[0]["frame"]["result"], json!({"outcome": {"outcome": "cancelled"}}));
    assert_eq!(answers[0]["hub"]["client"], "rest:alice");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forms_and_links_are_answered() {
    let world = world().await;
    let mut editor = Editor::connect(&world).await;
    let session = in_time(editor.connection.session_in("/tmp").create()).await.unwrap();
    let input = format!("/sessions/{}/input", session.id());
    let turn = in_time(session.prompt("elicitation")).await.unwrap();
    let _form = editor.question().await;
    let form = world.get(ALICE, &input).await.expect(200)["questions"][0]["question"].clone();
    assert_eq!((&form["type"], &form["mode"]), (&json!("elicitation"), &json!("form")));
    assert!(form["requestedSchema"]["properties"]["name"].is_object(), "{form}");
    for wrong in [json!(null), json!({"action": "later"}), json!({"action": "accept", "content": 5})] {
        let refused = world.post(ALICE, &input, json!({"answer": wrong})).await;
        refused.refused(400, "invalid_parameter");
    }
    for (member, content) in [
        ("name", json!({})),
        ("name", json!({"name": ""})),
        ("name", json!({"name": 5})),
        ("licence", json!({"name": "a", "licence": "gpl"})),
        ("members", json!({"name": "a", "members": 100})),
        ("systems", json!({"name": "a", "systems": ["linux", "beos"]})),
        ("nickname", json!({"name": "a", "nickname": "b"})),
    ] {
        let accepted = json!({"answer": {"action": "accept", "content": content}});
        let why = world.post(ALICE, &input, &accepted).await.refused(400, "invalid_parameter");
        assert!(why.starts_with(&format!("answer: content.{member}: ")), "{why}");
    }
    world
        .post(ALICE, &input, json!({"answer": {"action": "accept"}}))
        .await
        .refused(400, "invalid_parameter");
    let large = r#"{"answer": {"action": "accept", "content": {"name": "a", "members": 1e400}}}"#;
    let why = world.post(ALICE, &input, large).await.refused(400, "invalid_parameter");
    assert!(why.starts_with("answer: ") && why.contains("number out of range"), "{why}");
    let filled = json!({"answer": {"action": "accept", "content": {"name": "Duologue"}}});
    world.post(ALICE, &input, filled).await.expect(200);
    let _link = editor.question().await;
    let link = world.get(ALICE, &input).await.expect(200)["questions"][0]["question"].clone();
    assert_eq!((&link["mode"], &link["url"]), (&json!("url"), &json!("https://example.com/login")));
    let filled = json!({"answer": {"action": "accept", "content": {"name": "Duologue"}}});
    let why = world.post(ALICE, &input, &filled).await.refused(400, "invalid_parameter");
    assert!(why.starts_with("answer: content: a link takes none"), "{why}");
    world.post(ALICE, &input, json!({"answer": {"action": "decline"}})).await.expect(200);
    let text = in_time(turn.finish()).await.unwrap().text;
    assert!(text.contains(r#"You filled in {"name":"Duologue"}"#), "{text}");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_questions_of_a_task_are_at_the_task() {
    let world = world().await;
    let task = json!({"taskId": "t1", "task": {"type": "ask", "parameters": {"prompt": "permission"}}});
    world.post(ALICE, "/agents/writer/tasks", &task).await.expect(202);
    let mut running = world.open(&Call::new("GET", "/agents/writer/tasks/t1/events").key(ALICE)).await;
    running.until("input_required").await;
    let listed = world.get(ALICE, "/sessions").await.expect(200)["sessions"][0].clone();
    assert_eq!((&listed["live"], &listed["awaiting"]), (&json!(true), &json!(false)));
    let input = format!("/sessions/{}/input", listed["sessionId"].as_str().unwrap());
    let yes = json!({"answer": {"optionId": "allow-once"}});
    assert_eq!(world.get(ALICE, &input).await.expect(200)["questions"], json!([]));
    let why = world.post(ALICE, &input, &yes).await.refused(409, "conflict");
    assert!(why.contains("at the task"), "{why}");
    world.post(ALICE, "/agents/writer/tasks/t1/input", &yes).await.expect(200);
    assert_eq!(events(&running.end().await).last().unwrap().0, "end");
    assert_eq!(ended_task(&world, ALICE, "/agents/writer/tasks/t1").await["status"], "completed");
    // A key that another answer has used gives the agent nothing.
    let ask = async |id: &str| {
        let task = json!({"taskId": id, "task": {"type": "ask", "parameters": {"prompt": "permission"}}});
        world.post(ALICE, "/agents/writer/tasks", &task).await.expect(202);
        let path = format!("/agents/writer/tasks/{id}");
        until(async || {
            Some(world.get(ALICE, &path).await.expect(200)).filter(|found| found["awaiting"] == true)
        })
        .await;
        path
    };
    let answer = |path: &str, option: &str| {
        let answer = json!({"answer": {"optionId": option}});
        Call::new("POST", &format!("{path}/input")).key(ALICE).json(answer).header("idempotency-key", "k")
    };
    let (one, other) = (ask("t2").await, ask("t3").await);
    for _ in 0..2 {
        world.send(&answer(&one, "reject-once")).await.expect(200);
    }
    world.send(&answer(&other, "allow-once")).await.refused(422, "key_reused");
    assert_eq!(world.get(ALICE, &other).await.expect(200)["awaiting"], true);
    world
        .post(ALICE, &format!("{other}/input"), json!({"answer": {"optionId": "reject-once"}}))
        .await
        .expect(200);
    for path in [&one, &other] {
        let ended = ended_task(&world, ALICE, path).await;
        assert!(ended["result"]["text"].as_str().unwrap().contains("I left it as it was."), "{ended}");
    }
    // The session does not run any more.
    assert_eq!(world.get(ALICE, &input).await.expect(200)["questions"], json!([]));
    world.post(ALICE, &input, &yes).await.refused(409, "conflict");
    world.stop().await;
}

/// An agent that asks in its turn, and works on until the turn is cancelled.
const ASKING: &str = r#"
    while read -r line; do case $line in
        *hub:initialize*) echo '{"jsonrpc":"2.0","id":"hub:initialize","result":{"protocolVersion":1}}';;
        *hub:session/new*) echo '{"jsonrpc":"2.0","id":"hub:session/new","result":{"sessionId":"s"}}';;
        *session/prompt*) echo '{"jsonrpc":"2.0","id":"q","method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"t"},"options":[{"optionId":"yes","name":"Yes","kind":"allow_once"}]}}';;
        *session/cancel*) echo '{"jsonrpc":"2.0","id":1,"result":{"stopReason":"cancelled"}}';;
    esac; done
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_question_of_a_task_ends_with_the_answer_of_an_editor() {
    let agent = format!(
        "[[agents]]\nid = \"writer\"\ntrust = \"shared\"\ncwd = \"work\"\nroots = [\"/tmp\"]\ncommand = [\"sh\", \"-c\", {}]",
        serde_json::to_string(ASKING).unwrap()
    );
    let world = RestWorld::start(&agent).await;
    let task = json!({"taskId": "t1", "task": {"type": "ask", "parameters": {"prompt": "hello"}}});
    world.post(ALICE, "/agents/writer/tasks", &task).await.expect(202);
    let path = "/agents/writer/tasks/t1";
    let session = until(async || {
        let found = world.get(ALICE, path).await.expect(200);
        Some(found["sessionId"].as_str()?.to_owned()).filter(|_| found["awaiting"] == true)
    })
    .await;
    let mut editor = Editor::connect(&world).await;
    let _session = in_time(editor.connection.session_in("/tmp").resume(session.as_str())).await.unwrap();
    editor.question().await.send("yes").expect("an open question");
    let input = format!("{path}/input");
    until(async || {
        let open = world.get(ALICE, &input).await.expect(200);
        let found = world.get(ALICE, path).await.expect(200);
        Some(()).filter(|()| open["questions"] == json!([]) && found["awaiting"] != true)
    })
    .await;
    assert_eq!(world.get(ALICE, path).await.expect(200)["state"], "working");
    world.post_empty(ALICE, &format!("{path}/cancel")).await;
    assert_eq!(ended_task(&world, ALICE, path).await["status"], "cancelled");
    world.stop().await;
}

/// Of two answers at the same time the agent gets the first one, and the sender of the second one learns that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_to_a_task_that_does_not_count_is_refused() {
    let world = world().await;
    for number in 0..10 {
        let (id, path) = (format!("t{number}"), format!("/agents/writer/tasks/t{number}"));
        let task = json!({"taskId": id, "task": {"type": "ask", "parameters": {"prompt": "permission"}}});
        world.post(ALICE, "/agents/writer/tasks", &task).await.expect(202);
        let session = until(async || {
            let found = world.get(ALICE, &path).await.expect(200);
            Some(found["sessionId"].as_str()?.to_owned()).filter(|_| found["awaiting"] == true)
        })
        .await;
        let mut editor = Editor::connect(&world).await;
        let _session = in_time(editor.connection.session_in("/tmp").resume(session.as_str())).await.unwrap();
        let shown = editor.question().await;
        let (input, no) = (format!("{path}/input"), json!({"answer": {"optionId": "reject-once"}}));
        let answer = world.post(ALICE, &input, &no);
        let refusal = match number % 2 {
            0 => {
                shown.send("allow-once").expect("an open question");
                answer.await
            }
            _ => tokio::join!(answer, async { _ = shown.send("allow-once") }).0,
        };
        let ended = ended_task(&world, ALICE, &path).await;
        assert!(matches!(refusal.status, 200 | 409), "{refusal:?}");
        let counts = if refusal.status == 200 { "I left it as it was." } else { "You allowed it." };
        assert!(ended["result"]["text"].as_str().unwrap().contains(counts), "{}: {ended}", refusal.status);
    }
    world.stop().await;
}
