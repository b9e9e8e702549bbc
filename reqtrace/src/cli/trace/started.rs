//! A program that reqtrace starts: a command line in; a process that waits before its first
//! instruction, is let go once the probes are set, and whose end is reported, out.
//!
//! The child waits between `fork` and `exec`, on a pipe: nobody has to be its debugger, and the
//! kernel's programs know it before it is the program. Its libraries are asked from its own dynamic
//! linker, since it has not loaded them yet.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{FromRawFd as _, RawFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread::{self, JoinHandle};

use log::debug;

use crate::cli::signals;
use reqtrace_base::error::{Error, Result};
use reqtrace_capture::tracer::EndedBy;
use reqtrace_output::outputs::give_up_privileges;
use reqtrace_resolve::{ObjectFile, Objects, Process};

/// Bytes of a process's name that the kernel keeps.
const MAX_COMM: usize = 15;

/// A command line that was looked at, and not run.
pub(super) struct Prepared {
    words: Vec<OsString>,
    /// The program to trace, without links.
    path: PathBuf,
}

/// A started program.
pub(super) struct Started {
    pid: u32,
    path: PathBuf,
    /// Lets it begin; when it is dropped unused, the child ends.
    gate: Option<File>,
    executed: Receiver<io::Result<()>>,
    waiting: Option<JoinHandle<io::Result<ExitStatus>>>,
}

impl Started {
    /// Looks for the program in a command line: the first word that is an executable of a wanted
    /// name, else the first word.
    ///
    /// # Errors
    ///
    /// Usage errors: there is no such program, or it cannot be executed.
    pub(super) fn prepare(words: &[OsString], wanted: impl Fn(&str) -> bool) -> Result<Prepared> {
        let first = find(&words[0])?;
        let others = words[1..].iter().filter_map(|word| find(word).ok());
        let path = std::iter::once(first.clone())
            .chain(others)
            .find(|path| wanted(&name_of(path)))
            .unwrap_or(first);
        Ok(Prepared {
            words: words.to_vec(),
            path,
        })
    }
}

impl Prepared {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn executable_name(&self) -> String {
        name_of(&self.path)
    }

    /// Forks; the child waits.
    ///
    /// # Errors
    ///
    /// When there can be no more processes or descriptors.
    pub(super) fn start(self) -> Result<Started> {
        let cannot = |error: io::Error| {
            Error::failed(format!("{} could not be started", self.path.display())).because(error)
        };
        let (gate_inside, gate) = pipe().map_err(cannot)?;
        let (mut pid_out, pid_inside) = pipe().map_err(cannot)?;
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]);
        let [inside, outside, announce] =
            [&gate_inside, &gate, &pid_inside].map(std::os::fd::AsRawFd::as_raw_fd);
        // SAFETY: only calls that are safe between fork and exec in a program with threads; the
        // descriptors are the child's copies.
        unsafe { command.pre_exec(move || wait_inside(inside, outside, announce)) };
        let (sender, executed) = mpsc::channel();
        // `spawn` returns only after the exec.
        let waiting = thread::Builder::new()
            .spawn(move || {
                let spawned = command.spawn();
                // Waiting needs none, and the program has its own.
                give_up_privileges();
                drop((gate_inside, pid_inside));
                match spawned {
                    Ok(mut child) => {
                        // The receiver has gone when the trace failed meanwhile.
                        let _ = sender.send(Ok(()));
                        child.wait()
                    }
                    Err(error) => {
                        let kind = error.kind();
                        let _ = sender.send(Err(error));
                        Err(kind.into())
                    }
                }
            })
            .map_err(cannot)?;
        let mut pid = [0; 4];
        pid_out.read_exact(&mut pid).map_err(cannot)?;
        Ok(Started {
            pid: u32::from_ne_bytes(pid),
            path: self.path,
            gate: Some(gate),
            executed,
            waiting: Some(waiting),
        })
    }
}

impl Started {
    /// The process as it will be: its executable, and the libraries that it will begin with.
    pub(super) fn process(&self) -> Process {
        let executable = ObjectFile::at(&self.path);
        let mut objects = vec![executable.clone()];
        objects.extend(
            libraries(&self.path)
                .iter()
                .map(|path| ObjectFile::at(path)),
        );
        Process {
            pid: self.pid,
            comm: self.comm(),
            executable,
            has_begun: false,
            objects,
            opened: Objects::default(),
        }
    }

    fn comm(&self) -> String {
        let name = name_of(&self.path);
        let end = name.floor_char_boundary(MAX_COMM);
        name[..end].to_owned()
    }

