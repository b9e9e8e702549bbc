//! The listener: connections in, one snapshot of the metrics for each out. Whoever reads slowly, sends garbage or comes
//! too often costs a bounded number of connections for a bounded time.

use std::convert::Infallible;
use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use log::debug;
use reqtrace_base::error::{Error, Result};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// The type of what a reader gets who asks for nothing else.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The type of messages, as [`prefers_protobuf`] finds that a reader asks for them.
const PROTOBUF: &str =
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";

/// Connections at a time.
const CONNECTIONS: usize = 64;
/// A request is sent in this time.
const ASKING: Duration = Duration::from_secs(2);
/// A connection is over after this time, whatever the other end does.
const LONGEST: Duration = Duration::from_secs(10);
/// Bytes of a request that are kept.
const MAX_REQUEST: usize = 16 << 10;
/// After a connection could not be accepted, as when there are no more descriptors.
const PAUSE: Duration = Duration::from_millis(200);

const ABOUT: &str = "reqtrace: the metrics are at /metrics\n";

/// What is served.
pub(crate) trait Page: Send + Sync + 'static {
    /// The metrics as they are now.
    fn text(&self) -> Result<String, fmt::Error>;

    /// The same as messages of Prometheus's older form, each behind its length; `None`: it has no such form.
    fn protobuf(&self) -> Option<Result<Vec<u8>, fmt::Error>> {
        None
    }

    /// A reader found no room.
    fn turned_away(&self);
}

/// Listens, in a thread of its own, until the program ends.
///
/// # Errors
///
/// When the address cannot be listened at.
#[cfg(any(test, feature = "ship", feature = "simulated"))]
pub(crate) fn start(at: SocketAddr, page: Arc<dyn Page>) -> Result<SocketAddr> {
    answer_at(bind(at)?, page)
}

fn cannot(at: impl fmt::Display) -> impl Fn(std::io::Error) -> Error {
    let what = format!("the metrics cannot be served at {at}");
    move |error| {
        Error::failed(what.clone())
            .because(error)
            .next("give another address and port: [metrics] listen = \"127.0.0.1:9470\"")
    }
}

/// What listens at this address; nobody answers yet.
///
/// # Errors
///
/// When the address cannot be listened at.
pub(crate) fn bind(at: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(at).map_err(cannot(at))
}

/// Answers, in a thread of its own, until the program ends.
///
/// # Errors
///
/// When there can be no more threads.
pub(crate) fn answer_at(listener: TcpListener, page: Arc<dyn Page>) -> Result<SocketAddr> {
    let at = listener.local_addr().map_err(cannot("its address"))?;
    let cannot = cannot(at);
    listener.set_nonblocking(true).map_err(&cannot)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(&cannot)?;
    let listener = {
        let _guard = runtime.enter();
        tokio::net::TcpListener::from_std(listener).map_err(&cannot)?
    };
    thread::Builder::new()
        .name("reqtrace-metrics".to_owned())
        .spawn(move || runtime.block_on(serve(listener, page)))
        .map_err(&cannot)?;
    Ok(at)
}

async fn serve(listener: tokio::net::TcpListener, page: Arc<dyn Page>) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                debug!("a connection to the metrics could not be accepted: {error}");
                sleep(PAUSE).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&room).try_acquire_owned() else {
            page.turned_away();
            continue;
        };
        let page = Arc::clone(&page);
        tokio::spawn(async move {
            let answer = service_fn(|request| {
                let response = answer(&request, page.as_ref());
                async { Ok::<_, Infallible>(response) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(ASKING)
                .max_buf_size(MAX_REQUEST)
                .keep_alive(false)
                .serve_connection(TokioIo::new(stream), answer);
            match timeout(LONGEST, connection).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => debug!("a connection to the metrics: {error}"),
                Err(_) => debug!("a connection to the metrics took longer than {LONGEST:?}"),
            }
            drop(place);
        });
    }
}

fn answer(request: &Request<Incoming>, page: &dyn Page) -> Response<Full<Bytes>> {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let text = |status: StatusCode, text: &'static str| {
        let mut response = Response::new(Full::from(text));
        *response.status_mut() = status;
        response
    };
    if !is_read {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, ABOUT);
        let allowed = HeaderValue::from_static("GET, HEAD");
        response.headers_mut().insert(ALLOW, allowed);
        return response;
    }
    match request.uri().path() {
        "/metrics" => {
            let accepted = request.headers().get(ACCEPT);
            let accepted = accepted.and_then(|value| value.to_str().ok());
            let protobuf = accepted
                .filter(|accepted| prefers_protobuf(accepted))
                .and_then(|_| page.protobuf());
            let (kind, body) = match protobuf {
                Some(body) => (PROTOBUF, body),
                None => (OPEN_METRICS, page.text().map(String::into_bytes)),
            };
            match body {
                Ok(body) => {
                    let mut response = Response::new(Full::from(body));
                    let kind = HeaderValue::from_static(kind);
                    response.headers_mut().insert(CONTENT_TYPE, kind);
                    response
                }
                Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, ABOUT),
            }
        }
        "/" => text(StatusCode::OK, ABOUT),
        _ => text(StatusCode::NOT_FOUND, ABOUT),
    }
}

