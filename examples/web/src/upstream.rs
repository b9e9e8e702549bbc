//! A service that handlers ask: one thread, which answers one question after the other.
//!
//! In: a number, on a connection of its own. Out: after some time, when it answers by the clock.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use example_clock::now_ns;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::Result;

/// How long it thinks.
const THINKS: Duration = Duration::from_millis(15);

/// Where handlers find it.
static ADDRESS: OnceLock<SocketAddr> = OnceLock::new();

/// Serves until the program is killed, on a thread that is called `upstream`.
pub(crate) fn serve() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("listening on {}", listener.local_addr()?);
    io::stdout().flush()?;
    let name = "upstream".to_owned();
    let thread = thread::Builder::new().name(name).spawn(move || {
        for stream in listener.incoming() {
            // Who asks may have gone.
            _ = stream.and_then(|mut stream| {
                let mut number = [0; 8];
                stream.read_exact(&mut number)?;
                thread::sleep(THINKS);
                stream.write_all(&now_ns().to_be_bytes())
            });
        }
    })?;
    thread.join().map_err(|_| "it panicked".into())
}

/// Says where it is.
pub(crate) fn is_at(address: SocketAddr) {
    ADDRESS.get_or_init(|| address);
}

/// Asks it: when the question was on its way, and when it has answered.
pub(crate) async fn ask(number: u64) -> io::Result<(u64, u64)> {
    let address = ADDRESS.get().ok_or(io::ErrorKind::NotFound)?;
    let mut stream = TcpStream::connect(address).await?;
    stream.write_u64(number).await?;
    let asked = now_ns();
    Ok((asked, stream.read_u64().await?))
}
