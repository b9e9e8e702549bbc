//! The writer: profiles in; the same in the folder, and to the sender, out. It has a thread of its own: no
//! session waits for a disk.

use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use log::{info, warn};
use prost::Message as _;
use reqtrace_base::error::{Error, Result};
use sha2::{Digest as _, Sha256};

use super::Dropped;
use super::made::Made;
use super::sender::Sender;
use super::waiting::{Push, Waiting};
use super::wire::PushRequest;
use crate::config::OffCpu;
use crate::ids::Machine;
use crate::metrics::Metrics;
use crate::spool::paths::{hour, plain};
use crate::spool::{Gone, Kind, Spool};

/// How often it looks which files readers have taken.
const LOOK: Duration = Duration::from_secs(30);

/// Files of profiles.
pub(super) const KIND: Kind = Kind {
    section: "[profiles]",
    start: "profiles",
    end: ".pb.gz",
    contents: |_: &Path| {
        Some(Gone {
            count: 1,
            span_ns: 0,
        })
    },
};

/// What profiles are called in Pyroscope, together with the types of their samples.
const NAME: &str = "off_cpu";

/// The thread that writes.
#[derive(Debug)]
pub(crate) struct Writer {
    thread: JoinHandle<()>,
    sender: Option<Sender>,
}

struct Thread {
    spool: Option<Spool>,
    waiting: Option<Arc<Waiting>>,
    machine: Machine,
    metrics: Arc<Metrics>,
    /// A line in the log for the first failure of several.
    has_failed: bool,
}

impl Writer {
    /// Begins with these folders, and this Pyroscope.
    ///
    /// # Errors
    ///
    /// What is wrong with them.
    pub(crate) fn start(
        config: &OffCpu,
        machine: &Machine,
        metrics: &Arc<Metrics>,
        from: Receiver<Made>,
    ) -> Result<Self> {
        let spool = config.folders();
        let spool = spool.map(|folders| Spool::open(&KIND, folders, machine));
        let (spool, half_made) = match spool.transpose()? {
            Some((spool, half_made)) => (Some(spool), half_made),
            None => (None, 0),
        };
        if half_made > 0 {
            warn!(
                "profiles: half-made files of an agent that was killed were removed: {half_made}"
            );
        }
        let kept_bytes = spool.as_ref().map_or(0, Spool::kept_bytes);
        metrics.profiles(|of| of.kept_bytes = kept_bytes);
        let pyroscope = config.pyroscope.as_deref();
        let sender = pyroscope.map(|pyroscope| Sender::start(pyroscope, metrics));
        let sender = sender.transpose()?;
        let mut thread = Thread {
            spool,
            waiting: sender.as_ref().map(|sender| Arc::clone(&sender.waiting)),
            machine: machine.clone(),
            metrics: Arc::clone(metrics),
            has_failed: false,
        };
        let thread = Builder::new()
            .name("reqtrace-pprof".to_owned())
            .spawn(move || thread.run(&from))
            .map_err(|error| {
                Error::failed("the writer of profiles could not begin").because(error)
            })?;
        Ok(Self { thread, sender })
    }

    /// Hands over all that has come, and ends when no more can come.
    pub(crate) fn end(self) {
        if self.thread.join().is_err() {
            warn!("the writer of profiles panicked: please report this as a bug");
        }
        if let Some(sender) = self.sender {
            sender.end();
        }
    }
}

impl Thread {
    fn run(&mut self, from: &Receiver<Made>) {
        let mut looked = Instant::now();
        loop {
            match from.recv_timeout(LOOK.saturating_sub(looked.elapsed())) {
                Ok(made) => self.write(made),
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                self.look();
            }
        }
    }

    /// Looks which files are there, and makes room.
    fn look(&mut self) {
        if let Some(spool) = &mut self.spool {
            spool.look();
            self.make_room(0);
        }
        self.figures();
    }

    fn figures(&self) {
        let kept_bytes = self.spool.as_ref().map_or(0, Spool::kept_bytes);
        self.metrics.profiles(|of| of.kept_bytes = kept_bytes);
    }

    /// Whether there is room for so many bytes more; the oldest files went for it.
    fn make_room(&mut self, bytes: u64) -> bool {
        let Some(spool) = &mut self.spool else {
            return false;
        };
        let (has_room, gone) = spool.make_room(bytes);
        let gone: u64 = gone.iter().map(|gone| gone.count).sum();
        self.metrics
            .profiles(|of| of.dropped_many(Dropped::Oldest, gone));
        if gone > 0 {
            info!("profiles: the oldest files were removed to make room: {gone}");
        }
        has_room
    }

    /// Hands a profile on.
    fn write(&mut self, made: Made) {
        if self.spool.is_some() {
            match self.hand_over(&made) {
                Ok(()) => {
                    if std::mem::take(&mut self.has_failed) {
                        info!("profiles are written again");
                    }
                    self.metrics.profiles(|of| {
                        of.files += 1;
                        of.bytes += made.bytes.len() as u64;
                    });
                }
                Err(error) => self.failed(&error),
            }
            self.figures();
        }
        // One without samples says in its file that there was no such time; there is nothing to show in a picture.
        if let Some(waiting) = self.waiting.as_ref().filter(|_| made.has_samples) {
            let dropped = waiting.push(Push {
                body: self.push(made),
            });
            let now = waiting.len();
            self.metrics.profiles(|of| {
                of.waiting = now;
                of.dropped_many(Dropped::Waited, dropped);
            });
        }
    }

    fn hand_over(&mut self, made: &Made) -> io::Result<()> {
        if !self.make_room(made.bytes.len() as u64) {
            let what = "no room: less than keep-free is free, or files are above max";
            return Err(io::Error::new(io::ErrorKind::StorageFull, what));
        }
        let Some(spool) = &mut self.spool else {
            return Ok(());
        };
        let (name, mut file) = spool.begin(&format!("-{}", plain(&made.request)))?;
        let handed = file
            .write_all(&made.bytes)
            .and_then(|()| spool.hand_over(&name, &file, &made.service, hour(made.start_unix_ns)));
        if handed.is_err() {
            spool.abandon(&name);
        }
        handed.map(|_| ())
    }

    fn failed(&mut self, why: &io::Error) {
        self.metrics.profiles(|of| of.dropped(Dropped::Disk));
        if !std::mem::replace(&mut self.has_failed, true) {
            warn!("profiles are dropped, and counted in reqtrace_profiles_dropped_total: {why}");
        }
    }

    /// The message that Pyroscope gets.
    fn push(&self, made: Made) -> Vec<u8> {
        let labels = [
            ("__name__", NAME),
            ("hostname", &*self.machine.host),
            ("request", &*made.request),
            ("service_name", &*made.service),
        ];
        let id = id(&self.machine, &made);
        PushRequest::of(&labels, made.bytes, id).encode_to_vec()
    }
}

/// The id of a profile, a UUID of a hash: one that is sent again has the same.
fn id(machine: &Machine, made: &Made) -> String {
    let Machine { host, boot } = machine;
    let Made {
        service, request, ..
    } = made;
    let (start_ns, ns) = (made.start_unix_ns, made.latency_ns);
    let text = format!("{host}\n{boot}\n{service}\n{request}\n{start_ns}\n{ns}\n");
    let mut hash: [u8; 32] = Sha256::digest(text).into();
    // Version 8: what is in it is our own matter.
    hash[6] = hash[6] & 0x0f | 0x80;
    hash[8] = hash[8] & 0x3f | 0x80;
    let hex: String = hash[..16]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ]
    .join("-")
}
