//! Programs that traced processes begin to run: execs in; probes in those that a profile is made for, out.
//!
//! A master that runs its servers as programs of their own is so followed by program: each program is resolved
//! once, when the first process of it begins, in a thread of its own. Its later processes have the probes of
//! its executable from their start.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use log::{debug, info};

use super::ahead::Ahead;
use super::resolved::{Program, resolve_one};
use crate::attach::{Identity, Session, plan_probes, safety};
use crate::events::{Notices, UnitsOfPrograms};
use crate::kernel::clock;
use crate::kernel::processes::is_alive;
use reqtrace_base::error::Result;
use reqtrace_profile::Profiles;
use reqtrace_recording::Comm;
use reqtrace_resolve::{Process, ResolvedProfile};

/// The first pause before a program is looked at again: it may load the library that has its markers. Each
/// pause is twice the one before.
const PAUSE: Duration = Duration::from_millis(50);
/// Looks before it is given up: 6 s.
const LOOKS: u32 = 8;

/// A program that no traced process has run for so long loses its probes: they keep its file, and the file system that it is on. One
/// that is started now and then keeps them, and so loses no request.
const UNUSED: Duration = Duration::from_secs(600);

/// Processes that have left of which a request may be in the ring.
const MAX_LEFT: usize = 10_000;

/// What is known of programs, and the processes whose program is being resolved.
pub(super) struct Latecomers {
    pub(super) profiles: Profiles,
    pub(super) accept_risk: bool,
    /// What units of programs are called.
    pub(super) units: UnitsOfPrograms,
    pub(super) notices: Notices,
    pub(super) probed: Probed,
    /// Processes of which no request is seen, although a profile is made for their program.
    pub(super) unprobed: u64,
    /// Those of them of which a request may be in the ring: the probes of the file may have been set before they left.
    pub(super) left: BTreeSet<u32>,
    pub(super) waiting: Vec<Waiting>,
    pub(super) unused: Unused,
}

/// Programs whose probes are set, each since when, `CLOCK_MONOTONIC` ns.
#[derive(Debug, Default)]
pub(super) struct Probed {
    files: BTreeMap<Identity, u64>,
    /// The same by file name: several files may have one, and a file several.
    names: BTreeMap<(String, Identity), u64>,
}

impl Probed {
    /// A program has its probes since then.
    pub(super) fn add(&mut self, Program { name, file }: Program, since_ns: u64) {
        self.names.insert((name, file.clone()), since_ns);
        self.files.insert(file, since_ns);
    }

    /// A program has none any more.
    pub(super) fn forget(&mut self, file: &Identity) {
        self.files.remove(file);
        self.names.retain(|(_, of), _| of != file);
    }

    /// Whether one that is called so had its probes then. The kernel cuts names, also within a character.
    fn has_name(&self, comm: &Comm, at_ns: u64) -> bool {
        let wanted = String::from_utf8_lossy(comm.bytes());
        let longest = comm.0.len() - 1;
        self.names.iter().any(|((name, _), since_ns)| {
            let cut = &name.as_bytes()[..name.len().min(longest)];
            *since_ns <= at_ns && String::from_utf8_lossy(cut) == wanted
        })
    }
}

/// Programs with probes that nobody runs, since when.
#[derive(Debug, Default)]
pub(super) struct Unused(BTreeMap<Identity, Instant>);

impl Unused {
    /// Takes programs that have probes, and those of them that somebody runs now. Returns those that nobody has run for long,
    /// each once.
    fn over<'a>(
        &mut self,
        known: impl Iterator<Item = &'a Identity>,
        run: &BTreeSet<Identity>,
        now: Instant,
    ) -> Vec<Identity> {
        let unused = known.filter(|file| !run.contains(*file));
        let before = std::mem::take(&mut self.0);
        self.0 = unused
            .map(|file| (file.clone(), before.get(file).copied().unwrap_or(now)))
            .collect();
        let over = self
            .0
            .extract_if(.., |_, since| now.duration_since(*since) >= UNUSED);
        over.map(|(file, _)| file).collect()
    }
}

/// A process whose program is not known yet.
pub(super) struct Waiting {
    pid: u32,
    /// `CLOCK_MONOTONIC` ns.
    since_ns: u64,
    program: Program,
    /// As it was at the last look: it may leave before its markers are found, and those after it run the same
    /// program.
    process: Process,
    /// A request of it was seen.
    is_seen: bool,
    looks: u32,
    next: Instant,
    work: Option<Ahead<Result<ResolvedProfile>>>,
}

impl Waiting {
    fn look(&mut self) {
        if let Ok(now) = Process::open(self.pid) {
            self.process = now;
        }
    }
}

