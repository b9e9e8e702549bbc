//! Requests that nobody goes on with: those that are open when tracing stops, or when a process leaves; and a process that
//! is traced no longer although it lives.
//!
//! A kernel program looks at the byte of a thread first, and for one that has none at the process. Once both are gone,
//! and the programs that had begun before are done, nothing writes to the states of its threads.

use std::collections::BTreeSet;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use aya::maps::{Array, MapData};
use memmap2::{MmapOptions, MmapRaw};
use reqtrace_common::config::{follow, tid_flag as flag};
use reqtrace_common::keyed::{KEY_COUNTERS, KeyId, key_counter};
use reqtrace_common::limits::TID_TABLE_SIZE;
use reqtrace_common::passed::place;
use reqtrace_common::record::reason;
use reqtrace_common::thread::{Thread, Units};

use super::Session;
use crate::attach::batch;
use crate::attach::decode::Still;
use crate::attach::maps::{Maps, file_of, map_error};
use crate::attach::open::{self, TakenOut, Whose};
use crate::attach::processes::{children_are_late, forget_processes};
use crate::kernel::clock;
use crate::kernel::threads::thread_ids;
use reqtrace_base::error::{Error, Result};

/// An array of the kernel programs, mapped; `what` it is, in words.
fn mapped(maps: &Maps, name: &str, len: usize, what: &str) -> Result<MmapRaw> {
    let file = file_of(maps.map(name)?)
        .ok_or_else(|| Error::failed(format!("the table of {what} is no array")))?;
    let mapped = MmapOptions::new().len(len).map_raw(file.as_raw_fd());
    mapped.map_err(|error| {
        Error::failed(format!("the kernel's table of {what} cannot be mapped")).because(error)
    })
}

/// How many keys there are of each [`key_counter`], and how many requests that no thread runs, mapped: the kernel programs change
/// the counters too.
struct Counts {
    keys: MmapRaw,
    parked: MmapRaw,
}

impl Counts {
    fn of(maps: &Maps) -> Result<Self> {
        let len = KEY_COUNTERS * size_of::<u32>();
        Ok(Self {
            keys: mapped(maps, "KEY_COUNTS", len, "counters of keys")?,
            parked: mapped(maps, "PARKED_COUNT", size_of::<u32>(), "parked requests")?,
        })
    }

    fn less(counters: &MmapRaw, index: usize) {
        let counter = counters.as_mut_ptr().cast::<AtomicU32>();
        // SAFETY: within the mapping, which a page begins; all change it by atomic additions.
        let counter = unsafe { &*counter.wrapping_add(index) };
        counter.fetch_sub(1, Ordering::Relaxed);
    }
}

impl TakenOut for Counts {
    fn key(&mut self, id: &KeyId) {
        Self::less(&self.keys, key_counter(id.key[0]));
    }

    fn parked(&mut self) {
        Self::less(&self.parked, 0);
    }
}

/// How often bytes of threads are cleared that are set again.
const MOST_ROUNDS: usize = 10;

/// The bytes of all threads, mapped.
struct Flags(MmapRaw);

impl Flags {
    fn of(maps: &Maps) -> Result<Self> {
        mapped(maps, "TIDS", TID_TABLE_SIZE, "threads").map(Self)
    }

    fn byte(&self, tid: u32) -> *mut u8 {
        // The mask keeps it within the table, a power of two.
        self.0
            .as_mut_ptr()
            .wrapping_add(tid as usize & (TID_TABLE_SIZE - 1))
    }

    fn clear(&self, tids: &BTreeSet<u32>) {
        for &tid in tids {
            // SAFETY: within the mapping; the kernel writes whole bytes, too.
            unsafe { self.byte(tid).write_volatile(flag::NONE) };
        }
    }

    fn is_clear(&self, tid: u32) -> bool {
        self.read(tid) == flag::NONE
    }

    /// Whether a thread is in no request any more.
    fn is_left(&self, tid: u32) -> bool {
        [flag::NONE, flag::HELPER].contains(&self.read(tid))
    }

    fn read(&self, tid: u32) -> u8 {
        // SAFETY: as above.
        unsafe { self.byte(tid).read_volatile() }
    }
}

impl Session {
    /// Stops tracing a process that lives: returns what it has open, as if tracing stopped now. Its records of before are in
    /// the ring when this returns.
    ///
    /// # Errors
    ///
    /// When the kernel's tables cannot be used.
    pub(crate) fn dismiss(&mut self, pid: u32) -> Result<Vec<Still>> {
        forget_processes(&mut self.maps, &BTreeSet::from([pid]))?;
        let flags = Flags::of(&self.maps)?;
        // A program that had begun before may set a byte once more, and by that byte another one may set it again.
        for round in 0..MOST_ROUNDS {
            let mut tids = self.states_of(pid)?;
            tids.extend(thread_ids(pid).map(|(_, tid)| tid));
            flags.clear(&tids);
            self.grace.wait()?;
            if round > 0 && tids.iter().all(|tid| flags.is_left(*tid)) {
                break;
            }
        }
        let now_ns = clock::monotonic_ns();
        let mut stills = open::requests(self.maps.map("THREADS")?, Some(pid), now_ns)?;
        // Who helps another process meanwhile has its byte again, and keeps its state.
        let left: Vec<u32> = self
            .states_of(pid)?
            .into_iter()
            .filter(|tid| flags.is_clear(*tid))
            .collect();
        self.delete_states(&left)?;
        self.forget_units(&left)?;
        stills.extend(self.abandoned(pid, None, now_ns, reason::PARKED_AT_STOP)?);
        Ok(stills)
    }