/// Whether a reader takes messages behind their lengths rather than a text, as Prometheus does to get native histograms.
fn prefers_protobuf(accepted: &str) -> bool {
    let (mut of_messages, mut of_others) = (0.0_f32, 0.0_f32);
    for one in accepted.split(',') {
        let mut parts = one.split(';').map(|part| part.trim().replace(' ', ""));
        let kind = parts.next().unwrap_or_default();
        let parts: Vec<String> = parts.collect();
        let quality = parts
            .iter()
            .find_map(|part| part.strip_prefix("q=")?.parse().ok());
        let quality = quality.unwrap_or(1.0);
        let has = |wanted: &str| parts.iter().any(|part| part == wanted);
        let is_ours = kind == "application/vnd.google.protobuf"
            && has("proto=io.prometheus.client.MetricFamily")
            && has("encoding=delimited");
        let best = if is_ours {
            &mut of_messages
        } else {
            &mut of_others
        };
        *best = best.max(quality);
    }
    of_messages > 0.0 && of_messages >= of_others
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;
    use std::time::Instant;

    use super::*;
    use crate::metrics::Metrics;

    fn listening() -> (SocketAddr, Arc<Metrics>) {
        let metrics = Arc::new(Metrics::default());
        let at = start("127.0.0.1:0".parse().unwrap(), metrics.clone()).unwrap();
        (at, metrics)
    }

    fn asked(at: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(LONGEST * 2)).unwrap();
        // It may be closed while it is still being written.
        let _ = stream.write_all(request);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn is_served(at: SocketAddr) {
        let answer = asked(at, b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains("content-type: application/openmetrics-text"));
        assert!(answer.ends_with("# EOF\n"), "{answer}");
    }

    #[test]
    fn only_who_prefers_messages_gets_them() {
        // Prometheus 2.42, with native histograms and without.
        let with = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,\
                    application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let without = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                       text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let last = "text/plain, application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited; q=0.3";
        let other =
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=text";
        assert!(prefers_protobuf(with));
        for none in [without, last, other, "*/*", ""] {
            assert!(!prefers_protobuf(none), "{none}");
        }
        let (at, _) = listening();
        let answer = asked(
            at,
            format!("GET /metrics HTTP/1.1\r\nhost: x\r\naccept: {with}\r\n\r\n").as_bytes(),
        );
        assert!(
            answer.contains("content-type: application/vnd.google.protobuf"),
            "{answer}"
        );
        is_served(at);
    }

    #[test]
    fn metrics_are_read_and_nothing_else() {
        let (at, _) = listening();
        is_served(at);
        let get = |path: &str| {
            asked(
                at,
                format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes(),
            )
        };
        assert!(get("/").contains("200 OK") && get("/").contains("/metrics"));
        assert!(get("/etc/passwd").contains("404 Not Found"));
        let posted = asked(
            at,
            b"POST /metrics HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n",
        );
        assert!(posted.contains("405 Method Not Allowed") && posted.contains("allow: GET, HEAD"));
        let again = start(at, Arc::<Metrics>::default()).unwrap_err();
        assert!(again.to_string().contains(&at.to_string()), "{again}");
    }

    #[test]
    fn garbage_harms_nothing() {
        let (at, _) = listening();
        let long = [b"GET /".as_slice(), &[b'a'; 100_000], b" HTTP/1.1\r\n\r\n"].concat();
        let many = [
            b"GET / HTTP/1.1\r\n".as_slice(),
            &b"a: b\r\n".repeat(10_000),
            b"\r\n",
        ]
        .concat();
        for garbage in [
            b"\0\xff\xfe\r\n\r\n".as_slice(),
            b"\r\n",
            b"GET",
            &long,
            &many,
            &[0x16; 500],
        ] {
            let answer = asked(at, garbage);
            assert!(answer.is_empty() || answer.contains(" 4"), "{answer}");
        }
        is_served(at);
    }

    /// Those that say nothing have all places; they are free again when the time for asking is over.
    #[test]
    fn those_who_wait_for_ever_hold_their_places_for_a_while() {
        let (at, metrics) = listening();
        let silent: Vec<TcpStream> = (0..CONNECTIONS * 2)
            .map(|_| TcpStream::connect(at).unwrap())
            .collect();
        let began = Instant::now();
        loop {
            let answer = asked(at, b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n");
            if answer.contains("200 OK") {
                break;
            }
            assert!(began.elapsed() < LONGEST, "{answer}");
            thread::sleep(Duration::from_millis(50));
        }
        assert!(began.elapsed() >= ASKING / 2);
        let text = metrics.text().unwrap();
        let line = "reqtrace_connections_turned_away_total ";
        let count = text.lines().find_map(|of| of.strip_prefix(line)).unwrap();
        assert!(
            count.parse::<f64>().unwrap() >= CONNECTIONS as f64,
            "{count}"
        );
        drop(silent);
    }
}
