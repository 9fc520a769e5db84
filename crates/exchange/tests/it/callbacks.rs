//! The user's code that runs while a message is sent or taken, and uses its own dialogue or task there.

use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::task::{Context, Wake};
use std::time::{Duration, SystemTime};

use duologue_exchange::dialogue::{
    Dialogue, DialogueHandler, Dialogues, Error, Key, KeyStore, Keys, Parameters, VerifiedMessage,
};
use duologue_exchange::envelope::{
    Capabilities, DelegationOutcome, EnvelopeError, EnvelopeHandler, OutcomeStatus, PROGRESS, ReceivedTask,
};
use duologue_exchange::{Exchange, ExchangeConnector, ExchangeService, PeerAgent};
use duologue_rpc::{
    Direction, Incoming, NotificationBuffer, PeerBuilder, Responder, Service, Tap, TappedFrame, Transport,
};
use duologue_schema::dialogue::{AgentUri, DialogueContent, MessageType};
use futures::FutureExt;
use serde::{Deserialize, Deserializer};
use serde_json::json;
use tokio::sync::Semaphore;

const US: &str = "agent://us";
const THEM: &str = "agent://them";

/// Answers every query.
struct Clock;

impl DialogueHandler for Clock {
    async fn message(&self, dialogue: &Dialogue, _: &VerifiedMessage) -> Result<(), Error> {
        dialogue.respond("It is noon.").await.map(drop)
    }
}

/// Runs a test in a thread of its own: what blocks for ever fails.
fn finishes(test: impl Future<Output = ()> + Send + 'static) {
    let (done, finished) = mpsc::channel();
    std::thread::spawn(move || {
        tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(test);
        let _ = done.send(());
    });
    finished.recv_timeout(Duration::from_secs(30)).expect("a callback panicked, or waits for itself");
}

/// Looks at the dialogue, tries to send and to receive, and keeps the names of the callbacks in the errors.
fn use_it(dialogue: &Dialogue, refused: &Mutex<Vec<&'static str>>) {
    assert!(!dialogue.has_ended());
    let _ = (dialogue.messages(), dialogue.beliefs());
    let sent = dialogue.inform("I look for my key.").into_future().now_or_never();
    let received = dialogue.next().now_or_never();
    for outcome in [sent.map(|sent| sent.map(drop)), received.map(|heard| heard.map(drop))] {
        match outcome {
            Some(Err(Error::InCallback { callback })) => refused.lock().unwrap().push(callback),
            other => panic!("it may wait for ever: {other:?}"),
        }
    }
}

#[derive(Default)]
struct Curious {
    keys: Keys,
    dialogue: OnceLock<Dialogue>,
    refused: Mutex<Vec<&'static str>>,
}

impl Curious {
    fn look(&self) {
        if let Some(dialogue) = self.dialogue.get() {
            use_it(dialogue, &self.refused);
        }
    }
}

impl KeyStore for Curious {
    fn key(&self, id: &str, sender: &AgentUri) -> Option<Arc<Key>> {
        self.look();
        self.keys.key(id, sender)
    }

    fn signing_key(&self, owner: &AgentUri, recipient: &AgentUri, now: SystemTime) -> Option<Arc<Key>> {
        self.look();
        self.keys.signing_key(owner, recipient, now)
    }

    fn knows(&self, owner: &AgentUri) -> bool {
        self.keys.knows(owner)
    }
}

fn keys(keys: &Keys) {
    keys.insert(Key::new("ours", US, [1; 32]).unwrap()).unwrap();
    keys.insert(Key::new("theirs", THEM, [2; 32]).unwrap()).unwrap();
}

#[test]
fn a_key_store_may_look_at_the_dialogue_and_not_speak_in_it() {
    finishes(async {
        let (curious, plain) = (Arc::new(Curious::default()), Arc::new(Keys::new()));
        keys(&curious.keys);
        keys(&plain);
        let here = Exchange::new().dialogue(Dialogues::new(US).unwrap().keys(curious.clone()));
        let there = Exchange::new().dialogue(Dialogues::new(THEM).unwrap().keys(plain).handler(Clock));
        let (peer, _) = here.in_memory(there);
        let dialogue = peer.dialogue(THEM).unwrap();
        assert!(curious.dialogue.set(dialogue.clone()).is_ok());
        dialogue.query("What time is it?").await.unwrap();
        let refused = curious.refused.lock().unwrap();
        // Each of them once to send and once to receive.
        let expected = ["KeyStore::signing_key", "KeyStore::signing_key", "KeyStore::key", "KeyStore::key"];
        assert_eq!(*refused, expected);
    });
}

