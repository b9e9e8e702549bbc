//! The shipper: whole files of the agent's folders of rows and roll-ups in; each at least once at ClickHouse or in S3, out. It needs no privileges
//! and nothing of the agent but the folder.
//!
//! ```text
//! folder ──► queue ──► http: clickhouse | s3 ──► accepted: removed, or remembered in the state
//!              ▲                 ├──► failed: again, later
//!              └─────────────────┘    └──► refused for ever: set aside in the state, with the answer
//! ```
//!
//! A file leaves the folder only after it was accepted. It is sent again if the shipper is killed in between; its name,
//! which is given once, lets the other end see that.

mod clickhouse;
mod config;
mod figures;
mod folder;
mod s3;
mod secret;
mod sender;
mod state;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use reqtrace_base::error::{Error, Result};
use reqtrace_base::say;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use config::Config;
use sender::Sender;

/// How long a file that is being sent when it ends may take.
const GRACE: Duration = Duration::from_secs(5);

/// How long the shipper runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShipMode {
    /// Until SIGTERM or SIGINT.
    Always,
    /// Until each file that is there has been sent, refused or failed once.
    Once,
    /// It sends nothing, and says what it would do.
    Check,
}

/// Ships rows by this configuration.
///
/// # Errors
///
/// What is wrong with the configuration, its folders and secrets; with [`ShipMode::Once`], when files were left.
pub fn ship(path: &Path, mode: ShipMode) -> Result<()> {
    let config = Config::read(path)?;
    match mode {
        ShipMode::Check => {
            say!("reqtrace ship: {}", config.words());
            sender::check(&config)
        }
        ShipMode::Once => Sender::new(&config)?.once(),
        ShipMode::Always => always(&config, Sender::new(&config)?),
    }
}

fn always(config: &Config, mut sender: Sender) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build();
    let cannot =
        |error: std::io::Error| Error::failed("the shipper cannot wait for signals").because(error);
    let runtime = runtime.map_err(cannot)?;
    let _guard = runtime.enter();
    let mut terminate = signal(SignalKind::terminate()).map_err(cannot)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(cannot)?;
    let at = crate::listen::start(config.listen, sender.figures())?;
    say!(
        "reqtrace ship: metrics at http://{at}/metrics; {}",
        config.words()
    );
    let stop = Arc::new(Stop::default());
    let (over, mut ended) = oneshot::channel();
    let thread = thread::Builder::new()
        .name("reqtrace-ship".to_owned())
        .spawn({
            let stop = Arc::clone(&stop);
            move || {
                sender.run(&stop);
                // Whoever waited has gone when it took too long.
                let _ = over.send(());
            }
        });
    thread.map_err(cannot)?;
    let is_over = runtime.block_on(async {
        tokio::select! {
            _ = terminate.recv() => false,
            _ = interrupt.recv() => false,
            _ = &mut ended => true,
        }
    });
    if is_over {
        return Err(Error::failed(
            "the sender of files panicked: please report this as a bug",
        ));
    }
    stop.now();
    // What is not accepted by then stays, and is sent again.
    let _ = runtime.block_on(async { tokio::time::timeout(GRACE, ended).await });
    say!("reqtrace ship: ended");
    Ok(())
}

/// Whether it is to end: known to whoever waits.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    is: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    fn now(&self) {
        *self.is.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Waits so long, or until it is to end; whether it is.
    fn wait(&self, most: Duration) -> bool {
        let is = self.is.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(is, most, |is| !*is);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}