impl Latecomers {
    /// A process runs another program since then, `CLOCK_MONOTONIC` ns, and has that one's name. It is wanted if that is `watched`,
    /// or a profile is made for it.
    pub(super) fn look(
        &mut self,
        pid: u32,
        since_ns: u64,
        comm: Comm,
        watched: &BTreeSet<Identity>,
        session: &mut Session,
    ) {
        let is_wanted = |program: &Program| watched.contains(&program.file);
        if self.look_for(pid, since_ns, is_wanted, session) {
            return;
        }
        // One whose file has probes had them from its start.
        let has_probes = self.probed.has_name(&comm, since_ns);
        if !has_probes && self.profiles.made_for(&comm.text()).is_some() {
            self.leaves(pid);
        }
    }

    /// The same of one that is wanted by its program, or because a profile is made for it. False when it has left.
    pub(super) fn look_for(
        &mut self,
        pid: u32,
        since_ns: u64,
        is_wanted: impl Fn(&Program) -> bool,
        session: &mut Session,
    ) -> bool {
        self.waiting.retain(|waiting| waiting.pid != pid);
        let Some(program) = Program::of(pid) else {
            return false;
        };
        if !is_wanted(&program) && self.profiles.made_for(&program.name).is_none() {
            return true;
        }
        if let Some(set_ns) = self.probed.files.get(&program.file) {
            match *set_ns <= since_ns {
                true => session.follow(pid, since_ns),
                false => session.follow_late(pid, since_ns),
            }
            return true;
        }
        let process = match Process::open(pid) {
            Ok(process) => process,
            Err(error) => {
                debug!(
                    "process {pid} ({}) left without probes: {error}",
                    program.name
                );
                self.leaves(pid);
                return true;
            }
        };
        self.waiting.push(Waiting {
            pid,
            since_ns,
            program,
            process,
            is_seen: false,
            looks: 0,
            next: Instant::now(),
            work: None,
        });
        self.step(session);
        true
    }

    /// Processes of which no request is seen, although a profile is made for their program: also those that
    /// still wait.
    pub(super) fn unprobed(&self) -> u64 {
        let waiting = self.waiting.iter().filter(|waiting| !waiting.is_seen);
        self.unprobed + (self.left.len() + waiting.count()) as u64
    }

    /// A request of a process was seen.
    pub(super) fn seen(&mut self, pid: u32) {
        if !self.left.is_empty() {
            self.left.remove(&pid);
        }
        let mut waiting = self.waiting.iter_mut();
        if let Some(waiting) = waiting.find(|waiting| waiting.pid == pid) {
            waiting.is_seen = true;
        }
    }

    /// A process has left, and it is not known that it had probes.
    fn leaves(&mut self, pid: u32) {
        if self.left.len() == MAX_LEFT {
            self.unprobed += self.left.len() as u64;
            self.left.clear();
        }
        self.left.insert(pid);
    }

    /// Programs with probes that none of these processes has run for a while, but for those that `stay`. Each is given once.
    pub(super) fn over(
        &mut self,
        alive: &BTreeSet<u32>,
        stay: &BTreeSet<Identity>,
    ) -> Vec<Identity> {
        // The only one is that of what is traced, or nothing is.
        if self.probed.files.len() < 2 {
            return Vec::new();
        }
        let mut run: BTreeSet<Identity> = stay.clone();
        for &pid in alive {
            match Program::of(pid) {
                Some(program) => {
                    run.insert(program.file);
                }
                // It may run any of them.
                None if is_alive(pid) => return Vec::new(),
                None => {}
            }
        }
        let waiting = self.waiting.iter();
        run.extend(waiting.map(|waiting| waiting.program.file.clone()));
        let known = self.probed.files.keys();
        self.unused.over(known, &run, Instant::now())
    }

    /// A process is traced no longer.
    pub(super) fn forget(&mut self, pid: u32) {
        self.waiting.retain(|waiting| waiting.pid != pid);
        self.left.remove(&pid);
    }

    /// Whether a program is being resolved: the next step is due soon.
    pub(super) fn is_busy(&self) -> bool {
        self.waiting.iter().any(|waiting| waiting.work.is_some())
    }

