//! The program under test: started as a user would, and what it left behind.
//!
//! In: arguments. Out: an [`Outcome`]: exit code, both outputs, and the five files of `--out`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::blamed::{self, Blamed};
use crate::ledger;
use crate::process::{Child, Stream};
use crate::rows::{self, Row};
use crate::summary::Summary;
use crate::workspace;

/// What reqtrace prints on standard error, at the start of a line, once all probes are in.
const ATTACHED: &str = "tracing ";

/// How long it may take to attach, or to report.
const LIMIT: Duration = Duration::from_secs(60);

/// What one run left behind. Its folder lives as long as this.
#[derive(Debug)]
pub struct Outcome {
    /// Exit code; `None` when a signal killed it.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    folder: TempDir,
}

/// A command line for reqtrace, to be changed further.
///
/// # Errors
///
/// When reqtrace is not built.
pub fn command<I, S>(args: I) -> Result<Command>
where
    I: IntoIterator<Item = S>,
    S: Into<OsString>,
{
    let mut command = Command::new(workspace::reqtrace()?);
    command.args(args.into_iter().map(Into::into));
    Ok(command)
}

/// Runs a command line until it ends by itself.
///
/// # Errors
///
/// When it does not start, or is not done after a minute.
pub fn run(command: Command) -> Result<Outcome> {
    let folder = workspace::scratch()?;
    let mut child = Child::start(command, folder.path(), "reqtrace")?;
    child.wait(LIMIT)?;
    Outcome::of(child, folder)
}

/// Tests want all rows, however dear tracing is on this machine; those of the guard give a limit.
const LIMIT_OF_OVERHEAD: &str = "--max-overhead";

/// A trace that has attached.
#[derive(Debug)]
pub struct Trace {
    process: Child,
    folder: TempDir,
}

impl Trace {
    /// Starts `reqtrace --profile PROFILE --out DIR -p PID MORE…` and waits until it has
    /// attached. Without a duration in `more` it runs until [`Trace::finish`].
    ///
    /// # Errors
    ///
    /// When it does not attach.
    pub fn start(profile: &Path, pid: u32, more: &[&str]) -> Result<Self> {
        Self::start_by(&workspace::reqtrace()?, profile, pid, more)
    }

    /// The same with another build of reqtrace.
    ///
    /// # Errors
    ///
    /// When it does not attach.
    pub fn start_by(program: &Path, profile: &Path, pid: u32, more: &[&str]) -> Result<Self> {
        Self::start_command(Command::new(program), profile, pid, more)
    }

    /// The same with the rows and the summary alone: it keeps nothing for a report's page, whose tables fill with requests.
    ///
    /// # Errors
    ///
    /// When it does not attach.
    pub fn start_without_page(profile: &Path, pid: u32, more: &[&str]) -> Result<Self> {
        let folder = workspace::scratch()?;
        let out = out_of(&folder);
        std::fs::create_dir(&out)?;
        let mut command = Command::new(workspace::reqtrace()?);
        for (option, name) in [("--csv", "requests.csv"), ("--json", "summary.json")] {
            command.arg(option).arg(out.join(name));
        }
        Self::start_into(folder, command, profile, pid, more)
    }

    /// The same as if the kernel lacked these features, which have commas between them.
    ///
    /// # Errors
    ///
    /// When it does not attach.
    pub fn start_without(features: &str, profile: &Path, pid: u32, more: &[&str]) -> Result<Self> {
        let mut command = Command::new(workspace::reqtrace()?);
        command.env("REQTRACE_HIDE", features);
        Self::start_command(command, profile, pid, more)
    }

    fn start_command(
        mut command: Command,
        profile: &Path,
        pid: u32,
        more: &[&str],
    ) -> Result<Self> {
        let folder = workspace::scratch()?;
        command.arg("--out").arg(out_of(&folder));
        Self::start_into(folder, command, profile, pid, more)
    }

    fn start_into(
        folder: TempDir,
        mut command: Command,
        profile: &Path,
        pid: u32,
        more: &[&str],
    ) -> Result<Self> {
        command
            .arg("--profile")
            .arg(profile)
            .args(["-p", &pid.to_string()])
            .args(more);
        if !more.contains(&LIMIT_OF_OVERHEAD) {
            command.args([LIMIT_OF_OVERHEAD, "100"]);
        }
        if !more.iter().any(|arg| arg.starts_with("--record")) {
            command.args(
                workspace::kept_recording().map(|file| format!("--record={}", file.display())),
            );
        }
        let mut process = Child::start(command, folder.path(), "reqtrace")?;
        process.wait_for_line(Stream::Err, ATTACHED, LIMIT)?;
        Ok(Self { process, folder })
    }

