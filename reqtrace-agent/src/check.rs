//! `--check`: a configuration and all processes in; a line for each of them, with the rule that decides, out.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use reqtrace_base::plain::Plain;

use crate::config::Config;
use crate::processes::{Id, Seen};
use crate::rules::{Verdict, Words, verdict};

/// Those that are traced first, then those that would be, then the others.
pub(crate) fn table(config: &Config, processes: &BTreeMap<Id, Seen>) -> String {
    let mut lines: Vec<(u8, Id, &Seen, Verdict)> = Vec::new();
    for (id, seen) in processes {
        let verdict = verdict(config, seen);
        let order = match verdict {
            Verdict::Traced(_) => 0,
            Verdict::TooYoung(..) => 1,
            Verdict::NotWanted(_) => 2,
            Verdict::NoRule(_) => 3,
        };
        lines.push((order, *id, seen, verdict));
    }
    lines.sort_by_key(|(order, id, ..)| (*order, *id));
    let service = |verdict: Verdict| {
        let (Verdict::Traced(rule) | Verdict::TooYoung(rule, _)) = verdict else {
            return "-";
        };
        let traced = config.rules.get(rule).and_then(|rule| rule.traced.as_ref());
        traced.map_or("-", |traced| traced.service.as_str())
    };
    let widest = lines.iter().map(|(.., verdict)| service(*verdict).len());
    let width = widest.max().unwrap_or(0).max("SERVICE".len());
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{:>7}  {:15}  {:width$}  WHY",
        "PID", "NAME", "SERVICE"
    );
    for (_, id, seen, verdict) in &lines {
        let _ = write!(
            out,
            "{:>7}  {:15}  {:width$}  {}: {}",
            id.pid,
            Plain::of(&seen.comm).to_string(),
            service(*verdict),
            Words(config, *verdict),
            Plain::of(&seen.exe)
        );
        if !seen.unit().is_empty() {
            let _ = write!(out, " ({})", Plain::of(seen.unit()));
        }
        out.push('\n');
    }
    let traced = lines.iter().filter(|(order, ..)| *order == 0).count();
    let _ = writeln!(
        out,
        "{traced} of {} processes would be traced now; `reqtrace check --profile PROFILE -p PID` shows the probes",
        lines.len()
    );
    out
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::tests::parsed;

    #[test]
    fn each_process_has_a_line_and_a_reason() {
        let config = parsed(
            "[[rule]]\nmatch = { exe = \"/a\" }\nservice = \"orders\"\nprofile = \"mysql\"\n\
             [[rule]]\nmatch = { comm = \"b\" }\ntrace = false\n",
        );
        let seen = |exe: &str, comm: &str, age: u64, is_host: bool| Seen {
            exe: exe.to_owned(),
            file: (0, 0),
            comm: comm.to_owned(),
            cgroup: "/system.slice/x.service".to_owned(),
            parent: 1,
            is_host,
            age: Duration::from_secs(age),
        };
        let all = [
            seen("/c", "c\x1b[2J", 60, true),
            seen("/b", "b", 60, true),
            seen("/a", "young", 1, true),
            seen("/a", "boxed", 60, false),
            seen("/a", "a", 60, true),
        ];
        let all = (1..)
            .zip(all)
            .map(|(pid, seen)| (Id { pid, start: 1 }, seen))
            .collect();
        let table = table(&config, &all);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(
            lines[1],
            "      5  a                orders   traced by the rule at line 1: /a (x.service)"
        );
        assert!(lines[2].contains("young") && lines[2].contains("when it is 5s old: /a"));
        assert!(lines[3].contains("left out by the rule at line 5: /b"));
        let rest = lines[4..6].join("\n");
        assert!(
            rest.contains("no rule matches: /c") && !rest.contains('\x1b'),
            "{rest}"
        );
        assert!(rest.contains("in a container, of which the rule at line 1 names neither"));
        assert!(lines[6].starts_with("1 of 5 processes would be traced now"));
    }
}