    /// Goes on with those that wait.
    pub(super) fn step(&mut self, session: &mut Session) {
        for mut waiting in std::mem::take(&mut self.waiting) {
            let (pid, file) = (waiting.pid, &waiting.program.file);
            if self.probed.files.contains_key(file) {
                match is_alive(pid) {
                    true => session.follow_late(pid, waiting.since_ns),
                    false if waiting.is_seen => {}
                    false => self.leaves(pid),
                }
                continue;
            }
            let is_other = Program::of(pid).is_some_and(|now| now.file != *file);
            if is_other {
                continue;
            }
            let outcome = match waiting.work.take() {
                Some(work) if !work.is_done() => {
                    waiting.work = Some(work);
                    self.waiting.push(waiting);
                    continue;
                }
                Some(work) => work.wait().flatten(),
                None if waiting.next <= Instant::now() => {
                    if waiting.looks > 0 {
                        waiting.look();
                    }
                    waiting.work = Some(self.resolve(waiting.process.clone()));
                    waiting.looks += 1;
                    self.waiting.push(waiting);
                    continue;
                }
                None => {
                    self.waiting.push(waiting);
                    continue;
                }
            };
            let probed = outcome.and_then(|resolved| self.probe(&waiting, resolved, session));
            let name = &waiting.program.name;
            match probed {
                Ok(()) => {
                    let is_alive = is_alive(pid);
                    let left = if is_alive { "" } else { ", and has left" };
                    info!("process {pid} ({name}) has probes{left}");
                    if !is_alive && !waiting.is_seen {
                        self.leaves(pid);
                    }
                    self.probed.add(waiting.program, clock::monotonic_ns());
                }
                Err(error) if !is_alive(pid) => {
                    debug!("process {pid} ({name}) left without probes: {error}");
                    self.leaves(pid);
                }
                Err(error) if waiting.looks >= LOOKS => {
                    self.notices.warn(format_args!(
                        "requests of process {pid} ({name}) are not seen: {error}"
                    ));
                    self.unprobed += 1;
                }
                Err(error) => {
                    debug!("process {pid} ({name}): {error}");
                    waiting.next = Instant::now() + PAUSE * (1 << (waiting.looks - 1));
                    self.waiting.push(waiting);
                }
            }
        }
    }

    fn resolve(&self, process: Process) -> Ahead<Result<ResolvedProfile>> {
        let profiles = self.profiles.clone();
        Ahead::begin("a program's markers", move || {
            resolve_one(&profiles, &process)
        })
    }

    /// Sets the probes of a program, if that is safe and its plans fit what was loaded.
    fn probe(
        &mut self,
        waiting: &Waiting,
        resolved: ResolvedProfile,
        session: &mut Session,
    ) -> Result<()> {
        let resolved = [resolved];
        let judgement = safety::judge(&resolved, &[waiting.pid]);
        let doubted = judgement.doubted.into_iter();
        let doubted = doubted.filter(|_| !self.accept_risk);
        if let Some(error) = judgement.refused.into_iter().chain(doubted).next() {
            return Err(error);
        }
        let mut plans = session.plans().clone();
        // A request may come as soon as there are probes.
        let units = resolved.iter().find_map(|profile| profile.units.clone());
        self.units.add(waiting.program.file.clone(), units);
        let probes = plan_probes(&resolved, &mut plans)?;
        session.probe_program(
            probes,
            plans,
            &waiting.program.file,
            waiting.pid,
            waiting.since_ns,
        )?;
        let warnings = resolved.iter().flat_map(|profile| &profile.warnings);
        for warning in judgement.warnings.iter().chain(warnings) {
            self.notices.warn(warning);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_nobody_runs_is_over_after_a_while() {
        let all = [1, 2, 3].map(|inode| Identity::Inode(8, inode));
        let [_, new, rare] = all.each_ref();
        let begun = Instant::now();
        let mut unused = Unused::default();
        let mut over = |minutes: u64, run: &[&Identity]| {
            let run: BTreeSet<Identity> = run.iter().map(|file| (*file).clone()).collect();
            let now = begun + Duration::from_secs(60 * minutes);
            unused.over(all.iter(), &run, now)
        };
        assert_eq!(over(0, &[new]), []);
        assert_eq!(over(9, &[new, rare]), []);
        assert_eq!(over(10, &[new]), all[..1]);
        // Who knows it still gets it again after as long.
        assert_eq!(over(11, &[new]), []);
        assert_eq!(over(20, &[new]), all[2..]);
        assert_eq!(over(21, &[new]), all[..1]);
    }

    #[test]
    fn a_program_that_lost_its_probes_has_none_by_its_name() {
        // The kernel keeps 15 bytes: of the letter before the dash the first one.
        const NAME: &str = "fourteen-bytes\u{e9}-server";
        let mut comm = Comm::from(NAME);
        comm.0[15] = 0;
        let [old, new] = [1, 2].map(|inode| Identity::Inode(8, inode));
        let mut probed = Probed::default();
        for (file, since_ns) in [(&old, 5), (&new, 7)] {
            let program = Program {
                name: NAME.to_owned(),
                file: file.clone(),
            };
            probed.add(program, since_ns);
        }
        assert!(!probed.has_name(&comm, 4) && probed.has_name(&comm, 5));
        assert!(!probed.has_name(&Comm::from("fourteen-bytes"), 9));
        probed.forget(&old);
        assert!(!probed.has_name(&comm, 5) && probed.has_name(&comm, 7));
        probed.forget(&new);
        assert!(!probed.has_name(&comm, 9) && probed.files.is_empty());
    }
}
