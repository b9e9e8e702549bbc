//! Waiting for bytes, or for room for them: pipes and sockets.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;

use super::call::Call;

/// More than a pipe holds: one write waits until somebody reads.
const MORE_THAN_A_PIPE: usize = 80 << 10;

/// Reads from a pipe.
pub(crate) fn pipe() -> io::Result<Call> {
    let (mut reader, writer) = io::pipe()?;
    let wait = move || reader.read_exact(&mut [0]);
    Call::new("pipe", wait, move || (&writer).write_all(b"!"))
}

/// Writes to a pipe that is full.
pub(crate) fn full_pipe() -> io::Result<Call> {
    let (reader, mut writer) = io::pipe()?;
    let bytes = vec![1; MORE_THAN_A_PIPE];
    let wait = move || writer.write_all(&bytes);
    Call::new("pipe", wait, move || {
        (&reader).read_exact(&mut [0; MORE_THAN_A_PIPE])
    })
}

/// Reads from a Unix socket.
pub(crate) fn unix() -> io::Result<Call> {
    let (mut reader, writer) = UnixStream::pair()?;
    let wait = move || reader.read_exact(&mut [0]);
    Call::new("network", wait, move || (&writer).write_all(b"!"))
}

/// Reads from a TCP connection on the loopback.
pub(crate) fn tcp() -> io::Result<Call> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let writer = TcpStream::connect(listener.local_addr()?)?;
    let (mut reader, _) = listener.accept()?;
    writer.set_nodelay(true)?;
    let wait = move || reader.read_exact(&mut [0]);
    Call::new("network", wait, move || (&writer).write_all(b"!"))
}

/// Accepts a TCP connection.
pub(crate) fn accept() -> io::Result<Call> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let wait = move || listener.accept().map(drop);
    Call::new("network", wait, move || {
        TcpStream::connect(address).map(drop)
    })
}

/// Receives a UDP datagram.
pub(crate) fn udp() -> io::Result<Call> {
    let receiver = UdpSocket::bind("127.0.0.1:0")?;
    let sender = UdpSocket::bind("127.0.0.1:0")?;
    sender.connect(receiver.local_addr()?)?;
    let wait = move || receiver.recv(&mut [0]).map(drop);
    Call::new("network", wait, move || sender.send(b"!").map(drop))
}
