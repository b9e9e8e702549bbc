//! A payment desk: one thread that all requests ask, each over its own socket pair.
//!
//! In: amounts. Out: an approval. A request that waits for the desk is blocked in a read from a
//! Unix socket; the desk's own waiting belongs to no request.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How long the desk thinks about one amount.
const THINKING: Duration = Duration::from_micros(50);
/// How long a slow one does.
const THINKING_HARD: Duration = Duration::from_micros(1_050);

struct Question {
    amount: u64,
    answer_to: Arc<UnixStream>,
}

/// The desk. Its thread ends when the desk and all terminals are gone.
pub(crate) struct Desk {
    questions: Sender<Question>,
}

/// One connection's line to the desk.
pub(crate) struct Terminal {
    questions: Sender<Question>,
    answers: UnixStream,
    answer_to: Arc<UnixStream>,
}

impl Desk {
    /// Starts the desk's thread, `shop-payment`.
    pub(crate) fn open(is_slow: bool) -> io::Result<(Self, JoinHandle<()>)> {
        let (questions, inbox) = channel();
        let thread = thread::Builder::new()
            .name("shop-payment".into())
            .spawn(move || work(&inbox, if is_slow { THINKING_HARD } else { THINKING }))?;
        Ok((Self { questions }, thread))
    }

    /// A line for one connection.
    pub(crate) fn terminal(&self) -> io::Result<Terminal> {
        let (answers, answer_to) = UnixStream::pair()?;
        Ok(Terminal {
            questions: self.questions.clone(),
            answers,
            answer_to: Arc::new(answer_to),
        })
    }
}

impl Terminal {
    /// Asks the desk and waits for its approval.
    #[inline(never)]
    pub(crate) fn pay(&mut self, amount: u64) -> io::Result<()> {
        let question = Question {
            amount,
            answer_to: Arc::clone(&self.answer_to),
        };
        self.questions
            .send(question)
            .map_err(|_| io::Error::other("the payment desk has closed"))?;
        let mut approved = [0; 8];
        self.answers.read_exact(&mut approved)?;
        if u64::from_le_bytes(approved) == amount {
            Ok(())
        } else {
            Err(io::Error::other("the payment desk approved another amount"))
        }
    }
}

fn work(inbox: &Receiver<Question>, thinking: Duration) {
    for question in inbox {
        thread::sleep(thinking);
        // A terminal that is gone needs no answer.
        let _ = (&*question.answer_to).write_all(&question.amount.to_le_bytes());
    }
}
