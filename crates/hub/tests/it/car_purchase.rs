//! A car is bought by three agents that reach each other through the inboxes of a hub. The hub is a process that is killed
//! in the middle of the deal.
//!
//! The agents have the dialogues of the SDK, with keys. A post office in the place of each connection takes the messages of an agent to
//! the inboxes of the others, and delivers those of its own inbox. It changes no message, so the agents verify the signatures of
//! each other.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use duologue_client::exchange::dialogue::{
    Dialogue, DialogueHandler, DialogueOptions, Dialogues, Error, Key, Keys, VerifiedMessage,
};
use duologue_client::schema::dialogue::{DialogueContent, MessageType};
use duologue_client::{Client, Connection, Exchange, PeerAgent, Session};
use duologue_hub::ServerOptions;
use duologue_hub::client::{ConnectOptions, HubClient};
use duologue_hub::gateway::types::{
    ClaimQuery, JsonText, MessageFilter, RestAck, RestInboxMessage, RestMessageStatus, RestNewMessage,
    RestRegistration,
};
use duologue_hub::gateway::{Gateway, GatewayConfig, GatewaySettings};
use duologue_rpc::Transport;
use duologue_test_support::in_time;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};

/// The variable that makes this program the hub. Its value is the folder of the hub.
const FOLDER: &str = "DUOLOGUE_HUB_TEST_SERVER";
/// The key of the local user.
const TOKEN: &str = "token";

/// The names of the agents at the hub, and in dialogues.
const BUYER: (&str, &str) = ("buyer", "agent://home.example/buyer");
const SELLER: (&str, &str) = ("seller", "agent://cars.example/seller");
const DETAILS: (&str, &str) = ("details", "agent://cars.example/details");

/// The hub of the other test.
#[test]
fn server_process() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let folder = PathBuf::from(folder);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let file = folder.join("hub.toml");
        std::fs::write(&file, "data = \"data\"\n").unwrap();
        let config = GatewayConfig::read(&file).unwrap();
        let settings = GatewaySettings::new(config.data.clone().unwrap());
        let gateway = Gateway::open(config, settings).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::fs::write(folder.join("address.new"), address).unwrap();
        std::fs::rename(folder.join("address.new"), folder.join("address")).unwrap();
        let mut options = ServerOptions::default();
        options.token = Some(TOKEN.into());
        gateway.serve_http(listener, options, std::future::pending()).await.unwrap();
    });
}

/// The process of a hub, which ends with the test.
struct HubProcess(Child);

impl HubProcess {
    fn start(folder: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "car_purchase::server_process", "--nocapture"]).env(FOLDER, folder);
        HubProcess(command.stdout(Stdio::null()).spawn().unwrap())
    }

    /// Ends it as a power cut does.
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for HubProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns a client of the hub that runs now.
fn hub(folder: &Path) -> Option<HubClient> {
    let address = std::fs::read_to_string(folder.join("address")).ok()?;
    let mut options = ConnectOptions::default();
    options.bearer_token = Some(TOKEN.into());
    HubClient::new(&format!("http://{address}"), &options).ok()
}

