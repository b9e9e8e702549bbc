//! A call that waits until the partner makes another one.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::{Span, Wait};
use crate::partner::{Partner, Woken, wake_in};

/// The two calls.
pub(crate) struct Call {
    class: &'static str,
    wait: Box<dyn FnMut() -> io::Result<()>>,
    wake: Arc<dyn Fn() -> io::Result<()> + Send + Sync>,
    partner: Partner,
}

impl Call {
    /// `wait` waits, and should be in that wait class; `wake` ends it.
    pub(crate) fn new(
        class: &'static str,
        wait: impl FnMut() -> io::Result<()> + 'static,
        wake: impl Fn() -> io::Result<()> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        Ok(Self {
            class,
            wait: Box::new(wait),
            wake: Arc::new(wake),
            partner: Partner::start()?,
        })
    }
}

impl Wait for Call {
    fn class(&self) -> Option<&'static str> {
        Some(self.class)
    }

    fn prepare(&mut self, end_in: Duration) -> io::Result<()> {
        let wake = Arc::clone(&self.wake);
        self.partner.begin(move || wake_in(end_in, || wake()))
    }

    fn wait(&mut self) -> io::Result<()> {
        (self.wait)()
    }

    fn woken(&mut self, _: Span) -> io::Result<Woken> {
        self.partner.woken()
    }
}

/// The result of a system call, of which a negative one is an error.
pub(crate) fn checked(result: impl Into<i64>) -> io::Result<i64> {
    match result.into() {
        result if result < 0 => Err(io::Error::last_os_error()),
        result => Ok(result),
    }
}
