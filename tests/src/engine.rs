//! An engine that takes files by HTTP, as ClickHouse does, and fails as told: files in; what it was sent, out.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};

/// How long a silent connection is kept.
const SILENCE: Duration = Duration::from_secs(30);

/// What it does with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Takes it.
    Accept,
    /// Answers with this status and text, and does not take it.
    Refuse(u16, &'static str),
    /// Takes it, and breaks the connection off before it has answered.
    CommitAndDrop,
    /// Never answers.
    Hang,
}

/// A file that it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Method and target.
    pub asked: [String; 2],
    /// `insert_deduplication_token`.
    pub token: String,
    /// The statement.
    pub query: String,
    /// The header of the user, and of the password.
    pub credentials: [String; 2],
    /// The file.
    pub body: Vec<u8>,
    /// What was done with it.
    pub reply: Reply,
}

/// The engine; it ends with the process.
#[derive(Debug)]
pub struct Engine {
    port: u16,
    sent: Arc<Mutex<Vec<Sent>>>,
}

impl Engine {
    /// Starts one that does with the n-th file, from 0 on, of this token what `reply` says.
    ///
    /// # Errors
    ///
    /// When it cannot listen.
    pub fn start(reply: impl Fn(usize, &str) -> Reply + Send + Sync + 'static) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let sent = Arc::new(Mutex::new(Vec::new()));
        let (all, reply) = (Arc::clone(&sent), Arc::new(reply));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (all, reply) = (Arc::clone(&all), Arc::clone(&reply));
                // A connection that breaks off is the other end's.
                thread::spawn(move || serve(&stream, &all, reply.as_ref()).ok());
            }
        });
        Ok(Self { port, sent })
    }

    /// Where it is.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    /// All files that it was sent whole, in order.
    #[must_use]
    pub fn sent(&self) -> Vec<Sent> {
        locked(&self.sent).clone()
    }

    /// Those that it has taken, by their tokens.
    ///
    /// # Errors
    ///
    /// When two files of a token differ.
    pub fn taken(&self) -> Result<BTreeMap<String, Vec<u8>>> {
        let mut taken: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        for sent in locked(&self.sent).iter() {
            if !matches!(sent.reply, Reply::Accept | Reply::CommitAndDrop) {
                continue;
            }
            let first = taken
                .entry(sent.token.clone())
                .or_insert_with(|| sent.body.clone());
            ensure!(*first == sent.body, "{} came with two contents", sent.token);
        }
        Ok(taken)
    }
}

fn locked(sent: &Mutex<Vec<Sent>>) -> MutexGuard<'_, Vec<Sent>> {
    sent.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(
    stream: &TcpStream,
    all: &Mutex<Vec<Sent>>,
    reply: &dyn Fn(usize, &str) -> Reply,
) -> Result<()> {
    stream.set_read_timeout(Some(SILENCE))?;
    let mut from = BufReader::new(stream);
    loop {
        let mut line = String::new();
        if from.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let mut words = line.split(' ').map(str::to_owned);
        let asked = [words.next(), words.next()].map(Option::unwrap_or_default);
        let target = &asked[1];
        let mut headers: BTreeMap<String, String> = BTreeMap::new();
        loop {
            let mut line = String::new();
            from.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(": ") else {
                break;
            };
            headers.insert(name.to_ascii_lowercase(), value.to_owned());
        }
        let header = |name: &str| headers.get(name).cloned().unwrap_or_default();
        let mut body = vec![0; header("content-length").parse()?];
        from.read_exact(&mut body)?;
        let of = |key: &str| parameter(target, key).unwrap_or_default();
        let token = of("insert_deduplication_token");
        let reply = {
            let mut all = locked(all);
            let reply = reply(all.len(), &token);
            all.push(Sent {
                asked: asked.clone(),
                token,
                query: of("query"),
                credentials: ["x-clickhouse-user", "x-clickhouse-key"].map(header),
                body,
                reply,
            });
            reply
        };
        let (status, text) = match reply {
            Reply::Accept => (200, ""),
            Reply::Refuse(status, text) => (status, text),
            Reply::CommitAndDrop => return Ok(()),
            Reply::Hang => {
                thread::sleep(SILENCE);
                return Ok(());
            }
        };
        let mut to = stream;
        write!(
            to,
            "HTTP/1.1 {status} x\r\ncontent-length: {}\r\n\r\n{text}",
            text.len()
        )?;
    }
}

/// A parameter of a target, decoded.
fn parameter(target: &str, key: &str) -> Option<String> {
    let (_, query) = target.split_once('?')?;
    let value = query
        .split('&')
        .find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='))?;
    let mut bytes = Vec::new();
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let target = "/?query=INSERT+INTO+%60t%60&insert_deduplication_token=a%2Fb";
        assert_eq!(
            parameter(target, "query").as_deref(),
            Some("INSERT INTO `t`")
        );
        assert_eq!(
            parameter(target, "insert_deduplication_token").as_deref(),
            Some("a/b")
        );
        assert_eq!(parameter(target, "token"), None);
    }
}