/// Repeats a request until the hub is there and accepts it.
async fn until_accepted<T, F: Future<Output = Option<T>>>(
    folder: &Path,
    request: impl Fn(HubClient) -> F,
) -> T {
    loop {
        if let Some(hub) = hub(folder)
            && let Some(answer) = request(hub).await
        {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The break in the middle of the deal: the seller has taken the first proposal from its inbox, and has not read it.
struct Break {
    reached: mpsc::UnboundedSender<()>,
    is_over: watch::Receiver<bool>,
}

/// The place of one agent between its connection and the hub.
struct PostOffice {
    folder: PathBuf,
    agent: &'static str,
    to_agent: mpsc::UnboundedSender<Value>,
    requests: AtomicU64,
    /// The requests to the agent that wait for its receipts.
    waiting: Mutex<HashMap<u64, oneshot::Sender<Value>>>,
}

impl PostOffice {
    /// Serves the connection of an agent.
    fn open(folder: &Path, agent: &'static str, connection: Transport) -> Arc<Self> {
        let (reader, mut writer) = connection.into_split();
        let (to_agent, mut lines) = mpsc::unbounded_channel::<Value>();
        tokio::spawn(async move {
            while let Some(line) = lines.recv().await {
                if writer.write_all(format!("{line}\n").as_bytes()).await.is_err() {
                    return;
                }
                let _ = writer.flush().await;
            }
        });
        let folder = folder.to_owned();
        let (requests, waiting) = (AtomicU64::new(0), Mutex::default());
        let office = Arc::new(PostOffice { folder, agent, to_agent, requests, waiting });
        let serving = office.clone();
        tokio::spawn(async move {
            let mut lines = BufReader::new(reader).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let message: Value = serde_json::from_str(&line).unwrap();
                tokio::spawn(serving.clone().receive(message));
            }
        });
        office
    }

    /// Handles a message of the agent.
    async fn receive(self: Arc<Self>, message: Value) {
        let Some(method) = message["method"].as_str() else {
            let waiter = message["id"].as_u64().and_then(|id| self.waiting.lock().unwrap().remove(&id));
            if let Some(waiter) = waiter {
                let _ = waiter.send(message);
            }
            return;
        };
        let result = match method {
            "initialize" => {
                let meta = json!({"duologue": {"agentId": "0ff1ce", "dialogue": {}, "envelope": {"v": [1]}}});
                json!({"protocolVersion": 1, "agentCapabilities": {"_meta": meta}})
            }
            // The folder names the other agent, and so does the session.
            "session/new" => {
                json!({"sessionId": message["params"]["cwd"].as_str().unwrap().trim_matches('/')})
            }
            "_session/dialogue" => {
                let (to, sent) = (&message["params"]["sessionId"], &message["params"]["message"]);
                self.post(to.as_str().unwrap(), sent).await;
                let receipt = json!({"message_id": sent["message_id"], "session_id": sent["session_id"]});
                json!({ "receipt": receipt })
            }
            _ => json!({}),
        };
        if !message["id"].is_null() {
            let _ = self.to_agent.send(json!({"jsonrpc": "2.0", "id": message["id"], "result": result}));
        }
    }

    /// Leaves a message in the inbox of another agent. The agent gets its receipt when the hub has accepted it.
    async fn post(&self, to: &str, message: &Value) {
        let mut new = RestNewMessage::new("dialogue", JsonText::of(message).unwrap());
        new.from = Some(self.agent.into());
        new.message_id = Some(message["message_id"].as_str().unwrap().into());
        let new = &new;
        until_accepted(&self.folder, |hub| async move { hub.send_message(to, new).await.ok() }).await;
    }

    /// Delivers the messages of the agent's inbox, one at a time.
    async fn deliver(self: Arc<Self>, mut middle: Option<Break>) {
        loop {
            let agent = self.agent;
            let claim = |hub: HubClient| async move { hub.claim(agent, &ClaimQuery::default()).await.ok() };
            let claimed = until_accepted(&self.folder, claim).await.messages;
            for message in &claimed {
                let content: Value = message.message.content.parse().unwrap();
                if content["message_type"] == "propose"
                    && let Some(Break { reached, mut is_over }) = middle.take()
                {
                    reached.send(()).unwrap();
                    is_over.wait_for(|is_over| *is_over).await.unwrap();
                }
                let params = json!({"sessionId": message.from, "message": content});
                let answer = self.request(params).await;
                assert!(answer["result"]["receipt"].is_object(), "{answer}");
                // The lease of the first hub is void, so its message is delivered again.
                let ack = RestAck::new(message.lease.clone().unwrap());
                if let Some(hub) = hub(&self.folder) {
                    let _ = hub.ack(self.agent, &message.message_id, &ack).await;
                }
            }
            if claimed.is_empty() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }

    async fn request(&self, params: Value) -> Value {
        let id = self.requests.fetch_add(1, Ordering::Relaxed);
        let (waiter, answer) = oneshot::channel();
        self.waiting.lock().unwrap().insert(id, waiter);
        let line = json!({"jsonrpc": "2.0", "id": id, "method": "_session/dialogue", "params": params});
        self.to_agent.send(line).unwrap();
        answer.await.unwrap()
    }
}

/// An agent with a session for each other one that it talks to.
struct AttachedAgent {
    _connection: Connection,
    sessions: HashMap<&'static str, Session>,
}

impl AttachedAgent {
    async fn start(
        folder: &Path,
        agent: &'static str,
        others: &[&'static str],
        dialogues: Dialogues,
        middle: Option<Break>,
    ) -> Self {
        let register =
            |hub: HubClient| async move { hub.register(agent, &RestRegistration::default()).await.ok() };
        until_accepted(folder, register).await;
        let (ours, theirs) = Transport::memory();
        let office = PostOffice::open(folder, agent, theirs);
        let client = Client::new(()).exchange(Exchange::new().dialogue(dialogues));
        let connection = client.connect(ours).await.unwrap();
        let mut sessions = HashMap::new();
        for other in others {
            sessions.insert(*other, connection.new_session(format!("/{other}")).await.unwrap());
        }
        tokio::spawn(office.deliver(middle));
        AttachedAgent { _connection: connection, sessions }
    }

    fn other(&self, agent: &str) -> PeerAgent {
        self.sessions[agent].peer_agent()
    }
}

/// Two keys for each pair of agents, one for each direction.
fn keys(pairs: &[[&str; 2]]) -> Arc<Keys> {
    let keys = Keys::new();
    for [one, other] in pairs {
        for (owner, peer) in [(one, other), (other, one)] {
            let name = format!("{owner} to {peer}");
            let secret: Vec<u8> = name.bytes().cycle().take(64).collect();
            keys.insert(Key::new(name, *owner, secret).unwrap().with(*peer).unwrap()).unwrap();
        }
    }
    Arc::new(keys)
}

/// Looks a car up.
struct Details;

impl DialogueHandler for Details {
    async fn message(&self, dialogue: &Dialogue, message: &VerifiedMessage) -> Result<(), Error> {
        if message.message_type == MessageType::Request {
            let car: String = message.parameter("car")?;
            dialogue
                .respond(
                    DialogueContent::new().parameter("car", json!(car)).parameter("price", json!(18_000)),
                )
                .await?;
        }
        Ok(())
    }
}

/// Sells a car for 16,500 or more.
struct Seller {
    details: Arc<OnceLock<PeerAgent>>,
}

impl DialogueHandler for Seller {
    async fn message(&self, dialogue: &Dialogue, message: &VerifiedMessage) -> Result<(), Error> {
        match message.message_type {
            MessageType::Request => {
                let car: String = message.parameter("car")?;
                let details = self.details.get().expect("a session");
                let nested = dialogue.nested_with(details, DETAILS.1, DialogueOptions::new().id("s2"))?;
                let question = DialogueContent::new().domain("automotive.data").task("getDetailedCarInfo");
                let known = nested.request(question.parameter("car", json!(car))).await?;
                nested.terminate("That is all, thank you.").await?;
                let price: u32 = known.parameter("price")?;
                dialogue.respond(DialogueContent::new().parameter("price", json!(price))).await?;
            }
            MessageType::Propose => {
                let price: u32 = message.parameter("price")?;
                let answer = DialogueContent::new();
                match price >= 16_500 {
                    true => dialogue.accept(answer.parameter("price", json!(price))).await?,
                    false => dialogue.reject(answer.parameter("price", json!(17_000))).await?,
                };
            }
            _ => {}
        }
        Ok(())
    }
}

/// Buys the car, and returns its price.
async fn buy(seller: &PeerAgent) -> Result<u32, Error> {
    let dialogue = seller.dialogue_with(SELLER.1, DialogueOptions::new().id("s1"))?;
    let question = DialogueContent::new().domain("automotive.sales").task("getCarDetails");
    let car = dialogue.request(question.parameter("car", json!("Camry"))).await?;
    let asked: u32 = car.parameter("price")?;
    let mut offer = asked - 2_000;
    loop {
        let proposal = DialogueContent::new().domain("automotive.sales").task("negotiatePrice");
        let answer = dialogue.propose(proposal.parameter("price", json!(offer))).answer().await?;
        let price: u32 = answer.parameter("price")?;
        if answer.message_type == MessageType::Accept {
            dialogue.terminate("Thank you.").await?;
            return Ok(price);
        }
        offer = offer.midpoint(price);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deal_goes_on_after_the_hub_was_killed() {
    let data = tempfile::tempdir().unwrap();
    let folder = data.path();
    let mut server = HubProcess::start(folder);
    let (reached, mut middle) = mpsc::unbounded_channel();
    let (over, is_over) = watch::channel(false);
    let details = Dialogues::new(DETAILS.1).unwrap().keys(keys(&[[SELLER.1, DETAILS.1]])).handler(Details);
    let _details = AttachedAgent::start(folder, DETAILS.0, &[SELLER.0], details, None).await;
    let to_details = Arc::new(OnceLock::new());
    let seller = Dialogues::new(SELLER.1)
        .unwrap()
        .keys(keys(&[[BUYER.1, SELLER.1], [SELLER.1, DETAILS.1]]))
        .handler(Seller { details: to_details.clone() });
    let pause = Some(Break { reached, is_over });
    let seller = AttachedAgent::start(folder, SELLER.0, &[BUYER.0, DETAILS.0], seller, pause).await;
    to_details.set(seller.other(DETAILS.0)).unwrap();
    let buyer = Dialogues::new(BUYER.1).unwrap().keys(keys(&[[BUYER.1, SELLER.1]]));
    let buyer = AttachedAgent::start(folder, BUYER.0, &[SELLER.0], buyer, None).await;

    let to_seller = buyer.other(SELLER.0);
    let buying = tokio::spawn(async move { buy(&to_seller).await });
    in_time(middle.recv()).await.expect("a proposal");
    server.kill();
    std::fs::remove_file(folder.join("address")).unwrap();
    let _server = HubProcess::start(folder);
    until_accepted(folder, |hub| async move { hub.agent(SELLER.0).await.ok() }).await;
    over.send_replace(true);
    let price = in_time(buying).await.unwrap().unwrap();
    assert_eq!(price, 16_500);

    // All messages were delivered and are signed. The proposal in the middle was delivered by both hubs.
    let inbox = async |agent: &'static str, count: usize| -> Vec<RestInboxMessage> {
        until_accepted(folder, |hub| async move {
            let listed = hub.messages(agent, &MessageFilter::default()).await.ok()?.messages;
            let done = listed.iter().filter(|message| message.status == RestMessageStatus::Completed).count();
            (done == count).then_some(listed)
        })
        .await
    };
    let mut repeated = Vec::new();
    for (agent, count) in [(SELLER.0, 5), (BUYER.0, 3), (DETAILS.0, 2)] {
        for message in in_time(inbox(agent, count)).await {
            let content: Value = message.message.content.parse().unwrap();
            let signature = content["signature"].as_str().unwrap_or_else(|| panic!("unsigned: {content}"));
            assert_eq!(signature.split('.').count(), 3, "{signature}");
            if message.attempts > 1 {
                repeated.push((agent, content["message_type"].as_str().unwrap().to_owned()));
            }
        }
    }
    // So was each message that was delivered, and whose end was not recorded yet.
    assert!(repeated.contains(&(SELLER.0, "propose".to_owned())), "{repeated:?}");
}
