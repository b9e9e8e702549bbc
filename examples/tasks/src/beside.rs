//! Traffic beside the jobs, for which none of them waits: pairs of tasks that wake each other, over channels and sockets.
//!
//! In: a number of pairs. Out: nothing; they go on until the runtime ends.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::sleep;

/// How long one of a pair rests: as short as a timer of tokio can be.
const RESTS: Duration = Duration::from_millis(1);

/// Of so many pairs one has a connection.
const ONE_CONNECTS_IN: usize = 4;

pub(crate) async fn start(pairs: usize) -> io::Result<()> {
    for number in 0..pairs {
        if number % ONE_CONNECTS_IN == 0 {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let one = TcpStream::connect(listener.local_addr()?).await?;
            let (other, _) = listener.accept().await?;
            tokio::spawn(calls(one));
            tokio::spawn(echoes(other));
        } else {
            let (to, from) = mpsc::channel(1);
            tokio::spawn(ticks(to));
            tokio::spawn(takes(from));
        }
    }
    Ok(())
}

async fn ticks(to: mpsc::Sender<()>) {
    while to.send(()).await.is_ok() {
        sleep(RESTS).await;
    }
}

async fn takes(mut from: mpsc::Receiver<()>) {
    while from.recv().await.is_some() {}
}

async fn calls(mut stream: TcpStream) -> io::Result<()> {
    loop {
        stream.write_all(b"?").await?;
        stream.read_exact(&mut [0]).await?;
        sleep(RESTS).await;
    }
}

async fn echoes(mut stream: TcpStream) -> io::Result<()> {
    loop {
        stream.read_exact(&mut [0]).await?;
        stream.write_all(b"!").await?;
    }
}
