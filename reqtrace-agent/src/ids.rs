//! Names that no other request has: this machine and its boot in; the ids of traces and spans of its requests out.

use std::fs;
use std::io;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// This machine since it was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) host: String,
    /// 12 digits of the kernel's id of the boot.
    pub(crate) boot: String,
}

/// What a request is called in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ids {
    pub(crate) trace: [u8; 16],
    pub(crate) span: [u8; 8],
}

impl Machine {
    /// # Errors
    ///
    /// When the kernel does not tell.
    pub(crate) fn own() -> io::Result<Self> {
        let host = rustix::system::uname();
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let digits = boot.chars().filter(char::is_ascii_hexdigit);
        Ok(Self {
            host: host.nodename().to_string_lossy().into_owned(),
            boot: digits.take(12).collect(),
        })
    }

    /// A number is that of one session: a service that is traced again counts from 1. Nothing but the row is asked, so that
    /// whoever has it makes the same ids.
    pub(crate) fn ids(&self, service: &str, id: u64, start_unix_ns: u64) -> Ids {
        let Self { host, boot } = self;
        let text = format!("{host}\n{boot}\n{service}\n{id}\n{start_unix_ns}\n");
        let hash: [u8; 32] = Sha256::digest(text).into();
        let (mut trace, mut span) = ([0; 16], [0; 8]);
        trace.copy_from_slice(&hash[..16]);
        span.copy_from_slice(&hash[16..24]);
        Ids { trace, span }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `printf 'a\nb\nc\n1\n2\n' | sha256sum`
    #[test]
    fn ids_are_the_start_of_a_hash_of_what_stands_in_the_row() {
        let machine = Machine {
            host: "a".to_owned(),
            boot: "b".to_owned(),
        };
        let hex = |bytes: &[u8]| -> String { bytes.iter().map(|b| format!("{b:02x}")).collect() };
        let ids = machine.ids("c", 1, 2);
        assert_eq!(hex(&ids.trace), "0ac06b9648a2e304374502f8c1db5d69");
        assert_eq!(hex(&ids.span), "022e1d82a8ae679d");
        assert_ne!(machine.ids("c", 1, 3).trace, ids.trace);
    }

    #[test]
    fn this_machine_has_a_name_and_a_boot() {
        let own = Machine::own().unwrap();
        assert!(!own.host.is_empty());
        assert_eq!(own.boot.len(), 12);
        assert_eq!(Machine::own().unwrap(), own);
    }
}
