//! The process that attaches: a configuration in; what of the processes that its rules are about only privileges give, out.
//!
//! It is this program again, started before anything else. It keeps its own copy of the configuration, which it reads
//! itself, and believes the tracing process nothing: whether a process is one of a rule's, it looks up.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

use reqtrace_base::error::{Error, Result};
use reqtrace_capture::attacher::{Attacher, Owner, attach_by, serve};
use reqtrace_capture::kernel::memory::share_allocators;
use reqtrace_capture::kernel::privileges;
use reqtrace_capture::socket::Refusal;

use reqtrace_profile::{CHEAP, Origin, Profile};
use rustix::process::geteuid;
use rustix::thread::{
    CapabilitySets, capabilities, configure_capability_in_ambient_set, set_capabilities, set_name,
};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::config::{Config, Profiles};
use crate::processes::{File, Id, Seen, executable_of, id_of, see};
use crate::rights::keep_for_attaching;
use crate::rules::{Verdict, verdict};
use crate::worker::{SELF, close_inherited, ignore_signals};

/// What is known of a process holds so long.
const FRESH: Duration = Duration::from_secs(2);
/// Ancestors that are looked at: a session traces what its processes start.
const MOST_ANCESTORS: usize = 16;
/// Processes of which something is known.
const MOST_KNOWN: usize = 10_000;

/// What the agent asks beside what capture does.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Question {
    /// How rules see a process.
    See(u32),
    /// The configuration as it is now, and its profiles.
    Read,
    /// To go by what was read last.
    Take,
}

/// An answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Reply {
    Seen(Option<Seen>),
    Read(Result<Box<Texts>, Refusal>),
    Taken,
}

/// A configuration and its profiles, which are root's to read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Texts {
    configuration: String,
    /// By the name that the configuration has for it, the path and the text of each that is a file.
    profiles: BTreeMap<String, (PathBuf, String)>,
}

impl Texts {
    /// Reads them.
    fn read(path: &Path, profiles: Profiles<'_>) -> Result<(Config, Self)> {
        let texts = RefCell::new(Self {
            configuration: Config::text(path)?,
            profiles: BTreeMap::new(),
        });
        let load = |name: &str| {
            let profile = profiles(name)?;
            if let Origin::File(path) = &profile.origin {
                let text = fs::read_to_string(path).map_err(|error| {
                    Error::usage(format!("cannot read the profile {}", path.display()))
                        .because(error)
                })?;
                let file = (path.clone(), text);
                texts.borrow_mut().profiles.insert(name.to_owned(), file);
            }
            Ok(profile)
        };
        let text = texts.borrow().configuration.clone();
        let config = Config::parse(&text, &path.display().to_string(), &load)?;
        Ok((config, texts.into_inner()))
    }

    /// What they say.
    fn parse(&self, path: &Path, profiles: Profiles<'_>) -> Result<Config> {
        let load = |name: &str| {
            let Some((path, text)) = self.profiles.get(name) else {
                return profiles(name);
            };
            let shown = path.display().to_string();
            let profile = Profile::parse(text, &shown, Origin::File(path.clone()))?;
            match name.ends_with(CHEAP) {
                true => profile.cheap(),
                false => Ok(profile),
            }
        };
        Config::parse(&self.configuration, &path.display().to_string(), &load)
    }
}

/// An attacher that runs.
#[derive(Debug)]
pub(crate) struct Attaching {
    pub(crate) client: Arc<Attacher>,
    pub(crate) pid: u32,
    ended: Receiver<io::Result<ExitStatus>>,
    /// Somebody waits for its end.
    pub(crate) has_ended: Arc<Notify>,
}

/// One that was started.
pub(crate) struct Started {
    child: Child,
    control: UnixStream,
}

impl Started {
    /// Starts it: this program again, with these arguments, and with all privileges of this one.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub(crate) fn start(arguments: &[&str]) -> Result<Self> {
        let cannot = |error: io::Error| {
            Error::failed("the process that attaches could not begin").because(error)
        };
        let (control, its) = UnixStream::pair().map_err(cannot)?;
        let mut command = Command::new(SELF);
        let kept = [
            "RUST_BACKTRACE",
            "RUST_LOG",
            "REQTRACE_HIDE",
            "REQTRACE_BTF",
        ];
        command
            .arg0("reqtrace")
            .args(arguments)
            .env_clear()
            .envs(std::env::vars_os().filter(|(name, _)| kept.iter().any(|kept| name == kept)))
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(its)))
            .stdout(Stdio::null());
        if !geteuid().is_root() {
            // SAFETY: it only makes system calls.
            unsafe { command.pre_exec(pass_capabilities_on) };
        }
        let child = command.spawn().map_err(cannot)?;
        Ok(Self { child, control })
    }

    /// Its number.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// From now on it attaches for this process.
    ///
    /// # Errors
    ///
    /// When it cannot be watched.
    pub(crate) fn attach_for_us(self) -> Result<Attaching> {
        let Self { mut child, control } = self;
        let pid = child.id();
        let (say, ended) = sync_channel(1);
        let has_ended = Arc::new(Notify::new());
        let notify = Arc::clone(&has_ended);
        let thread = Builder::new().name("reqtrace-attach".to_owned());
        let watched = thread.spawn(move || {
            // It is received until the agent ends.
            let _ = say.send(child.wait());
            notify.notify_one();
        });
        watched.map_err(|error| {
            Error::failed("the process that attaches cannot be watched").because(error)
        })?;
        Ok(Attaching {
            client: attach_by(control),
            pid,
            ended,
            has_ended,
        })
    }
}

