//! The options of a trace: [`TraceArgs`] in, [`TraceOptions`] out, contradictions refused.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use reqtrace_common::filter::{ANY_STATE, KeepSlow, StackFilter};

use super::args::{CpuEngine, TraceArgs, Unwind};
use super::outputs::{OutputArgs, nanoseconds, parse_pids};
use super::users;
use super::values::length;
use reqtrace_base::error::{Error, Result};
use reqtrace_base::text::nearest;
use reqtrace_output::folded::Part;
use reqtrace_output::outputs::Keep;
use reqtrace_recording::Roll;

const COMMANDS: &[&str] = &[
    "agent",
    "check",
    "diff",
    "doctor",
    "functions",
    "help",
    "profiles",
    "report",
    "ship",
];

/// What to trace and what to write, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceOptions {
    /// Paths or names of the profiles, one for each service; none: those that are made for the executables.
    /// Then `pids`, `comms` or `command` has the programs.
    pub profiles: Vec<String>,
    /// A program to start, with its arguments. Then `pids` and `comms` are empty.
    pub command: Vec<OsString>,
    /// Processes by id, no duplicates.
    pub pids: Vec<u32>,
    /// Processes by name.
    pub comms: Vec<String>,
    /// Processes by the program that they run, now or later.
    pub programs: Vec<PathBuf>,
    /// Only those of this user, by number; `None`: all have to be of one.
    pub user: Option<u32>,
    /// Whether processes with these names are waited for.
    pub wait: bool,
    /// Whether children are traced too.
    pub follow: bool,
    /// How long; `None`: until interrupted.
    pub duration: Option<Duration>,
    /// Record the stacks of preemptions.
    pub preempted_stacks: bool,
    /// Which blocks go into the stacks.
    pub stack_filter: StackFilter,
    /// How to unwind user stacks.
    pub unwind: Unwind,
    /// Record labels.
    pub labels: bool,
    /// Record intervals, for blame.
    pub blame: bool,
    /// Record how long data had been waiting when requests began.
    pub before: bool,
    /// Record what took the CPU from requests.
    pub interrupts: bool,
    /// Samples a second and CPU; 0: none.
    pub cpu_rate: u32,
    /// What takes them.
    pub cpu_engine: CpuEngine,
    /// One of so many requests is recorded; 1: all.
    pub sample_every: u64,
    /// Which complete requests have a record.
    pub keep_slow: KeepSlow,
    /// Share of the process's CPU time that the probes may take, percent; 100: any.
    pub max_probe_rate: f64,
    /// Share of the CPU time above which less is recorded, percent; 100: never.
    pub max_overhead: f64,
    /// Bytes for the kernel's tables; `None`: the usual.
    pub memory: Option<u64>,
    /// Trace in spite of that, and of programs that requests may not fit.
    pub yes: bool,
    /// What to write and print.
    pub outputs: OutputArgs,
    /// Where to write the recording.
    pub record: Option<PathBuf>,
    /// When it goes on in another file; `None`: it is one file.
    pub roll: Option<Roll>,
    /// Which of these files stay.
    pub keep: Keep,
    /// Whether a screen is shown while it runs.
    pub live: bool,
}

