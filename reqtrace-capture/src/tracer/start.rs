//! The start of a trace: what to trace in, everything attached out.
//!
//! Everything that can be wrong is looked at before anything is attached: the processes, the profile in
//! them, the outputs, the kernel. What takes long runs at the same time as the rest. How far it has come is a type:
//! [`Plan`] (processes are open, and what takes long has begun), [`Prepared`](prepared::Prepared) (markers are found
//! and probes planned), [`Ready`](ready::Ready) (the gate has let it pass, and the kernel has taken the programs), and
//! the [`Trace`].

mod prepared;
mod ready;

use std::path::PathBuf;

use super::ahead::Ahead;
use super::processes::{Processes, SpaceMaps};
use super::resolved::{Found, resolve_all, settle_all};
use super::trace::Trace;
use super::{Options, Tracer, Unwind};
use crate::attach::{Compiled, Loader, SelfTest, Sizes, self_test};
use crate::events::Notices;
use crate::kernel::{Host, processes};
use reqtrace_base::error::Result;
use reqtrace_binary::files::Files;
use reqtrace_binary::lazy::LazyFile;
use reqtrace_binary::unwind::Registry;
use reqtrace_profile::Profiles;
use reqtrace_resolve::{Objects, Process};

/// Attaches everything.
pub(super) fn start<T>(
    tracer: Tracer,
    accepted: impl FnOnce(&Profiles) -> Result<T>,
) -> Result<(Trace, T)> {
    let ready = Plan::of(tracer)?.prepare()?.load()?;
    // A trace that is refused opens nothing, and a bad path leaves nothing attached.
    let opened = accepted(ready.profiles())?;
    Ok((ready.attach()?, opened))
}

/// What is traced and how, which no stage changes any more but for processes that come meanwhile.
struct Wanted {
    profiles: Profiles,
    /// As they were named, then their descendants as far as they could be looked at.
    processes: Vec<Process>,
    /// All of them.
    pids: Vec<u32>,
    /// What is known of each.
    owned: Processes,
    /// Programs whose processes are traced whoever starts them.
    programs: Vec<PathBuf>,
    has_begun: bool,
    options: Options,
    sizes: Sizes,
    /// Processes for which the kernel's table has no room, and that are not traced.
    left_out: u64,
    notices: Notices,
    /// Each file is opened once, whoever wants it.
    files: Files,
}

/// Processes that are open, and work that has begun.
struct Plan {
    wanted: Wanted,
    /// Descendants of the named processes.
    children: Vec<u32>,
    mapped: Vec<SpaceMaps>,
    /// Where the markers are in the named processes.
    found: Result<Found>,
    host: Ahead<Result<Host>>,
    loader: Ahead<Loader>,
    cost: Ahead<Result<SelfTest>>,
    tables: Option<Ahead<Compiled>>,
}

impl Plan {
    fn of(tracer: Tracer) -> Result<Self> {
        let Tracer {
            profiles,
            pids,
            mut processes,
            programs,
            has_begun,
            options,
            notices,
        } = tracer;
        let mut sizes = options.memory.map_or(Ok(Sizes::default()), Sizes::within)?;
        if !options.user_stacks {
            sizes = sizes.without_shown_stacks();
        }
        for pid in pids {
            processes.push(Process::open(pid)?);
        }
        // Each file is opened and parsed once, whoever wants it, and whichever of the processes has it.
        let files = Files::default();
        let objects = Objects::with_files(files.clone());
        for process in &mut processes {
            process.use_objects(&objects);
        }
        drop(objects);
        let profiles = settle_all(profiles, &processes, &notices)?;
        let host = Ahead::begin("the machine", Host::examine);
        let loader = Ahead::begin("the loader", Loader::new);
        let cost = Ahead::begin("what a hit costs", self_test::run);
        let mut pids: Vec<u32> = processes.iter().map(|process| process.pid).collect();
        let mut children = match options.follow {
            true => processes::descendants(&pids),
            false => Vec::new(),
        };
        pids.extend(&children);
        let (all, room) = (pids.len(), sizes.processes());
        let left_out = all.saturating_sub(room) as u64;
        if left_out > 0 {
            pids.truncate(room);
            processes.retain(|process| pids.contains(&process.pid));
            children.retain(|child| pids.contains(child));
            notices.warn(format_args!(
                "{left_out} of {all} processes are not traced: the kernel's table has room for {room}; --memory makes it larger"
            ));
        }
        let mut owned = Processes::default();
        let mapped = owned.begin(&pids);
        let wanted = Wanted {
            profiles,
            processes,
            pids,
            owned,
            programs,
            has_begun,
            options,
            sizes,
            left_out,
            notices,
            files,
        };
        let tables = wanted.compile_tables(mapped.clone());
        Ok(Self {
            found: resolve_all(
                &wanted.profiles,
                &wanted.processes,
                wanted.options.follow,
                &wanted.notices,
            ),
            wanted,
            children,
            mapped,
            host,
            loader,
            cost,
            tables,
        })
    }
}

impl Wanted {
    /// Unwind tables, if stacks are walked by them. A program that has not begun has mapped nothing yet:
    /// then its files are given.
    fn compile_tables(&self, mapped: Vec<SpaceMaps>) -> Option<Ahead<Compiled>> {
        let unwind = self.options.unwind;
        if unwind == Unwind::Fp {
            return None;
        }
        let notices = self.notices.clone();
        let mut registry = Registry::new()
            .with_files(self.files.clone())
            .with_progress(move |now| notices.compiling(now));
        if let Some(bytes) = self.options.file_memory {
            registry = registry.within(bytes / 2);
        }
        if unwind == Unwind::Auto {
            registry = registry.with_frame_pointers();
        }
        let files = self.processes.iter().flat_map(|process| &process.objects);
        let files: Vec<LazyFile> = files.map(|file| file.open.clone()).collect();
        let has_begun = self.has_begun;
        Some(Ahead::begin("the unwind tables", move || {
            if has_begun {
                Compiled::of(registry, &mapped)
            } else {
                Compiled::ahead_of(registry, &files)
            }
        }))
    }
}