    /// Starts `reqtrace --profile PROFILE --out DIR --exe PROGRAM MORE…` and waits until it has attached.
    ///
    /// # Errors
    ///
    /// When it does not attach.
    pub fn of_exe(profile: &Path, program: &Path, more: &[&str]) -> Result<Self> {
        let folder = workspace::scratch()?;
        let mut command = Command::new(workspace::reqtrace()?);
        command.arg("--profile").arg(profile).arg("--out");
        command
            .arg(out_of(&folder))
            .arg("--exe")
            .arg(program)
            .args(more);
        let mut process = Child::start(command, folder.path(), "reqtrace")?;
        process.wait_for_line(Stream::Err, ATTACHED, LIMIT)?;
        Ok(Self { process, folder })
    }

    /// Starts `reqtrace --profile PROFILE --out DIR MORE… -- LINE…` and waits until it has attached. The
    /// program reads `input` and then the end of it.
    ///
    /// # Errors
    ///
    /// When it does not attach.
    pub fn of_program(profile: &Path, more: &[&str], line: &[&str], input: &str) -> Result<Self> {
        let folder = workspace::scratch()?;
        let mut command = Command::new(workspace::reqtrace()?);
        command.arg("--profile").arg(profile).arg("--out");
        command.arg(out_of(&folder)).args(more).arg("--").args(line);
        let mut process = Child::start(command, folder.path(), "reqtrace")?;
        process.tell(input)?;
        drop(process.stdin());
        process.wait_for_line(Stream::Err, ATTACHED, LIMIT)?;
        Ok(Self { process, folder })
    }

    /// Waits until it prints a line on standard error that starts so.
    ///
    /// # Errors
    ///
    /// When it ends first, or takes longer than a minute.
    pub fn wait_for_line(&mut self, start: &str) -> Result<String> {
        self.process.wait_for_line(Stream::Err, start, LIMIT)
    }

    /// Process number of the tracer.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Ends it as Ctrl-C does.
    ///
    /// # Errors
    ///
    /// When it is not done after a minute.
    pub fn finish(self) -> Result<Outcome> {
        self.signal(libc::SIGINT)
    }

    /// Keeps it from running for a while: it traces on, and reads nothing.
    ///
    /// # Errors
    ///
    /// When it cannot be signalled.
    pub fn pause(&mut self, time: Duration) -> Result<()> {
        self.process.signal(libc::SIGSTOP)?;
        std::thread::sleep(time);
        self.process.signal(libc::SIGCONT)
    }

    /// Ends it with `signal`.
    ///
    /// # Errors
    ///
    /// When it is not done after a minute.
    pub fn signal(mut self, signal: libc::c_int) -> Result<Outcome> {
        self.process.signal(signal)?;
        self.wait()
    }

    /// Waits until it ends by itself.
    ///
    /// # Errors
    ///
    /// When it is not done after a minute.
    pub fn wait(mut self) -> Result<Outcome> {
        self.process.wait(LIMIT)?;
        Outcome::of(self.process, self.folder)
    }
}

impl Outcome {
    fn of(mut child: Child, folder: TempDir) -> Result<Self> {
        let status = child.status()?.context("reqtrace is still running")?;
        Ok(Self {
            code: status.code(),
            stdout: child.output(Stream::Out),
            stderr: child.output(Stream::Err),
            folder,
        })
    }

    /// Both outputs together, to look for words and to show in a failure.
    #[must_use]
    pub fn printed(&self) -> String {
        format!("{}\n{}", self.stdout, self.stderr)
    }

    /// `summary.json`.
    ///
    /// # Errors
    ///
    /// When it is missing or not as agreed.
    pub fn summary(&self) -> Result<Summary> {
        Summary::read(&self.file("summary.json")?)
    }

    /// The summary of a trace that ended with 0 and lost nothing, and whose ledgers all close.
    ///
    /// # Errors
    ///
    /// When one of that does not hold.
    pub fn checked(&self) -> Result<Summary> {
        ensure!(self.code == Some(0), "{}", self.printed());
        let summary = self.summary()?;
        ensure!(summary.lost() == 0, "lost: {:?}", summary.losses);
        ledger::check(&self.csv()?)?;
        Ok(summary)
    }

    /// Checks that of 99 % of the time the stack goes to where the thread began. Preempted time is left
    /// out: how long it is is the machine's doing, and it can begin at any instruction, also where no
    /// file describes the code, such as in a library's `_fini`.
    ///
    /// # Errors
    ///
    /// When it does of less; the error shows the truncated stacks.
    pub fn has_whole_stacks(&self) -> Result<()> {
        check_whole(&self.folded()?)
    }

    /// `summary.json` as text.
    ///
    /// # Errors
    ///
    /// When it is missing.
    pub fn summary_text(&self) -> Result<String> {
        self.file("summary.json")
    }

    /// `requests.csv` as text.
    ///
    /// # Errors
    ///
    /// When it is missing.
    pub fn csv(&self) -> Result<String> {
        self.file("requests.csv")
    }

    /// `blame.csv`, row by row.
    ///
    /// # Errors
    ///
    /// When there is none, or a row is not what it should be.
    pub fn blame(&self) -> Result<Vec<Blamed>> {
        blamed::read(&self.file("blame.csv")?)
    }

