//! Which probes to set: resolved requests in, one flat list of probes out, each once.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use reqtrace_common::cookie::{Cookie, Frame};

use super::labels::LabelTable;
use super::uprobe::{Place, not_permitted};
use crate::error::{Error, Result};
use crate::profile::{At, ReturnProbe};
use crate::resolve::{ResolvedMarker, ResolvedProfile, ResolvedRequest};

/// One probe to set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbePlan {
    /// File to open.
    pub object: PathBuf,
    /// Offset in it.
    pub file_offset: u64,
    /// Offset in it of the counter that switches a USDT probe on.
    pub semaphore: Option<u64>,
    /// The first bytes of the instruction there.
    pub(super) instruction: [u8; 2],
    /// Name of the kernel program.
    pub(super) program: &'static str,
    /// What the program is told.
    pub(super) cookie: u64,
    /// Function and request type, for messages.
    pub shown: String,
    /// Of which service it is: the index of its profile.
    pub(super) service: usize,
}

impl ProbePlan {
    /// All probes of a profile that was resolved for one or more processes. Processes that share
    /// a file share its probes.
    ///
    /// With `labels` each begin reads its request's label; how is added to that table.
    ///
    /// # Errors
    ///
    /// When there are more ways to read labels than the table holds.
    pub fn of(
        profiles: &[ResolvedProfile],
        mut labels: Option<&mut LabelTable>,
    ) -> Result<Vec<Self>> {
        let mut seen = BTreeSet::new();
        let mut plans = Vec::new();
        for profile in profiles {
            for (number, request) in profile.numbered() {
                for mut plan in of_request(number, request, labels.as_deref_mut())? {
                    plan.service = profile.service;
                    let file = Identity::of(&plan.object);
                    if seen.insert((file, plan.file_offset, plan.program, plan.cookie)) {
                        plans.push(plan);
                    }
                }
            }
        }
        Ok(plans)
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
            self.shown,
            self.file_offset,
            self.object.display()
        ))
        .because(error)
        .next(next)
    }
}

fn of_request(
    number: usize,
    request: &ResolvedRequest,
    labels: Option<&mut LabelTable>,
) -> Result<Vec<ProbePlan>> {
    let begin = of_marker(number, request, &request.begin, true, labels)?;
    let end = of_marker(number, request, &request.end, false, None)?;
    // Ends first: a begin must never be seen without its end.
    Ok(end.into_iter().chain(begin).collect())
}

fn of_marker(
    number: usize,
    request: &ResolvedRequest,
    marker: &ResolvedMarker,
    is_begin: bool,
    mut labels: Option<&mut LabelTable>,
) -> Result<Vec<ProbePlan>> {
    let by_uretprobe = marker.at == At::Return && request.return_probe == ReturnProbe::Uretprobe;
    let program = match (is_begin, by_uretprobe) {
        (true, false) => "request_begin",
        (false, false) => "request_end",
        (true, true) => "request_begin_ret",
        (false, true) => "request_end_ret",
    };
    let popped = request.return_probe == ReturnProbe::Uretprobe;
    let frame = match (request.same_frame, popped) {
        (false, _) => Frame::Unrelated,
        (true, false) => Frame::Same,
        (true, true) => Frame::Popped,
    };
    let mut plans = Vec::new();
    for site in &marker.sites {
        let label = match &mut labels {
            Some(labels) => labels.index_of(&site.labels)?,
            None => 0,
        };
        let cookie = Cookie {
            request_type: number as u8,
            reentry: request.reentry,
            frame,
            condition: site.condition,
            slot: site.slot,
            label,
        };
        plans.push(ProbePlan {
            object: marker.object.clone(),
            file_offset: site.file_offset,
            semaphore: site.semaphore,
            instruction: site.instruction,
            program,
            cookie: cookie.encode(),
            shown: format!("`{}` (request `{}`)", marker.symbol, request.name),
            service: 0,
        });
    }
    Ok(plans)
}

/// What makes two paths one file.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Identity {
    /// Device and inode.
    Inode(u64, u64),
    /// A file that cannot be looked at; attaching will say why.
    Path(PathBuf),
}

impl Identity {
    pub(super) fn of(path: &Path) -> Self {
        std::fs::metadata(path).map_or_else(
            |_| Self::Path(path.to_owned()),
            |metadata| Self::Inode(metadata.dev(), metadata.ino()),
        )
    }
}
