//! Programs in another process: what a trace does with them in; questions to the attacher, which has them, out. What it is asked for is
//! undone when there is no answer.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;

use reqtrace_recording::ProgramCost;

use super::client::{Attacher, Failure, other_answer};
use super::message::{self, Answer, Denied, Loaded, Request};
use crate::attach::{CpuEngine, Engine, Link, Place, Programs, Refused};
use reqtrace_base::error::{Error, Result};

/// What is attached, and the places of which it is not.
type Attached = (Vec<Link>, Vec<(u64, Denied)>);

/// Programs that the attacher has loaded.
pub(super) struct Handed {
    pub(super) attacher: Arc<Attacher>,
    pub(super) object: u64,
    pub(super) loaded: Loaded,
}

impl Handed {
    /// Asks for something that is attached under this number.
    fn attached(
        &self,
        links: u64,
        request: &Request,
        files: &[BorrowedFd<'_>],
    ) -> Result<Attached, Failure> {
        // It is taken out also when there is no answer.
        let lease = Lease {
            attacher: Arc::clone(&self.attacher),
            links,
        };
        match self.attacher.request(request, files)? {
            (Answer::Attached(refused), _) => Ok((vec![Link::of(lease)], refused)),
            _ => Err(Failure::Silent(other_answer())),
        }
    }
}

impl Programs for Handed {
    fn engine(&self) -> Engine {
        self.loaded.engine
    }

    fn sets_by_perf_events(&self) -> bool {
        self.loaded.sets_by_perf_events
    }

    fn set(&mut self, program: &str, places: &[Place<'_>]) -> Result<(Vec<Link>, Vec<Refused>)> {
        let mut files: Vec<((u64, u64), Arc<File>)> = Vec::new();
        let mut asked = Vec::with_capacity(places.len());
        let cannot = |error| Error::failed("a file cannot be opened").because(error);
        for place in places {
            let inode = place.object.inode().map_err(cannot)?;
            let known = files.iter().position(|(known, _)| *known == inode);
            let file = match known {
                Some(file) => file,
                None => {
                    files.push((inode, place.object.open().map_err(cannot)?));
                    files.len() - 1
                }
            };
            asked.push(message::Place {
                file: u8::try_from(file).map_err(|_| Error::failed("too many files at a time"))?,
                file_offset: place.file_offset,
                counter: place.counter,
                on_return: place.on_return,
                process: place.process,
                cookie: place.cookie,
            });
        }
        let links = self.attacher.number();
        let request = Request::Set {
            object: self.object,
            links,
            program: program.to_owned(),
            places: asked,
        };
        let files: Vec<BorrowedFd<'_>> = files.iter().map(|(_, file)| file.as_fd()).collect();
        let attached = self.attached(links, &request, &files);
        let (links, refused) = attached.map_err(Failure::error)?;
        let refused = refused.into_iter().map(|(index, denied)| Refused {
            index: index as usize,
            error: denied.into(),
        });
        Ok((links, refused.collect()))
    }

    fn attach_tracepoints(&mut self) -> Result<Vec<Link>> {
        let object = self.object;
        let links = self.attacher.number();
        let attached = self.attached(links, &Request::Attach { object, links }, &[]);
        Ok(attached.map_err(Failure::error)?.0)
    }

    fn watch_threads(&mut self) -> Result<()> {
        let object = self.object;
        let request = Request::WatchThreads { object };
        let answer = self.attacher.request(&request, &[]);
        answer.map_err(Failure::error)?;
        Ok(())
    }

    fn sample(&mut self, engine: CpuEngine, rate_hz: u32) -> io::Result<Vec<Link>> {
        let links = self.attacher.number();
        let request = Request::Sample {
            object: self.object,
            links,
            engine,
            rate_hz,
        };
        Ok(self.attached(links, &request, &[])?.0)
    }

    fn costs(&self) -> Result<Vec<ProgramCost>> {
        let object = self.object;
        let answer = self.attacher.request(&Request::Costs { object }, &[]);
        match answer.map_err(Failure::error)? {
            (Answer::Costs(costs), _) => Ok(costs),
            _ => Err(Failure::Silent(other_answer()).error()),
        }
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        let object = self.object;
        // When nobody answers nothing is loaded any more.
        let _ = self.attacher.request(&Request::Unload { object }, &[]);
    }
}

/// What the attacher holds attached.
struct Lease {
    attacher: Arc<Attacher>,
    links: u64,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let links = self.links;
        let _ = self.attacher.request(&Request::Detach { links }, &[]);
    }
}
