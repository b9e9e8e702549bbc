//! Running programs that a profile is made for: `/proc` in, servers out.

use std::fs;
use std::io::ErrorKind;

use super::library::Library;
use reqtrace_base::figures::cut;
use reqtrace_capture::kernel::processes::{all, parent};
use reqtrace_profile::Profile;

/// A process as far as its choice goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Running {
    pub(super) pid: u32,
    pub(super) parent: u32,
    /// File name of its executable.
    pub(super) executable: String,
}

/// All processes that can be looked at, in order of their ids.
#[derive(Clone, Debug, Default)]
pub(super) struct Processes {
    found: Vec<Running>,
    /// Whether some belong to others and cannot be looked at.
    pub(super) some_hidden: bool,
}

impl Processes {
    /// Looks at `/proc`.
    pub(super) fn read() -> Self {
        let mut processes = Self::default();
        // SAFETY: no precondition. Root is denied some processes on some machines, which are none of
        // its programs.
        let is_root = unsafe { libc::geteuid() } == 0;
        for pid in all() {
            match fs::read_link(format!("/proc/{pid}/exe")) {
                Ok(path) => {
                    let path = path.to_string_lossy();
                    let path = path.strip_suffix(" (deleted)").unwrap_or(&path);
                    processes.found.push(Running {
                        pid,
                        parent: parent(pid).unwrap_or(0),
                        executable: path.rsplit('/').next().unwrap_or(path).to_owned(),
                    });
                }
                Err(error) => {
                    let denied = error.kind() == ErrorKind::PermissionDenied;
                    processes.some_hidden |= denied && !is_root;
                }
            }
        }
        processes
    }

    /// Those that `wanted` accepts, but for those with such a parent: children are traced with it.
    pub(super) fn servers(&self, wanted: impl Fn(&Running) -> bool) -> Vec<&Running> {
        let fitting: Vec<&Running> = self
            .found
            .iter()
            .filter(|process| process.pid != std::process::id() && wanted(process))
            .collect();
        let is_child = |process: &&Running| fitting.iter().any(|one| one.pid == process.parent);
        fitting
            .iter()
            .copied()
            .filter(|process| !is_child(process))
            .collect()
    }

    /// Running servers that a profile is made for.
    pub(super) fn of(&self, profile: &Profile) -> Vec<&Running> {
        self.servers(|process| profile.is_made_for(&process.executable))
    }

    /// Running servers that have a profile, each with the profile's name.
    pub(super) fn with_profile(&self, library: &Library) -> Vec<(&Running, String)> {
        let first = |process: &Running| {
            let fitting = library.made_for(&process.executable);
            fitting.first().map(|(entry, _)| entry.name.clone())
        };
        self.servers(|process| first(process).is_some())
            .into_iter()
            .filter_map(|process| Some((process, first(process)?)))
            .collect()
    }
}

impl Running {
    /// Its command line, of so many characters at most, without what would disturb a terminal.
    pub(super) fn command_line(&self, most: usize) -> String {
        let line = fs::read(format!("/proc/{}/cmdline", self.pid)).unwrap_or_default();
        let text = shown(&line, most);
        if text.is_empty() {
            self.executable.clone()
        } else {
            text
        }
    }
}

fn shown(line: &[u8], most: usize) -> String {
    let text: String = String::from_utf8_lossy(line)
        .chars()
        .map(|character| {
            if character.is_control() {
                ' '
            } else {
                character
            }
        })
        .collect();
    let text = text.trim_end();
    cut(text, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, parent: u32, executable: &str) -> Running {
        Running {
            pid,
            parent,
            executable: executable.to_owned(),
        }
    }

    #[test]
    fn children_belong_to_their_server() {
        let processes = Processes {
            found: vec![
                process(10, 1, "nginx"),
                process(11, 10, "nginx"),
                process(12, 10, "nginx"),
                process(20, 1, "bash"),
                process(21, 20, "mariadbd"),
                process(30, 1, "nginx"),
            ],
            some_hidden: false,
        };
        let of = |name| {
            let servers = processes.servers(|process| process.executable == name);
            servers
                .iter()
                .map(|process| process.pid)
                .collect::<Vec<_>>()
        };
        assert_eq!(of("nginx"), [10, 30]);
        assert_eq!(of("mariadbd"), [21]);
        let named: Vec<(u32, String)> = processes
            .with_profile(&Library::read())
            .into_iter()
            .map(|(process, profile)| (process.pid, profile))
            .collect();
        let pids: Vec<u32> = named.iter().map(|(pid, _)| *pid).collect();
        assert_eq!(pids, [10, 21, 30]);
    }

    #[test]
    fn a_command_line_disturbs_no_terminal() {
        assert_eq!(shown(b"nginx: master\0\0\0", 70), "nginx: master");
        assert_eq!(shown(b"a\0\x1b[2Jb\n", 70), "a  [2Jb");
        for most in [20, 133, usize::MAX] {
            let long = shown(&[b'x'; 500], most);
            assert_eq!(long.chars().count(), most.min(500));
        }
    }
}
