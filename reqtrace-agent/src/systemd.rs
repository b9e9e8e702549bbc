//! Messages to the service manager (`sd_notify(3)`): the agent has begun, is alive and traces so many services, reads its
//! configuration again, ends. Without a service manager nothing is sent.

use log::debug;
use sd_notify::NotifyState;

/// It has begun, or has read its configuration again.
pub(crate) fn ready() {
    notify(&[NotifyState::Ready]);
}

/// It reads its configuration again, until it is [`ready`].
pub(crate) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(error) => debug!("the time of a reload is not known: {error}"),
    }
}

/// It looks after its services, of which it traces so many. `WatchdogSec` is from one of these to the next.
pub(crate) fn alive(traced: usize, services: usize) {
    let status = format!("{traced} of {services} services are traced");
    notify(&[NotifyState::Watchdog, NotifyState::Status(&status)]);
}

/// It ends.
pub(crate) fn stopping() {
    notify(&[NotifyState::Stopping]);
}

fn notify(states: &[NotifyState<'_>]) {
    // It is about the service manager, which sees for itself when nothing comes.
    if let Err(error) = sd_notify::notify(states) {
        debug!("the service manager is not reached: {error}");
    }
}
