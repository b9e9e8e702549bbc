//! Connections, the log, and an orderly end.
//!
//! In: `order N` lines over TCP. Out: `ok N` lines, and one line a request in the log:
//! `tid seq outer_begin_ns inner_begin_ns inner_end_ns outer_end_ns`.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use example_clock as clock;

use crate::Result;
use crate::payment::{Desk, Terminal};
use crate::service::{Shop, Step, handle_request};

/// How often the janitor makes a round, in milliseconds.
const ROUND_MS: i32 = 5;

/// Options of `shop serve`.
pub(crate) struct Config {
    /// Address and port; port 0 lets the kernel choose.
    pub(crate) listen: String,
    /// Folder of the journal.
    pub(crate) data: PathBuf,
    /// File of the log, overwritten.
    pub(crate) log: PathBuf,
    /// A step that takes longer than it should.
    pub(crate) slower: Option<Step>,
}

/// What the threads share.
struct Server {
    shop: Shop,
    log: Mutex<File>,
    closing: AtomicBool,
}

/// A connection, as the main thread sees it.
struct Connection {
    stream: TcpStream,
    thread: JoinHandle<()>,
}

/// Serves until SIGTERM or SIGINT; then finishes the requests that have begun and writes the log.
pub(crate) fn serve(config: &Config) -> Result<()> {
    // Before any thread is started: all inherit it, and only this one waits for the signals.
    let signals = block_signals()?;
    let server = Arc::new(Server {
        shop: Shop::open(&config.data, config.slower)?,
        log: Mutex::new(File::create(&config.log)?),
        closing: AtomicBool::new(false),
    });
    let listener = TcpListener::bind(&config.listen)?;
    let (desk, payment) = Desk::open(config.slower == Some(Step::Payment))?;

    let janitor = spawn("shop-janitor", {
        let server = Arc::clone(&server);
        move || clean(&server)
    })?;
    let acceptor = spawn("shop-accept", {
        let server = Arc::clone(&server);
        let listener = listener.try_clone()?;
        move || accept(&server, &listener, &desk)
    })?;
    println!("listening on {}", listener.local_addr()?);
    io::stdout().flush()?;

    wait_for_signal(&signals)?;
    server.closing.store(true, Ordering::SeqCst);
    // SAFETY: the descriptor is the listener's, which lives until the end of this function.
    // On Linux this makes a blocked accept return.
    unsafe { libc::shutdown(listener.as_raw_fd(), libc::SHUT_RDWR) };
    let connections = acceptor.join().map_err(|_| "the acceptor panicked")?;
    for connection in &connections {
        // It may have closed by itself.
        let _ = connection.stream.shutdown(Shutdown::Read);
    }
    let threads = connections.into_iter().map(|connection| connection.thread);
    for thread in threads.chain([janitor, payment]) {
        thread.join().map_err(|_| "a thread panicked")?;
    }
    Ok(())
}

fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    thread::Builder::new().name(name.into()).spawn(work)
}

/// Gives each connection a thread, until the listener is shut down.
fn accept(server: &Arc<Server>, listener: &TcpListener, desk: &Desk) -> Vec<Connection> {
    let mut connections = Vec::new();
    for stream in listener.incoming() {
        if server.closing.load(Ordering::SeqCst) {
            break;
        }
        connections.retain(|connection: &Connection| !connection.thread.is_finished());
        match stream.and_then(|stream| connect(server, stream, desk)) {
            Ok(connection) => connections.push(connection),
            Err(error) => eprintln!("shop: no connection: {error}"),
        }
    }
    connections
}

fn connect(server: &Arc<Server>, stream: TcpStream, desk: &Desk) -> io::Result<Connection> {
    stream.set_nodelay(true)?;
    let mut terminal = desk.terminal()?;
    let ours = stream.try_clone()?;
    let server = Arc::clone(server);
    let thread = spawn("shop-conn", move || {
        let mut log = Vec::new();
        if let Err(error) = converse(&server, &stream, &mut terminal, &mut log) {
            eprintln!("shop: connection ended: {error}");
        }
        // Before the client sees the end: then it finds its requests in the log.
        let mut file = server.log.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = file.write_all(&log) {
            eprintln!("shop: cannot write the log: {error}");
        }
        drop(file);
        // The acceptor still holds a copy of the descriptor.
        let _ = stream.shutdown(Shutdown::Both);
    })?;
    Ok(Connection {
        stream: ours,
        thread,
    })
}

/// Answers the client's lines until it closes. Waiting for a line is idle time, not a request.
fn converse(
    server: &Server,
    stream: &TcpStream,
    terminal: &mut Terminal,
    log: &mut Vec<u8>,
) -> io::Result<()> {
    let tid = clock::thread_id();
    let mut answer_to = stream;
    let mut line = String::new();
    let mut lines = BufReader::new(stream);
    let mut seq = 0_u64;
    while lines.read_line(&mut line)? > 0 {
        let order = line
            .strip_prefix("order ")
            .and_then(|number| number.trim_end().parse().ok())
            .ok_or_else(|| io::Error::other(format!("not an order: {line:?}")))?;
        line.clear();

        let outer_begin_ns = clock::now_ns();
        let receipt = handle_request(&server.shop, terminal, order);
        let outer_end_ns = clock::now_ns();

        seq += 1;
        writeln!(
            log,
            "{tid} {seq} {outer_begin_ns} {} {} {outer_end_ns}",
            receipt.inner_begin_ns, receipt.inner_end_ns
        )?;
        receipt.total?;
        answer_to.write_all(format!("ok {order}\n").as_bytes())?;
    }
    Ok(())
}

/// Restocks at regular times. It wakes up all the time and is never in a request: nothing of it
/// belongs into a report.
fn clean(server: &Server) {
    while !server.closing.load(Ordering::SeqCst) {
        janitor_round(server);
    }
}

#[inline(never)]
fn janitor_round(server: &Server) {
    // Not `thread::sleep`: requests sleep too, but no request polls, so a poll in a report of the
    // shop is always a mistake of the tracer.
    // SAFETY: no descriptors, so the pointer is not read.
    unsafe { libc::poll(std::ptr::null_mut(), 0, ROUND_MS) };
    server.shop.restock();
}

/// Blocks SIGTERM and SIGINT in this thread and those it starts.
fn block_signals() -> Result<libc::sigset_t> {
    // SAFETY: all-zero is a valid sigset_t, and the calls only write to it.
    let (set, failed) = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGTERM);
        libc::sigaddset(&raw mut set, libc::SIGINT);
        let failed = libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        (set, failed)
    };
    if failed == 0 {
        Ok(set)
    } else {
        Err(io::Error::from_raw_os_error(failed).into())
    }
}

fn wait_for_signal(signals: &libc::sigset_t) -> Result<()> {
    let mut signal = 0;
    // SAFETY: both point to values of the right type for the length of the call.
    match unsafe { libc::sigwait(signals, &raw mut signal) } {
        0 => Ok(()),
        failed => Err(io::Error::from_raw_os_error(failed).into()),
    }
}
