//! A client without any SDK that kills itself at a frame: `raw-client FRAME turn|stuck|full PROGRAM…`.

use std::process::Command;
use std::thread;
use std::time::Duration;

use duologue_tests::Result;
use duologue_tests::raw_client::{FRAMES, PATIENCE, RawClient, RawOutput};
use rustix::process::{Signal, getpid, kill_process};
use serde_json::{Value, json};

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [frame, mode, program, rest @ ..] = args.as_slice() else {
        return Err("raw-client FRAME MODE PROGRAM..".into());
    };
    let frame: usize = frame.parse()?;
    let mut client = RawClient::start(Command::new(program).args(rest))?;
    let (initialize, _) = client.request("initialize", &json!({"protocolVersion": 1}));
    client.write(&initialize, PATIENCE)?;
    let mut sessions = Vec::new();
    for count in 0..=FRAMES {
        if count == frame {
            break;
        }
        let RawOutput::Line(line) = client.hear(PATIENCE)? else {
            return Err("the agent says no more".into());
        };
        let message: Value = serde_json::from_slice(&line)?;
        if let Some(session) = message["result"]["sessionId"].as_str() {
            sessions.push(session.to_owned());
        }
        match count {
            0 | 1 => {
                let (line, _) = client.request("session/new", &json!({"cwd": "/tmp", "mcpServers": []}));
                client.write(&line, PATIENCE)?;
            }
            2 => drop(client.begin(&sessions[0], &format!("flood {} 100", FRAMES - 4))?),
            _ => {}
        }
    }
    let word = match mode.as_str() {
        "stuck" => "stuck",
        "full" => "flood 1000000 1000",
        _ => "",
    };
    if let (Some(session), false) = (sessions.get(1), word.is_empty()) {
        client.begin(session, word)?;
        // The handler is stuck by then, or the pipe is full.
        thread::sleep(Duration::from_millis(150));
    }
    kill_process(getpid(), Signal::KILL)?;
    Ok(())
}
