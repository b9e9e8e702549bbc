//! A service behind a proxy that takes its time, and knows how much.
//!
//! In: a delay for each path. Out: an [`Answer`] for each request.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use example_clock as clock;

/// A service on a port of the loopback, until the test ends.
#[derive(Debug)]
pub struct Upstream {
    port: u16,
    answers: Answers,
}

type Answers = Arc<Mutex<Vec<Answer>>>;

/// A request that the service has answered.
#[derive(Clone, Debug)]
pub struct Answer {
    /// What was asked for.
    pub path: String,
    /// Clock when the whole request was there, `CLOCK_MONOTONIC` ns.
    pub received_ns: u64,
    /// Clock before the first byte of the answer was sent.
    pub answered_ns: u64,
}

impl Upstream {
    /// Starts it.
    ///
    /// # Errors
    ///
    /// When the loopback cannot be bound to.
    pub fn start(delay: fn(&str) -> Duration) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let answers = Answers::default();
        let all = Arc::clone(&answers);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let all = Arc::clone(&all);
                // The client sees what goes wrong.
                thread::spawn(move || serve(&stream, delay, &all).is_ok());
            }
        });
        Ok(Self { port, answers })
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// All that it has answered so far.
    #[must_use]
    pub fn answers(&self) -> Vec<Answer> {
        let answers = self.answers.lock();
        answers.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// All requests of a connection.
fn serve(stream: &TcpStream, delay: fn(&str) -> Duration, all: &Answers) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut first = String::new();
        if reader.read_line(&mut first)? == 0 {
            return Ok(());
        }
        let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
        let mut length = 0;
        let mut line = first;
        while line.trim_end() != "" {
            let value = line.to_ascii_lowercase();
            if let Some(value) = value.strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
            line.clear();
            reader.read_line(&mut line)?;
        }
        std::io::Read::read_exact(&mut reader, &mut vec![0; length])?;
        let received_ns = clock::now_ns();
        thread::sleep(delay(&path));
        let answered_ns = clock::now_ns();
        // What is known must be known before the answer is out.
        let mut answers = all.lock().unwrap_or_else(PoisonError::into_inner);
        answers.push(Answer {
            path,
            received_ns,
            answered_ns,
        });
        drop(answers);
        let mut writer = stream;
        writer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello\n")?;
    }
}
