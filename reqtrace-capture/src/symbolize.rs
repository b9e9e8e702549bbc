//! The symbolizer of a live trace: kernel and user names together.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use reqtrace_binary::files::Files;
use reqtrace_binary::maps::Mapped;
use reqtrace_binary::symbolize::kernel::KernelSymbols;
use reqtrace_binary::symbolize::user::{LeftOut, UserSymbols};

use reqtrace_base::frame::{AddressSpace, Frame};

/// So often the kernel is asked for its modules.
const AGAIN: Duration = Duration::from_secs(60);

/// Names addresses of the running kernel and of processes.
#[derive(Debug, Default)]
pub struct LiveSymbolizer {
    /// With when it was asked for.
    kernel: Option<(Arc<KernelSymbols>, Instant)>,
    reading: Option<JoinHandle<Arc<KernelSymbols>>>,
    user: UserSymbols,
}

impl LiveSymbolizer {
    /// Knows no process yet; see [`LiveSymbolizer::map`]. Files are opened with others who want them.
    #[must_use]
    pub fn new(files: Files) -> Self {
        Self {
            user: UserSymbols::new().with_files(files),
            ..Self::default()
        }
    }

    /// See [`UserSymbols::within`].
    #[must_use]
    pub fn within(mut self, bytes: u64) -> Self {
        self.user = self.user.within(bytes);
        self
    }

    /// See [`UserSymbols::map`].
    pub fn map(&mut self, space: AddressSpace, mapped: &[Mapped]) {
        self.user.map(space, mapped);
    }

    /// See [`UserSymbols::inherit`].
    pub fn inherit(&mut self, child: AddressSpace, parent: AddressSpace) {
        self.user.inherit(child, parent);
    }

    /// See [`UserSymbols::forget`].
    pub fn forget(&mut self, pids: &BTreeSet<u32>) {
        self.user.forget(pids);
    }

    /// A hint for the report when the kernel hides its addresses.
    pub fn kernel_hint(&mut self) -> Option<String> {
        self.kernel_symbols().hidden().then(|| {
            "the kernel hides its addresses (kernel.kptr_restrict), so kernel frames have no \
             names and wait classes are taken from the system call; `sysctl -w \
             kernel.kptr_restrict=0` shows them to root"
                .to_owned()
        })
    }

    /// Takes the kernel's symbols from who has begun to read them, which takes some 50 ms: the first name
    /// waits for it.
    pub fn take_kernel(&mut self, reading: JoinHandle<Arc<KernelSymbols>>) {
        self.reading = Some(reading);
    }

    /// Names of user addresses.
    pub fn user(&mut self) -> &mut UserSymbols {
        &mut self.user
    }

    /// See [`UserSymbols::left_out`].
    #[must_use]
    pub fn left_out(&self) -> LeftOut {
        self.user.left_out()
    }

    /// Frames of a kernel stack, innermost first, without those of tracing itself.
    pub fn kernel(&mut self, addresses: &[u64]) -> Vec<Frame> {
        self.kernel_symbols().frames(addresses)
    }

    /// They are read again when the kernel has got or lost a module.
    fn kernel_symbols(&mut self) -> &KernelSymbols {
        let symbols = match self.kernel.take() {
            Some(known) if known.1.elapsed() < AGAIN => known,
            // What is known is held meanwhile: what has not changed is not read again.
            _known => {
                let read = self.reading.take().map(JoinHandle::join);
                let symbols = read.and_then(Result::ok);
                (symbols.unwrap_or_else(KernelSymbols::read), Instant::now())
            }
        };
        &self.kernel.insert(symbols).0
    }
}
