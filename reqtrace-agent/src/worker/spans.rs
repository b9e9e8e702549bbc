//! The socket of spans: those of the sessions in, the same in the worker out.

use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, SyncSender};

use log::debug;
use prost::Message as _;

use crate::otlp::{Message, OfService};
use reqtrace_capture::socket::frame;

/// Spans that the worker has taken and not sent.
pub(super) const MOST_TAKEN: usize = 256;
/// Bytes of one.
const MOST: u32 = 64 << 20;

/// Sends what comes until it stops, or the worker is gone.
pub(super) fn send(from: &Receiver<Message>, mut to: UnixStream) {
    while let Ok(Message::Span(span)) = from.recv() {
        if let Err(error) = frame::send_bytes(&mut to, &span.encode_to_vec()) {
            debug!("spans do not reach the worker: {error}");
            return;
        }
    }
}

/// Hands what is sent to the sender, until there is no more.
pub(super) fn receive(mut from: UnixStream, to: &SyncSender<OfService>) {
    loop {
        let bytes = match frame::receive_bytes(&mut from, MOST) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return,
            Err(error) => {
                debug!("spans end in the middle of a message: {error}");
                return;
            }
        };
        // They were made by the same program.
        let Ok(span) = OfService::decode(bytes.as_slice()) else {
            return;
        };
        if to.send(span).is_err() {
            return;
        }
    }
}