    /// Traces nobody for a while: no marker counts any more, and its probe goes. Returns what is open, as if tracing stopped
    /// now; its records of before are in the ring when this returns. These processes are there; they are followed as before.
    ///
    /// # Errors
    ///
    /// When the kernel's tables cannot be used.
    pub(crate) fn suspend(&mut self, alive: &BTreeSet<u32>) -> Result<Vec<Still>> {
        // As before all probes were set: who is in a request then is met at its end only.
        self.control.start_ns = 0;
        self.write_control()?;
        self.probes.suspend();
        let threads = alive.iter().flat_map(|pid| thread_ids(*pid));
        let mut tids: BTreeSet<u32> = threads.map(|(_, tid)| tid).collect();
        batch::entries(self.maps.map("THREADS")?, |tid: &u32, _: &Thread| {
            tids.insert(*tid);
        })?;
        let flags = Flags::of(&self.maps)?;
        // A program that had begun before may set a byte once more.
        for _ in 0..2 {
            flags.clear(&tids);
            self.grace.wait()?;
        }
        let now_ns = clock::monotonic_ns();
        let mut stills = open::requests(self.maps.map("THREADS")?, None, now_ns)?;
        let tids: Vec<u32> = tids.into_iter().collect();
        self.delete_states(&tids)?;
        self.forget_units(&tids)?;
        stills.extend(self.parked(Whose::NoLongerTraced, now_ns, reason::PARKED_AT_STOP)?);
        Ok(stills)
    }

    /// From now on probes are set for each process by itself, and for no other that runs the same file: once tracing goes on
    /// after it was suspended. These processes are there; children get their probes when the kernel tells of them.
    ///
    /// # Errors
    ///
    /// When the kernel's table cannot be written.
    pub(crate) fn set_apart(&mut self, alive: &BTreeSet<u32>) -> Result<()> {
        self.probes.set_apart();
        self.children |= follow::LATE;
        children_are_late(&mut self.maps, alive)
    }

    /// Whether all probes are out since then.
    pub(crate) fn is_suspended(&self) -> bool {
        self.probes.are_out()
    }

    /// Traces again, from now on; these processes are there.
    ///
    /// # Errors
    ///
    /// When a probe cannot be set.
    pub(crate) fn resume(&mut self, alive: &BTreeSet<u32>) -> Result<()> {
        self.probes.resume(alive)?;
        self.control.start_ns = clock::monotonic_ns();
        self.write_control()?;
        self.probes.programs().watch_threads()
    }

    /// Takes states of threads out. Those that had woken nobody yet give back their share of the table.
    fn delete_states(&self, tids: &[u32]) -> Result<()> {
        let states = self.maps.map("THREADS")?;
        let mut counted = BTreeSet::new();
        batch::entries(states, |tid: &u32, thread: &Thread| {
            if thread.state.is_counted != 0 {
                counted.insert(*tid);
            }
        })?;
        let mut gone = 0;
        batch::delete_each::<u32, Thread>(states, tids, |tid| {
            gone += u64::from(counted.contains(tid));
        })?;
        let watching = mapped(&self.maps, "WATCHING", size_of::<u64>(), "watched threads")?;
        // SAFETY: its only entry, which a page begins; all change it by atomic additions.
        let watching = unsafe { &*watching.as_mut_ptr().cast::<AtomicU64>() };
        watching.fetch_sub(gone, Ordering::Relaxed);
        Ok(())
    }

    /// Threads that nobody looks at leave units unseen.
    fn forget_units(&mut self, tids: &[u32]) -> Result<()> {
        let mut places: Array<&mut MapData, Units> =
            Array::try_from(self.maps.map_mut("UNITS")?).map_err(map_error)?;
        let room = places.len();
        // Without keys there is room for none.
        for (tid, place) in tids.iter().map(|tid| (*tid, place(*tid))) {
            if place < room && places.get(&place, 0).map_err(map_error)?.owner() == tid {
                let none = Units::none_of(tid);
                places.set(place, none, 0).map_err(map_error)?;
            }
        }
        Ok(())
    }

    /// Requests that are open. Call it after [`Session::stop`] and after the last record was taken.
    ///
    /// # Errors
    ///
    /// When a map cannot be read.
    pub(crate) fn open_requests(&self, stop_ns: u64) -> Result<Vec<Still>> {
        let mut stills = open::requests(self.maps.map("THREADS")?, None, stop_ns)?;
        stills.extend(self.parked(Whose::Everybodys, stop_ns, reason::PARKED_AT_STOP)?);
        Ok(stills)
    }

    /// Requests of a process that no thread runs, taken out: the process has left, or runs another program.
    ///
    /// # Errors
    ///
    /// When a map cannot be used.
    pub(crate) fn abandoned(
        &self,
        tgid: u32,
        exec_generation: Option<u32>,
        at_ns: u64,
        why: u32,
    ) -> Result<Vec<Still>> {
        let whose = match exec_generation {
            Some(generation) => Whose::Before(tgid, generation),
            None => Whose::Process(tgid),
        };
        self.parked(whose, at_ns, why)
    }

    fn parked(&self, whose: Whose, at_ns: u64, why: u32) -> Result<Vec<Still>> {
        let (keys, parked) = (self.maps.map("KEYS")?, self.maps.map("PARKED")?);
        let mut counts = Counts::of(&self.maps)?;
        open::parked(keys, parked, whose, at_ns, why, &mut counts)
    }

    /// Threads of a process that have a state.
    fn states_of(&self, pid: u32) -> Result<BTreeSet<u32>> {
        let mut tids = BTreeSet::new();
        batch::entries(self.maps.map("THREADS")?, |tid: &u32, thread: &Thread| {
            if thread.state.tgid == pid {
                tids.insert(*tid);
            }
        })?;
        Ok(tids)
    }
}
