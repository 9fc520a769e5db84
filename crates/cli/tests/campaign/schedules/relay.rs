//! A relay in front of a server, whose connections can be cut.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// A fault of the connections of a [`Relay`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// Both directions end at once.
    Cut,
    /// The client's direction of reading ends.
    HalfClose,
    /// Both directions end after some more bytes, which may be in the middle of a message.
    CutAfter(usize),
    /// Nothing passes for some time.
    Stall(Duration),
}

pub(crate) struct Relay {
    address: SocketAddr,
    shared: Arc<Mutex<RelayState>>,
}

struct RelayState {
    server: SocketAddr,
    /// The sockets of the clients and of the server.
    pairs: Vec<(TcpStream, TcpStream)>,
    stalled_until: Instant,
    bytes_left: Option<usize>,
    ended: bool,
}

impl Relay {
    pub(crate) fn new(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let address = listener.local_addr().expect("an address");
        let state = RelayState {
            server,
            pairs: Vec::new(),
            stalled_until: Instant::now(),
            bytes_left: None,
            ended: false,
        };
        let shared = Arc::new(Mutex::new(state));
        let accepting = shared.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let server = {
                    let state = lock(&accepting);
                    if state.ended {
                        break;
                    }
                    TcpStream::connect(state.server)
                };
                // Without a server the client's socket is closed.
                let Ok(server) = server else { continue };
                let again = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
                for stream in [&client, &server] {
                    stream.set_nodelay(true).expect("a TCP stream");
                }
                lock(&accepting).pairs.push((again(&client), again(&server)));
                for (from, to) in [(again(&client), again(&server)), (server, client)] {
                    let shared = accepting.clone();
                    thread::spawn(move || copy(&shared, from, to));
                }
            }
        });
        Relay { address, shared }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/acp", self.address)
    }

    /// Sends later connections to another server.
    pub(crate) fn set_server(&self, server: SocketAddr) {
        lock(&self.shared).server = server;
    }

    pub(crate) fn apply(&self, fault: Fault) {
        let mut state = lock(&self.shared);
        match fault {
            Fault::Cut => state.cut(),
            Fault::HalfClose => {
                state.pairs.iter().for_each(|(client, _)| drop(client.shutdown(Shutdown::Write)))
            }
            Fault::CutAfter(bytes) => state.bytes_left = Some(bytes),
            Fault::Stall(time) => state.stalled_until = Instant::now() + time,
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let mut state = lock(&self.shared);
        state.ended = true;
        state.cut();
        drop(state);
        let _ = TcpStream::connect(self.address);
    }
}

impl RelayState {
    fn cut(&mut self) {
        self.bytes_left = None;
        for stream in self.pairs.drain(..).flat_map(|(client, server)| [client, server]) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn lock(state: &Mutex<RelayState>) -> std::sync::MutexGuard<'_, RelayState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Copies one direction until either end is closed.
fn copy(shared: &Mutex<RelayState>, mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let stalled = lock(shared).stalled_until.saturating_duration_since(Instant::now());
        thread::sleep(stalled);
        let allowed = match &mut lock(shared).bytes_left {
            Some(left) => {
                let allowed = count.min(*left);
                *left -= allowed;
                allowed
            }
            None => count,
        };
        let written = to.write_all(&buffer[..allowed]);
        if allowed < count {
            lock(shared).cut();
        }
        if written.is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
