//! The safety gate: resolved markers and processes in, what speaks against probing them out. It is
//! asked before anything is attached.

use std::fs;

use crate::kernel::{privileges, uretprobe};
use reqtrace_base::error::Error;
use reqtrace_profile::{At, ReturnProbe};
use reqtrace_resolve::{Hazards, ResolvedProfile, ResolvedRequest};

/// What speaks against tracing.
#[derive(Debug, Default)]
pub struct Judgement {
    /// It would do harm: nothing overrules this.
    pub refused: Vec<Error>,
    /// It may do harm, or report what is not so: `--yes` overrules this.
    pub doubted: Vec<Error>,
    /// What a user should know, one sentence each.
    pub warnings: Vec<String>,
}

/// One object in which a request has a marker.
struct Marked<'a> {
    request: &'a ResolvedRequest,
    shown: &'a str,
    hazards: Hazards,
}

/// Judges requests that are resolved in these processes.
#[must_use]
pub fn judge(profiles: &[ResolvedProfile], pids: &[u32]) -> Judgement {
    let mut judgement = Judgement::default();
    for doubt in profiles.iter().flat_map(|profile| &profile.doubts) {
        judgement.doubt(doubt.what.clone(), doubt.next);
    }
    let requests = || profiles.iter().flat_map(|profile| &profile.requests);
    for request in requests() {
        for (_, marker) in request.markers() {
            judgement.object(&Marked {
                request,
                shown: &marker.object_shown,
                hazards: marker.hazards,
            });
        }
    }
    if let Some(request) = requests().find(|request| rewrites_returns(request)) {
        let filtered = pids.iter().copied().find(|&pid| has_seccomp_filter(pid));
        if let Some(pid) = filtered
            && uretprobe::is_filtered_by_seccomp()
        {
            judgement.seccomp(request, pid);
        }
    }
    judgement
}

impl Judgement {
    fn object(&mut self, marked: &Marked<'_>) {
        let Marked {
            request,
            shown,
            hazards,
        } = marked;
        let uretprobe = rewrites_returns(request);
        let name = &request.name;
        if hazards.go && uretprobe {
            self.refuse(
                format!(
                    "request `{name}`: {shown} is a Go program, and a uretprobe crashes it: Go \
                     moves stacks and finds the trampoline on them"
                ),
                "leave `return-probe` out of the profile",
            );
        } else if hazards.go && !request.is_keyed {
            self.doubt(
                format!(
                    "request `{name}`: {shown} is a Go program: a goroutine changes threads and \
                     its stack moves, so a begin and an end on one thread need not be of one \
                     request"
                ),
                "add [runtime] with kind = \"go\" to the profile and key = \"unit\" to the request, which \
                 makes it what a goroutine does, or use the profiles go-http and go-grpc; or --yes traces all the same: the probes do no harm, \
                 and the report holds where a goroutine stays on its thread",
            );
        }
        if hazards.tokio && !request.is_keyed {
            self.warn(format!(
                "request `{name}`, `{}`: {shown} has tasks of tokio; what a task does may go on in another thread, and its \
                 thread with others meanwhile: if that is so between begin and end, add [runtime] with kind = \"tokio\" to the \
                 profile and key = \"unit\" to the request, or use the profiles axum and tonic",
                request.begin.symbol
            ));
        }
        if let Some(function) = hazards.switches {
            if uretprobe {
                self.doubt(
                    format!(
                        "request `{name}`: {shown} uses {function}: with fibers the kernel hands \
                         the return addresses of uretprobes out in the wrong order, and the \
                         program goes wrong"
                    ),
                    "leave `return-probe` out of the profile; --yes if the marked functions never \
                     run on a fiber",
                );
            } else if !request.is_keyed {
                self.warn(format!(
                    "request `{name}`, `{}`: {shown} uses {function}; where requests run on fibers \
                     that take turns on a thread, they are mixed up (the program is not)",
                    request.begin.symbol
                ));
            }
        }
        if let Some(function) = hazards.throws.filter(|_| uretprobe) {
            self.warn(format!(
                "request `{name}` uses uretprobes and {shown} imports {function}: an exception \
                 that leaves a marked function finds no handler and ends the program"
            ));
        }
    }

    fn seccomp(&mut self, request: &ResolvedRequest, pid: u32) {
        let error = Error::unsupported(format!(
            "request `{}`: process {pid} has a seccomp filter, and on this kernel a uretprobe \
             makes a system call that the filter stops: the process would be killed",
            request.name
        ));
        self.refused.push(error.next(
            "leave `return-probe` out of the profile, or use a kernel with the fix (6.12.14, \
             6.13.3, 6.14 or later)",
        ));
    }

    fn refuse(&mut self, what: String, next: &str) {
        push_once(&mut self.refused, what, next);
    }

