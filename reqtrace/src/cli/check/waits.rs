//! What the matchers of named waits match: a profile's `[[wait]]`s and a target in, lines out.
//!
//! Functions are looked for in all objects, for a frame of a stack may be of any; kernel functions
//! in the running kernel; files among those that the process has open now.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;

use reqtrace_base::error::Result;
use reqtrace_base::names::without_suffix;
use reqtrace_binary::symbolize::kernel::KernelSymbols;
use reqtrace_profile::matching::{file_matches, function_matches};
use reqtrace_profile::{CALLS, Combine, Profile, WaitSpec};
use reqtrace_resolve::missing::symbols_from;
use reqtrace_resolve::search::names_matching;
use reqtrace_resolve::{ObjectFile, Opened, Target};

/// Names printed for one matcher before the rest is only counted.
const MAX_NAMES: usize = 1;

/// Names printed longer than this are cut.
const MAX_NAME: usize = 50;

/// What waits match in one target.
pub(super) struct Waits<'a> {
    objects: Vec<Arc<Opened>>,
    kernel: Option<Arc<KernelSymbols>>,
    open_files: Option<BTreeSet<String>>,
    executable: &'a ObjectFile,
    silent: usize,
}

impl<'a> Waits<'a> {
    /// Opens what is to be looked at.
    ///
    /// # Errors
    ///
    /// When the executable cannot be read.
    pub(super) fn of(profile: &Profile, target: &'a Target<'_>) -> Result<Self> {
        let executable = target.executable();
        let mut objects = vec![target.open(executable)?];
        let mut open_files = None;
        if let Target::Process(process) = target {
            let others = process.objects.iter().filter(|file| *file != executable);
            // What cannot be read has no names either.
            objects.extend(others.filter_map(|file| target.look_at(file).ok()));
            open_files = files_of(process.pid);
        }
        let wants_kernel = profile.waits.iter().any(|w| !w.kernel_functions.is_empty());
        let kernel = wants_kernel.then(KernelSymbols::read);
        Ok(Self {
            objects,
            kernel: kernel.filter(|symbols| !symbols.hidden()),
            open_files,
            executable,
            silent: 0,
        })
    }

    /// The lines about one wait.
    pub(super) fn describe(&mut self, wait: &WaitSpec) -> String {
        let how = match wait.combine {
            Combine::Any => "",
            Combine::All => " (all kinds must match)",
        };
        let mut text = format!("wait {}{how}\n", wait.name);
        for pattern in &wait.functions {
            text.push_str(&row("function", pattern, &self.function(pattern)));
        }
        // Those about which there is nothing to say stand in one line.
        let mut plain = Vec::new();
        for pattern in &wait.files {
            match self.open_file(pattern) {
                Some(found) => text.push_str(&row("file", pattern, &found)),
                None => plain.push(pattern.as_str()),
            }
        }
        if !plain.is_empty() {
            let open = self.open_files.as_ref().map_or("", |_| "none is open now");
            text.push_str(&row("file", &plain.join(", "), open));
        }
        for pattern in &wait.kernel_functions {
            text.push_str(&row("kernel", pattern, &self.kernel_function(pattern)));
        }
        if !wait.syscalls.is_empty() {
            text.push_str(&row("syscall", &wait.syscalls.join(", "), ""));
        }
        text
    }

    /// What to say when matchers of functions match nothing.
    pub(super) fn advice(&self) -> Option<String> {
        let silent = self.silent;
        let (matchers, will) = match silent {
            1 => ("matcher of functions matches", "it will"),
            _ => ("matchers of functions match", "they will"),
        };
        let why = match self.objects.first() {
            Some(object) if !object.has_symtab() => {
                format!("is stripped. {}", symbols_from(object))
            }
            _ => "has a symbol table: they may be for another version".to_owned(),
        };
        (silent > 0).then(|| {
            format!(
                "{silent} {matchers} nothing, and {will} not either while tracing; {} {why}",
                self.executable.shown
            )
        })
    }

    /// A function or a chain of them: each link must be there.
    fn function(&mut self, pattern: &str) -> String {
        let links: Vec<&str> = pattern.split(CALLS).map(str::trim).collect();
        let found: Vec<BTreeSet<String>> = links.iter().map(|link| self.names(link)).collect();
        // In a program that does not run, libraries are not known.
        let whole_process = self.open_files.is_some();
        let asked = if whole_process { links.len() } else { 1 };
        let absent = (0..asked).find(|&at| found[at].is_empty());
        if let Some(absent) = absent {
            self.silent += 1;
            return if links.len() == 1 {
                "matches nothing".to_owned()
            } else {
                format!("matches nothing: no `{}`", links[absent])
            };
        }
        let shown: Vec<String> = found
            .iter()
            .map(|names| match names.len() {
                0 => "(in a library)".to_owned(),
                _ => list(names, cut),
            })
            .collect();
        shown.join(" => ")
    }

