//! A network with latency: a TCP proxy, on a separate thread, that delays each direction.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;

/// Starts a proxy in front of `server` (`host:port`). Data takes `latency` each way.
///
/// # Errors
///
/// If no port is free.
pub fn start(server: &str, latency: Duration) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let server = server.to_owned();
    thread::spawn(move || -> Result<()> {
        loop {
            let (client, _) = listener.accept()?;
            let upstream = TcpStream::connect(&server)?;
            for (from, to) in [(client.try_clone()?, upstream.try_clone()?), (upstream, client)] {
                from.set_nodelay(true)?;
                thread::spawn(move || carry(from, to, latency));
            }
        }
    });
    Ok(address)
}

/// Transfers data with a delay, while reading continues.
fn carry(mut from: TcpStream, mut to: TcpStream, latency: Duration) {
    let (sender, receiver) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        for (due, bytes) in receiver {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        // If either end is closed, close the other.
        let _ = to.shutdown(std::net::Shutdown::Both);
    });
    let mut buffer = vec![0; 1 << 16];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        if sender.send((Instant::now() + latency, buffer[..read].to_vec())).is_err() {
            break;
        }
    }
}
