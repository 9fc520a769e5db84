//! R18: 64 tasks send through one connection at once.

use duologue_rpc::{Incoming, Peer, PeerBuilder, Responder, Service, Transport};
use fastrand::Rng;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, BufReader};

use super::pipes::{Difficult, PAGE, narrow};
use duologue_test_support::{Reproduction, measured, runs, seed};

const TASKS: usize = 64;
const LARGEST: usize = 256 * 1024;

struct Nothing;

impl Service for Nothing {
    fn request(&self, request: Incoming<'_>, responder: Responder) {
        responder.method_not_found(request.method);
    }

    fn notification(&self, _: Incoming<'_>) {}
}

/// From one byte to 256 KiB, every order of magnitude alike; both ends are among the first.
fn size(rng: &mut Rng, task: usize, number: usize) -> usize {
    match (task, number) {
        (_, 0) => 1,
        (0..4, 1) => LARGEST,
        _ => {
            let magnitude = rng.u32(0..=18);
            rng.usize(1..=1 << magnitude)
        }
    }
}

/// Returns the content of a frame, which differs from that of all others.
fn letter(task: usize, number: usize) -> char {
    char::from(b'a' + u8::try_from((task + number) % 26).expect("a letter"))
}

async fn send(peer: Peer, task: usize, frames: usize, mut rng: Rng) {
    for number in 0..frames {
        let size = size(&mut rng, task, number);
        let text: String = std::iter::repeat_n(letter(task, number), size).collect();
        let params = serde_json::json!({"task": task, "number": number, "size": size, "text": text});
        peer.notify_raw("_frame", &params).await.expect("open");
    }
}

/// Reads with nothing of ours: every line has to be whole, and the next one of its task.
async fn all_arrive(input: impl AsyncRead + Unpin, frames: usize) -> usize {
    let mut input = BufReader::new(input);
    let (mut line, mut bytes) = (String::new(), 0);
    let mut next = [0; TASKS];
    for _ in 0..TASKS * frames {
        line.clear();
        bytes += input.read_line(&mut line).await.expect("UTF-8");
        let frame: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("torn: {error}"));
        let number = |name: &str| {
            let number = frame["params"][name].as_u64().unwrap_or_else(|| panic!("no {name}"));
            usize::try_from(number).expect("a number of ours")
        };
        let (task, index, size) = (number("task"), number("number"), number("size"));
        assert_eq!(index, next[task], "task {task}: lost, or out of order");
        next[task] += 1;
        let text = frame["params"]["text"].as_str().expect("a text");
        assert_eq!(text.len(), size, "task {task}, frame {index}");
        assert!(text.chars().all(|char| char == letter(task, index)), "task {task}, frame {index}");
    }
    bytes
}

async fn play(
    output: impl AsyncWrite + Send + Unpin + 'static,
    input: impl AsyncRead + Send + Unpin + 'static,
    frames: usize,
    seed: u64,
) -> usize {
    // No input arrives; this end of a second pipe keeps its other end open.
    let (quiet, _input) = narrow();
    let peer = PeerBuilder::new(Transport::new(quiet, output)).start(|_| Nothing);
    let mut rng = Rng::with_seed(seed);
    let senders: Vec<_> =
        (0..TASKS).map(|task| tokio::spawn(send(peer.clone(), task, frames, rng.fork()))).collect();
    let bytes = all_arrive(input, frames).await;
    for sender in senders {
        sender.await.expect("no panic");
    }
    peer.close();
    bytes
}

/// Over a pipe of one page, on several threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn over_a_pipe_of_one_page() {
    let frames = usize::try_from(runs(20)).expect("fewer");
    let seed = seed();
    let _again = Reproduction::of(
        "-p duologue-rpc --test it frames::torn::over_a_pipe_of_one_page",
        seed,
        frames as u64,
    );
    let (input, output) = narrow();
    let begun = std::time::Instant::now();
    let bytes = play(output, input, frames, seed).await;
    let took = begun.elapsed().as_secs_f32();
    measured(format_args!(
        "{TASKS} tasks, {} frames, {} MB over a pipe of {PAGE} B in {took:.1} s: 0 torn, 0 lost",
        TASKS * frames,
        bytes / 1_000_000
    ));
}

/// Through a writer that writes short, later, and is interrupted; another order for each seed.
#[test]
fn in_every_order_of_short_writes() {
    let (first, seeds) = (seed(), runs(10));
    for seed in (0..seeds).map(|number| first.wrapping_add(number)) {
        let _again = Reproduction::of(
            "-p duologue-rpc --test it frames::torn::in_every_order_of_short_writes",
            seed,
            1,
        );
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let (input, output) = narrow();
            play(Difficult::new(output, seed), input, 4, seed).await;
        });
    }
    measured(format_args!("{seeds} orders of short, late and interrupted writes: 0 torn, 0 lost"));
}
