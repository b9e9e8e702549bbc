//! A server of HTTP/1.1, by hand: a connection is a task, and a request is what the task does between two functions.
//!
//! In: `GET /MS` on connections that are kept. Out: an answer after so many milliseconds, with the clock around what
//! the server did: `outer_begin inner_begin inner_end outer_end`.

use std::hint;
use std::time::Duration;

use example_clock::now_ns;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::time::sleep;

use crate::{Result, say};

/// A request begins.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn tasks_request_begins(ms: u64) {
    // Equal functions would be made one.
    hint::black_box((ms, "begin"));
}

/// A request ends.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn tasks_request_ends(ms: u64) {
    hint::black_box((ms, "end"));
}

/// Serves until the program is killed.
pub(crate) fn serve(runtime: &Runtime) -> Result<()> {
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        say(&format!("listening on {}", listener.local_addr()?))?;
        loop {
            let (stream, _) = listener.accept().await?;
            tokio::spawn(connection(stream));
        }
    })
}

async fn connection(stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let mut stream = BufReader::new(stream);
    // A client that goes ends its connection.
    while let Ok(true) = answer(&mut stream).await {}
}

/// Answers one request; `false` at the end of the connection.
async fn answer(stream: &mut BufReader<TcpStream>) -> Result<bool> {
    let mut line = String::new();
    if stream.read_line(&mut line).await? == 0 {
        return Ok(false);
    }
    let ms = line
        .trim()
        .strip_prefix("GET /")
        .and_then(|rest| rest.split(' ').next()?.parse().ok());
    let ms: u64 = ms.ok_or("no GET /MS")?;
    while stream.read_line(&mut line).await? > 2 {}
    let outer_begin = now_ns();
    tasks_request_begins(ms);
    let inner_begin = now_ns();
    sleep(Duration::from_millis(ms)).await;
    // One whose time is 13 ms leaves its connection without an end.
    if ms == 13 {
        return Ok(false);
    }
    let inner_end = now_ns();
    tasks_request_ends(ms);
    let outer_end = now_ns();
    let body = format!("{outer_begin} {inner_begin} {inner_end} {outer_end}\n");
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(answer.as_bytes()).await?;
    Ok(true)
}