    /// `requests.csv`, read.
    ///
    /// # Errors
    ///
    /// When it is missing or malformed.
    pub fn rows(&self) -> Result<Vec<Row>> {
        rows::read(&self.csv()?)
    }

    /// `stacks.folded` as text.
    ///
    /// # Errors
    ///
    /// When it is missing.
    pub fn folded(&self) -> Result<String> {
        self.file("stacks.folded")
    }

    /// The microseconds in `stacks.folded`, and its number of lines.
    ///
    /// # Errors
    ///
    /// When it is missing, or a line is not `frames N`.
    pub fn folded_sum(&self) -> Result<(u64, u64)> {
        let mut sum = 0;
        let mut lines = 0;
        for line in self.folded()?.lines() {
            let (frames, us) = line.rsplit_once(' ').context("a line without a number")?;
            ensure!(frames.contains(';'), "only one frame: {line:?}");
            sum += us.parse::<u64>().with_context(|| format!("{line:?}"))?;
            lines += 1;
        }
        Ok((sum, lines))
    }

    /// The microseconds of blocked time in `stacks.folded` whose stacks are whole, and of those that
    /// are truncated; without run queue and preemption.
    ///
    /// # Errors
    ///
    /// When it is missing, or a line is not `frames N`.
    pub fn blocked_us(&self) -> Result<[u64; 2]> {
        let mut sums = [0; 2];
        for line in self.folded()?.lines() {
            let (frames, us) = line.rsplit_once(' ').context("a line without a number")?;
            if !frames.ends_with("[run queue]") && !frames.ends_with("[preempted]") {
                let truncated = frames.contains(";[truncated: ");
                sums[usize::from(truncated)] += us.parse::<u64>()?;
            }
        }
        Ok(sums)
    }

    /// The first of `words` that some stack contains, with its line.
    ///
    /// # Errors
    ///
    /// When `stacks.folded` is missing.
    pub fn stack_with(&self, words: &[&str]) -> Result<Option<String>> {
        let folded = self.folded()?;
        let mut lines = folded.lines();
        let found = lines.find(|line| words.iter().any(|word| line.contains(word)));
        Ok(found.map(ToOwned::to_owned))
    }

    /// `flamegraph.svg`.
    ///
    /// # Errors
    ///
    /// When it is missing.
    pub fn flamegraph(&self) -> Result<String> {
        self.file("flamegraph.svg")
    }

    /// The place of one of its files.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        out_of(&self.folder).join(name)
    }

    fn file(&self, name: &str) -> Result<String> {
        let path = self.path(name);
        std::fs::read_to_string(&path)
            .with_context(|| format!("{}\n{}", path.display(), self.printed()))
    }
}

fn out_of(folder: &TempDir) -> PathBuf {
    folder.path().join("out")
}

fn check_whole(folded: &str) -> Result<()> {
    let (mut all, mut truncated, mut shown) = (0, 0, Vec::new());
    for line in folded.lines() {
        let (frames, us) = line.rsplit_once(' ').context("a line without a number")?;
        if frames.ends_with(";[preempted]") {
            continue;
        }
        let us: u64 = us.parse().with_context(|| line.to_owned())?;
        all += us;
        if frames.contains(";[truncated: ") {
            truncated += us;
            shown.push(line);
        }
    }
    ensure!(
        truncated * 100 <= all,
        "{truncated} of {all} us are truncated:\n{}",
        shown.join("\n")
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::check_whole;

    #[test]
    fn truncated_stacks_are_shown_unless_they_are_preempted() {
        let folded =
            "p;main;f;futex_wait 990\np;[truncated: no mapping];f;schedule;[preempted] 5000\n";
        assert!(check_whole(folded).is_ok());
        let line = "p;[truncated: no mapping];f;futex_wait";
        assert!(check_whole(&format!("{folded}{line} 10\n")).is_ok());
        let error = check_whole(&format!("{folded}{line} 11\n")).unwrap_err();
        assert!(
            error.to_string().ends_with(&format!("{line} 11")),
            "{error}"
        );
    }
}

/// Stacks that were remembered, of which `-v` tells. It has them walked again, and a stack that is
/// another one then is a loss.
#[derive(Clone, Copy, Debug)]
pub struct Remembered {
    /// User stacks.
    pub user: u64,
    /// Kernel stacks.
    pub kernel: u64,
}

/// What a trace with `-v` printed of remembered stacks; `None` when there were none.
#[must_use]
pub fn remembered(printed: &str) -> Option<Remembered> {
    let line = printed.lines().find_map(|line| {
        line.split_once(" kernel stacks were remembered")?
            .0
            .strip_prefix("reqtrace: ")
    })?;
    let (user, kernel) = line.split_once(" user stacks and ")?;
    Some(Remembered {
        user: user.parse().ok()?,
        kernel: kernel.parse().ok()?,
    })
}
