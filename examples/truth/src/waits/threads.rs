//! Waiting for another thread of the process: futexes.

use std::cell::UnsafeCell;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::call::{Call, checked};
use super::{Span, Wait};
use crate::partner::{Partner, Woken, wake_in};

/// A mutex of the C library, as most services have them. Rust's own spins before it waits, which an
/// emulated machine can make longer than the wait.
struct PlainMutex(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: a mutex is for being shared between threads.
unsafe impl Send for PlainMutex {}
// SAFETY: as above.
unsafe impl Sync for PlainMutex {}

impl PlainMutex {
    fn lock(&self) {
        // SAFETY: it is initialised, and does not move: it is only used in an Arc.
        unsafe { libc::pthread_mutex_lock(self.0.get()) };
    }

    /// To be called by the thread that locked it.
    fn unlock(&self) {
        // SAFETY: as in lock.
        unsafe { libc::pthread_mutex_unlock(self.0.get()) };
    }
}

/// Waits for a mutex that the partner holds.
pub(crate) struct Locked {
    mutex: Arc<PlainMutex>,
    held: (Sender<()>, Receiver<()>),
    partner: Partner,
}

impl Locked {
    pub(crate) fn new() -> io::Result<Self> {
        let mutex = PlainMutex(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
        Ok(Self {
            mutex: Arc::new(mutex),
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
            mutex.lock();
            held.send(()).map_err(io::Error::other)?;
            wake_in(end_in, || {
                mutex.unlock();
                Ok(())
            })
        })?;
        self.held.1.recv().map_err(io::Error::other)
    }

    fn wait(&mut self) -> io::Result<()> {
        self.mutex.lock();
        self.mutex.unlock();
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

/// Waits for a POSIX semaphore.
pub(crate) fn semaphore() -> io::Result<Call> {
    /// Initialised, and never moved.
    struct Semaphore(UnsafeCell<libc::sem_t>);
    // SAFETY: a semaphore is for being shared between threads.
    unsafe impl Send for Semaphore {}
    // SAFETY: as above.
    unsafe impl Sync for Semaphore {}

    // SAFETY: all-zero is a valid sem_t to initialise.
    let semaphore = Arc::new(Semaphore(UnsafeCell::new(unsafe { std::mem::zeroed() })));
    // SAFETY: it lies in the Arc from here on.
    checked(unsafe { libc::sem_init(semaphore.0.get(), 0, 0) })?;
    let waiter = Arc::clone(&semaphore);
    Call::new(
        "lock",
        // SAFETY: it is initialised.
        move || checked(unsafe { libc::sem_wait(waiter.0.get()) }).map(drop),
        // SAFETY: as above.
        move || checked(unsafe { libc::sem_post(semaphore.0.get()) }).map(drop),
    )
}