    /// Lets it begin.
    ///
    /// # Errors
    ///
    /// When it cannot be executed.
    pub(super) fn release(&mut self) -> Result<()> {
        let path = self.path.display().to_string();
        let cannot = |error: io::Error| {
            Error::failed(format!("{path} could not be executed")).because(error)
        };
        if let Some(mut gate) = self.gate.take() {
            gate.write_all(&[1]).map_err(cannot)?;
        }
        match self.executed.recv() {
            Ok(executed) => executed.map_err(cannot),
            Err(_) => Err(cannot(io::ErrorKind::BrokenPipe.into())),
        }
    }

    /// After the trace: ends the program if that is due, waits for its end, and says how it was.
    ///
    /// # Errors
    ///
    /// When it ended badly by itself.
    pub(super) fn finish(mut self, ended_by: EndedBy, quiet: bool) -> Result<()> {
        let name = format!("{} (pid {})", self.comm(), self.pid);
        let signal = match ended_by {
            EndedBy::TargetExited => None,
            // No command lets a trace become too dear.
            EndedBy::Duration | EndedBy::Dear => Some(libc::SIGTERM),
            // Ctrl-C on a terminal goes to both.
            EndedBy::Stop => signals::sent_by_a_process(),
        };
        // From now on a signal ends this program, and the other goes on.
        signals::default_actions();
        let Some(waiting) = self.waiting.take() else {
            return Ok(());
        };
        if let Some(signal) = signal.filter(|_| !waiting.is_finished()) {
            if !quiet && ended_by == EndedBy::Duration {
                reqtrace_base::say!("reqtrace: the time is over: {name} is ended by SIGTERM");
            }
            if let Ok(pid) = libc::pid_t::try_from(self.pid) {
                // SAFETY: no precondition. The thread that reaps it has not ended.
                unsafe { libc::kill(pid, signal) };
            }
        }
        let status = match waiting.join() {
            Ok(status) => status.map_err(|error| {
                Error::failed(format!("the end of {name} cannot be waited for")).because(error)
            })?,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        if !is_bad(status, ended_by) {
            if !quiet {
                reqtrace_base::say!("reqtrace: {name} has ended ({status})");
            }
            return Ok(());
        }
        let next = match ended_by {
            EndedBy::Stop => {
                "it was interrupted, and the trace goes up to there; what it printed may say more"
            }
            EndedBy::Duration | EndedBy::TargetExited | EndedBy::Dear => {
                "what it printed may say why; the trace goes up to its end"
            }
        };
        Err(Error::failed(format!("{name} has ended badly ({status})")).next(next))
    }
}

/// Whether a program's end is an error. How it ends on the SIGTERM that it gets when its time is over is not,
/// be it by a code of its own or by the signal.
fn is_bad(status: ExitStatus, ended_by: EndedBy) -> bool {
    match (ended_by, status.signal()) {
        (EndedBy::Duration | EndedBy::Dear, signal) => {
            signal.is_some_and(|signal| signal != libc::SIGTERM)
        }
        (EndedBy::Stop | EndedBy::TargetExited, _) => !status.success(),
    }
}

/// Where the child waits. What it says in case of an error is never seen: nobody waits for it then.
fn wait_inside(inside: RawFd, outside: RawFd, announce: RawFd) -> io::Result<()> {
    // SAFETY: these are the child's own copies, and nothing else uses them after this.
    let (mut inside, announce) = unsafe {
        libc::signal(libc::SIGINT, libc::SIG_DFL);
        libc::signal(libc::SIGTERM, libc::SIG_DFL);
        libc::signal(libc::SIGTTIN, libc::SIG_DFL);
        libc::signal(libc::SIGTTOU, libc::SIG_DFL);
        // Or its own copy would keep the pipe open.
        libc::close(outside);
        (File::from_raw_fd(inside), File::from_raw_fd(announce))
    };
    (&announce).write_all(&std::process::id().to_ne_bytes())?;
    inside.read_exact(&mut [0])
}

/// Reading end and writing end; neither survives an exec.
fn pipe() -> io::Result<(File, File)> {
    let (reader, writer) = io::pipe()?;
    Ok((
        File::from(std::os::fd::OwnedFd::from(reader)),
        File::from(std::os::fd::OwnedFd::from(writer)),
    ))
}

/// An executable file as the shell finds it, without links.
fn find(word: &OsString) -> Result<PathBuf> {
    let path = Path::new(word);
    let shown = path.display();
    if path.components().count() > 1 || word.as_encoded_bytes().contains(&b'/') {
        let data = fs::metadata(path)
            .map_err(|error| Error::usage(format!("cannot start {shown}")).because(error))?;
        if !is_executable(&data) {
            return Err(Error::usage(format!(
                "cannot start {shown}: it is no file that may be executed"
            )));
        }
        return Ok(fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()));
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders)
        .map(|folder| folder.join(path))
        .find(|path| fs::metadata(path).is_ok_and(|data| is_executable(&data)))
        .map(|path| fs::canonicalize(&path).unwrap_or(path))
        .ok_or_else(|| {
            Error::usage(format!(
                "cannot start {shown}: there is no such program in PATH"
            ))
            .next("give its path, such as ./NAME; sudo has a PATH of its own")
        })
}

