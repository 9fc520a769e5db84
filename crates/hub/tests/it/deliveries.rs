//! The worker of the outbox, with a store in SQLite and receivers that the tests play.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use duologue_hub::{DELIVERY_SIGNATURE, Deliveries, DeliverySettings, HubClock, OutboundPost, WebhookSecret};
use duologue_store::{
    JsonText, NewDelivery, OutboxEntry, OutboxKind, OutboxQuery, OutboxState, SqliteStore, Store, StoreBatch,
    StoreChange, StoreSettings, StoreTopic, StoredPrincipal,
};
use duologue_test_support::in_time;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::faulty_store::{Faults, FaultyStore};
use crate::played_post::{Played, PlayedPost};
use crate::receiver::{Receiver, accept, loopback_client};

const WALL: u64 = 1_767_225_600_000;
const SECRET: &str = "a webhook secret of 32 characters";
const MS: Duration = Duration::from_millis(1);

/// A store with its clock.
#[derive(Clone)]
struct Outbox {
    store: Arc<dyn Store>,
    clock: HubClock,
}

/// A running worker.
struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Running {
    async fn stop(self) {
        let _ = self.stop.send(());
        in_time(self.task).await.expect("no panic");
    }

    /// Drops the worker as the end of a process does.
    async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

impl Outbox {
    fn in_memory() -> Self {
        let store = SqliteStore::in_memory(StoreSettings::default()).expect("a store");
        Outbox { store: Arc::new(store), clock: HubClock::following_tokio(WALL) }
    }

    fn open(path: &Path) -> Self {
        let store = SqliteStore::open(path, StoreSettings::default(), WALL).expect("a store");
        Outbox { store: Arc::new(store), clock: HubClock::following_tokio(WALL) }
    }

    fn apply(&self, change: StoreChange) {
        self.store.apply(StoreBatch::new(self.clock.now()).with(change)).expect("applied");
    }

    fn push(&self, kind: OutboxKind, principal: &str, stream: &str, position: u64, url: &str) {
        let body = JsonText::new(format!(r#"{{"stream":"{stream}","position":{position}}}"#)).expect("JSON");
        self.apply(StoreChange::PushDelivery(NewDelivery::new(kind, principal, stream, position, url, body)));
    }

    fn chunks(&self, stream: &str, count: u64, url: &str) {
        (0..count).for_each(|position| self.push(OutboxKind::Chunk, "me", stream, position, url));
    }

    fn run(&self, post: impl OutboundPost, settings: DeliverySettings) -> Running {
        let (stop, stopped) = oneshot::channel();
        let deliveries = Deliveries::new(self.store.clone(), post, self.clock, settings);
        let task = tokio::spawn(deliveries.run(async { drop(stopped.await) }));
        Running { stop, task }
    }

    fn entries(&self) -> Vec<OutboxEntry> {
        let mut query = OutboxQuery::default();
        query.limit = 1000;
        self.store.deliveries(&query).expect("a page").items
    }

    fn states(&self) -> Vec<OutboxState> {
        self.entries().iter().map(|entry| entry.state).collect()
    }

    /// Waits until no post is pending.
    async fn emptied(&self) {
        let mut watch = self.store.watch(&StoreTopic::Outbox);
        let emptied = async {
            while self.states().contains(&OutboxState::Pending) {
                watch.changed().await;
            }
        };
        // Paused time passes at once.
        timeout(Duration::from_secs(7 * 24 * 60 * 60), emptied).await.expect("this hangs");
    }
}

fn bodies(post: &PlayedPost) -> Vec<String> {
    post.attempts().into_iter().map(|attempt| attempt.body).collect()
}

fn body(stream: &str, position: u64) -> String {
    format!(r#"{{"stream":"{stream}","position":{position}}}"#)
}

#[tokio::test]
async fn a_post_is_signed_and_arrives_once() {
    let outbox = Outbox::in_memory();
    let mut principal = StoredPrincipal::new("me");
    principal.webhook_secret = Some(SECRET.into());
    outbox.apply(StoreChange::PutPrincipal(principal));
    let receiver = Receiver::start(accept).await;
    let running = outbox.run(loopback_client(), DeliverySettings::default());
    outbox.push(OutboxKind::Callback, "me", "one", 0, &receiver.url("/hook?a=b"));
    outbox.emptied().await;
    outbox.push(OutboxKind::Callback, "other", "two", 0, &receiver.url("/"));
    outbox.emptied().await;
    running.stop().await;
    let received = receiver.received();
    assert_eq!(received.len(), 2);
    let (first, second) = (&received[0], &received[1]);
    assert_eq!(first.path, "/hook?a=b");
    assert_eq!(first.headers["content-type"], "application/json");
    assert_eq!(first.body, body("one", 0));
    let secret = WebhookSecret::new(SECRET).expect("a secret");
    let verified =
        secret.verify(&first.headers, &first.body, outbox.clock.now().wall, Duration::from_secs(60));
    assert_eq!(verified.expect("signed").id, Deliveries::delivery_id(&outbox.entries()[0]));
    // A principal without a secret.
    assert!(!second.headers.contains_key(DELIVERY_SIGNATURE));
    assert_eq!(outbox.states(), [OutboxState::Delivered; 2]);
}

#[tokio::test]
async fn an_internal_address_is_given_up_without_a_connection() {
    let outbox = Outbox::in_memory();
    let receiver = Receiver::start(accept).await;
    for (number, url) in
        [receiver.url("/").as_str(), "http://10.0.0.1/", "gopher://a/"].into_iter().enumerate()
    {
        outbox.push(OutboxKind::Callback, "me", &format!("stream {number}"), 0, url);
    }
    let client = duologue_hub::OutboundClient::new(duologue_hub::OutboundSettings::default());
    let running = outbox.run(client, DeliverySettings::default());
    outbox.emptied().await;
    running.stop().await;
    assert_eq!(outbox.states(), [OutboxState::GivenUp; 3]);
    assert!(outbox.entries().iter().all(|entry| entry.attempts == 1 && entry.last_error.is_some()));
    assert!(receiver.received().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_dead_receiver_is_tried_again_also_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("hub.db");
    let dead = PlayedPost::new(|_| Played::status(0));
    let outbox = Outbox::open(&path);
    outbox.push(OutboxKind::Callback, "me", "one", 0, "http://a.example/");
    let running = outbox.run(dead.clone(), DeliverySettings::default());
    in_time(async {
        while dead.attempts().len() < 6 {
            sleep(10 * MS).await;
        }
    })
    .await;
    running.stop().await;
    let before = dead.attempts().len();
    assert_eq!(outbox.states(), [OutboxState::Pending]);
    drop(outbox);
    let outbox = Outbox::open(&path);
    assert_eq!(outbox.entries()[0].attempts as usize, before);
    let alive = PlayedPost::new(|_| Played::status(200));
    let running = outbox.run(alive.clone(), DeliverySettings::default());
    outbox.emptied().await;
    running.stop().await;
    assert_eq!(alive.attempts().len(), 1);
    // All attempts have one id, so that the receiver can drop a repetition.
    let ids: Vec<_> = dead.attempts().into_iter().chain(alive.attempts()).map(|attempt| attempt.id).collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
}

#[tokio::test(start_paused = true)]
async fn pauses_grow_at_random_within_their_bounds() {
    let outbox = Outbox::in_memory();
    for number in 0..40 {
        outbox.push(
            OutboxKind::Callback,
            "me",
            &format!("s{number}"),
            0,
            &format!("http://h{number}.example/"),
        );
    }
    let mut tries = BTreeMap::new();
    let post = PlayedPost::new(move |attempt| {
        let tried: &mut u32 = tries.entry(attempt.url.clone()).or_default();
        *tried += 1;
        Played::status(if *tried > 8 { 200 } else { 500 })
    });
    let mut settings = DeliverySettings::default();
    settings.max_delay = 2000 * MS;
    let running = outbox.run(post.clone(), settings);
    outbox.emptied().await;
    running.stop().await;
    let mut times: BTreeMap<String, Vec<Instant>> = BTreeMap::new();
    post.attempts().into_iter().for_each(|attempt| times.entry(attempt.url).or_default().push(attempt.at));
    let mut sum = [Duration::ZERO; 8];
    for times in times.values() {
        assert_eq!(times.len(), 9);
        for (number, pair) in times.windows(2).enumerate() {
            let bound = (100 * MS * 2_u32.pow(number as u32)).min(2000 * MS);
            let pause = pair[1] - pair[0];
            // Timers are up to a few milliseconds late.
            assert!(pause <= bound + 20 * MS, "{number}: {pause:?} of {bound:?}");
            sum[number] += pause;
        }
    }
    for (number, sum) in sum.iter().enumerate() {
        // The mean of 40 pauses is near the middle.
        let (mean, bound) = (*sum / 40, (100 * MS * 2_u32.pow(number as u32)).min(2000 * MS));
        assert!(mean > bound / 5 && mean < bound * 4 / 5 + 20 * MS, "{number}: {mean:?} of {bound:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_stays_in_order_with_one_post_at_a_time() {
    let outbox = Outbox::in_memory();
    for stream in ["a", "b"] {
        outbox.chunks(stream, 20, &format!("http://{stream}.example/"));
    }
    let mut number = 0;
    let post = PlayedPost::new(move |_| {
        number += 1;
        // Failures of several kinds, and responses that take different times.
        let status = [200, 503, 200, 0, 429, 200, 408, 425, 302][number % 9];
        Played::status(status).after((number % 4) as u32 * 10 * MS)
    });
    let running = outbox.run(post.clone(), DeliverySettings::default());
    outbox.emptied().await;
    running.stop().await;
    for stream in ["a", "b"] {
        let delivered: Vec<_> = post
            .attempts()
            .into_iter()
            .filter(|attempt| attempt.url.contains(&format!("//{stream}.")) && attempt.status == Some(200))
            .map(|attempt| attempt.body)
            .collect();
        assert_eq!(delivered, (0..20).map(|position| body(stream, position)).collect::<Vec<_>>());
        assert_eq!(post.most(&format!("http://{stream}.example/")), 1);
    }
    assert_eq!(post.most("all"), 2);
    assert_eq!(outbox.states(), [OutboxState::Delivered; 40]);
}

#[tokio::test(start_paused = true)]
async fn gone_ends_the_stream_and_later_chunks_are_not_sent() {
    let outbox = Outbox::in_memory();
    outbox.chunks("a", 5, "http://a.example/");
    outbox.chunks("b", 2, "http://b.example/");
    let post =
        PlayedPost::new(|attempt| Played::status(if attempt.body == body("a", 2) { 410 } else { 200 }));
    let running = outbox.run(post.clone(), DeliverySettings::default());
    outbox.emptied().await;
    outbox.push(OutboxKind::Chunk, "me", "a", 5, "http://a.example/");
    outbox.emptied().await;
    running.stop().await;
    let a: Vec<_> = bodies(&post).into_iter().filter(|body| body.contains(r#""a""#)).collect();
    assert_eq!(a, [body("a", 0), body("a", 1), body("a", 2)]);
    use OutboxState::{Delivered, GivenUp};
    assert_eq!(
        outbox.states(),
        [Delivered, Delivered, GivenUp, GivenUp, GivenUp, Delivered, Delivered, GivenUp]
    );
}

#[tokio::test(start_paused = true)]
async fn a_rejected_callback_is_given_up_alone_and_a_rejected_chunk_ends_its_stream() {
    let outbox = Outbox::in_memory();
    for position in 0..3 {
        outbox.push(OutboxKind::Callback, "me", "a", position, "http://a.example/");
    }
    outbox.chunks("b", 3, "http://b.example/");
    let post = PlayedPost::new(|attempt| {
        Played::status(if attempt.body.contains(r#""position":1"#) { 404 } else { 200 })
    });
    let running = outbox.run(post.clone(), DeliverySettings::default());
    outbox.emptied().await;
    running.stop().await;
    use OutboxState::{Delivered, GivenUp};
    assert_eq!(outbox.states(), [Delivered, GivenUp, Delivered, Delivered, GivenUp, GivenUp]);
    assert_eq!(post.attempts().len(), 5);
    assert!(outbox.entries()[1].last_error.as_deref().is_some_and(|error| error.contains("404")));
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_honoured_within_its_limit() {
    for (text, least, most) in [
        ("30", 30_000, 30_000),
        ("999999999", 3_600_000, 3_600_000),
        ("Thu, 01 Jan 2026 00:01:00 GMT", 59_000, 60_000),
        ("Thu, 01 Jan 2015 00:01:00 GMT", 0, 100),
        ("-5", 0, 100),
        ("soon", 0, 100),
    ] {
        let outbox = Outbox::in_memory();
        outbox.push(OutboxKind::Callback, "me", "a", 0, "http://a.example/");
        let mut is_first = true;
        let post = PlayedPost::new(move |_| {
            let status = if std::mem::take(&mut is_first) { 503 } else { 200 };
            Played { retry_after: Some(text), ..Played::status(status) }
        });
        let running = outbox.run(post.clone(), DeliverySettings::default());
        outbox.emptied().await;
        running.stop().await;
        let attempts = post.attempts();
        let pause = (attempts[1].at - attempts[0].at).as_millis();
        assert!((least..=most + 20).contains(&pause), "{text}: {pause}");
    }
}

#[tokio::test(start_paused = true)]
async fn attempts_end_at_their_number_and_at_the_age() {
    let outbox = Outbox::in_memory();
    let post = PlayedPost::new(|_| Played::status(500));
    let mut settings = DeliverySettings::default();
    settings.attempts = 5;
    outbox.push(OutboxKind::Callback, "me", "a", 0, "http://a.example/");
    let running = outbox.run(post.clone(), settings.clone());
    outbox.emptied().await;
    running.stop().await;
    assert_eq!(post.attempts().len(), 5);
    assert!(outbox.entries()[0].last_error.as_deref().is_some_and(|error| error.contains("attempts")));
    settings.attempts = u32::MAX;
    settings.age = Duration::from_secs(3600);
    outbox.push(OutboxKind::Callback, "me", "b", 0, "http://b.example/");
    let start = Instant::now();
    let running = outbox.run(post.clone(), settings.clone());
    outbox.emptied().await;
    running.stop().await;
    assert!(start.elapsed() >= settings.age && start.elapsed() <= settings.age + settings.max_delay);
    assert!(outbox.entries()[1].last_error.as_deref().is_some_and(|error| error.contains("age")));
}

#[tokio::test(start_paused = true)]
async fn dead_receivers_are_given_up_and_delay_nobody() {
    let outbox = Outbox::in_memory();
    let dead = ["silent", "refused", "broken", "gone"];
    for name in dead.into_iter().chain(["alive"]) {
        outbox.push(OutboxKind::Callback, "me", name, 0, &format!("http://{name}.example/"));
    }
    let post = PlayedPost::new(|attempt| match attempt.url.split(['/', '.']).nth(2) {
        Some("silent") => Played::status(200).after(Duration::from_secs(24 * 3600)),
        Some("refused") => Played::status(0),
        Some("broken") => Played::status(500),
        Some("gone") => Played::status(410),
        _ => Played::status(200),
    });
    let running = outbox.run(post.clone(), DeliverySettings::default());
    outbox.emptied().await;
    running.stop().await;
    use OutboxState::{Delivered, GivenUp};
    assert_eq!(outbox.states(), [GivenUp, GivenUp, GivenUp, GivenUp, Delivered]);
    let attempts = post.attempts();
    let count = |name: &str| attempts.iter().filter(|attempt| attempt.url.contains(name)).count();
    assert!(["silent", "refused", "broken"].into_iter().all(|name| count(name) > 1), "{attempts:?}");
    assert_eq!((count("gone"), count("alive")), (1, 1));
    let alive = attempts.iter().position(|attempt| attempt.url.contains("alive"));
    assert!(alive < Some(dead.len() + 1), "{attempts:?}");
}

#[tokio::test(start_paused = true)]
async fn a_slow_receiver_delays_neither_other_hosts_nor_other_principals() {
    let outbox = Outbox::in_memory();
    for number in 0..24 {
        outbox.push(OutboxKind::Callback, "slow", &format!("s{number}"), 0, "http://slow.example/");
    }
    for number in 0..12 {
        let url = format!("http://h{number}.slow.example/");
        outbox.push(OutboxKind::Callback, "slow", &format!("h{number}"), 0, &url);
    }
    for number in 0..12 {
        outbox.push(OutboxKind::Callback, "fast", &format!("f{number}"), 0, "http://fast.example/");
    }
    let post = PlayedPost::new(|attempt| {
        let is_slow = attempt.url.contains("slow");
        Played::status(200).after(if is_slow { Duration::from_secs(5) } else { MS })
    });
    let mut settings = DeliverySettings::default();
    (settings.concurrent, settings.per_host) = (8, 3);
    (settings.waiting, settings.waiting_per_principal) = (100, 10);
    let start = Instant::now();
    let running = outbox.run(post.clone(), settings);
    outbox.emptied().await;
    let all = start.elapsed();
    running.stop().await;
    let attempts = post.attempts();
    assert_eq!(attempts.len(), 48, "each is sent once");
    assert_eq!(post.most("http://slow.example/"), 2);
    assert!(post.most("http://fast.example/") <= 3 && post.most("all") <= 8);
    let last = |part: &str| {
        let times = attempts.iter().filter(|attempt| attempt.url.contains(part)).map(|attempt| attempt.at);
        times.max().expect("an attempt") - start
    };
    assert!(last("fast") < Duration::from_secs(1), "{:?}", last("fast"));
    // 24 posts to one host, 2 at a time, which leaves a place for others.
    assert!(all >= Duration::from_secs(40) && all < Duration::from_secs(240), "{all:?}");
}

#[tokio::test(start_paused = true)]
async fn slow_posts_of_one_principal_leave_places_of_a_host_for_others() {
    let outbox = Outbox::in_memory();
    for (principal, count) in [("slow", 12), ("fast", 4)] {
        for number in 0..count {
            let (stream, url) =
                (format!("{principal}{number}"), format!("http://shared.example/{principal}"));
            outbox.push(OutboxKind::Callback, principal, &stream, 0, &url);
        }
    }
    let post = PlayedPost::new(|attempt| {
        let is_slow = attempt.url.contains("slow");
        Played::status(200).after(if is_slow { Duration::from_secs(5) } else { MS })
    });
    let running = outbox.run(post.clone(), DeliverySettings::default());
    outbox.emptied().await;
    running.stop().await;
    let attempts = post.attempts();
    let of = |part: &str| {
        let found = attempts.iter().enumerate().filter(|(_, attempt)| attempt.url.ends_with(part));
        found.map(|(index, _)| index).collect::<Vec<_>>()
    };
    let (slow, fast) = (of("slow"), of("fast"));
    // Four of eight places are for others, who need not wait until a slow post has ended.
    assert_eq!((slow.len(), fast.len()), (12, 4));
    assert!(fast[3] < slow[4], "{slow:?} {fast:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_a_response_and_returns_the_rest() {
    let outbox = Outbox::in_memory();
    for (number, after) in [1, 60, 60].into_iter().enumerate() {
        let url = format!("http://h{number}.example/{after}");
        outbox.push(OutboxKind::Callback, "me", &format!("s{number}"), 0, &url);
    }
    let post = PlayedPost::new(|attempt| {
        let after = attempt.url.rsplit('/').next().and_then(|after| after.parse().ok()).expect("seconds");
        Played::status(200).after(Duration::from_secs(after))
    });
    let mut settings = DeliverySettings::default();
    // Half of the places is for other principals.
    settings.concurrent = 4;
    let running = outbox.run(post.clone(), settings.clone());
    in_time(async {
        while post.attempts().len() < 2 {
            sleep(MS).await;
        }
    })
    .await;
    let start = Instant::now();
    running.stop().await;
    assert!(start.elapsed() >= Duration::from_secs(4) && start.elapsed() < Duration::from_secs(6));
    use OutboxState::{Delivered, Pending};
    assert_eq!(outbox.states(), [Delivered, Pending, Pending]);
    // They are due at once, without waiting for the end of a lease.
    let again = PlayedPost::new(|_| Played::status(200));
    let start = Instant::now();
    let running = outbox.run(again.clone(), settings);
    outbox.emptied().await;
    running.stop().await;
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    // The two that ran are attempted in any order.
    let unfinished = post.attempts().into_iter().find(|attempt| attempt.url.ends_with("/60"));
    let unfinished = unfinished.expect("a post that takes a minute").id;
    assert_eq!(again.attempts().len(), 2);
    assert!(again.attempts().iter().any(|attempt| attempt.id == unfinished));
}

/// After a 2xx nothing is sent again, unless the process has died before it could be recorded: only the posts that ran
/// when the worker was killed are repeated.
#[tokio::test(start_paused = true)]
async fn an_acknowledged_post_is_sent_again_only_after_a_death() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("hub.db");
    let outbox = Outbox::open(&path);
    for stream in 0..10 {
        outbox.chunks(&format!("s{stream}"), 6, &format!("http://h{stream}.example/"));
    }
    drop(outbox);
    let mut rng = fastrand::Rng::with_seed(7);
    let post = PlayedPost::new(move |_| {
        let status = if rng.bool() { 200 } else { [500, 0, 429][rng.usize(0..3)] };
        Played::status(status).after(rng.u32(0..50) * MS)
    });
    let mut running_at_death = Vec::new();
    for life in 0..6 {
        let outbox = Outbox::open(&path);
        let running = outbox.run(post.clone(), DeliverySettings::default());
        match life {
            5 => {
                outbox.emptied().await;
                running.stop().await;
            }
            life if life % 2 == 0 => {
                sleep(120 * MS).await;
                running.stop().await;
            }
            _ => {
                sleep(120 * MS).await;
                running.kill().await;
                let unfinished =
                    outbox.entries().into_iter().filter(|entry| entry.state == OutboxState::Pending);
                running_at_death.extend(unfinished.map(|entry| Deliveries::delivery_id(&entry)));
            }
        }
        drop(outbox);
    }
    let outbox = Outbox::open(&path);
    assert_eq!(outbox.states(), [OutboxState::Delivered; 60]);
    let mut acknowledged: BTreeMap<String, usize> = BTreeMap::new();
    for attempt in post.attempts().into_iter().filter(|attempt| attempt.status == Some(200)) {
        *acknowledged.entry(attempt.id).or_default() += 1;
    }
    assert_eq!(acknowledged.len(), 60);
    for (id, count) in acknowledged {
        assert!(count == 1 || (count == 2 && running_at_death.contains(&id)), "{id}: {count}");
    }
}

#[tokio::test(start_paused = true)]
async fn posts_of_a_disabled_principal_are_given_up() {
    let outbox = Outbox::in_memory();
    let mut principal = StoredPrincipal::new("me");
    principal.disabled = true;
    outbox.apply(StoreChange::PutPrincipal(principal.clone()));
    outbox.push(OutboxKind::Callback, "me", "a", 0, "http://a.example/");
    outbox.chunks("b", 3, "http://a.example/");
    let post = PlayedPost::new(|_| Played::status(200));
    let running = outbox.run(post.clone(), DeliverySettings::default());
    outbox.emptied().await;
    running.stop().await;
    assert!(post.attempts().is_empty());
    assert_eq!(outbox.states(), [OutboxState::GivenUp; 4]);
    let errors = outbox.entries().into_iter().map(|entry| entry.last_error.unwrap_or_default());
    assert!(errors.into_iter().all(|error| error == "the principal \"me\" is disabled"));
}

#[tokio::test]
async fn a_receiver_that_comes_back_gets_everything_in_order() {
    let outbox = Outbox::in_memory();
    let receiver = Receiver::start(|number, _| match number {
        0 | 3 => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        2 => (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "0")]).into_response(),
        _ => StatusCode::OK.into_response(),
    })
    .await;
    outbox.chunks("a", 4, &receiver.url("/chunks"));
    let mut settings = DeliverySettings::default();
    settings.first_delay = 5 * MS;
    let running = outbox.run(loopback_client(), settings);
    outbox.emptied().await;
    running.stop().await;
    let received: Vec<_> = receiver.received().into_iter().map(|received| received.body).collect();
    assert_eq!(received, [0, 0, 1, 1, 1, 2, 3].map(|position| body("a", position)));
    assert_eq!(outbox.states(), [OutboxState::Delivered; 4]);
}

fn faulty() -> (Outbox, Arc<Faults>) {
    let faults = Arc::new(Faults::default());
    let store = FaultyStore::new(faults.clone());
    (Outbox { store: Arc::new(store), clock: HubClock::following_tokio(WALL) }, faults)
}

#[tokio::test(start_paused = true)]
async fn the_store_is_not_polled_before_a_post_is_due() {
    let (outbox, faults) = faulty();
    outbox.push(OutboxKind::Callback, "me", "a", 0, "http://a.example/");
    let mut is_first = true;
    let post = PlayedPost::new(move |_| {
        let status = if std::mem::take(&mut is_first) { 503 } else { 200 };
        Played { retry_after: Some("3600"), ..Played::status(status) }
    });
    let running = outbox.run(post.clone(), DeliverySettings::default());
    outbox.emptied().await;
    sleep(Duration::from_secs(24 * 3600)).await;
    let claims = faults.claims.load(Ordering::SeqCst);
    assert!(claims <= 10, "{claims}");
    assert_eq!(post.attempts().len(), 2);
    // A new post wakes the worker.
    outbox.push(OutboxKind::Callback, "me", "b", 0, "http://b.example/");
    outbox.emptied().await;
    running.stop().await;
    assert_eq!(post.attempts().len(), 3);
}

/// The result of a delivered post is recorded when the store works again, also after the end of its lease.
#[tokio::test(start_paused = true)]
async fn a_store_that_fails_makes_nothing_be_sent_twice() {
    for outage in [Duration::from_secs(30), Duration::from_secs(20 * 60)] {
        let (outbox, faults) = faulty();
        outbox.push(OutboxKind::Callback, "me", "a", 0, "http://a.example/");
        let breaks = faults.clone();
        let post = PlayedPost::new(move |_| {
            breaks.apply.store(true, Ordering::SeqCst);
            Played::status(200)
        });
        let running = outbox.run(post.clone(), DeliverySettings::default());
        sleep(outage).await;
        assert_eq!(outbox.states(), [OutboxState::Pending]);
        faults.apply.store(false, Ordering::SeqCst);
        outbox.emptied().await;
        running.stop().await;
        assert_eq!(post.attempts().len(), 1, "{outage:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failing_claim_is_repeated_and_a_stop_ends_a_failing_record() {
    let (outbox, faults) = faulty();
    outbox.push(OutboxKind::Callback, "me", "a", 0, "http://a.example/");
    faults.claim.store(true, Ordering::SeqCst);
    let breaks = faults.clone();
    let post = PlayedPost::new(move |_| {
        breaks.apply.store(true, Ordering::SeqCst);
        Played::status(200)
    });
    let running = outbox.run(post.clone(), DeliverySettings::default());
    sleep(Duration::from_secs(10)).await;
    let claims = faults.claims.load(Ordering::SeqCst);
    assert!((5..=15).contains(&claims), "{claims}");
    faults.claim.store(false, Ordering::SeqCst);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(post.attempts().len(), 1);
    running.stop().await;
}

/// The place of a post whose attempt panics is free again, and the post is repeated after its lease.
#[tokio::test(start_paused = true)]
async fn a_panic_costs_one_attempt() {
    let outbox = Outbox::in_memory();
    outbox.push(OutboxKind::Callback, "me", "a", 0, "http://a.example/");
    let mut is_first = true;
    let post = PlayedPost::new(move |_| {
        assert!(!std::mem::take(&mut is_first), "a panic of a test");
        Played::status(200)
    });
    let mut settings = DeliverySettings::default();
    settings.concurrent = 1;
    let start = Instant::now();
    let running = outbox.run(post.clone(), settings.clone());
    outbox.emptied().await;
    running.stop().await;
    assert!(start.elapsed() >= settings.lease && start.elapsed() < settings.lease + Duration::from_secs(1));
}
