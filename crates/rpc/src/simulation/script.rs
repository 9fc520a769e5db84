//! A peer and a script that breaks the rules: duplicate ids, unexpected, late or duplicate responses,
//! cancellations of anything, noise and fragments.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;

use super::ledger::SideLedger;
use super::random_delay::random_delays;
use super::side::{HandlerAction, SimulatedSide, TestMessage};
use super::wire::wire;
use super::{Campaign, EventCounts, play};
use crate::connection::PeerBuilder;
use crate::error::{Closed, Error};
use crate::limits::Limits;
use crate::sync::Lock;

/// At most half of the usual counts in a hundred schedules.
const CAMPAIGN: Campaign = Campaign {
    test: "duologue-rpc simulation::script",
    schedules: 700,
    minimum: &[
        ("lines", 590),
        ("heard", 260),
        ("answers", 410),
        ("results", 80),
        ("results of the script", 35),
        ("errors of the script", 20),
    ],
    shown: ": of a peer that keeps no rule, each answer where it is owed",
};

#[test]
fn a_peer_that_keeps_no_rule_gets_what_it_is_owed() {
    CAMPAIGN.play(|seed, steps| play(story(seed, steps, None)));
}

#[test]
fn a_core_that_refuses_every_request_fails_the_campaign() {
    CAMPAIGN.misses(&["results"], |seed, steps| play(story(seed, steps, Some(0))));
}

/// Ids that collide, and ids that only look alike.
const IDS: [&str; 8] = ["1", "2", "\"1\"", "0", "\"\"", "-7", "null", "\"\\u0031\""];

/// The script's end of the wire, with the number of responses that the peer owes.
struct Script {
    lines: mpsc::UnboundedSender<String>,
    ledger: SideLedger,
    /// The number of owed responses, by the text of the id.
    owed: BTreeMap<String, u64>,
    noise_in_a_row: u32,
    answers_noise: bool,
    sent: u64,
}

impl Script {
    /// Sends a line after the lines before it.
    fn send(&mut self, line: String) {
        self.sent += 1;
        if let Ok(message) = serde_json::from_str::<Value>(&line)
            && (message["method"].is_string() || message["id"].is_u64())
        {
            self.ledger.books(|books| books.line_left(&message));
        }
        let _ = self.lines.send(line + "\n");
    }

    fn owe(&mut self, id: &str) {
        let id: Value = serde_json::from_str(id).unwrap_or_default();
        *self.owed.entry(id.to_string()).or_default() += 1;
    }

    fn request(&mut self, rng: &mut Rng) -> String {
        self.noise_in_a_row = 0;
        let kinds: Vec<HandlerAction> =
            HandlerAction::ASKED.into_iter().filter(|how| *how != HandlerAction::Kept).collect();
        let how = *rng.choice(&kinds).unwrap_or(&HandlerAction::Now);
        let order = TestMessage::new(self.ledger.serial(false), how, rng);
        let id = rng.choice(&IDS).unwrap_or(&"1");
        self.owe(id);
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ask","params":{}}}"#, json!(order))
    }