static DIALOGUE: OnceLock<Dialogue> = OnceLock::new();
static REFUSED: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());

/// A form that uses the dialogue while it is read.
struct Nosy;

impl<'de> Deserialize<'de> for Nosy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use_it(DIALOGUE.get().unwrap(), &REFUSED);
        serde::de::IgnoredAny::deserialize(deserializer).map(|_| Nosy)
    }
}

#[test]
fn a_form_of_parameters_may_look_at_the_dialogue_and_not_speak_in_it() {
    finishes(async {
        let forms = Parameters::new().of::<Nosy>("time", "tell", &[]);
        let here = Exchange::new().dialogue(Dialogues::new(US).unwrap().parameters(forms));
        let there = Exchange::new().dialogue(Dialogues::new(THEM).unwrap().handler(Clock));
        let (peer, _) = here.in_memory(there);
        let dialogue = peer.dialogue(THEM).unwrap();
        assert!(DIALOGUE.set(dialogue.clone()).is_ok());
        let question = DialogueContent::new().domain("time").task("tell").parameter("zone", json!("UTC"));
        dialogue.query(question).await.unwrap();
        // For the query and for its answer, each once to send and once to receive.
        assert_eq!(*REFUSED.lock().unwrap(), ["a form of Parameters"; 4]);
    });
}

/// Reads the dialogue, sends in it, and drops what it holds, when a receipt leaves.
#[derive(Default)]
struct Dropper {
    held: Mutex<Option<(Dialogue, Answer)>>,
    messages: Mutex<Option<usize>>,
}

type Answer = futures::future::BoxFuture<'static, Result<VerifiedMessage, Error>>;

impl Tap for Dropper {
    fn frame(&self, frame: TappedFrame<'_>) {
        let line = String::from_utf8_lossy(frame.bytes);
        if frame.direction == Direction::Outgoing
            && line.contains("receipt")
            && let Some((dialogue, answer)) = self.held.lock().unwrap().take()
        {
            *self.messages.lock().unwrap() = Some(dialogue.messages().len());
            assert!(!dialogue.has_ended());
            // It is sent, and its receipt has not come.
            assert!(dialogue.inform("I am a tap.").into_future().now_or_never().is_none());
            drop((answer, dialogue));
        }
    }
}

/// Says something before it answers, as soon as it has a permit.
struct Talker(Arc<Semaphore>);

impl DialogueHandler for Talker {
    async fn message(&self, dialogue: &Dialogue, message: &VerifiedMessage) -> Result<(), Error> {
        if message.message_type == MessageType::Query {
            self.0.acquire().await.unwrap().forget();
            dialogue.update("Wait.").await?;
            dialogue.respond("It is noon.").await?;
        }
        Ok(())
    }
}

/// Takes whatever comes, and says what it was.
struct Listener(tokio::sync::mpsc::UnboundedSender<MessageType>);

impl DialogueHandler for Listener {
    async fn message(&self, _: &Dialogue, message: &VerifiedMessage) -> Result<(), Error> {
        let _ = self.0.send(message.message_type.clone());
        Ok(())
    }
}

