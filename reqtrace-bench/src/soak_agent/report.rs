//! The page: what was measured in; Markdown out.

use std::fmt::Write as _;
use std::process::Command;

use anyhow::{Result, bail};

use super::Args;

/// Something that has to hold.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    what: String,
    holds: bool,
    measured: String,
}

impl Claim {
    pub(super) fn new(what: impl Into<String>, holds: bool, measured: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            holds,
            measured: measured.into(),
        }
    }
}

/// All that was measured.
#[derive(Clone, Debug)]
pub struct Measured {
    /// By which arguments.
    pub args: Args,
    pub(super) claims: Vec<Claim>,
    /// Tables of figures, Markdown.
    pub(super) tables: String,
}

impl Measured {
    /// The section of the page: of this commit, at this moment.
    #[must_use]
    pub fn page(&self) -> String {
        let args = &self.args;
        let command = format!(
            "cargo xtask soak-agent --minutes {} --max-cost {} --rate {} --restart-every {} --kill-every {} --kill-after {} --one-in {} --memory {}{} --seed {}",
            args.minutes,
            args.max_cost,
            args.rate,
            args.restart_every,
            args.kill_every,
            args.kill_after,
            args.one_in,
            args.memory,
            match args.has_exact_counts() {
                true => String::new(),
                false => format!(" --turn {} {}", args.turn[0], args.turn[1]),
            },
            args.seed
        );
        let mut page = format!(
            "`{command}`, at {}, {}, kernel {}.\n\n| claim | holds | measured |\n| --- | --- | --- |\n",
            printed("date", &["-u", "+%Y-%m-%d %H:%M UTC"]),
            commit(),
            printed("uname", &["-r"])
        );
        for claim in &self.claims {
            let holds = if claim.holds { "yes" } else { "**no**" };
            // Writing to a string does not fail.
            let _ = writeln!(page, "| {} | {holds} | {} |", claim.what, claim.measured);
        }
        page.push('\n');
        page.push_str(self.tables.trim_end());
        page
    }

    /// Whether all holds.
    ///
    /// # Errors
    ///
    /// With each that does not.
    pub fn check(&self) -> Result<()> {
        let broken = self.claims.iter().filter(|claim| !claim.holds);
        let broken: Vec<String> = broken
            .map(|claim| format!("{}: {}", claim.what, claim.measured))
            .collect();
        if !broken.is_empty() {
            bail!("does not hold:\n  {}", broken.join("\n  "));
        }
        Ok(())
    }
}

fn printed(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.unwrap_or_else(|error| format!("({program}: {error})"))
}

fn commit() -> String {
    let root = reqtrace_tests::workspace::root().display().to_string();
    let git = |args: &[&str]| printed("git", &[&["-C", &root], args].concat());
    let is_changed = !git(&["status", "--porcelain", "--untracked-files=no"]).is_empty();
    let changed = if is_changed { " with changes" } else { "" };
    format!("commit {}{changed}", git(&["rev-parse", "--short", "HEAD"]))
}
