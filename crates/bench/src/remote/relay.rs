//! A chain of two processes that copy bytes and know nothing of the protocol. It costs what two more processes cost.
//!
//! `bench-relay --serve AGENT ARG..` prints its address and connects each client with the pipes of an agent of its own.
//! `bench-relay ADDRESS` connects its own pipes with that address.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;

/// The bytes that are read at once.
const CHUNK: usize = 64 << 10;

/// Runs the side that the arguments name.
///
/// # Errors
///
/// If an argument is missing, or the other side of a copy fails to start.
#[expect(clippy::print_stdout, reason = "its output is its address")]
pub fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let first = args.next().ok_or_else(|| io::Error::other("an address or --serve comes first"))?;
    if first != crate::SERVE {
        let socket = TcpStream::connect(first)?;
        return both(io::stdin(), io::stdout(), socket);
    }
    let program = args.next().ok_or_else(|| io::Error::other("the agent comes after --serve"))?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("tcp://{}", listener.local_addr()?);
    let args: Vec<String> = args.collect();
    for socket in listener.incoming() {
        let mut agent = Command::new(&program);
        let mut agent = agent.args(&args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let pipes = agent.stdout.take().zip(agent.stdin.take());
        let (output, input) = pipes.ok_or_else(|| io::Error::other("the agent has no pipes"))?;
        both(output, input, socket?)?;
        agent.wait()?;
    }
    Ok(())
}

/// Copies from the reader to the socket, and from the socket to the writer, until the latter ends.
fn both(mut reader: impl Read + Send + 'static, mut writer: impl Write, socket: TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let mut sending = socket.try_clone()?;
    thread::spawn(move || {
        let _ = copy(&mut reader, &mut sending);
        let _ = sending.shutdown(Shutdown::Write);
    });
    copy(&mut &socket, &mut writer)
}

fn copy(reader: &mut impl Read, writer: &mut impl Write) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    loop {
        let count = match reader.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        writer.write_all(&chunk[..count])?;
        writer.flush()?;
    }
}