#[test]
fn a_tap_may_use_the_dialogue_whose_receipt_it_sees_and_drop_its_last_handle() {
    finishes(async {
        let (heard, mut hears) = tokio::sync::mpsc::unbounded_channel();
        let (dropper, permit) = (Arc::new(Dropper::default()), Arc::new(Semaphore::new(0)));
        let us = Exchange::new().dialogue(Dialogues::new(US).unwrap().handler(Listener(heard)));
        let them = Exchange::new().dialogue(Dialogues::new(THEM).unwrap().handler(Talker(permit.clone())));
        let (ours, theirs) = Transport::memory();
        let peer = end(PeerBuilder::new(ours).tap(dropper.clone()), us);
        let _them = end(PeerBuilder::new(theirs), them);
        let dialogue = peer.dialogue(THEM).unwrap();
        let asking = dialogue.clone();
        let mut answer: Answer = Box::pin(async move { asking.query("What time is it?").await });
        // It is sent, and its answer has not come.
        assert!((&mut answer).now_or_never().is_none());
        *dropper.held.lock().unwrap() = Some((dialogue, answer));
        permit.add_permits(1);
        assert_eq!(hears.recv().await, Some(MessageType::Update));
        assert_eq!(hears.recv().await, Some(MessageType::Response));
        // The query and the update.
        assert_eq!(*dropper.messages.lock().unwrap(), Some(2));
    });
}

/// Sends a notification in the session that is being created, when its response leaves.
#[derive(Default)]
struct Announcer(OnceLock<PeerAgent>, Mutex<Vec<String>>);

impl Tap for Announcer {
    fn frame(&self, frame: TappedFrame<'_>) {
        let line = String::from_utf8_lossy(frame.bytes).into_owned();
        if frame.direction == Direction::Outgoing
            && let Some(peer) = self.0.get()
        {
            if line.contains("_the/response") {
                peer.notify("tap", json!(3)).into_future().now_or_never().unwrap().unwrap();
            }
            self.1.lock().unwrap().push(line);
        }
    }
}

#[derive(serde::Serialize, Deserialize)]
struct Opened {}

impl duologue_schema::Notification for Opened {
    const METHOD: &'static str = "_the/response";
}

#[test]
fn a_tap_may_send_in_the_session_whose_response_it_sees() {
    finishes(async {
        let announcer = Arc::new(Announcer::default());
        let (ours, theirs) = Transport::memory();
        let peer = end(PeerBuilder::new(ours).tap(announcer.clone()), Exchange::new().agent_id("same"));
        let _them = end(PeerBuilder::new(theirs), Exchange::new().agent_id("same"));
        let pending = peer.pending_session("memory");
        peer.notify("early", json!(1)).await.unwrap();
        assert!(announcer.0.set(peer.clone()).is_ok());
        let rpc = peer.rpc().clone();
        // The response, and behind it the early notification.
        pending.done(NotificationBuffer::new(&rpc), |_| rpc.notify_now(&Opened {}).unwrap());
        peer.notify("later", json!(4)).await.unwrap();
        let lines = announcer.1.lock().unwrap();
        let topics: Vec<&str> = ["_the/response", "\"tap\"", "\"later\""]
            .into_iter()
            .zip(&*lines)
            .filter_map(|(topic, line)| line.contains(topic).then_some(topic))
            .collect();
        assert_eq!((topics.len(), lines.len()), (3, 3), "{lines:?}");
    });
}

/// One end of a connection that takes dialogues.
fn end(connection: PeerBuilder, exchange: Exchange) -> PeerAgent {
    let wiring = ExchangeConnector::new(Some(exchange));
    // The other side offers the same.
    let mut meta = None;
    wiring.advertise(&mut meta);
    let mut agent = None;
    connection.start(|peer| {
        let service = wiring.start(peer, |_| true, ());
        service.set_peer_capabilities(meta.as_ref());
        agent = Some(service.peer_agent().in_session("memory"));
        End(service)
    });
    agent.unwrap()
}

struct End(ExchangeService);

impl Service for End {
    fn request(&self, request: Incoming<'_>, responder: Responder) {
        if let Err(responder) = self.0.request(request, responder) {
            responder.method_not_found(request.method);
        }
    }

    fn notification(&self, notification: Incoming<'_>) {
        self.0.notification(notification);
    }
}

/// Uses the task whose progress it sees.
#[derive(Default)]
struct TaskTap {
    task: OnceLock<ReceivedTask>,
    calls: Mutex<u32>,
}

