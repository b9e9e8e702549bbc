//! Programs that traced processes begin to run: execs in; probes in those that a profile is made for, out.
//!
//! A master that runs its servers as programs of their own is so followed by program: each program is resolved
//! once, when the first process of it begins, in a thread of its own. Its later processes have the probes of
//! its executable from their start.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

use log::{debug, info};

use super::ahead::Ahead;
use super::resolved::resolve_one;
use crate::attach::{Identity, LabelTable, MarkerTable, ProbePlan, Session, path_of, safety};
use crate::events::Notices;
use crate::kernel::processes::is_alive;
use reqtrace_base::error::{Error, Result};
use reqtrace_profile::Profiles;
use reqtrace_resolve::{Process, ResolvedProfile};

/// The first pause before a program is looked at again: it may load the library that has its markers. Each
/// pause is twice the one before.
const PAUSE: Duration = Duration::from_millis(50);
/// Looks before it is given up: 6 s.
const LOOKS: u32 = 8;

/// What a process runs.
pub(super) struct Program {
    /// File name of the executable.
    pub(super) name: String,
    pub(super) file: Identity,
}

impl Program {
    /// What it runs now; `None` when it has left.
    pub(super) fn of(pid: u32) -> Option<Self> {
        let link = format!("/proc/{pid}/exe");
        let path = fs::read_link(&link).ok()?;
        let path = path.to_string_lossy();
        let path = path.strip_suffix(" (deleted)").unwrap_or(&path);
        Some(Self {
            name: path.rsplit('/').next().unwrap_or(path).to_owned(),
            file: Identity::of(Path::new(&link)),
        })
    }
}

/// A path that opens a process's executable also when it has left, and the file that the path names.
pub(super) fn keep(process: &mut Process) -> Option<File> {
    let file = File::open(&process.executable.open).ok()?;
    let kept = path_of(&file);
    let own = std::mem::replace(&mut process.executable.open, kept.clone());
    let objects = process.objects.iter_mut();
    for object in objects.filter(|object| object.open == own) {
        object.open.clone_from(&kept);
    }
    Some(file)
}

/// A process with its executable, which stays open.
fn opened(pid: u32) -> Result<(Process, File)> {
    let mut process = Process::open(pid)?;
    let file =
        keep(&mut process).ok_or_else(|| Error::failed("its executable cannot be opened"))?;
    Ok((process, file))
}

/// What is known of programs, and the processes whose program is being resolved.
pub(super) struct Latecomers {
    pub(super) profiles: Profiles,
    /// As the kernel has them.
    pub(super) labels: Option<LabelTable>,
    /// As the kernel has them.
    pub(super) markers: MarkerTable,
    pub(super) accept_risk: bool,
    pub(super) notices: Notices,
    /// Programs whose probes are set.
    pub(super) known: BTreeSet<Identity>,
    /// Processes of which no request is seen, although a profile is made for their program.
    pub(super) unprobed: u64,
    pub(super) waiting: Vec<Waiting>,
    /// Files that paths of probes name by their descriptors.
    pub(super) _kept: Vec<File>,
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
    /// Its executable.
    file: File,
    looks: u32,
    next: Instant,
    work: Option<Ahead<Result<ResolvedProfile>>>,
}

impl Waiting {
    fn look(&mut self) {
        if let Ok(now) = opened(self.pid) {
            (self.process, self.file) = now;
        }
    }
}

impl Latecomers {
    /// A process runs another program since then, `CLOCK_MONOTONIC` ns: one that is wanted in any case, or only
    /// if a profile is made for it.
    pub(super) fn look(&mut self, pid: u32, since_ns: u64, is_wanted: bool, session: &mut Session) {
        self.waiting.retain(|waiting| waiting.pid != pid);
        let Some(program) = Program::of(pid) else {
            return;
        };
        if !is_wanted && self.profiles.made_for(&program.name).is_none() {
            return;
        }
        if self.known.contains(&program.file) {
            session.follow(pid, since_ns);
            return;
        }
        let (process, file) = match opened(pid) {
            Ok(opened) => opened,
            Err(error) => {
                debug!(
                    "process {pid} ({}) left without probes: {error}",
                    program.name
                );
                self.unprobed += 1;
                return;
            }
        };
        self.waiting.push(Waiting {
            pid,
            since_ns,
            program,
            process,
            file,
            looks: 0,
            next: Instant::now(),
            work: None,
        });
        self.step(session);
    }

    /// Processes of which no request is seen, although a profile is made for their program: also those that
    /// still wait.
    pub(super) fn unprobed(&self) -> u64 {
        self.unprobed + self.waiting.len() as u64
    }

    /// Whether a program is being resolved: the next step is due soon.
    pub(super) fn is_busy(&self) -> bool {
        self.waiting.iter().any(|waiting| waiting.work.is_some())
    }

    /// Goes on with those that wait.
    pub(super) fn step(&mut self, session: &mut Session) {
        for mut waiting in std::mem::take(&mut self.waiting) {
            let (pid, file) = (waiting.pid, &waiting.program.file);
            if self.known.contains(file) {
                match is_alive(pid) {
                    true => session.follow_late(pid, waiting.since_ns),
                    false => self.unprobed += 1,
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
                    self.unprobed += u64::from(!is_alive);
                    self.known.insert(waiting.program.file);
                }
                Err(error) if !is_alive(pid) => {
                    debug!("process {pid} ({name}) left without probes: {error}");
                    self.unprobed += 1;
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
        let (mut labels, mut markers) = (self.labels.clone(), self.markers.clone());
        let plans = ProbePlan::of(&resolved, labels.as_mut(), &mut markers)?;
        session.probe_program(
            plans,
            (labels.as_ref(), &markers),
            &waiting.program.file,
            waiting.pid,
            waiting.since_ns,
        )?;
        (self.labels, self.markers) = (labels, markers);
        let warnings = resolved.iter().flat_map(|profile| &profile.warnings);
        for warning in judgement.warnings.iter().chain(warnings) {
            self.notices.warn(warning);
        }
        Ok(())
    }
}