fn is_executable(data: &fs::Metadata) -> bool {
    data.is_file() && data.permissions().mode() & 0o111 != 0
}

fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// The libraries that a program will begin with, as its own dynamic linker says; none for a static
/// program, and none where the linker is not of a known kind, since another one may run the program.
fn libraries(program: &Path) -> Vec<PathBuf> {
    let Some(linker) = dynamic_linker(program) else {
        return Vec::new();
    };
    if !name_of(&linker).starts_with("ld-linux") {
        debug!(
            "{}: libraries are not asked from {}",
            program.display(),
            linker.display()
        );
        return Vec::new();
    }
    let output = Command::new(&linker)
        .arg("--list")
        .arg(program)
        .stdin(Stdio::null())
        .output();
    match output {
        Ok(output) => listed(&String::from_utf8_lossy(&output.stdout)),
        Err(error) => {
            debug!("{}: {error}", linker.display());
            Vec::new()
        }
    }
}

fn dynamic_linker(program: &Path) -> Option<PathBuf> {
    let bytes = fs::read(program).ok()?;
    let elf = goblin::elf::Elf::parse(&bytes).ok()?;
    elf.interpreter.map(PathBuf::from)
}

/// The files in what `ld.so --list` prints: `name => path (address)`, or `path (address)`.
fn listed(text: &str) -> Vec<PathBuf> {
    text.lines()
        .filter_map(|line| {
            let line = line.trim();
            let file = line.split_once(" => ").map_or(line, |(_, file)| file);
            let file = file.rsplit_once(" (")?.0;
            file.starts_with('/')
                .then(|| fs::canonicalize(file).unwrap_or_else(|_| file.into()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn the_program_may_stand_behind_another() {
        let path = |line: &[&str], name: &'static str| {
            let prepared = Started::prepare(&words(line), |word| word == name).unwrap();
            name_of(&prepared.path)
        };
        assert_eq!(path(&["env", "X=1", "sleep", "1"], "sleep"), "sleep");
        assert_eq!(path(&["env", "X=1", "sleep", "1"], "nothing"), "env");
        let refused = |line: &[&str]| Started::prepare(&words(line), |_| true).err().unwrap();
        let error = refused(&["no-such-program-here"]);
        assert!(error.to_string().contains("no such program in PATH"));
        assert!(refused(&["/etc/passwd"]).to_string().contains("executed"));
        assert_eq!(refused(&["./nothing"]).exit_code(), 2);
    }

    #[test]
    fn the_linkers_list_is_read() {
        let text = "\tlinux-vdso.so.1 (0x7f)\n\tlibnone.so.1 => not found\n\
                    \tlibx.so => /nonexistent/libx.so.1 (0x00007f)\n\t/nonexistent/ld.so (0x1)\n";
        assert_eq!(
            listed(text),
            [
                Path::new("/nonexistent/libx.so.1"),
                Path::new("/nonexistent/ld.so")
            ]
        );
        let own = libraries(&std::env::current_exe().unwrap());
        assert!(
            own.iter().any(|path| name_of(path).starts_with("libc.so")),
            "{own:?}"
        );
    }

    #[test]
    fn a_program_waits_until_it_is_let_go() {
        let folder = tempfile::tempdir().unwrap();
        let made = folder.path().join("made");
        let line = words(&["touch", made.to_str().unwrap()]);
        let mut started = Started::prepare(&line, |_| false).unwrap().start().unwrap();
        thread::sleep(std::time::Duration::from_millis(50));
        assert!(!made.exists());
        assert_eq!(started.process().comm, "touch");
        started.release().unwrap();
        let status = started.waiting.take().unwrap().join().unwrap().unwrap();
        assert!(status.success() && made.exists());
    }

    #[test]
    fn a_program_that_is_not_let_go_never_runs() {
        let folder = tempfile::tempdir().unwrap();
        let made = folder.path().join("made");
        let line = words(&["touch", made.to_str().unwrap()]);
        let mut started = Started::prepare(&line, |_| false).unwrap().start().unwrap();
        started.gate = None;
        let ended = started.waiting.take().unwrap().join().unwrap();
        assert!(ended.is_err() && !made.exists());
    }
}
