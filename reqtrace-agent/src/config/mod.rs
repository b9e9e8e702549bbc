//! The configuration: its TOML in; what the agent does, checked for all that can be checked without a process, out.

mod groups;
mod otlp;
mod profiles;
pub(crate) mod read;
mod rows;
pub(crate) mod toml_at;

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use reqtrace_analysis::report::Grouping;
use reqtrace_base::error::Result;
use reqtrace_base::text::glob_matches;
use reqtrace_profile::Profile;

use crate::memory::RuleMemory;

pub use otlp::Otlp;
pub use profiles::{Folder, OffCpu};
pub use rows::{Rollups, Rows};

/// Reads a profile by its name or path.
pub type Profiles<'a> = &'a dyn Fn(&str) -> Result<Profile>;

/// Rules of a configuration.
const MAX_RULES: usize = 100;

/// What an agent does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// `[agent]`.
    pub agent: Agent,
    /// In their order: the first that matches a process decides.
    pub rules: Vec<Rule>,
    /// Where metrics are read.
    pub listen: SocketAddr,
    /// Other machines may read them.
    pub is_public: bool,
    /// Where rows of requests go; `None`: there are none.
    pub rows: Option<Rows>,
    /// Where spans of slow requests are sent; `None`: nowhere.
    pub otlp: Option<Otlp>,
    /// Where profiles go; `None`: there are none.
    pub off_cpu: Option<OffCpu>,
}

/// What holds for all rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    /// How often the figures of a service move on: whole seconds.
    pub window: Duration,
    /// What the agent may hold for long, bytes: its processes, and the kernel's tables of all rules together.
    pub memory: u64,
    /// The most that tracing may take of a service's CPU time, percent in thousandths.
    pub max_cost: Share,
    /// Whose rights the worker has; `None`: those of [`crate::WORKER_USER`], if there is one.
    pub user: Option<String>,
}

/// A share in thousandths of a percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Share(u32);

/// One `[[rule]]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Where it begins in the file.
    pub line: usize,
    /// Which processes.
    pub matches: Match,
    /// What is done with them; `None`: they are not traced.
    pub traced: Option<Traced>,
}

/// How the processes of a rule are traced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traced {
    /// The label `service`.
    pub service: String,
    /// Where its requests begin and end.
    pub profile: Box<Profile>,
    /// What the profile is called in the configuration.
    pub profile_name: String,
    /// A request that takes longer is slow.
    pub slo: Option<Duration>,
    /// As of [`Agent`], for this service.
    pub max_cost: Share,
    /// Root causes are found.
    pub blame: bool,
    /// Rows have labels, their fingerprints and attributes; spans have labels and attributes.
    pub texts: bool,
    /// Its requests are counted by group, too; `None`: they are not.
    pub groups: Option<GroupBy>,
}

/// Requests that are counted by group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupBy {
    /// What those of a group have in common.
    pub by: Grouping,
    /// Groups of the service that are distinguished: the first.
    pub most: u32,
}

/// Which processes a rule is about: all that is given has to fit, and of each list one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Match {
    /// Globs over the path of the executable.
    pub exe: Vec<String>,
    /// Globs over the process's name.
    pub comm: Vec<String>,
    /// Globs over the path of the control group.
    pub cgroup: Vec<String>,
    /// Globs over the name of the systemd unit.
    pub unit: Vec<String>,
    /// Younger processes wait, unless their program is traced already.
    pub min_age: Duration,
}

impl Share {
    /// One of so many percent, above 0 and up to 100.
    #[must_use]
    pub fn of_percent(percent: f64) -> Self {
        Self((percent * 1000.0).round().max(1.0) as u32)
    }

    /// In percent.
    #[must_use]
    pub fn percent(self) -> f64 {
        f64::from(self.0) / 1000.0
    }

    /// As a part of 1.
    pub(crate) fn part(self) -> f64 {
        self.percent() / 100.0
    }
}

impl Default for Agent {
    fn default() -> Self {
        Self {
            window: Duration::from_secs(10),
            memory: 512 << 20,
            max_cost: Share::of_percent(5.0),
            user: None,
        }
    }
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// Usage errors: it cannot be read, or what is wrong in it, with the line, the value and what to write instead.
    pub fn read(path: &Path, profiles: Profiles<'_>) -> Result<Self> {
        let text = read::text(path)?;
        Self::parse(&text, &path.display().to_string(), profiles)
    }

    /// The text of a file.
    ///
    /// # Errors
    ///
    /// A usage error: it cannot be read.
    pub(crate) fn text(path: &Path) -> Result<String> {
        read::text(path)
    }

    /// Reads a text; `name` is what messages call it.
    ///
    /// # Errors
    ///
    /// As [`Config::read`].
    pub fn parse(text: &str, name: &str, profiles: Profiles<'_>) -> Result<Self> {
        read::config(text, name, profiles)
    }

