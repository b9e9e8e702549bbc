//! Why goroutines wait: the names that programs of Go have for it in; places of requests out.

use super::{RUNTIME, STOPPED};

/// Where a goroutine is whose reason the program has a name for, and this crate has none.
const OTHER_REASON: &str = "other reason of the runtime";

/// Where a goroutine is that waits for a time to pass, and for nothing else: the name of the place.
pub const SLEEP_OF_GO: &str = "time.Sleep";

/// Names of reasons of Go's runtime, as programs have them, and of the places that these are. `sleep` is a class of waits of
/// threads already.
const REASONS_OF_GO: [(&str, &str); 13] = [
    ("IO wait", "IO wait"),
    ("chan receive", "chan receive"),
    ("chan send", "chan send"),
    ("select", "select"),
    ("sleep", SLEEP_OF_GO),
    ("sync.Mutex.Lock", "sync.Mutex.Lock"),
    ("sync.RWMutex.RLock", "sync.RWMutex.RLock"),
    ("sync.RWMutex.Lock", "sync.RWMutex.Lock"),
    ("sync.WaitGroup.Wait", "sync.WaitGroup.Wait"),
    ("sync.Cond.Wait", "sync.Cond.Wait"),
    ("semacquire", "semacquire"),
    ("GC assist wait", "GC assist wait"),
    ("coroutine", "coroutine"),
];

/// Where requests of goroutines are while no thread runs them: the queue first.
pub(super) fn places_of_goroutines() -> Vec<String> {
    let reasons = REASONS_OF_GO.iter().map(|(_, place)| *place);
    let all = [RUNTIME].into_iter().chain(reasons);
    let all = all.chain([STOPPED, OTHER_REASON]);
    all.map(str::to_owned).collect()
}

/// The place of a reason, by the name that a program of Go has for it: an index of its request type's places.
#[must_use]
pub fn place_of_reason(reason: &str) -> usize {
    let known = REASONS_OF_GO.iter().position(|(name, _)| *name == reason);
    1 + known.unwrap_or(REASONS_OF_GO.len() + 1)
}

/// The place of goroutines that the runtime has stopped.
pub(super) const fn stopped() -> usize {
    1 + REASONS_OF_GO.len()
}
