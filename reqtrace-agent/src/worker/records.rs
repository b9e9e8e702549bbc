//! The socket of records of a kind: batches of the sessions in, the same in the worker out.
//!
//! What the records of a session have in common is sent once, with a number that they refer to. A worker that is behind lets
//! the socket fill up, and the queue before it.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};

use log::debug;
use serde::{Deserialize, Serialize};

use crate::records::{Batch, Message, Of, Record, Room};
use reqtrace_capture::socket::frame;

/// Batches that the worker has taken and not written.
pub(super) const MOST_TAKEN: usize = 8;
/// Bytes of a message: a batch of rows has 256.
const MOST: u32 = 256 << 20;

#[derive(Debug, Serialize, Deserialize)]
enum Sent<R> {
    /// A session has records.
    Session(u32, Of),
    Records(u32, Vec<R>, Option<u64>),
    Ended(u32),
}

/// Sends what comes until it stops, and says no more then; or until the worker is gone: what comes later finds nobody.
pub(super) fn send<R: Record>(from: &Receiver<Message<R>>, mut to: UnixStream) {
    let mut sessions: Vec<(u32, Arc<Of>)> = Vec::new();
    let mut next = 0;
    while let Ok(message) = from.recv() {
        let sent = match message {
            Message::Stop => return,
            Message::Records(batch) => {
                let known = sessions.iter().find(|(_, of)| Arc::ptr_eq(of, &batch.of));
                let number = known.map(|(number, _)| *number);
                let begun = number.map_or_else(
                    || {
                        next += 1;
                        sessions.push((next, Arc::clone(&batch.of)));
                        let session = Sent::<R>::Session(next, Of::clone(&batch.of));
                        frame::send(&mut to, &session).map(|()| next)
                    },
                    Ok,
                );
                // Its room is taken until it is sent.
                begun.and_then(|number| {
                    let sent = Sent::Records(number, batch.records, batch.slow_ns);
                    frame::send(&mut to, &sent)
                })
            }
            Message::Ended(of) => {
                let at = sessions
                    .iter()
                    .position(|(_, known)| Arc::ptr_eq(known, &of));
                let ended = at.map(|at| sessions.swap_remove(at));
                ended.map_or(Ok(()), |(number, _)| {
                    frame::send(&mut to, &Sent::<R>::Ended(number))
                })
            }
        };
        if let Err(error) = sent {
            debug!("{} do not reach the worker: {error}", R::KIND.start);
            return;
        }
    }
}

/// Hands what is sent to the writer, and stops it when there is no more.
pub(super) fn receive<R: Record>(mut from: UnixStream, to: &SyncSender<Message<R>>) {
    let mut sessions = BTreeMap::new();
    loop {
        let sent = match frame::receive(&mut from, MOST) {
            Ok(Some(sent)) => sent,
            Ok(None) => break,
            Err(error) => {
                let kind = R::KIND.start;
                debug!("{kind} end in the middle of a message: {error}");
                break;
            }
        };
        if let Some(message) = message(sent, &mut sessions)
            && to.send(message).is_err()
        {
            // The writer has panicked: whoever sends gets an error.
            return;
        }
    }
    let _ = to.send(Message::Stop);
}

fn message<R>(sent: Sent<R>, sessions: &mut BTreeMap<u32, Arc<Of>>) -> Option<Message<R>> {
    match sent {
        Sent::Session(number, of) => {
            sessions.insert(number, Arc::new(of));
            None
        }
        Sent::Records(number, records, slow_ns) => Some(Message::Records(Batch {
            of: Arc::clone(sessions.get(&number)?),
            records,
            slow_ns,
            room: Room::default(),
        })),
        Sent::Ended(number) => sessions.remove(&number).map(Message::Ended),
    }
}
