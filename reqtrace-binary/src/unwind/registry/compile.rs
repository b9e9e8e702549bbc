//! Compiling: objects in, their tables out, on several threads.

use std::num::NonZero;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::ContentKey;
use crate::unwind::object::Object;
use crate::unwind::table::{Table, TableError};

/// More threads than this would take the traced service's CPUs for a gain of milliseconds.
const MAX_THREADS: usize = 4;

/// How far compiling has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Objects compiled, of [`Progress::objects`].
    pub done: usize,
    /// Objects to compile for this process.
    pub objects: usize,
    /// Bytes of `.eh_frame` compiled, of [`Progress::bytes`].
    pub done_bytes: u64,
    /// Bytes of `.eh_frame` to compile.
    pub bytes: u64,
}

/// An object that has no table yet.
pub(super) struct Job {
    pub(super) content: ContentKey,
    pub(super) name: PathBuf,
    pub(super) object: Object,
}

/// The tables of all jobs, in their order.
pub(super) fn compile_all(
    jobs: &[Job],
    progress: Option<&(dyn Fn(Progress) + Send + Sync)>,
) -> Vec<Result<Arc<Table>, TableError>> {
    let size = |job: &Job| job.object.frames.bytes.len() as u64;
    // The largest first: it decides when all are done.
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    order.sort_by_key(|&job| std::cmp::Reverse(size(&jobs[job])));
    let so_far = Mutex::new(Progress {
        objects: jobs.len(),
        bytes: jobs.iter().map(size).sum(),
        ..Progress::default()
    });
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        while let Some(&job) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
            done.push((job, Table::compile(&jobs[job].object).map(Arc::new)));
            if let Some(progress) = progress {
                // A panic in another thread's callback leaves the numbers as they are.
                let mut now = so_far.lock().unwrap_or_else(PoisonError::into_inner);
                now.done += 1;
                now.done_bytes += size(&jobs[job]);
                progress(*now);
            }
        }
        done
    };
    let cpus = thread::available_parallelism().map_or(1, NonZero::get);
    let helpers = cpus.min(MAX_THREADS).min(jobs.len()).saturating_sub(1);
    let mut done = thread::scope(|scope| {
        let helpers: Vec<_> = (0..helpers).map(|_| scope.spawn(work)).collect();
        let mut done = work();
        for helper in helpers {
            match helper.join() {
                Ok(more) => done.extend(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        done
    });
    done.sort_by_key(|&(job, _)| job);
    done.into_iter().map(|(_, table)| table).collect()
}
