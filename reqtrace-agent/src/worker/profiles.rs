//! The socket of profiles: stacks of periods in; profiles of them, the same in the worker, out.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};

use log::{debug, warn};

use crate::metrics::Metrics;
use crate::profiles::{Dropped, Made, Message};
use reqtrace_capture::socket::frame;

/// Profiles that the worker has taken and not written.
pub(super) const MOST_TAKEN: usize = 8;
/// Bytes of one.
const MOST: u32 = 256 << 20;

/// Makes profiles of what comes and sends them, until it stops, or the worker is gone.
pub(super) fn send(from: &Receiver<Message>, mut to: UnixStream, metrics: &Arc<Metrics>) {
    while let Ok(Message::Stacks(about, row)) = from.recv() {
        let made = match Made::of(&about, &row) {
            Ok(made) => made,
            Err(error) => {
                metrics.profiles(|of| of.dropped(Dropped::Disk));
                warn!("a profile could not be made: {error}");
                continue;
            }
        };
        if let Err(error) = frame::send(&mut to, &made) {
            debug!("profiles do not reach the worker: {error}");
            return;
        }
    }
}

/// Hands what is sent to the writer, until there is no more.
pub(super) fn receive(mut from: UnixStream, to: &SyncSender<Made>) {
    loop {
        let made = match frame::receive(&mut from, MOST) {
            Ok(Some(made)) => made,
            Ok(None) => return,
            Err(error) => {
                debug!("profiles end in the middle of a message: {error}");
                return;
            }
        };
        if to.send(made).is_err() {
            return;
        }
    }
}
