//! A client of Redis that reads the clock before it asks and after it has the answer.
//!
//! In: a server's socket and commands. Out: what it answered, and when.

use std::io::{BufRead, BufReader, Read as _, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use example_clock as clock;

use crate::process::until;

/// How long connecting may take.
const LIMIT: Duration = Duration::from_secs(10);

/// A connection.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
}

/// A command and its answer, as the client saw them.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// Clock before the command was sent, `CLOCK_MONOTONIC` ns.
    pub before_ns: u64,
    /// Clock after the answer.
    pub after_ns: u64,
    /// The answer: values with spaces between, `nil` for none.
    pub answer: String,
}

impl Client {
    /// Connects to a server's socket, which it may have made only just now.
    ///
    /// # Errors
    ///
    /// When nobody listens.
    pub fn connect(socket: &Path) -> Result<Self> {
        let stream = until(LIMIT, "Redis to listen", || {
            Ok(UnixStream::connect(socket).ok())
        })?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(Self {
            stream: BufReader::new(stream),
        })
    }

    /// Sends a command, its words between spaces, and waits for the answer.
    ///
    /// # Errors
    ///
    /// When there is none, or it is an error.
    pub fn ask(&mut self, command: &str) -> Result<Exchange> {
        let words: Vec<_> = command.split(' ').collect();
        self.ask_words(&words)
    }

    /// The same with words that may have spaces.
    ///
    /// # Errors
    ///
    /// When there is no answer, or it is an error.
    pub fn ask_words(&mut self, words: &[&str]) -> Result<Exchange> {
        let mut text = format!("*{}\r\n", words.len());
        for word in words {
            text += &format!("${}\r\n{word}\r\n", word.len());
        }
        let before_ns = clock::now_ns();
        self.stream.get_mut().write_all(text.as_bytes())?;
        let answer = self.read().with_context(|| words.join(" "))?;
        Ok(Exchange {
            before_ns,
            after_ns: clock::now_ns(),
            answer,
        })
    }

    fn read(&mut self) -> Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let line = line.trim_end();
        let (kind, rest) = line.split_at_checked(1).context("no answer")?;
        match kind {
            "+" | ":" => Ok(rest.to_owned()),
            "$" => {
                let Ok(length) = rest.parse::<usize>() else {
                    return Ok("nil".to_owned());
                };
                let mut text = vec![0; length + 2];
                self.stream.read_exact(&mut text)?;
                Ok(String::from_utf8_lossy(&text[..length]).into_owned())
            }
            "*" => {
                let Ok(count) = rest.parse::<usize>() else {
                    return Ok("nil".to_owned());
                };
                let parts = (0..count).map(|_| self.read());
                Ok(parts.collect::<Result<Vec<_>>>()?.join(" "))
            }
            _ => bail!("{line}"),
        }
    }
}
