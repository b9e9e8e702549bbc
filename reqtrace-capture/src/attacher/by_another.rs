//! A process without privileges: the socket of one that has them in; who opens and attaches from then on out.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use reqtrace_binary::procfs::{self, Entry, Opener};

use super::client::{Attacher, Failure, other_answer};
use super::handed::Handed;
use super::message::{Answer, Loaded, Request};
use crate::attach::{
    CountPlan, Elsewhere, Engine, GracePeriod, LoadPlan, Maps, Programs, SelfTest, let_attach,
};
use reqtrace_base::error::Result;

static ATTACHER: OnceLock<Arc<Attacher>> = OnceLock::new();

/// From now on this process attaches nothing, and opens nothing of others, by itself: the process at the other end of this
/// socket does, which runs [`super::serve`].
pub fn attach_by(control: UnixStream) -> Arc<Attacher> {
    let attacher = ATTACHER.get_or_init(|| Arc::new(Attacher::at(control)));
    procfs::let_open(ByAnother(Arc::clone(attacher)));
    let_attach(ByAnother(Arc::clone(attacher)));
    Arc::clone(attacher)
}

/// Opens and attaches through it.
struct ByAnother(Arc<Attacher>);

impl ByAnother {
    /// What was loaded under this number.
    fn loaded(&self, object: u64, request: &Request) -> Result<(Handed, Vec<OwnedFd>)> {
        // It is given up also when there is no answer.
        let mut handed = Handed {
            attacher: Arc::clone(&self.0),
            object,
            loaded: Loaded {
                engine: Engine::PerfEvents,
                sets_by_perf_events: true,
                names: Vec::new(),
            },
        };
        match self.0.request(request, &[]).map_err(Failure::error)? {
            (Answer::Loaded(loaded), files) => {
                handed.loaded = loaded;
                Ok((handed, files))
            }
            _ => Err(Failure::Silent(other_answer()).error()),
        }
    }
}

impl Opener for ByAnother {
    fn open(&self, pid: u32, entry: Entry) -> io::Result<File> {
        self.0.open(&Request::Open { pid, entry }).map(File::from)
    }

    fn executable(&self, pid: u32) -> io::Result<(PathBuf, (u64, u64))> {
        match self.0.request(&Request::Executable { pid }, &[])? {
            (Answer::Runs(path, inode), _) => Ok((path, inode)),
            _ => Err(other_answer()),
        }
    }

    fn program(&self, path: &Path) -> io::Result<(u64, u64)> {
        match self.0.request(&Request::Program(path.to_owned()), &[])? {
            (Answer::Inode(device, inode), _) => Ok((device, inode)),
            _ => Err(other_answer()),
        }
    }

    fn kernel_symbols(&self) -> io::Result<File> {
        self.0.open(&Request::KernelSymbols).map(File::from)
    }
}

impl Elsewhere for ByAnother {
    fn load(&self, plan: &LoadPlan) -> Result<(Box<dyn Programs>, Maps, GracePeriod)> {
        let (object, plan) = (self.0.number(), Box::new(plan.clone()));
        let (programs, mut maps) = self.loaded(object, &Request::Load { object, plan })?;
        let grace = GracePeriod::handed(maps.pop(), maps.pop());
        let grace = grace.ok_or_else(|| Failure::Silent(other_answer()).error())?;
        let maps = Maps::handed(programs.loaded.names.iter().cloned().zip(maps))?;
        Ok((Box::new(programs), maps, grace))
    }

    fn count(&self, plan: CountPlan) -> Result<(Box<dyn Programs>, Maps)> {
        let object = self.0.number();
        let (programs, maps) = self.loaded(object, &Request::Count { object, plan })?;
        let maps = Maps::handed(programs.loaded.names.iter().cloned().zip(maps))?;
        Ok((Box::new(programs), maps))
    }

    fn self_test(&self) -> Result<SelfTest> {
        let answer = self.0.request(&Request::SelfTest, &[]);
        match answer.map_err(Failure::error)? {
            (Answer::SelfTest(found), _) => Ok(*found),
            _ => Err(Failure::Silent(other_answer()).error()),
        }
    }

    fn come_first(&self, tid: u32, first: bool) -> io::Result<()> {
        self.0.request(&Request::ComeFirst { tid, first }, &[])?;
        Ok(())
    }
}