    fn names(&self, pattern: &str) -> BTreeSet<String> {
        let fits = |name: &str| function_matches(pattern, name);
        self.objects
            .iter()
            .flat_map(|object| names_matching(object, pattern, fits))
            .collect()
    }

    /// The files that the process has open now and that a pattern matches.
    fn open_file(&self, pattern: &str) -> Option<String> {
        let open = self.open_files.as_ref()?.iter();
        let found: BTreeSet<String> = open
            .filter(|path| file_matches(pattern, path))
            .cloned()
            .collect();
        (!found.is_empty()).then(|| format!("open now: {}", list(&found, str::to_owned)))
    }

    fn kernel_function(&self, pattern: &str) -> String {
        let Some(kernel) = &self.kernel else {
            return "not known: the kernel hides its symbols from this user".to_owned();
        };
        let found: BTreeSet<String> = kernel
            .names()
            .map(without_suffix)
            .filter(|name| function_matches(pattern, name))
            .map(str::to_owned)
            .collect();
        if found.is_empty() {
            "matches nothing in this kernel".to_owned()
        } else {
            list(&found, cut)
        }
    }
}

fn row(kind: &str, pattern: &str, found: &str) -> String {
    let line = format!("  {kind:<8}  {pattern:<40}  {found}");
    format!("{}\n", line.trim_end())
}

/// The files that a process has open; `None` when that cannot be seen.
fn files_of(pid: u32) -> Option<BTreeSet<String>> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let targets = entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    Some(
        targets
            .map(|path| path.to_string_lossy().into_owned())
            .filter(|path| path.starts_with('/'))
            .collect(),
    )
}

fn list(names: &BTreeSet<String>, shown: impl Fn(&str) -> String) -> String {
    let mut text: Vec<String> = names
        .iter()
        .take(MAX_NAMES)
        .map(|name| shown(name))
        .collect();
    let more = names.len().saturating_sub(MAX_NAMES);
    if more > 0 {
        text.push(format!("{more} more"));
    }
    text.join(", ")
}

fn cut(name: &str) -> String {
    if name.chars().count() <= MAX_NAME {
        return name.to_owned();
    }
    let head: String = name.chars().take(MAX_NAME - 1).collect();
    format!("{head}…")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use reqtrace_profile::Origin;

    /// Also a function that this program has: an inlined one is in no table of symbols.
    #[inline(never)]
    fn described(wait: &str) -> (String, Option<String>) {
        let profile = format!(
            "[profile]\nname = \"x\"\n[[request]]\nname = \"r\"\n\
             begin = {{ function = \"main\" }}\n[[wait]]\nname = \"w\"\n{wait}"
        );
        let profile = Profile::parse(&profile, "x.toml", Origin::BuiltIn).unwrap();
        let own = std::env::current_exe().unwrap();
        let target = Target::file(Path::new(&own));
        let mut waits = Waits::of(&profile, &target).unwrap();
        let text = waits.describe(&profile.waits[0]);
        (text, waits.advice())
    }

    #[test]
    fn each_matcher_says_what_it_matches() {
        let (text, advice) = described("functions = [\"*waits::tests::described\"]");
        assert!(
            text.contains("cli::check::waits::tests::described"),
            "{text}"
        );
        assert_eq!(advice, None);
        let (text, advice) = described("functions = [\"no_such_*\", \"none => main\"]");
        assert!(text.contains("matches nothing\n"), "{text}");
        assert!(text.contains("matches nothing: no `none`"), "{text}");
        let advice = advice.unwrap();
        assert!(advice.starts_with("2 matchers"), "{advice}");
        assert!(advice.contains("another version"), "{advice}");
        let (_, advice) = described("functions = [\"no_such_*\"]");
        let advice = advice.unwrap();
        assert!(
            advice.starts_with("1 matcher of functions matches nothing, and it will"),
            "{advice}"
        );
        let (text, _) = described("match = \"all\"\nfiles = [\"*.ibd\"]\nsyscalls = [\"read\"]");
        assert!(text.contains("all kinds must match"), "{text}");
        assert!(text.contains("syscall   read\n"), "{text}");
    }

    #[test]
    fn long_lists_and_names_are_cut() {
        let names = ["a", "b", "c", "d"].map(str::to_owned);
        assert_eq!(list(&names.into_iter().collect(), cut), "a, 3 more");
        assert_eq!(cut(&"x".repeat(51)).chars().count(), 50);
        assert_eq!(cut("short"), "short");
    }
}
