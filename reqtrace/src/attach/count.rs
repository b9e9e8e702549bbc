//! Counting only: places in code in, how often each is hit out. For `reqtrace functions --count`,
//! and to measure how often markers would be hit before anything else is attached.
//!
//! The kernel programs are an object apart from the tracer's, with small maps, unless first arguments are
//! noted too ([`super::arguments`]).

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;

use aya::maps::{self, MapData, PerCpuArray};
use aya::{Ebpf, EbpfLoader};
use reqtrace_common::limits::MAX_COUNTED;

use super::arguments::{self, Arguments};
use super::detach;
use super::image::Image;
use super::loader::{explain_load, map, map_error, map_mut};
use super::object::{COUNT_OBJECT, check_abi};
use super::probes::Identity;
use super::targets::executables;
use super::uprobe::{self, Engine, Refused, Setter, UprobeLink};
use crate::error::{Error, Result};

/// Name of the kernel program that counts.
const COUNT: &str = "count_hit";

/// Name of the one that notes the first argument besides.
const NOTE: &str = "note_argument";

/// One place to count at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// File to open.
    pub object: PathBuf,
    /// Offset in it.
    pub file_offset: u64,
    /// Offset in it of the counter that switches a USDT probe on.
    pub semaphore: Option<u64>,
    /// Count when the function returns that begins there, by a uretprobe.
    pub on_return: bool,
}

