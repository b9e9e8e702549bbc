//! A thread that ends somebody else's wait, and knows when it did.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use example_clock as clock;

/// The time in which a wait was ended.
#[derive(Clone, Copy)]
pub(crate) struct Woken {
    /// Not before this, `CLOCK_MONOTONIC` ns.
    pub(crate) earliest_ns: u64,
    /// Not after this.
    pub(crate) latest_ns: u64,
}

type Job = Box<dyn FnOnce() -> io::Result<Woken> + Send>;

/// The thread. It ends when this is dropped.
pub(crate) struct Partner {
    jobs: Sender<Job>,
    woken: Receiver<io::Result<Woken>>,
}

impl Partner {
    pub(crate) fn start() -> io::Result<Self> {
        let (jobs, inbox) = channel::<Job>();
        let (outbox, woken) = channel();
        thread::Builder::new()
            .name("t-partner".into())
            .spawn(move || {
                for job in inbox {
                    if outbox.send(job()).is_err() {
                        break;
                    }
                }
            })?;
        Ok(Self { jobs, woken })
    }

    /// Has it do `job`, which ends with [`wake_in`].
    pub(crate) fn begin(
        &self,
        job: impl FnOnce() -> io::Result<Woken> + Send + 'static,
    ) -> io::Result<()> {
        self.jobs.send(Box::new(job)).map_err(|_| gone())
    }

    /// When it woke, once it is done.
    pub(crate) fn woken(&self) -> io::Result<Woken> {
        self.woken.recv().map_err(|_| gone())?
    }
}

/// Lets some time go by, then ends the other thread's wait with `wake`.
pub(crate) fn wake_in(time: Duration, wake: impl FnOnce() -> io::Result<()>) -> io::Result<Woken> {
    thread::sleep(time);
    let earliest_ns = clock::now_ns();
    wake()?;
    Ok(Woken {
        earliest_ns,
        latest_ns: clock::now_ns(),
    })
}

fn gone() -> io::Error {
    io::Error::other("the partner's thread has ended")
}
