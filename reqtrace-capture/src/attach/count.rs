//! Counting only: places in code in, how often each is hit out. For `reqtrace functions --count`,
//! and to measure how often markers would be hit before anything else is attached.
//!
//! The kernel programs are an object apart from the tracer's, with small maps, unless arguments are
//! noted too ([`super::calls`]).

use std::collections::BTreeSet;
use std::io;

use aya::EbpfLoader;
use aya::maps::{self, MapData, PerCpuArray};
use reqtrace_common::call::CallRecord;
use reqtrace_common::limits::MAX_COUNTED;

use super::calls::{self, Calls};
use super::detach::{self, Link};
use super::elsewhere::elsewhere;
use super::identity::Identity;
use super::image::Image;
use super::maps::{Maps, map_error};
use super::object::{COUNT_OBJECT, check_abi};
use super::programs::{Own, Programs};
use super::refused::explain_load;
use super::targets::executables;
use super::uprobe::{self, Engine, Refused, Setter, is_of_instruction};
use super::wanted::CountPlan;
use reqtrace_base::error::{Error, Result};
use reqtrace_binary::lazy::LazyFile;

/// Name of the kernel program that counts.
const COUNT: &str = "count_hit";

/// Name of the one that notes arguments and results besides.
const NOTE: &str = "note_call";

/// One place to count at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub object: LazyFile,
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
    programs: Box<dyn Programs>,
    maps: Maps,
    places: usize,
    links: Vec<Link>,
    refused: Vec<Refused>,
    calls: Option<Calls>,
}

/// Loads it, with this process's own privileges.
///
/// # Errors
///
/// As [`Counter::attach`].
pub(crate) fn load_here(plan: CountPlan) -> Result<(Own, Maps)> {
    check_abi(COUNT_OBJECT)?;
    let mut loader = EbpfLoader::new();
    if plan.notes {
        for (map, entries) in calls::MAPS {
            loader.map_max_entries(map, entries);
        }
    }
    let everybody = u32::from(plan.everybody);
    let mut ebpf = loader
        .override_global("EVERY_PROCESS", &everybody, true)
        .load(COUNT_OBJECT)
        .map_err(|error| explain_load(&error))?;
    let image = Image::of(COUNT_OBJECT, &ebpf)?;
    let maps = Maps::of(&mut ebpf);
    let program = if plan.notes { NOTE } else { COUNT };
    let setter = Setter::new(image, &[program])?;
    Ok((Own::new(ebpf, setter), maps))
}

impl Counter {
    /// Loads the program and sets a probe at each place, of which there are at most
    /// [`MAX_COUNTED`]. A place that stands twice counts twice. Where no probe can be set none is;
    /// [`Counter::refused`] has those.
    ///
    /// # Errors
    ///
    /// [`reqtrace_base::error::Kind::Unsupported`] when the kernel refuses the program, or does not permit a
    /// probe; a failure, when it refuses all probes.
    pub fn attach(places: &[Place], whose: Whose<'_>) -> Result<Self> {
        let counter = Self::load(whose, COUNT)?.set(COUNT, places, whose, |_| 0)?;
        counter.unless_refused(places)
    }

    /// The same where functions begin and return, of which arguments and results are noted:
    /// [`Counter::calls`]. `functions` has the number of each place's function, below
    /// [`reqtrace_common::limits::MAX_WATCHED`], with [`reqtrace_common::call::RETURNS`] at a `ret`.
    ///
    /// # Errors
    ///
    /// As [`Counter::attach`].
    pub fn noting(places: &[Place], functions: &[u32], whose: Whose<'_>) -> Result<Self> {
        let function = |place: usize| functions.get(place).copied().unwrap_or(0);
        let counter = Self::load(whose, NOTE)?.set(NOTE, places, whose, function)?;
        counter.unless_refused(places)
    }

