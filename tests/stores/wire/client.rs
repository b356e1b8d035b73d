//! A client that sends bytes and waits for expected ones.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::support::wire::Proxy;

pub(super) struct Client(TcpStream);

impl Client {
    pub(super) async fn connect(proxy: &Proxy) -> Self {
        Self(TcpStream::connect(proxy.address()).await.unwrap())
    }

    pub(super) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Asserts that the next bytes are these.
    pub(super) async fn expect(&mut self, expected: impl AsRef<[u8]>) {
        let expected = expected.as_ref();
        let read = self.read(expected.len()).await;
        assert_eq!(String::from_utf8_lossy(&read), String::from_utf8_lossy(expected));
    }

    pub(super) async fn read(&mut self, count: usize) -> Vec<u8> {
        let mut read = vec![0; count];
        let done = timeout(Duration::from_secs(30), self.0.read_exact(&mut read)).await;
        done.expect("an answer in time").expect("an answer");
        read
    }

    /// Asserts that the connection has ended without further bytes.
    pub(super) async fn expect_end(&mut self) {
        let mut byte = [0];
        let read = timeout(Duration::from_secs(30), self.0.read(&mut byte)).await.expect("in time");
        assert!(!matches!(read, Ok(1..)), "a byte came instead of the end");
    }

    /// Returns whether bytes, or the end, have arrived.
    pub(super) fn has_news(&self) -> bool {
        self.0.try_read(&mut [0]).is_ok()
    }
}