impl Tap for TaskTap {
    fn frame(&self, frame: TappedFrame<'_>) {
        let line = String::from_utf8_lossy(frame.bytes);
        if frame.direction == Direction::Outgoing
            && line.contains(PROGRESS)
            && let Some(task) = self.task.get()
        {
            assert!(task.peer.exchange_stats().dropped == 0 && !task.is_cancelled());
            // It waits for the progress that is being sent.
            assert!(task.progress(json!("from the tap")).now_or_never().is_none());
            *self.calls.lock().unwrap() += 1;
        }
    }
}

/// Shows its task to the tap, then sends progress and finishes, each with a permit.
struct TappedWorker {
    tap: Arc<TaskTap>,
    permits: Arc<[Semaphore; 2]>,
}

impl EnvelopeHandler for TappedWorker {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new("worker").max_concurrent_tasks(2)
    }

    async fn delegate(&self, task: ReceivedTask) -> Result<DelegationOutcome, EnvelopeError> {
        let _ = self.tap.task.set(task.clone());
        self.permits[0].acquire().await.unwrap().forget();
        task.progress(json!("half")).await?;
        self.permits[1].acquire().await.unwrap().forget();
        Ok(DelegationOutcome::new(OutcomeStatus::Completed))
    }
}

/// Returns a side that delegates to a [`TappedWorker`], and the other side.
fn tapped_worker() -> (PeerAgent, PeerAgent, Arc<TaskTap>, Arc<[Semaphore; 2]>) {
    let tap = Arc::new(TaskTap::default());
    let permits = Arc::new([Semaphore::new(0), Semaphore::new(0)]);
    let worker = TappedWorker { tap: tap.clone(), permits: permits.clone() };
    // `end` gives each side the id of the other.
    let worker = Exchange::new().agent_id("same").envelope_handler(worker);
    let (ours, theirs) = Transport::memory();
    let peer = end(PeerBuilder::new(ours), Exchange::new().agent_id("same"));
    let them = end(PeerBuilder::new(theirs).tap(tap.clone()), worker);
    (peer, them, tap, permits)
}

#[test]
fn a_tap_may_use_the_task_whose_progress_it_sees() {
    finishes(async {
        let (peer, _them, tap, permits) = tapped_worker();
        let task = peer.delegate("Paint the kitchen").await.unwrap();
        let mut progress = task.progress();
        permits.iter().for_each(|stage| stage.add_permits(1));
        task.result().await.unwrap();
        assert_eq!(progress.next().await.unwrap().unwrap().data.as_ref().unwrap().get(), "\"half\"");
        assert!(progress.next().await.is_none());
        assert_eq!(*tap.calls.lock().unwrap(), 1);
    });
}

/// A waker that calls a function.
struct OnWake(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Wake for OnWake {
    fn wake(self: Arc<Self>) {
        let call = self.0.lock().unwrap().take();
        call.into_iter().for_each(|call| call());
    }
}

/// Polls a pending future once. Its waker calls `call`.
fn wakes(future: Pin<&mut impl Future>, call: impl FnOnce() + Send + 'static) {
    let waker = Arc::new(OnWake(Mutex::new(Some(Box::new(call))))).into();
    assert!(future.poll(&mut Context::from_waker(&waker)).is_pending());
}

#[test]
fn wakers_run_without_a_lock() {
    finishes(async {
        let (peer, _them, _, permits) = tapped_worker();
        let task = peer.delegate("Paint the kitchen").await.unwrap();
        let other = peer.delegate("Paint the hall").await.unwrap();
        let (mut progress, another) = (task.progress(), task.progress());
        let (sender, mut woken) = tokio::sync::mpsc::unbounded_channel();

        let called = sender.clone();
        let mut next = pin!(progress.next());
        wakes(next.as_mut(), move || {
            drop(another);
            called.send("progress").unwrap();
        });
        permits[0].add_permits(2);
        assert_eq!(woken.recv().await, Some("progress"));
        next.await.unwrap().unwrap();

        let called = sender.clone();
        let mut result = pin!(task.result());
        let agent = peer.clone();
        wakes(result.as_mut(), move || {
            drop(other);
            assert_eq!(agent.exchange_stats().late, 0);
            called.send("result").unwrap();
        });
        permits[1].add_permits(2);
        assert_eq!(woken.recv().await, Some("result"));
        result.await.unwrap();
    });
}