    /// Rules that trace, with what they do.
    pub fn traced(&self) -> impl Iterator<Item = (usize, &Rule, &Traced)> {
        let rules = self.rules.iter().enumerate();
        rules.filter_map(|(index, rule)| Some((index, rule, rule.traced.as_ref()?)))
    }

    /// What one rule has of `memory`.
    pub(crate) fn memory_of_a_rule(&self) -> RuleMemory {
        let rules = self.traced().count().max(1) as u64;
        RuleMemory::of(self.agent.memory / rules)
    }

    /// The same configuration with everything that it leaves out, as TOML.
    #[must_use]
    pub fn effective(&self) -> String {
        let mut out = String::new();
        let Agent {
            window,
            memory,
            max_cost,
            user,
        } = &self.agent;
        let _ = write!(
            out,
            "[agent]\nwindow = \"{}\"\nmemory = \"{}\"\nmax-cost = \"{}%\"\n",
            time(*window),
            bytes(*memory),
            max_cost.percent()
        );
        match user {
            Some(user) => {
                let _ = writeln!(out, "user = {}", text(user));
            }
            None => out.push_str("# user = \"reqtrace\", if there is one\n"),
        }
        for rule in &self.rules {
            let _ = write!(out, "\n[[rule]]\nmatch = {{ {} }}\n", rule.matches.keys());
            let Some(traced) = &rule.traced else {
                out.push_str("trace = false\n");
                continue;
            };
            let _ = write!(
                out,
                "service = {}\nprofile = {}\n",
                text(&traced.service),
                text(&traced.profile_name)
            );
            if let Some(slo) = traced.slo {
                let _ = writeln!(out, "slo = \"{}\"", time(slo));
            }
            let _ = write!(
                out,
                "max-cost = \"{}%\"\nblame = {}\ntexts = {}\n",
                traced.max_cost.percent(),
                traced.blame,
                traced.texts
            );
            if let Some(GroupBy { by, most }) = &traced.groups {
                let by = text(&by.to_string());
                let _ = writeln!(out, "group-by = {by}\ngroups = {most}");
            }
        }
        let _ = write!(
            out,
            "\n[metrics]\nlisten = \"{}\"\npublic = {}\n",
            self.listen, self.is_public
        );
        if let Some(rows) = &self.rows {
            out.push_str(&rows.effective());
        }
        if let Some(otlp) = &self.otlp {
            out.push_str(&otlp.effective());
        }
        if let Some(off_cpu) = &self.off_cpu {
            out.push_str(&off_cpu.effective());
        }
        out
    }
}

impl Match {
    /// The path of the program, if the rule is about one program, wherever it is started.
    #[must_use]
    pub fn program(&self) -> Option<&Path> {
        let is_alone = self.comm.is_empty() && self.cgroup.is_empty() && self.unit.is_empty();
        match self.exe.as_slice() {
            [exe] if is_alone && !exe.contains(['*', '?']) => Some(Path::new(exe)),
            _ => None,
        }
    }

    /// Whether it says in which container: a path alone means another file in each.
    #[must_use]
    pub fn names_a_container(&self) -> bool {
        !self.cgroup.is_empty() || !self.unit.is_empty()
    }

    fn keys(&self) -> String {
        let lists = [
            ("exe", &self.exe),
            ("comm", &self.comm),
            ("cgroup", &self.cgroup),
            ("unit", &self.unit),
        ];
        let mut keys = String::new();
        for (key, globs) in lists {
            match globs.as_slice() {
                [] => {}
                [one] => {
                    let _ = write!(keys, "{key} = {}, ", text(one));
                }
                many => {
                    let many: Vec<String> = many.iter().map(|glob| text(glob)).collect();
                    let _ = write!(keys, "{key} = [{}], ", many.join(", "));
                }
            }
        }
        let _ = write!(keys, "min-age = \"{}\"", time(self.min_age));
        keys
    }
}

/// Whether one of the globs matches; none at all matches everything.
pub(crate) fn fits(globs: &[String], value: &str) -> bool {
    globs.is_empty() || globs.iter().any(|glob| glob_matches(glob, value))
}

fn text(value: &str) -> String {
    toml::Value::from(value).to_string()
}

/// The largest unit in which it is a whole number.
pub(crate) fn time(time: Duration) -> String {
    let ns = time.as_nanos();
    let units = [
        ("m", 60_000_000_000),
        ("s", 1_000_000_000),
        ("ms", 1_000_000),
        ("us", 1_000),
    ];
    let fits = units
        .iter()
        .find(|(_, unit)| ns > 0 && ns.is_multiple_of(*unit));
    match fits {
        Some((name, unit)) => format!("{}{name}", ns / unit),
        None if ns == 0 => "0s".to_owned(),
        None => format!("{ns}ns"),
    }
}

fn bytes(bytes: u64) -> String {
    match bytes.is_multiple_of(1 << 20) {
        true => format!("{}MB", bytes >> 20),
        false => format!("{}KB", bytes.div_ceil(1 << 10)),
    }
}

#[cfg(test)]
pub(crate) mod tests;