/// Whose hits count.
#[derive(Clone, Copy, Debug)]
pub enum Whose<'a> {
    /// Those of these processes.
    Processes(&'a [u32]),
    /// Those of every process that runs the executable of one of these; in libraries, those of
    /// these processes.
    Runners(&'a [u32]),
    /// Those of every process that maps the file.
    Everybody,
}

/// Counting probes in place. They are taken out when it is dropped.
pub struct Counter {
    ebpf: Ebpf,
    setter: Setter,
    places: usize,
    links: Vec<UprobeLink>,
    refused: Vec<Refused>,
}

impl Counter {
    /// Loads the program and sets a probe at each place, of which there are at most
    /// [`MAX_COUNTED`]. A place that stands twice counts twice. Where no probe can be set none is;
    /// [`Counter::refused`] has those.
    ///
    /// # Errors
    ///
    /// [`crate::error::Kind::Unsupported`] when the kernel refuses the program, or does not permit a
    /// probe; a failure, when it refuses all probes.
    pub fn attach(places: &[Place], whose: Whose<'_>) -> Result<Self> {
        Self::load(whose, COUNT)?.set(COUNT, places, whose, |_| 0)
    }

    /// The same where functions begin, of which the first arguments are noted:
    /// [`Counter::arguments`]. `functions` has the number of each place's function, below
    /// [`reqtrace_common::limits::MAX_WATCHED`].
    ///
    /// # Errors
    ///
    /// As [`Counter::attach`].
    pub fn noting(places: &[Place], functions: &[u32], whose: Whose<'_>) -> Result<Self> {
        let function = |place: usize| functions.get(place).copied().unwrap_or(0);
        Self::load(whose, NOTE)?.set(NOTE, places, whose, function)
    }

    fn set(
        self,
        program: &str,
        places: &[Place],
        whose: Whose<'_>,
        function: impl Fn(usize) -> u32,
    ) -> Result<Self> {
        let mut counter = self;
        let places = &places[..places.len().min(MAX_COUNTED as usize)];
        let mut at = at(places, whose);
        let of: Vec<usize> = at.iter().map(|place| place.cookie as usize).collect();
        for (place, &index) in at.iter_mut().zip(&of) {
            place.cookie |= u64::from(function(index)) << 32;
        }
        let (links, refused) = counter.setter.set(program, &at)?;
        let of_place = |one: Refused| Refused {
            index: of[one.index],
            ..one
        };
        let refused = refused.into_iter().map(of_place).collect();
        counter.places = places.len();
        counter.links = links;
        counter.refused = refused;
        if counter.links.is_empty()
            && let Some(first) = counter.refused.pop()
        {
            if let Some(error) = uprobe::not_permitted(&first.error) {
                return Err(error);
            }
            let place = &places[first.index];
            return Err(Error::failed(format!(
                "the counting probe at offset {:#x} of {} could not be set",
                place.file_offset,
                place.object.display()
            ))
            .because(why_refused(&first.error))
            .next("choose another function: one that it calls, or its caller"));
        }
        Ok(counter)
    }

    fn load(whose: Whose<'_>, program: &str) -> Result<Self> {
        check_abi(COUNT_OBJECT)?;
        let everybody = u32::from(!matches!(whose, Whose::Processes(_)));
        let mut loader = EbpfLoader::new();
        if program == NOTE {
            for (map, entries) in arguments::MAPS {
                loader.map_max_entries(map, entries);
            }
        }
        let mut ebpf = loader
            .override_global("EVERY_PROCESS", &everybody, true)
            .load(COUNT_OBJECT)
            .map_err(|error| explain_load(&error))?;
        if let Whose::Processes(pids) = whose {
            let mut counted: maps::HashMap<&mut MapData, u32, u8> =
                maps::HashMap::try_from(map_mut(&mut ebpf, "COUNTED_PROCESSES")?)
                    .map_err(map_error)?;
            for &pid in pids {
                counted.insert(pid, 1, 0).map_err(map_error)?;
            }
        }
        let setter = Setter::new(Image::of(COUNT_OBJECT, &ebpf)?, &[program])?;
        Ok(Self {
            ebpf,
            setter,
            places: 0,
            links: Vec::new(),
            refused: Vec::new(),
        })
    }

    /// Where no probe could be set, and why.
    pub fn refused(&self) -> impl Iterator<Item = (usize, &io::Error)> {
        self.refused.iter().map(|one| (one.index, &one.error))
    }

    /// What set the probes.
    #[must_use]
    pub fn engine(&self) -> Engine {
        self.setter.engine()
    }

    /// Hits of each place so far, in the order in which they were given.
    ///
    /// # Errors
    ///
    /// When the kernel's map cannot be read.
    pub fn hits(&self) -> Result<Vec<u64>> {
        let hits: PerCpuArray<_, u64> =
            PerCpuArray::try_from(map(&self.ebpf, "HITS")?).map_err(map_error)?;
        (0..self.places as u32)
            .map(|index| {
                let of_cpus = hits.get(&index, 0).map_err(map_error)?;
                Ok(of_cpus.iter().sum())
            })
            .collect()
    }

    /// What was noted of first arguments so far, of these many functions. Nothing, unless they are
    /// noted.
    ///
    /// # Errors
    ///
    /// When a map of the kernel's cannot be read.
    pub fn arguments(&self, functions: usize) -> Result<Arguments> {
        Arguments::read(&self.ebpf, functions)
    }

    /// Arguments so far that no function had before, by the function that had them first.
    ///
    /// # Errors
    ///
    /// When the kernel's map cannot be read.
    pub fn first_arguments(&self, functions: usize) -> Result<Vec<u64>> {
        let calls = arguments::calls(&self.ebpf, functions)?;
        Ok(calls.iter().map(|calls| calls.first).collect())
    }

    /// Takes the probes out.
    pub fn detach(&mut self) {
        detach::all(std::mem::take(&mut self.links));
    }
}

/// What the kernel said about a place that it does not probe.
#[must_use]
pub fn why_refused(error: &io::Error) -> String {
    // ENOTSUPP, which no C library has a text for.
    const NOT_SUPPORTED: i32 = 524;
    match error.raw_os_error() {
        Some(NOT_SUPPORTED) => {
            "the kernel does not probe the instruction there (error 524)".to_owned()
        }
        _ => error.to_string(),
    }
}

/// Where probes are set for these places. Those in a library are set for each process by itself:
/// everybody else who has it mapped would pay for each hit.
fn at<'a>(places: &'a [Place], whose: Whose<'_>) -> Vec<uprobe::Place<'a>> {
    let mut at = Vec::new();
    let (own, pids) = match whose {
        Whose::Processes(pids) | Whose::Runners(pids) => (Some(executables(pids)), pids),
        Whose::Everybody => (None, [].as_slice()),
    };
    let mut is_own = HashMap::new();
    for (index, place) in places.iter().enumerate() {
        let object = place.object.as_path();
        let for_all = own.as_ref().is_none_or(|own| {
            *is_own
                .entry(object)
                .or_insert_with(|| own.contains(&Identity::of(object)))
        });
        let set = |process| uprobe::Place {
            object,
            file_offset: place.file_offset,
            counter: place.semaphore,
            on_return: place.on_return,
            process,
            cookie: index as u64,
        };
        if for_all {
            at.push(set(None));
        } else {
            at.extend(pids.iter().map(|&pid| set(Some(pid))));
        }
    }
    at
}

impl Drop for Counter {
    fn drop(&mut self) {
        self.detach();
    }
}
