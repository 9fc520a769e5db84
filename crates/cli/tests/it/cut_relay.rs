//! A relay between a client and a server.
#![cfg(all(target_os = "linux", feature = "serve"))]

use std::collections::HashMap;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// A relay of TCP connections, which cuts them.
pub(crate) struct CutRelay {
    pub(crate) address: String,
    /// True while each second connection is lost when the client has sent something.
    #[allow(dead_code, reason = "the soak does not use it")]
    pub(crate) loses_second: Arc<AtomicBool>,
    open: Arc<Mutex<HashMap<u64, (TcpStream, TcpStream)>>>,
}

impl CutRelay {
    pub(crate) fn start(to: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let address = listener.local_addr().expect("an address").to_string();
        let open: Arc<Mutex<HashMap<u64, (TcpStream, TcpStream)>>> = Arc::default();
        let (connections, to) = (open.clone(), to.to_owned());
        let loses_second = Arc::new(AtomicBool::new(false));
        let is_losing = loses_second.clone();
        std::thread::spawn(move || {
            for (id, client) in (0..).zip(listener.incoming()) {
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(&to)) else { continue };
                if is_losing.load(Ordering::Relaxed) && id % 2 == 0 {
                    let _ = client.peek(&mut [0]);
                    continue;
                }
                for stream in [&client, &server] {
                    stream.set_nodelay(true).expect("a TCP stream");
                }
                let copy = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
                connections.lock().expect("no panic").insert(id, (copy(&client), copy(&server)));
                for (mut from, mut to) in [(copy(&client), copy(&server)), (server, client)] {
                    let connections = connections.clone();
                    std::thread::spawn(move || {
                        let _ = std::io::copy(&mut from, &mut to);
                        // One direction ends the other. Bytes on their way are lost.
                        for stream in [from, to] {
                            let _ = stream.shutdown(Shutdown::Both);
                        }
                        connections.lock().expect("no panic").remove(&id);
                    });
                }
            }
        });
        CutRelay { address, loses_second, open }
    }

    /// Cuts the open connections for which `is_chosen` returns true, and returns their number.
    pub(crate) fn cut(&self, mut is_chosen: impl FnMut() -> bool) -> u64 {
        let open = self.open.lock().expect("no panic");
        let chosen = open.values().filter(|_| is_chosen());
        let cut = |(client, server): &(TcpStream, TcpStream)| {
            for stream in [client, server] {
                let _ = stream.shutdown(Shutdown::Both);
            }
        };
        chosen.map(cut).count() as u64
    }
}
