//! What tasks of tokio wait for: paths of its functions in; the names of places out.

use super::RUNTIME;

/// Where a task is that waits for a job of `spawn_blocking` which a thread runs: the name of the place.
const JOB: &str = "tokio spawn_blocking";

/// Where it is until a thread of the pool takes that job.
const POOL: &str = "waited for the blocking pool";

/// Where it is until something is sent, or who may send is dropped.
const CHANNEL: &str = "tokio channel";

/// Where it is until it is notified.
const NOTIFY: &str = "tokio notify";

/// Where it is until another task is done.
const JOIN: &str = "tokio join";

/// What a function of tokio says of the task that waits in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokioWait {
    /// What its path has in it.
    pub path: &'static str,
    /// The name of the place.
    pub name: &'static str,
    /// Whether what calls it may know the place better.
    pub is_general: bool,
}

/// Functions of tokio that wait and call no code of others, by their paths. A semaphore is in locks and channels, too: where the
/// function that says so is inlined, it is one of these. What is asked for most comes first: a plan has room for so many.
pub const WAITS_OF_TOKIO: [TokioWait; 16] = {
    const fn wait(path: &'static str, name: &'static str, is_general: bool) -> TokioWait {
        TokioWait {
            path,
            name,
            is_general,
        }
    }
    [
        wait("tokio::time::sleep::Sleep", "tokio timer", false),
        wait("tokio::time::interval::Interval", "tokio timer", false),
        wait("tokio::sync::mutex::Mutex", "tokio lock", false),
        wait("tokio::sync::rwlock::RwLock", "tokio lock", false),
        wait(
            "tokio::sync::semaphore::Semaphore",
            "tokio semaphore",
            false,
        ),
        wait(
            "tokio::sync::batch_semaphore::",
            "tokio lock, semaphore or channel",
            true,
        ),
        wait("tokio::sync::mpsc::", CHANNEL, false),
        wait("tokio::sync::oneshot::", CHANNEL, false),
        wait("tokio::sync::broadcast::", CHANNEL, false),
        wait("tokio::sync::watch::", CHANNEL, true),
        wait("tokio::sync::notify::", NOTIFY, true),
        wait("tokio::runtime::io::scheduled_io::", "tokio socket", false),
        wait("tokio::runtime::io::registration::", "tokio socket", false),
        wait(
            "tokio::runtime::task::raw::try_read_output::<tokio::runtime::blocking::",
            JOB,
            false,
        ),
        wait("tokio::runtime::task::join::JoinHandle", JOIN, true),
        wait("tokio::fs::", JOB, false),
    ]
};

/// Code that serves connections and, beside their requests, looks whether the server is to stop: what it looks at by a function of
/// tokio that it has called itself is not what a request waits for.
pub const BESIDE_REQUESTS: &str = "axum::serve::";

/// The same in symbols, in both manglings.
pub const BESIDE_REQUESTS_MANGLED: &str = "4axum5serve";

/// The name of h2's functions that look whether the client has given a request up.
pub const GIVEN_UP: &str = "poll_reset";

/// The place where a task waits until another one is done: an index of its request type's places.
#[must_use]
pub fn joins_of_tokio() -> usize {
    place(JOIN)
}

/// The place where it may wait for what a task that is done leaves behind, which is dropped then.
#[must_use]
pub fn dropped_of_tokio() -> usize {
    place(CHANNEL)
}

/// A driver of tokio: it wakes the tasks of one place, and nothing else does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokioDriver {
    /// What the paths of its functions begin with.
    pub path: &'static str,
    /// How the name of the one begins that runs it.
    pub runs: &'static str,
    /// The same of one that this may call to wake.
    pub wakes: &'static str,
    /// The name of the place.
    name: &'static str,
}

/// The drivers of tokio.
pub const DRIVERS_OF_TOKIO: [TokioDriver; 2] = [
    TokioDriver {
        path: "tokio::runtime::time::",
        runs: "process_at",
        wakes: "process_at",
        name: "tokio timer",
    },
    TokioDriver {
        path: "tokio::runtime::io::",
        runs: "turn",
        wakes: "wake",
        name: "tokio socket",
    },
];

/// Code of tokio by which who has something lets one go on that waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokioWaker {
    /// What the paths of its functions begin with.
    pub path: &'static str,
    /// How the names of those begin that wake.
    pub wakes: &'static [&'static str],
    /// The names of the places whose tasks they wake.
    names: &'static [&'static str],
}

/// Such code that is in no function of others: it is not generic.
pub const WAKERS_OF_TOKIO: [TokioWaker; 2] = [
    TokioWaker {
        path: "tokio::sync::batch_semaphore::Semaphore",
        wakes: &["add_permits_locked", "release", "close"],
        // A channel with a bound has permits to send.
        names: &[
            "tokio lock",
            "tokio semaphore",
            "tokio lock, semaphore or channel",
            "tokio channel",
        ],
    },
    TokioWaker {
        path: "tokio::sync::notify::",
        // Who gives up a notification hands it on.
        wakes: &["notify_", "inner_notify_", "drop"],
        // That of a last value notifies.
        names: &[NOTIFY, CHANNEL],
    },
];

impl TokioWaker {
    /// The places: indices of its request type's places.
    pub fn places(&self) -> impl Iterator<Item = usize> {
        self.names.iter().map(|name| place(name))
    }
}

impl TokioDriver {
    /// The place: an index of its request type's places.
    #[must_use]
    pub fn place(&self) -> usize {
        place(self.name)
    }
}

/// Where requests of tasks are while no thread runs them: the queue first.
pub(super) fn places_of_tasks() -> Vec<String> {
    let mut all = vec![RUNTIME];
    for wait in &WAITS_OF_TOKIO {
        if !all.contains(&wait.name) {
            all.push(wait.name);
            if wait.name == JOB {
                // The kernel programs know a job's two places, and that of joins, by the second one.
                all.push(POOL);
            }
        }
    }
    all.into_iter().map(str::to_owned).collect()
}

impl TokioWait {
    /// Whether servers look by it whether they are to stop.
    #[must_use]
    pub fn is_for_servers(&self) -> bool {
        self.is_general && [CHANNEL, NOTIFY].contains(&self.name)
    }

    /// The place: an index of its request type's places.
    #[must_use]
    pub fn place(&self) -> usize {
        place(self.name)
    }
}

/// The place of a task whose job waits for a thread.
pub(super) fn pool() -> usize {
    place(POOL)
}

fn place(name: &str) -> usize {
    let places = places_of_tasks();
    places.iter().position(|one| one == name).unwrap_or(0)
}
