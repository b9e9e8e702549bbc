//! Waiting for another thread of the process: futexes.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::{Span, Wait};
use crate::partner::{Partner, Woken, wake_in};

/// Waits for a mutex that the partner holds.
pub(crate) struct Locked {
    mutex: Arc<Mutex<()>>,
    held: (Sender<()>, Receiver<()>),
    partner: Partner,
}

impl Locked {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            mutex: Arc::default(),
            held: channel(),
            partner: Partner::start()?,
        })
    }
}

impl Wait for Locked {
    fn class(&self) -> Option<&'static str> {
        Some("lock")
    }

    fn prepare(&mut self, end_in: Duration) -> io::Result<()> {
        let (mutex, held) = (Arc::clone(&self.mutex), self.held.0.clone());
        self.partner.begin(move || {
            let guard = mutex.lock().unwrap_or_else(PoisonError::into_inner);
            held.send(()).map_err(io::Error::other)?;
            wake_in(end_in, || {
                drop(guard);
                Ok(())
            })
        })?;
        self.held.1.recv().map_err(io::Error::other)
    }

    fn wait(&mut self) -> io::Result<()> {
        drop(self.mutex.lock());
        Ok(())
    }

    fn woken(&mut self, _: Span) -> io::Result<Woken> {
        self.partner.woken()
    }
}

/// Waits until the partner notifies it.
pub(crate) struct Notified {
    shared: Arc<(Mutex<bool>, Condvar)>,
    partner: Partner,
}

impl Notified {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            shared: Arc::default(),
            partner: Partner::start()?,
        })
    }
}

impl Wait for Notified {
    fn class(&self) -> Option<&'static str> {
        Some("lock")
    }

    fn prepare(&mut self, end_in: Duration) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        self.partner.begin(move || {
            wake_in(end_in, || {
                *shared.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
                shared.1.notify_one();
                Ok(())
            })
        })
    }

    fn wait(&mut self) -> io::Result<()> {
        let (mutex, condvar) = &*self.shared;
        let ready = mutex.lock().unwrap_or_else(PoisonError::into_inner);
        let ready = condvar.wait_while(ready, |ready| !*ready);
        *ready.unwrap_or_else(PoisonError::into_inner) = false;
        Ok(())
    }

    fn woken(&mut self, _: Span) -> io::Result<Woken> {
        self.partner.woken()
    }
}
