//! The traced processes while a trace runs: what the kernel tells of them, and what is seen in `/proc`, in; who is
//! traced from now on, what they have mapped, and who has left, out.

use std::collections::BTreeSet;

use log::debug;
use reqtrace_common::loss::Loss;
use reqtrace_common::record::{ProcessRecord, process_event, reason};
use reqtrace_recording::{Comm, Event, Process, ProcessChange};

use super::Follower;
use crate::attach::{Identity, Session};
use crate::kernel::clock;
use crate::kernel::processes::{is_alive, parent};
use crate::tracer::guarding::Guarding;
use crate::tracer::processes::{Since, first_space};
use crate::tracer::resolved::Program;
use reqtrace_base::error::{Error, Result};
use reqtrace_base::frame::AddressSpace;

impl Follower<'_> {
    pub(super) fn process(&mut self, record: &ProcessRecord, session: &mut Session) -> Result<()> {
        debug!("process {}: event {}", record.tgid, record.event);
        let space = AddressSpace {
            tgid: record.tgid,
            exec_generation: record.exec_generation,
        };
        let mut process = Process {
            space,
            change: ProcessChange::Fork,
            parent: record.parent,
            time_ns: record.time_ns,
            name: String::new(),
        };
        match record.event {
            process_event::FORK => {
                let parent = self.processes.space(record.parent);
                session.begins(record.tgid);
                session.follow(record.tgid, record.time_ns);
                session.inherit(space, parent)?;
                self.names.symbols().inherit(space, parent);
                self.appear(process, Since::Fork(record.parent))?;
                self.look_at(space, true, session)?;
            }
            process_event::EXEC => {
                self.abandon(space, true, record.time_ns, session)?;
                process.change = ProcessChange::Exec;
                self.appear(process, Since::Program)?;
                self.look_at(space, true, session)?;
                // One that was found by its file may not have been through its exec then.
                let (comm, since_ns) = (Comm(record.comm), record.time_ns);
                let watched = self.watched.files();
                self.latecomers
                    .look(record.tgid, since_ns, comm, watched, session);
            }
            process_event::PROGRAM if self.watched.is_run_by(record.tgid) => {
                self.add(space, record.time_ns, session)?;
            }
            // Another file has that number.
            process_event::PROGRAM => session.forget(&BTreeSet::from([record.tgid]))?,
            process_event::MAPPED => self.look_at(space, true, session)?,
            // Whether other threads live on without the leader shows at the next look.
            _ => {
                process.change = ProcessChange::Exit;
                self.processes.ends(record.tgid, record.time_ns);
                self.stream.send(&Event::Process(&process))?;
            }
        }
        Ok(())
    }

    /// Traces processes that run a watched program and that the kernel did not tell of: they have begun before
    /// the program was watched.
    pub(super) fn find_watched(
        &mut self,
        session: &mut Session,
        guarding: &mut Guarding,
    ) -> Result<()> {
        if self.watched.is_empty() {
            return Ok(());
        }
        for pid in self.watched.look() {
            // The kernel's word of it may still be in the ring.
            if session.traces(pid) {
                continue;
            }
            if let Err(error) = session.trace(&[pid]) {
                debug!("process {pid} is not traced: {error}");
                session.forget(&BTreeSet::from([pid]))?;
                if self.without_room.insert(pid) {
                    self.stream.lost(Loss::ProcessTableFull.name(), 1)?;
                }
                continue;
            }
            self.without_room.remove(&pid);
            guarding.came(pid);
            self.add(first_space(pid), clock::monotonic_ns(), session)?;
        }
        self.without_room.retain(|pid| is_alive(*pid));
        Ok(())
    }

    /// Follows processes of whose fork the ring had no room to tell. The kernel traces them; what has left by now gives its place back.
    pub(super) fn find_unannounced(&mut self, session: &mut Session) -> Result<()> {
        let traced = session.traced()?;
        // What the kernel did tell of them.
        self.take(session, usize::MAX)?;
        let now_ns = clock::monotonic_ns();
        for (tgid, exec_generation) in traced {
            if self.processes.has_had(tgid) {
                continue;
            }
            // A file of the number of a watched one is another.
            let is_wanted = || {
                self.watched.is_empty()
                    || self.watched.is_run_by(tgid)
                    || parent(tgid).is_some_and(|parent| self.processes.has_had(parent))
            };
            if !is_alive(tgid) || !is_wanted() {
                session.forget(&BTreeSet::from([tgid]))?;
                continue;
            }
            debug!("process {tgid} is followed from now on: no record of its fork came");
            let space = AddressSpace {
                tgid,
                exec_generation,
            };
            let process = Process {
                space,
                change: ProcessChange::Start,
                parent: 0,
                time_ns: now_ns,
                name: String::new(),
            };
            session.begins(tgid);
            session.follow(tgid, now_ns);
            self.appear(process, Since::Program)?;
            self.look_at(space, true, session)?;
            self.latecomers.look_for(tgid, now_ns, |_| false, session);
        }
        Ok(())
    }

    /// Makes the changes that were asked for.
    pub(super) fn change(&mut self, session: &mut Session, guarding: &mut Guarding) -> Result<()> {
        while let Some(change) = self.changes.next() {
            let pid = change.pid;
            let is_traced = self.processes.alive().contains(&pid) || session.traces(pid);
            let refused = |why: &str| Err(Error::usage(format!("process {pid} {why}")));
            let answer = match (change.is_in, is_traced) {
                (true, true) => refused("is traced already"),
                (true, false) if !is_alive(pid) => refused("is not there"),
                (true, false) => self.add_running(pid, session, guarding),
                (false, true) => self.remove(pid, session, guarding),
                (false, false) => refused("is not traced"),
            };
            change.answer(answer);
        }
        Ok(())
    }

    /// Traces a process from now on that the kernel knows nothing of.
    fn add_running(
        &mut self,
        pid: u32,
        session: &mut Session,
        guarding: &mut Guarding,
    ) -> Result<()> {
        session.trace(&[pid])?;
        guarding.came(pid);
        self.add(first_space(pid), clock::monotonic_ns(), session)
    }

    /// Traces a process no longer, although it lives.
    fn remove(&mut self, pid: u32, session: &mut Session, guarding: &mut Guarding) -> Result<()> {
        debug!("process {pid} is taken out");
        guarding.left(session, &BTreeSet::from([pid]));
        let program = Program::of(pid);
        let stills = session.dismiss(pid)?;
        // What it did before comes before what it has open.
        self.drain(session)?;
        self.are_open(stills)?;
        self.stream.send(&Event::Process(&Process {
            space: self.processes.space(pid),
            change: ProcessChange::Exit,
            parent: 0,
            time_ns: clock::monotonic_ns(),
            name: String::new(),
        }))?;
        self.latecomers.forget(pid);
        self.processes.forget(pid);
        session.forget(&BTreeSet::from([pid]))?;
        let Some(Program { file, .. }) = program else {
            return Ok(());
        };
        let alive = self.processes.alive().iter();
        let is_run = alive
            .filter_map(|&pid| Program::of(pid))
            .any(|other| other.file == file);
        if !is_run && !self.watched.files().contains(&file) {
            self.forget_program(&file, session)?;
        }
        Ok(())
    }

    /// Nobody who is traced runs this program any more: its probes go.
    pub(super) fn forget_program(
        &mut self,
        program: &Identity,
        session: &mut Session,
    ) -> Result<()> {
        // What its markers have counted.
        self.window(session, clock::monotonic_ns(), false)?;
        session.forget_program(program)?;
        self.latecomers.probed.forget(program);
        self.latecomers.units.forget(program);
        Ok(())
    }

    /// A process that ran before, or begins to run a watched program, is traced since then, `CLOCK_MONOTONIC` ns.
    fn add(&mut self, space: AddressSpace, since_ns: u64, session: &mut Session) -> Result<()> {
        let pid = space.tgid;
        debug!("process {pid} is traced from now on");
        if self.processes.has_had(pid) {
            // Its number was that of another one, of which something may not be named yet.
            self.window(session, clock::monotonic_ns(), false)?;
            self.names.forget(&BTreeSet::from([pid]));
        }
        session.begins(pid);
        let process = Process {
            space,
            change: ProcessChange::Start,
            parent: 0,
            time_ns: since_ns,
            name: self.watched.name(),
        };
        self.appear(process, Since::Program)?;
        self.look_at(space, true, session)?;
        self.latecomers.look_for(pid, since_ns, |_| true, session);
        Ok(())
    }

    /// Libraries may have been loaded since: their unwind tables and names are wanted.
    pub(super) fn refresh(&mut self, is_whole: bool, session: &mut Session) -> Result<()> {
        let alive = self.processes.alive().iter();
        let spaces: Vec<_> = alive.map(|&pid| self.processes.space(pid)).collect();
        for space in spaces {
            self.look_at(space, is_whole, session)?;
        }
        Ok(())
    }

    /// What is mapped now may be gone by the report: files are opened at once.
    pub(super) fn look_at(
        &mut self,
        space: AddressSpace,
        is_asked: bool,
        session: &mut Session,
    ) -> Result<()> {
        if let Some(mapped) = self.processes.newly_mapped(space.tgid, is_asked) {
            session.map(space, &mapped)?;
            self.names.symbols().map(space, &mapped);
        }
        Ok(())
    }

    /// A process is traced from now on, or has a new name.
    pub(super) fn appear(&mut self, mut process: Process, since: Since) -> Result<()> {
        let name = self.processes.appear(process.space, since);
        if !name.is_empty() {
            name.clone_into(&mut process.name);
        }
        self.stream.send(&Event::Process(&process))
    }

    /// Forgets processes that have left. A server that forks for each connection fills the kernel's
    /// tables otherwise.
    pub(super) fn let_go(
        &mut self,
        of_all: bool,
        session: &mut Session,
        guarding: &mut Guarding,
    ) -> Result<()> {
        let gone = self.processes.let_go(of_all);
        if gone.is_empty() {
            return Ok(());
        }
        let pids: BTreeSet<u32> = gone.keys().copied().collect();
        guarding.left(session, &pids);
        let now_ns = clock::monotonic_ns();
        for (&pid, ended_ns) in &gone {
            self.abandon(first_space(pid), false, ended_ns.unwrap_or(now_ns), session)?;
        }
        session.forget(&pids)
    }

    /// Requests of a process that nobody will go on with end here: those before its exec, or all.
    pub(super) fn abandon(
        &mut self,
        space: AddressSpace,
        is_exec: bool,
        at_ns: u64,
        session: &mut Session,
    ) -> Result<()> {
        if !self.has_keys {
            return Ok(());
        }
        let generation = is_exec.then_some(space.exec_generation);
        let why = match is_exec {
            true => reason::EXEC,
            false => reason::THREAD_DIED,
        };
        for still in session.abandoned(space.tgid, generation, at_ns, why)? {
            self.ended_by_us(still, session)?;
        }
        Ok(())
    }
}
