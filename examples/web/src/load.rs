//! Clients: so many connections, so many streams on each, one request after the other on each of these.
//!
//! In: a load. Out: one line a request, `answer` with the clocks of the client before it connects, connected and at the
//! end, and between these of the handler as it begins, waits, has what it waits for, and ends; or `panicked` for one whose
//! handler was to panic and that got no answer; and `asleep FROM UNTIL` for each time that the client's one thread slept. On
//! a connection that is kept a client is connected before.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use example_clock::now_ns;
use http_body_util::BodyExt;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::time::sleep;
use tonic::transport::{Channel, Endpoint};

use crate::asleep::Asleep;
use crate::handler::PANICS;
use crate::{Result, grpc, option};

/// What is to be asked.
#[derive(Clone)]
pub(crate) struct Load {
    protocol: String,
    address: SocketAddr,
    connections: u64,
    streams: u64,
    requests: u64,
    closes: bool,
    panics: bool,
    kind: String,
    /// Between two requests of a stream.
    pause: Option<Duration>,
    /// The next request's number.
    next: Arc<AtomicU64>,
}

impl Load {
    /// Reads the command line.
    pub(crate) fn read(args: &[String]) -> Result<Self> {
        let has = |name: &str| args.iter().any(|arg| arg == name);
        Ok(Self {
            protocol: args.get(1).cloned().unwrap_or_default(),
            address: option(args, "--address")?.parse()?,
            connections: option(args, "--connections")?.parse()?,
            streams: option(args, "--streams")?.parse()?,
            requests: option(args, "--requests")?.parse()?,
            closes: has("--close"),
            panics: has("--panics"),
            kind: option(args, "--kind").unwrap_or_else(|_| "works".to_owned()),
            pause: match option(args, "--pause") {
                Ok(ms) => Some(Duration::from_millis(ms.parse()?)),
                Err(_) => None,
            },
            next: Arc::default(),
        })
    }

    /// The number of a request, if there is one left to make.
    fn number(&self) -> Option<u64> {
        let mut count = self.next.fetch_add(1, Ordering::Relaxed);
        if count >= self.requests {
            return None;
        }
        if !self.panics {
            // No number that a handler panics of.
            count *= 20;
        }
        Some(count)
    }

    async fn connect(&self) -> Result<Sender> {
        if self.protocol == "grpc" {
            let endpoint = Endpoint::from_shared(format!("http://{}", self.address))?;
            return Ok(Sender::Grpc(endpoint.connect().await?));
        }
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let stream = TokioIo::new(stream);
        Ok(match self.protocol.as_str() {
            "http1" => {
                let (sender, connection) = http1::handshake(stream).await?;
                // Of a connection that the server has cut it is an error.
                tokio::spawn(async { _ = connection.await });
                Sender::Http1(sender)
            }
            "http2" => {
                let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
                tokio::spawn(async { _ = connection.await });
                Sender::Http2(sender)
            }
            other => return Err(format!("no protocol `{other}`").into()),
        })
    }
}

/// One end of a connection.
enum Sender {
    Http1(http1::SendRequest<Body>),
    Http2(http2::SendRequest<Body>),
    Grpc(Channel),
}

impl Sender {
    /// What the handler's clock read.
    async fn ask(&mut self, load: &Load, number: u64) -> Result<Vec<u64>> {
        let version = |uri: String| {
            let request = Request::builder().uri(uri);
            let request = request.header("host", load.address.to_string());
            request.body(Body::empty())
        };
        let kind = &load.kind;
        let response = match self {
            Self::Grpc(channel) => return grpc::call(channel.clone(), kind, number).await,
            Self::Http1(sender) => {
                sender
                    .send_request(version(format!("/{kind}/{number}"))?)
                    .await?
            }
            Self::Http2(sender) => {
                let uri = format!("http://{}/{kind}/{number}", load.address);
                sender.send_request(version(uri)?).await?
            }
        };
        let body = response.into_body().collect().await?.to_bytes();
        let text = String::from_utf8(body.to_vec())?;
        let words = text.split_whitespace();
        Ok(words
            .map(str::parse)
            .collect::<std::result::Result<_, _>>()?)
    }

    /// Another stream of the same connection.
    fn another(&self) -> Option<Self> {
        match self {
            Self::Http1(_) => None,
            Self::Http2(sender) => Some(Self::Http2(sender.clone())),
            Self::Grpc(channel) => Some(Self::Grpc(channel.clone())),
        }
    }
}

/// Does all of it.
pub(crate) fn run(load: &Load) -> Result<()> {
    let (runtime, asleep) = Asleep::runtime()?;
    let mut lines = runtime.block_on(async {
        let mut tasks = Vec::new();
        for _ in 0..load.connections {
            let sender = load.connect().await?;
            for _ in 1..load.streams {
                let stream = sender.another().ok_or("HTTP/1.1 has one stream")?;
                tasks.push(tokio::spawn(asks(load.clone(), stream)));
            }
            tasks.push(tokio::spawn(asks(load.clone(), sender)));
        }
        let mut lines = String::new();
        for task in tasks {
            lines += &task.await??;
        }
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(lines)
    })?;
    for [from, until] in asleep.spans() {
        lines += &format!("asleep {from} {until}\n");
    }
    Ok(io::stdout().write_all(lines.as_bytes())?)
}

/// One request after the other, as long as there are any.
async fn asks(load: Load, mut sender: Sender) -> Result<String> {
    let mut lines = String::new();
    let mut is_first = true;
    while let Some(number) = load.number() {
        if let Some(pause) = load.pause {
            sleep(pause).await;
        }
        let before = now_ns();
        let mut connected = before;
        if load.closes && !is_first {
            sender = load.connect().await?;
            connected = now_ns();
        }
        is_first = false;
        let answer = sender.ask(&load, number).await;
        let after = now_ns();
        match answer {
            Ok(clocks) => match clocks.as_slice() {
                [begin, waits, came, end] => {
                    lines += &format!(
                        "answer {before} {connected} {begin} {waits} {came} {end} {after}\n"
                    );
                }
                other => return Err(format!("{other:?} is no answer").into()),
            },
            Err(_) if load.panics && number % 20 == PANICS => {
                lines += "panicked\n";
                // HTTP/1.1 has lost its connection, HTTP/2 one stream.
                if matches!(sender, Sender::Http1(_)) {
                    sender = load.connect().await?;
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(lines)
}