impl TraceArgs {
    /// Checks what clap cannot.
    ///
    /// # Errors
    ///
    /// Usage errors: nothing to trace, no profile, not a PID or a duration, outputs or stacks
    /// that exclude each other.
    pub fn into_options(self) -> Result<TraceOptions> {
        let pids = parse_pids(&self.pids)?;
        self.check_words()?;
        let needs_blame = {
            let mut formats = self.outputs.targets.formats();
            formats.any(reqtrace_output::formats::Format::wants_blame)
        };
        let duration = self.duration()?;
        let has_process = !pids.is_empty() || !self.comm.is_empty() || !self.exe.is_empty();
        if self.wait && self.comm.is_empty() && self.exe.is_empty() {
            return Err(Error::usage(
                "--wait without a name of a process or a program to wait for",
            )
            .next("add --comm NAME or --exe PATH"));
        }
        if self.profiles.is_empty() && !has_process && self.command.is_empty() {
            return Err(Error::usage("nothing to trace: no process and no profile given").next(
                "-p PID traces a process, --profile NAME the one server that it is made for, and \
                 -- PROGRAM one that is started; `reqtrace doctor` lists servers that run here",
            ));
        }
        if has_process && !self.command.is_empty() {
            return Err(Error::usage(format!(
                "both a process and a program to start: {}",
                self.command[0].display()
            ))
            .next("leave out -p, --comm and --exe, or what stands behind --"));
        }
        for comm in &self.comm {
            if comm.is_empty() || comm.len() > 15 {
                return Err(Error::usage(format!(
                    "--comm `{comm}`: a process name has 1 to 15 bytes"
                ))
                .next("use the name that /proc/PID/comm has"));
            }
        }
        if self.live && !self.command.is_empty() {
            return Err(Error::usage(
                "--live draws on the terminal that the program behind -- writes to",
            )
            .next("start the program elsewhere, and give its PID with -p"));
        }
        let outputs = self.outputs.checked()?;
        if self.live && outputs.takes_stdout() {
            return Err(Error::usage(
                "--live draws on standard output, which another output takes",
            )
            .next("send that output to a file"));
        }
        let stack_filter = self.filter.filter(outputs.slower_than.is_some())?;
        if self.preempted_stacks && ![ANY_STATE, 0].contains(&stack_filter.state) {
            return Err(Error::usage(format!(
                "--preempted-stacks and --state {} exclude each other: a preempted thread has state 0",
                stack_filter.state
            ))
            .next("leave out one of the two"));
        }
        let part = outputs.part;
        if part != Part::OffCpu && self.cpu_rate == 0 {
            return Err(Error::usage(format!(
                "--stacks {} is made of samples, and --cpu-rate 0 takes none",
                part.name()
            ))
            .next("leave out --cpu-rate 0, or --stacks"));
        }
        if part != Part::OffCpu && stack_filter != StackFilter::ALL {
            return Err(Error::usage(format!(
                "-m, -M and --state choose blocks, and --stacks {} has more than those",
                part.name()
            ))
            .next("give one of the two"));
        }
        Ok(TraceOptions {
            profiles: self.profiles,
            command: self.command,
            pids,
            comms: self.comm,
            programs: self.exe,
            user: self.user.as_deref().map(users::number).transpose()?,
            wait: self.wait,
            follow: !self.no_follow,
            duration,
            preempted_stacks: match stack_filter.state {
                ANY_STATE => self.preempted_stacks,
                // Stacks of preemptions only, or of none.
                state => state == 0,
            },
            stack_filter,
            unwind: self.unwind,
            labels: self.labels,
            cpu_rate: self.cpu_rate,
            cpu_engine: self.cpu_engine,
            blame: self.blame || needs_blame,
            before: self.before,
            interrupts: self.interrupts,
            sample_every: self.sample.unwrap_or(1),
            keep_slow: self.keep_slow.map_or(KeepSlow::ALL, |slow| KeepSlow {
                slow_ns: nanoseconds(slow),
                one_in: self.one_in,
            }),
            max_probe_rate: self.max_probe_rate,
            max_overhead: self.max_overhead,
            memory: self.memory,
            yes: self.yes,
            outputs,
            record: self.record,
            roll: self.roll.map(|roll| Roll {
                every: roll.time,
                bytes: roll.bytes,
            }),
            keep: self.keep.map_or_else(Keep::default, |keep| Keep {
                age: keep.time,
                bytes: keep.bytes,
            }),
            live: self.live,
        })
    }

    /// A PID without `-p` before it.
    fn check_words(&self) -> Result<()> {
        let is_number = |word: &String| word.parse::<f64>().is_ok();
        let (Some((last, first)), true) = (
            self.words.split_last(),
            self.pids.is_empty() && self.comm.is_empty() && self.exe.is_empty(),
        ) else {
            return Ok(());
        };
        if first.is_empty() || !self.words.iter().all(is_number) {
            return Ok(());
        }
        Err(Error::usage(format!(
            "nothing to trace: no -p before {}",
            first.join(" ")
        ))
        .next(format!("-p {} {last}", first.join(","))))
    }

    fn duration(&self) -> Result<Option<Duration>> {
        match (self.words.as_slice(), &self.duration) {
            ([], None) => return Ok(None),
            ([], Some(word)) => return parse_duration(word).map(Some),
            ([one], Some(word)) if one != word => {
                return Err(
                    Error::usage(format!("two durations: {one} and --duration {word}"))
                        .next("give one of the two"),
                );
            }
            _ => {}
        }
        match self.words.as_slice() {
            [] => Ok(None),
            [one] => parse_duration(one).map(Some),
            many if many.iter().all(|word| word.parse::<f64>().is_ok()) => {
                let last = &many[many.len() - 1];
                let pids: Vec<&str> = self
                    .pids
                    .iter()
                    .map(String::as_str)
                    .chain(many[..many.len() - 1].iter().map(String::as_str))
                    .collect();
                Err(Error::usage(format!(
                    "{} numbers where one duration is expected: {}",
                    many.len(),
                    many.join(" ")
                ))
                .next(format!(
                    "several PIDs need commas: -p {} {last}; `pgrep -d,` writes them so",
                    pids.join(",")
                )))
            }
            many => Err(Error::usage(format!(
                "one duration is expected, not `{}`",
                many.join(" ")
            ))
            .next("see reqtrace --help")),
        }
    }
}

fn parse_duration(word: &str) -> Result<Duration> {
    length(word).ok_or_else(|| {
        let error = Error::usage(format!("`{word}` is neither a command nor a duration"));
        match nearest(word, COMMANDS.iter().copied(), 1).first() {
            Some(command) => error.next(format!("did you mean `reqtrace {command}`?")),
            None => {
                error.next("a duration is above 0, in seconds or with a unit: 30, 0.5, 2s, 500ms")
            }
        }
    })
}

#[cfg(test)]
mod tests;