/// Else a user that is not root has none in the program that is started.
fn pass_capabilities_on() -> io::Result<()> {
    let own = capabilities(None)?;
    let sets = CapabilitySets {
        inheritable: own.permitted,
        ..own
    };
    set_capabilities(None, sets)?;
    for capability in own.permitted.iter() {
        // One that the bounding set has not is not passed on.
        let _ = configure_capability_in_ambient_set(capability, true);
    }
    Ok(())
}

impl Attaching {
    /// Has it read the configuration again. It goes by the one that it had until it is told to take this.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub(crate) fn read(&self, path: &Path, profiles: Profiles<'_>) -> Result<Config> {
        match question(&self.client, Question::Read).map_err(no_answer)? {
            Reply::Read(Ok(texts)) => texts.parse(path, profiles),
            Reply::Read(Err(refusal)) => Err(refusal.into_error()),
            _ => Err(no_answer(io::ErrorKind::InvalidData.into())),
        }
    }

    /// Has it go by the configuration that it has read.
    ///
    /// # Errors
    ///
    /// When it does not answer.
    pub(crate) fn take(&self) -> Result<()> {
        question(&self.client, Question::Take).map_err(no_answer)?;
        Ok(())
    }

    /// Why it has ended.
    pub(crate) fn failure(self) -> Error {
        let how = match self.ended.recv() {
            Ok(Ok(status)) => status.to_string(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "nobody watches it".to_owned(),
        };
        Error::failed(format!(
            "the process that attaches has ended: {how}; nothing is traced without it"
        ))
        .next("start the agent again, as systemd does; its last words are above")
    }
}

fn no_answer(error: io::Error) -> Error {
    Error::failed("the process that attaches does not read the configuration").because(error)
}

fn question(attacher: &Attacher, question: Question) -> io::Result<Reply> {
    let asked = postcard::to_allocvec(&question).map_err(io::Error::other)?;
    let answer = attacher.ask(asked)?;
    postcard::from_bytes(&answer).map_err(io::Error::other)
}

/// How rules see a process; `None` when it is none of theirs to see.
///
/// # Errors
///
/// When there is no answer.
pub(crate) fn ask(attacher: &Attacher, pid: u32) -> io::Result<Option<Seen>> {
    match question(attacher, Question::See(pid))? {
        Reply::Seen(seen) => Ok(seen),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Runs the process that attaches, for the one at the other end of standard input, until that ends.
///
/// # Errors
///
/// When nobody is there, and what is wrong with the configuration.
pub fn attacher(
    path: &Path,
    profiles: &'static (dyn Fn(&str) -> Result<Profile> + Sync),
) -> Result<()> {
    // A name is for people: none is no failure.
    let _ = set_name(c"reqtrace-attach");
    ignore_signals();
    close_inherited();
    share_allocators();
    let alone = |error: io::Error| {
        Error::usage("nobody is at the other end of standard input")
            .because(error)
            .next("this command is a part of `reqtrace agent`, which starts it")
    };
    let control = io::stdin().as_fd().try_clone_to_owned().map_err(alone)?;
    let control = UnixStream::from(control);
    control.peer_addr().map_err(alone)?;
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

    /// Whether a rule traces it, or one of its ancestors, and which one it is; `None` when it has left.
    fn is_traced(&self, pid: u32) -> Option<(bool, Id)> {
        // An exec makes another of it.
        let key = (id_of(pid)?, executable_of(pid)?);
        let fresh =
            |(is_traced, since): &(bool, Instant)| (since.elapsed() < FRESH).then_some(*is_traced);
        if let Some(is_traced) = lock(&self.known).get(&key).and_then(fresh) {
            return Some((is_traced, key.0));
        }
        let (id, seen) = see(pid)?;
        let key = (id, seen.file);
        let is_traced = is_of_a_rule(&self.config(), id, seen, see);
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
            Question::See(pid) => Reply::Seen(see(pid).map(|(_, seen)| seen)),
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
    fn a_configuration_comes_with_the_profiles_that_only_root_reads() {
        let folder = tempfile::tempdir().unwrap();
        let (path, file) = (folder.path().join("a.toml"), folder.path().join("p.toml"));
        let text = "[profile]\nname = \"own\"\n[[request]]\nname = \"r\"\nbegin = { function = \"f\" }\nend = { function = \"f\", at = \"return\" }\n";
        fs::write(&file, text).unwrap();
        let rule = |service: &str, profile: &str| {
            format!(
                "[[rule]]\nmatch = {{ exe = \"/x\" }}\nservice = \"{service}\"\nprofile = \"{profile}\"\n"
            )
        };
        let shown = file.display().to_string();
        fs::write(&path, rule("a", &shown) + &rule("b", "mysql")).unwrap();
        let load = |name: &str| match name.contains('/') {
            true => reqtrace_profile::builtin::from_file(Path::new(name)),
            false => reqtrace_profile::builtin::built_in(name).unwrap().parse(),
        };
        let (config, texts) = Texts::read(&path, &load).unwrap();
        assert_eq!(texts.profiles.keys().collect::<Vec<_>>(), [&shown]);
        fs::remove_file(&file).unwrap();
        assert_eq!(texts.parse(&path, &load).unwrap(), config);
        assert!(Texts::read(&path, &load).is_err());
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