    fn doubt(&mut self, what: String, next: &str) {
        push_once(&mut self.doubted, what, next);
    }

    fn warn(&mut self, warning: String) {
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }
}

fn push_once(errors: &mut Vec<Error>, what: String, next: &str) {
    if !errors.iter().any(|known| known.to_string() == what) {
        errors.push(Error::usage(what).next(next));
    }
}

/// Whether a marker of it is a uretprobe.
fn rewrites_returns(request: &ResolvedRequest) -> bool {
    let returns = request.begin.at == At::Return || request.end.at == At::Return;
    returns && request.return_probe == ReturnProbe::Uretprobe
}

/// Whether any thread of a process has a filter: each can have its own.
/// One that has left may have had one, as those after it that run its program.
fn has_seccomp_filter(pid: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return true;
    };
    threads
        .filter_map(|thread| thread.ok()?.file_name().into_string().ok())
        .any(|thread| privileges::seccomp_mode(&format!("{pid}/task/{thread}")) == Some(2))
}

#[cfg(test)]
mod tests {
    use reqtrace_common::cookie::Reentry;

    use super::*;
    use reqtrace_binary::lazy::LazyFile;
    use reqtrace_resolve::{Doubt, ResolvedMarker};

    fn request(return_probe: ReturnProbe) -> ResolvedRequest {
        let marker = |at| ResolvedMarker {
            object: LazyFile::at("/x"),
            object_shown: "/x".to_owned(),
            symbol: "f".to_owned(),
            at,
            entry_offset: 0,
            is_function: true,
            sites: Vec::new(),
            hazards: Hazards::default(),
        };
        ResolvedRequest {
            name: "r".to_owned(),
            begin: marker(At::Entry),
            end: marker(At::Return),
            same_frame: true,
            unlabelled: None,
            is_keyed: false,
            more: Vec::new(),
            unread: Vec::new(),
            reentry: Reentry::Nest,
            return_probe,
        }
    }

    fn judged(hazards: Hazards, return_probe: ReturnProbe) -> (usize, usize, usize) {
        let request = request(return_probe);
        let mut judgement = Judgement::default();
        // Begin and end are in one object: one message.
        for _ in 0..2 {
            judgement.object(&Marked {
                request: &request,
                shown: "/x",
                hazards,
            });
        }
        (
            judgement.refused.len(),
            judgement.doubted.len(),
            judgement.warnings.len(),
        )
    }

    #[test]
    fn return_sites_are_safe_where_uretprobes_are_not() {
        let none = Hazards::default();
        let go = Hazards { go: true, ..none };
        let tasks = Hazards {
            tokio: true,
            ..none
        };
        let fibers = Hazards {
            switches: Some("swapcontext"),
            ..none
        };
        let throws = Hazards {
            throws: Some("__cxa_throw"),
            ..none
        };
        let both = |hazards| {
            (
                judged(hazards, ReturnProbe::Sites),
                judged(hazards, ReturnProbe::Uretprobe),
            )
        };
        assert_eq!(both(none), ((0, 0, 0), (0, 0, 0)));
        assert_eq!(both(go), ((0, 1, 0), (1, 0, 0)));
        let keyed = ResolvedRequest {
            is_keyed: true,
            ..request(ReturnProbe::Sites)
        };
        for hazards in [go, tasks] {
            let mut judgement = Judgement::default();
            judgement.object(&Marked {
                request: &keyed,
                shown: "/x",
                hazards,
            });
            assert!(judgement.doubted.is_empty() && judgement.warnings.is_empty());
        }
        assert_eq!(both(tasks), ((0, 0, 1), (0, 0, 1)));
        assert_eq!(both(fibers), ((0, 0, 1), (0, 1, 0)));
        assert_eq!(both(throws), ((0, 0, 0), (0, 0, 1)));
    }

    #[test]
    fn a_place_that_may_do_harm_is_doubted() {
        let profile = ResolvedProfile {
            name: "p".to_owned(),
            requests: vec![request(ReturnProbe::Sites)],
            units: None,
            service: 0,
            first_type: 0,
            warnings: Vec::new(),
            notes: Vec::new(),
            doubts: vec![Doubt {
                what: "nothing tells".to_owned(),
                next: "--yes",
            }],
        };
        let judged = judge(&[profile], &[]);
        assert_eq!((judged.refused.len(), judged.doubted.len()), (0, 1));
        assert_eq!(judged.doubted[0].advice(), Some("--yes"));
    }

    #[test]
    fn a_process_under_a_filter_is_refused_uretprobes_as_not_permitted() {
        let mut judgement = Judgement::default();
        judgement.seccomp(&request(ReturnProbe::Uretprobe), 7);
        assert_eq!(judgement.refused[0].exit_code(), 3);
        assert!(!has_seccomp_filter(std::process::id()));
    }
}
