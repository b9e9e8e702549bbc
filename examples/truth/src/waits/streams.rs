//! Waiting for bytes: a pipe, a Unix socket, a TCP connection.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use super::{Span, Wait};
use crate::partner::{Partner, Woken, wake_in};

/// Reads what the partner writes.
pub(crate) struct Stream {
    class: &'static str,
    reader: Box<dyn Read>,
    write: Arc<dyn Fn() -> io::Result<()> + Send + Sync>,
    partner: Partner,
}

/// Over a pipe.
pub(crate) fn pipe() -> io::Result<Stream> {
    let (reader, writer) = io::pipe()?;
    stream("pipe", reader, move || (&writer).write_all(b"!"))
}

/// Over a pair of Unix sockets.
pub(crate) fn unix() -> io::Result<Stream> {
    let (reader, writer) = UnixStream::pair()?;
    stream("network", reader, move || (&writer).write_all(b"!"))
}

/// Over a TCP connection on the loopback.
pub(crate) fn tcp() -> io::Result<Stream> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let writer = TcpStream::connect(listener.local_addr()?)?;
    let (reader, _) = listener.accept()?;
    writer.set_nodelay(true)?;
    stream("network", reader, move || (&writer).write_all(b"!"))
}

fn stream(
    class: &'static str,
    reader: impl Read + 'static,
    write: impl Fn() -> io::Result<()> + Send + Sync + 'static,
) -> io::Result<Stream> {
    Ok(Stream {
        class,
        reader: Box::new(reader),
        write: Arc::new(write),
        partner: Partner::start()?,
    })
}

impl Wait for Stream {
    fn class(&self) -> Option<&'static str> {
        Some(self.class)
    }

    fn prepare(&mut self, end_in: Duration) -> io::Result<()> {
        let write = Arc::clone(&self.write);
        self.partner.begin(move || wake_in(end_in, || write()))
    }

    fn wait(&mut self) -> io::Result<()> {
        self.reader.read_exact(&mut [0])
    }

    fn woken(&mut self, _: Span) -> io::Result<Woken> {
        self.partner.woken()
    }
}
