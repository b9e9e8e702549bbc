//! The process that attaches, and its rules: a configuration and questions of the tracing process in; what it may have out.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use reqtrace_base::error::Result;
use reqtrace_capture::attacher::{Owner, serve};
use reqtrace_capture::kernel::memory::share_allocators;
use reqtrace_capture::kernel::privileges;
use reqtrace_capture::socket::Refusal;
use reqtrace_profile::Profile;

use super::texts::Texts;
use super::{Question, Reply};
use crate::config::Config;
use crate::processes::{File, Id, OfHost, Seen, executable_of, id_of, see};
use crate::rights::keep_for_attaching;
use crate::rules::{Verdict, verdict};
use crate::worker::{alone, begin_as};

/// What is known of a process holds so long.
const FRESH: Duration = Duration::from_secs(2);
/// Ancestors that are looked at: a session traces what its processes start.
const MOST_ANCESTORS: usize = 16;
/// Processes of which something is known.
const MOST_KNOWN: usize = 10_000;

/// Runs the process that attaches, for the one at the other end of standard input, until that ends.
///
/// # Errors
///
/// When nobody is there, and what is wrong with the configuration.
pub fn attacher(
    path: &Path,
    profiles: &'static (dyn Fn(&str) -> Result<Profile> + Sync),
) -> Result<()> {
    let control = begin_as(c"reqtrace-attach")?;
    control.peer_addr().map_err(alone)?;
    share_allocators();
    privileges::check()?;
    keep_for_attaching()?;
    let config = Config::read(path, profiles)?;
    serve(
        &control,
        Rules {
            path: path.to_owned(),
            profiles,
            config: Mutex::new(Arc::new(config)),
            read: Mutex::default(),
            known: Mutex::default(),
            of_host: Mutex::default(),
        },
    )
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether one that runs this file is of a rule's processes, since when that is known.
type Known = BTreeMap<(Id, File), (bool, Instant)>;

/// The rules, as this process has read them.
struct Rules {
    path: PathBuf,
    profiles: &'static (dyn Fn(&str) -> Result<Profile> + Sync),
    config: Mutex<Arc<Config>>,
    /// What was read last, and is not taken yet.
    read: Mutex<Option<Config>>,
    known: Mutex<Known>,
    /// Who runs a file of this machine, whatever the rules are.
    of_host: Mutex<OfHost>,
}

impl Rules {
    fn config(&self) -> Arc<Config> {
        Arc::clone(&lock(&self.config))
    }

    fn read(&self) -> Result<Box<Texts>> {
        let (config, texts) = Texts::read(&self.path, self.profiles)?;
        *lock(&self.read) = Some(config);
        Ok(Box::new(texts))
    }

    fn take(&self) {
        if let Some(config) = lock(&self.read).take() {
            *lock(&self.config) = Arc::new(config);
            lock(&self.known).clear();
        }
    }

    /// A process as it is now, with what was known of it.
    fn see(&self, pid: u32) -> Option<(Id, Seen)> {
        let (id, seen) = see(pid)?;
        let seen = lock(&self.of_host).with(id, seen, Instant::now());
        Some((id, seen))
    }

    /// Whether a rule traces it, or one of its ancestors, and which one it is; `None` when it has left.
    fn is_traced(&self, pid: u32) -> Option<(bool, Id)> {
        // An exec makes another of it.
        let key = (id_of(pid)?, executable_of(pid)?);
        let fresh =
            |(is_traced, since): &(bool, Instant)| (since.elapsed() < FRESH).then_some(*is_traced);
        if let Some(is_traced) = lock(&self.known).get(&key).and_then(fresh) {
            return Some((is_traced, key.0));
        }
        let (id, seen) = self.see(pid)?;
        let key = (id, seen.file);
        let is_traced = is_of_a_rule(&self.config(), id, seen, |pid| self.see(pid));
        let mut known = lock(&self.known);
        if known.len() >= MOST_KNOWN {
            known.clear();
        }
        known.insert(key, (is_traced, Instant::now()));
        Some((is_traced, id))
    }
}

/// The first of a process and its ancestors about which a rule says something decides.
fn is_of_a_rule(
    config: &Config,
    mut id: Id,
    mut seen: Seen,
    see: impl Fn(u32) -> Option<(Id, Seen)>,
) -> bool {
    for _ in 0..=MOST_ANCESTORS {
        match verdict(config, &seen) {
            Verdict::Traced(_) | Verdict::TooYoung(..) => return true,
            Verdict::NotWanted(_) => return false,
            Verdict::NoRule(_) => {}
        }
        match see(seen.parent) {
            // Another one may have its parent's number by now.
            Some((parent, of_parent)) if parent.start <= id.start => {
                (id, seen) = (parent, of_parent);
            }
            _ => return false,
        }
    }
    false
}

impl Owner for Rules {
    fn watches(&self, program: &Path) -> bool {
        let config = self.config();
        let mut traced = config.traced();
        traced.any(|(_, rule, _)| rule.matches.program() == Some(program))
    }

    fn allows(&self, pid: u32) -> io::Result<u64> {
        match self.is_traced(pid) {
            Some((true, id)) => Ok(id.start),
            Some((false, _)) => Err(io::Error::other(format!("no rule traces process {pid}"))),
            None => Err(io::Error::from_raw_os_error(libc::ENOENT)),
        }
    }

    fn answer(&self, question: &[u8]) -> io::Result<Vec<u8>> {
        let reply = match postcard::from_bytes(question).map_err(io::Error::other)? {
            Question::See(pid) => Reply::Seen(self.see(pid).map(|(_, seen)| seen)),
            Question::Read => Reply::Read(self.read().map_err(|error| Refusal::of(&error))),
            Question::Take => {
                self.take();
                Reply::Taken
            }
        };
        postcard::to_allocvec(&reply).map_err(io::Error::other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::parsed;

    fn seen(exe: &str, parent: u32) -> Seen {
        Seen {
            exe: exe.to_owned(),
            file: (1, 2),
            comm: "x".to_owned(),
            cgroup: "/".to_owned(),
            parent,
            is_host: true,
            age: Duration::from_secs(60),
        }
    }

    #[test]
    fn a_rule_is_about_what_its_processes_start() {
        let config = parsed(
            "[[rule]]\nmatch = { exe = \"/bin/not\" }\ntrace = false\n\
             [[rule]]\nmatch = { exe = \"/bin/master\" }\nservice = \"m\"\nprofile = \"mysql\"\n",
        );
        let all = BTreeMap::from([
            (1, seen("/sbin/init", 0)),
            (2, seen("/bin/master", 1)),
            (3, seen("/bin/sh", 2)),
            (4, seen("/bin/not", 2)),
            (5, seen("/bin/sh", 4)),
            (6, seen("/bin/sh", 6)),
        ]);
        let see = |pid| {
            let id = Id { pid, start: 1 };
            all.get(&pid).map(|seen| (id, seen.clone()))
        };
        let traced = all
            .iter()
            .filter(|(pid, seen)| {
                let id = Id {
                    pid: **pid,
                    start: 1,
                };
                is_of_a_rule(&config, id, (*seen).clone(), see)
            })
            .map(|(pid, _)| *pid);
        assert_eq!(traced.collect::<Vec<_>>(), [2, 3]);
        // Its parent's number is another's, which began later.
        let orphan = Id { pid: 3, start: 0 };
        assert!(!is_of_a_rule(&config, orphan, seen("/bin/sh", 2), see));
    }
}