    fn step(&mut self, rng: &mut Rng) {
        match rng.u8(0..10) {
            0..=3 => {
                let line = self.request(rng);
                self.send(line);
            }
            4 => {
                self.noise_in_a_row = 0;
                let order = TestMessage::new(self.ledger.serial(false), HandlerAction::Streamed, rng);
                self.send(json!({"jsonrpc": "2.0", "method": "tell", "params": order}).to_string());
            }
            5 => {
                self.noise_in_a_row = 0;
                let id = rng.choice(&IDS).unwrap_or(&"1");
                let line = format!(
                    r#"{{"jsonrpc":"2.0","method":"$/cancel_request","params":{{"requestId":{id}}}}}"#
                );
                let _ = self.lines.send(line + "\n");
            }
            6 => {
                self.noise_in_a_row = 0;
                let id = rng.choice(&["77", "\"1\"", "1.0", "10e-1", "null", "{}"]).unwrap_or(&"77");
                // A response to no request, or with an id that only looks like one of the peer.
                let _ = self.lines.send(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":7}}\n"));
            }
            7 => {
                let id = rng.choice(&["5", "\"5\""]).unwrap_or(&"5");
                self.owe(id);
                let _ = self.lines.send(format!("{{\"id\":{id},\"method\":\"ask\"}}\n"));
            }
            8 => {
                let _ = self.lines.send("\r\n \t\n".into());
            }
            _ => {
                for _ in 0..rng.u8(1..8) {
                    if self.answers_noise && self.noise_in_a_row < 10 {
                        self.owe("null");
                    }
                    self.noise_in_a_row += 1;
                    let noise = ["npm WARN", "[]", "{", "7", "{}", "{\"method\":7}"];
                    self.sent += 1;
                    let _ = self.lines.send(format!("{}\n", rng.choice(&noise).unwrap_or(&"x")));
                }
            }
        }
    }

    /// Responds to a request of the peer in the way that its seed determines.
    fn react(&mut self, request: &Value) {
        let id = &request["id"];
        let seed = request["params"]["seed"].as_u64().unwrap_or_default();
        let n = &request["params"]["n"];
        match Reaction::of(seed) {
            Reaction::Right => self.send(json!({"jsonrpc": "2.0", "id": id, "result": n}).to_string()),
            Reaction::Twice => {
                self.send(json!({"jsonrpc": "2.0", "id": id, "result": n}).to_string());
                self.send(json!({"jsonrpc": "2.0", "id": id, "result": "the second one"}).to_string());
            }
            Reaction::IdOnly => self.send(json!({"jsonrpc": "2.0", "id": id}).to_string()),
            Reaction::Refused => {
                let error = json!({"code": -5, "message": "no"});
                self.send(json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string());
            }
            Reaction::Both => {
                let line =
                    json!({"jsonrpc": "2.0", "id": id, "result": 1, "error": {"code": 1, "message": ""}});
                self.send(line.to_string());
            }
            Reaction::Never => return,
        }
        self.noise_in_a_row = 0;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reaction {
    Right,
    Twice,
    IdOnly,
    Refused,
    Both,
    Never,
}

impl Reaction {
    fn of(seed: u64) -> Self {
        let all = [
            Reaction::Right,
            Reaction::Twice,
            Reaction::IdOnly,
            Reaction::Refused,
            Reaction::Both,
            Reaction::Never,
        ];
        *Rng::with_seed(seed).choice(&all).unwrap_or(&Reaction::Right)
    }

    fn fits(self, n: u64, answer: &Result<Box<RawValue>, Error>) -> bool {
        match answer {
            Ok(raw) if matches!(self, Reaction::Right | Reaction::Twice) => raw.get() == n.to_string(),
            Ok(raw) => self == Reaction::IdOnly && raw.get() == "null",
            Err(Error::Response(error)) => self == Reaction::Refused && error.code.0 == -5,
            Err(Error::Decode { .. }) => self == Reaction::Both,
            // The script may have ended before it responded.
            Err(Error::Closed(Closed::EndOfInput)) => true,
            Err(_) => false,
        }
    }
}

async fn story(seed: u64, most: usize, in_flight: Option<usize>) -> Result<EventCounts, String> {
    let mut rng = Rng::with_seed(seed);
    let (ours, theirs, _) = wire(&mut rng, 1);
    let answers_noise = rng.bool();
    // Responses may take long, because the script waits.
    let seeded = *rng.choice(&[2, 1000]).unwrap_or(&2);
    let limits = Limits {
        frame_bytes: 4096,
        in_flight: in_flight.unwrap_or(seeded),
        cancel_grace: Duration::from_secs(400),
        ..Limits::default()
    };
    let connection = PeerBuilder::new(ours).limits(limits).answer_noise(answers_noise);
    let side = SimulatedSide::start(connection, &mut rng, Arc::new(AtomicBool::new(false)));
    let (input, mut output) = theirs.into_split();
    let (lines, mut outgoing) = mpsc::unbounded_channel::<String>();
    let writing = tokio::spawn(async move {
        while let Some(line) = outgoing.recv().await {
            output.write_all(line.as_bytes()).await?;
            output.flush().await?;
        }
        output.shutdown().await
    });
    let script = Script {
        lines,
        ledger: SideLedger::default(),
        owed: BTreeMap::new(),
        noise_in_a_row: 0,
        answers_noise,
        sent: 0,
    };
    let script = Arc::new(Mutex::new(Some(script)));
    let reading = tokio::spawn(read(BufReader::new(input), script.clone(), rng.fork()));

    let mut asking = Vec::new();
    for _ in 0..rng.usize(1..30).min(most) {
        if rng.u8(0..4) == 0 {
            let order = TestMessage::new(side.ledger.serial(true), HandlerAction::Now, &mut rng);
            let reaction = Reaction::of(order.seed);
            let call = side.peer.call::<_, Box<RawValue>>("ask", &order);
            asking.push(tokio::spawn(async move {
                let answer = call.await;
                if !reaction.fits(order.n, &answer) {
                    return Err(format!("{reaction:?} was {answer:?}"));
                }
                Ok(match answer {
                    Ok(_) => "results of the script",
                    Err(Error::Closed(_)) => "calls at the end",
                    Err(_) => "errors of the script",
                })
            }));
        } else if let Some(script) = &mut *script.lock_unpoisoned() {
            script.step(&mut rng);
        }
        random_delays(rng.fork(), 4).await;
    }

    // At the end, a whole message without its line end counts, but a fragment does not.
    let Some(mut script) = script.lock_unpoisoned().take() else { return Err("the script is gone".into()) };
    match rng.u8(0..3) {
        0 => {
            let line = script.request(&mut rng);
            script.ledger.books(|books| {
                books.line_left(&serde_json::from_str(&line).unwrap_or_default());
            });
            let _ = script.lines.send(line);
        }
        1 => drop(script.lines.send(r#"{"jsonrpc":"2.0","id":1,"meth"#.into())),
        _ => {}
    }
    let Script { lines, ledger, owed, sent, .. } = script;
    drop(lines);
    let reason = side.peer.closed().await;
    if !matches!(reason, Closed::EndOfInput) {
        return Err(format!("ended with {reason:?}"));
    }
    let mut tally = EventCounts::default();
    for asking in asking {
        tally.add(asking.await.map_err(|error| error.to_string())??, 1);
    }
    let _ = writing.await;
    let Answers { by_id: answers, results } = reading.await.map_err(|error| error.to_string())?;
    if answers != owed {
        return Err(format!("answers by id: {answers:?}, owed: {owed:?}"));
    }
    let refused = side.peer.stats().refused;
    let theirs = ledger.books(std::mem::take);
    side.ledger.books(|books| books.received_in_order(&theirs, refused))?;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let shared = &side.peer.shared;
    let left = (side.peer.pending_requests(), shared.in_flight_len(), shared.budget.used.load(Relaxed));
    if left != (0, (0, 0), 0) {
        return Err(format!("left over: {left:?} of pending, in flight and queued"));
    }
    tally.add("lines", sent);
    tally.add("answers", answers.values().sum());
    tally.add("results", results);
    tally.add("heard", side.ledger.books(|books| books.received.len() as u64));
    Ok(tally)
}

/// The responses that the script has read.
#[derive(Default)]
struct Answers {
    by_id: BTreeMap<String, u64>,
    results: u64,
}

/// Counts the responses and responds to requests until the end.
async fn read(
    input: impl tokio::io::AsyncBufRead + Unpin,
    script: Arc<Mutex<Option<Script>>>,
    rng: Rng,
) -> Answers {
    let mut answers = Answers::default();
    let mut lines = input.lines();
    let mut rng = rng;
    while let Ok(Some(line)) = lines.next_line().await {
        let message: Value = serde_json::from_str(&line).unwrap_or_default();
        if message["method"].is_null() {
            *answers.by_id.entry(message["id"].to_string()).or_default() += 1;
            answers.results += u64::from(message.get("result").is_some());
        } else if !message["id"].is_null() {
            random_delays(rng.fork(), 2).await;
            if let Some(script) = &mut *script.lock_unpoisoned() {
                script.react(&message);
            }
        }
    }
    answers
}
