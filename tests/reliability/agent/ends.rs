//! The end of an agent whose client is killed, or closes its input.
//!
//! A launcher connects to the scenario before it runs anything, and every descendant inherits that connection: it ends
//! when the last of them is gone.

use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use duologue_test_support::at_most;
use duologue_tests::Result;
use duologue_tests::process::{ObservedProcess, side_by_side};
use duologue_tests::raw_client::{FRAMES, PATIENCE, RawClient, RawOutput};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::harness::{self, Measured, play};

/// The longest time that an agent may outlive its client.
const GONE: Duration = Duration::from_secs(5);
/// Clients that die at once.
const AT_ONCE: usize = 6;
/// The program takes the launcher's place.
const DIRECT: &str = r#"exec "$@""#;
/// The launcher stays above the program, as `npx` and friends do.
const BELOW: &str = r#""$@"; exit $?"#;

/// The client's last actions, and the launcher of the agent.
const WAYS: [(&str, &str, &str); 4] = [
    ("in a turn", "turn", DIRECT),
    ("below a wrapper", "turn", BELOW),
    ("handler blocked", "stuck", DIRECT),
    ("stdout full", "full", DIRECT),
];

#[test]
fn r11_client_killed() {
    play(client_killed);
}

/// The client killed at every frame of a turn, in each of the ways.
fn client_killed() -> Result<Measured> {
    let (frames, rounds) =
        (harness::size(vec![1, 3, 30, FRAMES], (0..=FRAMES).collect()), harness::size(1, 2));
    let cases: Vec<(usize, usize)> = (0..WAYS.len())
        .flat_map(|way| frames.iter().map(move |&frame| (way, frame)))
        .flat_map(|case| vec![case; rounds])
        .collect();
    let (mut left, mut faults, mut slowest) = ([0; WAYS.len()], Vec::new(), Duration::ZERO);
    let ends = side_by_side(&cases, AT_ONCE, |&(way, frame)| killed_at(way, frame));
    for (&(way, _), end) in cases.iter().zip(ends) {
        match end {
            Ok(Some(took)) => slowest = slowest.max(took),
            Ok(None) => left[way] += 1,
            Err(fault) => faults.push(fault),
        }
    }
    let count = cases.len() / WAYS.len();
    let ways = WAYS.iter().zip(left).filter(|(_, left)| *left > 0);
    let ways: Vec<_> =
        ways.map(|((name, ..), left)| format!("{left} of {count} left behind {name}")).collect();
    let text = format!("{} kills, the others gone in at most {:.1} s", cases.len(), slowest.as_secs_f64());
    let text = if ways.is_empty() {
        format!("0 left behind by {text}")
    } else {
        format!("{}; {text}", ways.join(", "))
    };
    Ok(match faults.first() {
        Some(fault) if ways.is_empty() => {
            Measured::not_played(format!("{} of the kills, such as {fault}; {text}", faults.len()))
        }
        Some(fault) => Measured::short(format!("{text}; {} not played, such as {fault}", faults.len())),
        None => Measured::new(ways.is_empty(), text),
    })
}

/// Says how long the agent outlived a client that was killed at this frame, if it did end.
fn killed_at(way: usize, frame: usize) -> Result<Option<Duration>> {
    let (_, mode, script) = WAYS[way];
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let port = listener.local_addr()?.port();
    let script = format!("exec 9<>/dev/tcp/127.0.0.1/{port} && echo $$ >&9 || exit 99; {script}");
    let agent = harness::agent();
    let mut client = Command::new(env!("CARGO_BIN_EXE_raw-client"));
    client.args([&frame.to_string(), mode, "bash", "-c", &script, "launcher"]).arg(agent.get_program());
    let mut client = ObservedProcess::start_with(&mut client, Stdio::null())?;
    let mut tree = BufReader::new(accept(&listener)?);
    match client.wait(PATIENCE)? {
        Some(status) if status.signal() == Some(Signal::KILL.as_raw()) => {}
        end => return Err(format!("the client came to {end:?} and not to frame {frame}, {mode}").into()),
    }
    let begun = Instant::now();
    let mut leader = String::new();
    tree.read_line(&mut leader)?;
    tree.get_ref().set_read_timeout(Some(GONE))?;
    let mut rest = Vec::new();
    match tree.read_to_end(&mut rest) {
        Err(error)
            if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) =>
        {
            if let Some(leader) = leader.trim().parse().ok().and_then(Pid::from_raw) {
                let _ = kill_process_group(leader, Signal::KILL);
            }
            Ok(None)
        }
        // An error is an end too: a process that dies with unread bytes resets the connection.
        _ => Ok(Some(begun.elapsed())),
    }
}

fn accept(listener: &TcpListener) -> Result<TcpStream> {
    listener.set_nonblocking(true)?;
    let begun = Instant::now();
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            Err(_) if begun.elapsed() < PATIENCE => thread::sleep(Duration::from_millis(2)),
            Err(error) => return Err(format!("the launcher never ran: {error}").into()),
        }
    }
}

#[test]
fn r12_agent() {
    play(end_of_input);
}

/// Measures the time from the end of an agent's input to its own end.
fn end_of_input() -> Result<Measured> {
    let rounds = harness::size(2, 20);
    let cases = [
        ("idle", "", 1, true),
        ("in a turn that waits", "sleep 60000", 2, true),
        ("until cancelled", "hang", 2, true),
        ("while it streams", "flood 1000000 1000", 2, true),
        ("its output full", "flood 1000000 1000", 2, false),
        ("handler blocked", "stuck", 2, true),
    ];
    let (mut texts, mut met) = (Vec::new(), true);
    for (name, word, limit, reads) in cases {
        let (mut slowest, mut stuck, mut codes) = (Duration::ZERO, false, Vec::new());
        for _ in 0..rounds {
            let mut client = RawClient::greeted(&mut harness::agent())?;
            let session = client.new_session()?;
            if !word.is_empty() {
                client.begin(&session, word)?;
                thread::sleep(Duration::from_millis(100));
            }
            client.hang_up();
            let begun = Instant::now();
            // The remaining output is read, or not.
            while reads
                && matches!(client.hear(at_most(GONE).saturating_sub(begun.elapsed()))?, RawOutput::Line(_))
            {
            }
            match client.process.wait(at_most(GONE).saturating_sub(begun.elapsed()))? {
                Some(status) if !status.success() => codes.push(status.to_string()),
                Some(_) => {}
                None => {
                    stuck = true;
                    break;
                }
            }
            slowest = slowest.max(begun.elapsed());
        }
        codes.dedup();
        met &= !stuck && codes.is_empty() && slowest <= at_most(Duration::from_secs(limit));
        let took = if stuck {
            format!("alive after {:?}", at_most(GONE))
        } else {
            format!("{:.2} s", slowest.as_secs_f64())
        };
        let codes = if codes.is_empty() { String::new() } else { format!(" ({})", codes.join(", ")) };
        texts.push(format!("{name} {took}{codes}"));
    }
    Ok(Measured::new(met, texts.join("; ")))
}