    /// Sets the probes in this process alone, which has mapped the files and executes none of the places, and
    /// takes them out again: the places at which the kernel sets none, and why.
    ///
    /// # Errors
    ///
    /// [`reqtrace_base::error::Kind::Unsupported`] when the kernel refuses the program, or does not permit a
    /// probe.
    pub(super) fn try_places(places: &[Place]) -> Result<Vec<(usize, io::Error)>> {
        let own = [std::process::id()];
        let whose = Whose::Processes(&own);
        let mut counter = Self::load(whose, COUNT)?.set(COUNT, places, whose, |_| 0)?;
        counter.detach();
        let refused = std::mem::take(&mut counter.refused);
        match refused
            .iter()
            .find_map(|one| uprobe::not_permitted(&one.error))
        {
            Some(error) => Err(error),
            None => Ok(refused
                .into_iter()
                .map(|one| (one.index, one.error))
                .collect()),
        }
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
        let (links, refused) = counter.programs.set(program, &at)?;
        let of_place = |one: Refused| Refused {
            index: of[one.index],
            ..one
        };
        let refused = refused.into_iter().map(of_place).collect();
        counter.places = places.len();
        counter.links = links;
        counter.refused = refused;
        Ok(counter)
    }

    /// The counter, if a probe was set or there is none to set.
    fn unless_refused(mut self, places: &[Place]) -> Result<Self> {
        if self.links.is_empty()
            && let Some(first) = self.refused.pop()
        {
            if let Some(error) = uprobe::not_permitted(&first.error) {
                return Err(error);
            }
            let place = &places[first.index];
            return Err(Error::failed(format!(
                "the counting probe at offset {:#x} of {} could not be set",
                place.file_offset, place.object
            ))
            .because(why_refused(&first.error))
            .next("choose another function: one that it calls, or its caller"));
        }
        Ok(self)
    }

    fn load(whose: Whose<'_>, program: &str) -> Result<Self> {
        let plan = CountPlan {
            everybody: !matches!(whose, Whose::Processes(_)),
            notes: program == NOTE,
        };
        let (programs, mut maps): (Box<dyn Programs>, _) = match elsewhere() {
            Some(attacher) => attacher.count(plan)?,
            None => {
                let (programs, maps) = load_here(plan)?;
                (Box::new(programs), maps)
            }
        };
        if let Whose::Processes(pids) = whose {
            let mut counted: maps::HashMap<&mut MapData, u32, u8> =
                maps::HashMap::try_from(maps.map_mut("COUNTED_PROCESSES")?).map_err(map_error)?;
            for &pid in pids {
                counted.insert(pid, 1, 0).map_err(map_error)?;
            }
        }
        let calls = plan.notes.then(|| Calls::new(&mut maps)).transpose()?;
        Ok(Self {
            programs,
            maps,
            places: 0,
            links: Vec::new(),
            refused: Vec::new(),
            calls,
        })
    }

    /// Where no probe could be set, and why.
    pub fn refused(&self) -> impl Iterator<Item = (usize, &io::Error)> {
        self.refused.iter().map(|one| (one.index, &one.error))
    }

    /// What set the probes.
    #[must_use]
    pub fn engine(&self) -> Engine {
        self.programs.engine()
    }

    /// Hits of each place so far, in the order in which they were given.
    ///
    /// # Errors
    ///
    /// When the kernel's map cannot be read.
    pub fn hits(&self) -> Result<Vec<u64>> {
        let hits: PerCpuArray<_, u64> =
            PerCpuArray::try_from(self.maps.map("HITS")?).map_err(map_error)?;
        (0..self.places as u32)
            .map(|index| {
                let of_cpus = hits.get(&index, 0).map_err(map_error)?;
                Ok(of_cpus.iter().sum())
            })
            .collect()
    }

    /// Takes the calls that have come, so that the ring has room. To be called every 50 ms.
    pub fn take_calls(&mut self) {
        if let Some(calls) = &mut self.calls {
            calls.take();
        }
    }

    /// All calls that were noted, entries and returns, in their order, and how many were not, because there
    /// was no room. Nothing, unless they are noted.
    ///
    /// # Errors
    ///
    /// When a map of the kernel's cannot be read.
    pub fn calls(&mut self) -> Result<(Vec<CallRecord>, u64)> {
        match self.calls.take() {
            Some(calls) => calls.finish(&self.maps),
            None => Ok((Vec::new(), 0)),
        }
    }

    /// Takes the probes out.
    pub fn detach(&mut self) {
        detach::all(std::mem::take(&mut self.links));
    }
}

/// The kernel's answer about a place that it does not probe.
#[must_use]
pub fn why_refused(error: &io::Error) -> String {
    if is_of_instruction(error) {
        "the kernel does not probe the instruction there".to_owned()
    } else {
        error.to_string()
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
    for (index, place) in places.iter().enumerate() {
        let object = &place.object;
        let is_own = |own: &BTreeSet<Identity>| own.contains(&Identity::of(object));
        let for_all = own.as_ref().is_none_or(is_own);
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
