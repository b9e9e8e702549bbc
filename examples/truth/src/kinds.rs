//! The kinds of requests: which waits each does, and in what company.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::waits::{Wait, child, cpu, files, poll, streams, threads, time};

/// How long a request works that is to be preempted: longer than a tick of the slowest timer, 100 Hz.
const LONG_WORK: Duration = Duration::from_millis(12);
/// How long a request works beside its waits.
const SHORT_WORK: Duration = Duration::from_micros(300);

/// A kind of request.
pub(crate) struct Kind {
    /// Its name in the log.
    pub(crate) name: &'static str,
    /// Who else is on its CPU.
    pub(crate) company: Company,
    /// Makes its waits, in order.
    pub(crate) waits: fn(&Place) -> io::Result<Waits>,
}

/// What waits need to know.
pub(crate) struct Place {
    /// A folder on a disk.
    pub(crate) data: PathBuf,
    /// How long a wait is to last that somebody ends.
    pub(crate) wait: Duration,
}

/// What a request does, one after the other.
pub(crate) type Waits = Vec<Box<dyn Wait>>;

/// Who else wants the CPU that a request is on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Company {
    /// Whoever else the machine runs.
    None,
    /// Threads that always spin.
    Spinning,
    /// The same, and the request's thread is of `SCHED_BATCH`: when it wakes up it takes no CPU away,
    /// but waits for its turn.
    SpinningFirst,
}

/// All kinds.
pub(crate) const KINDS: [Kind; 25] = [
    // Times.
    alone("sleep", |place| Ok(vec![Box::new(time::Sleep(place.wait))])),
    alone("timerfd", |place| {
        Ok(vec![Box::new(time::Timer::new(place.wait)?)])
    }),
    // Locks.
    alone("mutex", |_| Ok(vec![Box::new(threads::Locked::new()?)])),
    alone("condvar", |_| Ok(vec![Box::new(threads::Notified::new()?)])),
    alone("semaphore", |_| Ok(vec![Box::new(threads::semaphore()?)])),
    alone("flock", |place| {
        Ok(vec![Box::new(files::FileLock::new(&place.data)?)])
    }),
    // Bytes.
    alone("pipe", |_| Ok(vec![Box::new(streams::pipe()?)])),
    alone("full-pipe", |_| Ok(vec![Box::new(streams::full_pipe()?)])),
    alone("eventfd", |_| Ok(vec![Box::new(poll::eventfd()?)])),
    alone("unix", |_| Ok(vec![Box::new(streams::unix()?)])),
    alone("tcp", |_| Ok(vec![Box::new(streams::tcp()?)])),
    alone("accept", |_| Ok(vec![Box::new(streams::accept()?)])),
    alone("udp", |_| Ok(vec![Box::new(streams::udp()?)])),
    // One of several.
    alone("epoll", |_| Ok(vec![Box::new(poll::epoll()?)])),
    alone("poll", |_| Ok(vec![Box::new(poll::poll()?)])),
    // Disks.
    alone("fsync", |place| {
        Ok(vec![Box::new(files::Sync::new(&place.data)?)])
    }),
    alone("cold-read", |place| {
        Ok(vec![Box::new(files::ColdRead::new(&place.data)?)])
    }),
    alone("direct-read", |place| {
        Ok(vec![Box::new(files::DirectRead::new(&place.data)?)])
    }),
    alone("page-fault", |place| {
        Ok(vec![Box::new(files::ColdMapping::new(&place.data)?)])
    }),
    // Processes.
    alone("child", |_| Ok(vec![Box::new(child::Child::default())])),
    alone("spawn", |_| Ok(vec![Box::new(child::Spawn)])),
    // CPUs.
    alone("work", |_| Ok(vec![Box::new(cpu::Work(SHORT_WORK))])),
    Kind {
        name: "preempted",
        company: Company::Spinning,
        waits: |_| Ok(vec![Box::new(cpu::Work(LONG_WORK))]),
    },
    Kind {
        name: "run-queue",
        company: Company::SpinningFirst,
        waits: |_| Ok(vec![Box::new(streams::pipe()?)]),
    },
    alone("mixture", |place| {
        Ok(vec![
            Box::new(time::Sleep(place.wait)),
            Box::new(cpu::Work(SHORT_WORK)),
            Box::new(files::Sync::new(&place.data)?),
            Box::new(threads::Locked::new()?),
            Box::new(streams::tcp()?),
            Box::new(cpu::Work(SHORT_WORK)),
            Box::new(poll::epoll()?),
            Box::new(streams::pipe()?),
        ])
    }),
];

const fn alone(name: &'static str, waits: fn(&Place) -> io::Result<Waits>) -> Kind {
    Kind {
        name,
        company: Company::None,
        waits,
    }
}
