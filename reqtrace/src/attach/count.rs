//! Counting only: places in code in, how often each is hit out. For `reqtrace functions --count`,
//! and to measure how often markers would be hit before anything else is attached.
//!
//! The kernel program is an object apart from the tracer's, with two small maps.

use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::thread;

use aya::maps::{HashMap, MapData, PerCpuArray};
use aya::programs::UProbe;
use aya::{Ebpf, EbpfLoader};
use reqtrace_common::limits::MAX_COUNTED;

use super::detach;
use super::loader::{explain_load, explain_program, map, map_error, map_mut, program};
use super::object::{COUNT_OBJECT, check_abi};
use super::uprobe::{self, UprobeEvents, UprobeLink};
use crate::error::{Error, Result};

/// Threads that set probes.
const THREADS: usize = 16;

/// Name of the kernel program.
const PROGRAM: &str = "count_hit";

/// One place to count at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// File to open.
    pub object: PathBuf,
    /// Offset in it.
    pub file_offset: u64,
    /// Offset in it of the counter that switches a USDT probe on.
    pub semaphore: Option<u64>,
}

/// Whose hits count.
#[derive(Clone, Copy, Debug)]
pub enum Whose<'a> {
    /// Those of these processes.
    Processes(&'a [u32]),
    /// Those of every process that runs the file.
    Everybody,
}

/// Counting probes in place. They are taken out when it is dropped.
pub struct Counter {
    ebpf: Ebpf,
    links: Vec<UprobeLink>,
}

impl Counter {
    /// Loads the program and sets a probe at each place, of which there are at most
    /// [`MAX_COUNTED`]. A place that stands twice counts twice.
    ///
    /// # Errors
    ///
    /// [`crate::error::Kind::Unsupported`] when the kernel refuses the program; a failure, when it
    /// refuses a probe. What was set by then is taken out.
    pub fn attach(places: &[Place], whose: Whose<'_>) -> Result<Self> {
        let events = UprobeEvents::of_kernel()?;
        let mut counter = Self::load(whose)?;
        let program: &mut UProbe = program(&mut counter.ebpf, PROGRAM)?;
        let program = program
            .fd()
            .map_err(|error| Error::failed("a program has no file").because(error))?;
        let places = &places[..places.len().min(MAX_COUNTED as usize)];
        counter.links = in_parallel(places, |index, place| {
            let at = uprobe::Place {
                object: &place.object,
                file_offset: place.file_offset,
                counter: place.semaphore,
                on_return: false,
                process: None,
                cookie: index as u64,
            };
            events.attach(program.as_fd(), &at).map_err(|error| {
                Error::failed(format!(
                    "the counting probe at offset {:#x} of {} could not be set",
                    place.file_offset,
                    place.object.display()
                ))
                .because(error)
            })
        })?;
        Ok(counter)
    }

    fn load(whose: Whose<'_>) -> Result<Self> {
        check_abi(COUNT_OBJECT)?;
        let everybody = u32::from(matches!(whose, Whose::Everybody));
        let mut ebpf = EbpfLoader::new()
            .override_global("EVERY_PROCESS", &everybody, true)
            .load(COUNT_OBJECT)
            .map_err(|error| explain_load(&error))?;
        if let Whose::Processes(pids) = whose {
            let mut counted: HashMap<&mut MapData, u32, u8> =
                HashMap::try_from(map_mut(&mut ebpf, "COUNTED_PROCESSES")?).map_err(map_error)?;
            for &pid in pids {
                counted.insert(pid, 1, 0).map_err(map_error)?;
            }
        }
        let program: &mut UProbe = program(&mut ebpf, PROGRAM)?;
        program
            .load()
            .map_err(|error| explain_program(PROGRAM, error))?;
        Ok(Self {
            ebpf,
            links: Vec::new(),
        })
    }

    /// Hits of each place so far, in the order in which they were given.
    ///
    /// # Errors
    ///
    /// When the kernel's map cannot be read.
    pub fn hits(&self) -> Result<Vec<u64>> {
        let hits: PerCpuArray<_, u64> =
            PerCpuArray::try_from(map(&self.ebpf, "HITS")?).map_err(map_error)?;
        (0..self.links.len() as u32)
            .map(|index| {
                let of_cpus = hits.get(&index, 0).map_err(map_error)?;
                Ok(of_cpus.iter().sum())
            })
            .collect()
    }

    /// Takes the probes out.
    pub fn detach(&mut self) {
        detach::all(std::mem::take(&mut self.links));
    }
}

/// Sets probes many at a time: each waits for a grace period of the kernel, which they share when
/// they wait at the same time. The first error wins; what was set by then is taken out.
fn in_parallel(
    places: &[Place],
    set: impl Fn(usize, &Place) -> Result<UprobeLink> + Sync,
) -> Result<Vec<UprobeLink>> {
    let share = places.len().div_ceil(THREADS).max(1);
    let set = &set;
    let results: Vec<Result<UprobeLink>> = thread::scope(|scope| {
        let workers: Vec<_> = places
            .chunks(share)
            .enumerate()
            .map(|(number, mine)| {
                scope.spawn(move || {
                    let numbered = mine.iter().zip(number * share..);
                    numbered
                        .map(|(place, index)| set(index, place))
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        let panicked = || vec![Err(Error::failed("a thread that sets probes panicked"))];
        let joined = workers.into_iter();
        joined
            .flat_map(|worker| worker.join().unwrap_or_else(|_| panicked()))
            .collect()
    });
    let mut links = Vec::new();
    let mut failed = None;
    for result in results {
        match result {
            Ok(link) => links.push(link),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    match failed {
        None => Ok(links),
        Some(error) => {
            detach::all(links);
            Err(error)
        }
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        self.detach();
    }
}
