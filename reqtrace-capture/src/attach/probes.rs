//! A probe to set: its place and its kernel program in; where that is set, and why it could not be, out.

use std::io;

use super::identity::Identity;
use super::uprobe::{Place, is_of_instruction, not_permitted};
use reqtrace_base::error::Error;
use reqtrace_binary::elf::Object;
use reqtrace_binary::lazy::LazyFile;
use reqtrace_resolve::returns;

/// One probe to set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbePlan {
    /// The file.
    pub object: LazyFile,
    /// Offset in it.
    pub file_offset: u64,
    /// Offset in it of the counter that switches a USDT probe on.
    pub semaphore: Option<u64>,
    /// The first bytes of the instruction there.
    pub(super) instruction: [u8; 2],
    /// Name of the kernel program.
    pub(super) program: &'static str,
    /// The program's cookie.
    pub(super) cookie: u64,
    /// Function and request type, for messages.
    pub shown: String,
    /// Of which service it is: the index of its profile.
    pub(super) service: usize,
}

impl ProbePlan {
    /// Whether both are the same probe.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let key = |plan: &Self| (plan.file_offset, plan.program, plan.cookie, plan.service);
        key(self) == key(other) && Identity::of(&self.object) == Identity::of(&other.object)
    }

    /// Whether the index in its cookie is that of a label, and not that of a marker.
    pub(super) fn names_label(&self) -> bool {
        self.program.starts_with("request_")
    }

    /// Whether it is a uretprobe.
    pub(super) fn on_return(&self) -> bool {
        self.program.ends_with("_ret")
    }

    /// Where its probe is set, for all that run the file or for one process.
    pub(super) fn place(&self, process: Option<u32>) -> Place<'_> {
        Place {
            object: &self.object,
            file_offset: self.file_offset,
            counter: self.semaphore,
            on_return: self.on_return(),
            process,
            cookie: self.cookie,
        }
    }

    /// The probe could not be set.
    pub(super) fn refused(&self, error: io::Error) -> Error {
        if let Some(error) = not_permitted(&error) {
            return error;
        }
        if is_of_instruction(&error) {
            return self.unprobeable();
        }
        let next = match (self.semaphore, error.raw_os_error()) {
            // The kernel keeps one counter per place: another tracer has set its probe without it.
            (Some(_), Some(libc::EINVAL)) => {
                "another tracer may have a probe there without the semaphore: end it first"
            }
            _ => {
                "`reqtrace check` shows what would be probed; `return-probe = \"uretprobe\"` \
                 avoids probes inside functions"
            }
        };
        Error::failed(format!(
            "the probe on {} at offset {:#x} of {} could not be set",
            self.shown, self.file_offset, self.object
        ))
        .because(error)
        .next(next)
    }
}

#[cfg(test)]
impl ProbePlan {
    pub(super) fn of_nothing() -> Self {
        Self {
            object: LazyFile::at(""),
            file_offset: 0,
            semaphore: None,
            instruction: [0; 2],
            program: "",
            cookie: 0,
            shown: String::new(),
            service: 0,
        }
    }
}

impl ProbePlan {
    /// The kernel does not probe the instruction there.
    fn unprobeable(&self) -> Error {
        let shown = self.object.to_string();
        let object = self.object.open().ok();
        let object = object.and_then(|file| Object::read(&file, &shown).ok());
        let name = object.and_then(|object| {
            let address = object.address_of(self.file_offset)?;
            Some(returns::instruction_at(&object, address)?.0)
        });
        let name = name.map_or_else(|| "its".to_owned(), |name| format!("the `{name}`"));
        Error::usage(format!(
            "{} cannot be marked at offset {:#x} of {shown}: this kernel sets no probe on {name} \
             instruction there",
            self.shown, self.file_offset
        ))
        .next("mark a function that calls it, or one that it calls")
    }
}
