//! Rules: a process in; which rule decides about it, or why none does, out.

use std::fmt;
use std::time::Duration;

use crate::config::{Config, Match, fits, time};
use crate::processes::Seen;

/// What the rules say of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The rule of this index traces it.
    Traced(usize),
    /// It would, when the process is older, unless its program is traced already.
    TooYoung(usize, Duration),
    /// The rule of this index says not to.
    NotWanted(usize),
    /// No rule is about it; `Some`: this one would be, if it named a container.
    NoRule(Option<usize>),
}

/// The first rule that matches decides.
pub(crate) fn verdict(config: &Config, seen: &Seen) -> Verdict {
    let mut in_container = None;
    for (index, rule) in config.rules.iter().enumerate() {
        if !names(&rule.matches, seen) {
            continue;
        }
        if !seen.is_host && !rule.matches.names_a_container() {
            in_container = in_container.or(Some(index));
            continue;
        }
        return match &rule.traced {
            None => Verdict::NotWanted(index),
            Some(_) if seen.age < rule.matches.min_age => {
                Verdict::TooYoung(index, rule.matches.min_age)
            }
            Some(_) => Verdict::Traced(index),
        };
    }
    Verdict::NoRule(in_container)
}

fn names(matches: &Match, seen: &Seen) -> bool {
    fits(&matches.exe, &seen.exe)
        && fits(&matches.comm, &seen.comm)
        && fits(&matches.cgroup, &seen.cgroup)
        && fits(&matches.unit, seen.unit())
}

/// A verdict in words.
pub(crate) struct Words<'a>(pub(crate) &'a Config, pub(crate) Verdict);

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(config, verdict) = self;
        let rule = |index: &usize| {
            let rule = config.rules.get(*index);
            rule.map_or(0, |rule| rule.line)
        };
        match verdict {
            Verdict::Traced(index) => write!(f, "traced by the rule at line {}", rule(index)),
            Verdict::TooYoung(index, age) => write!(
                f,
                "traced by the rule at line {} when it is {} old",
                rule(index),
                time(*age)
            ),
            Verdict::NotWanted(index) => write!(f, "left out by the rule at line {}", rule(index)),
            Verdict::NoRule(None) => f.write_str("no rule matches"),
            Verdict::NoRule(Some(index)) => write!(
                f,
                "in a container, of which the rule at line {} names neither cgroup nor unit",
                rule(index)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::parsed;

    fn seen() -> Seen {
        Seen {
            exe: "/usr/sbin/mariadbd".to_owned(),
            file: (1, 2),
            comm: "mariadbd".to_owned(),
            cgroup: "/system.slice/mariadb.service".to_owned(),
            parent: 1,
            is_host: true,
            age: Duration::from_secs(60),
        }
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let config = parsed(
            "[[rule]]\nmatch = { unit = \"test-*\" }\ntrace = false\n\
             [[rule]]\nmatch = { exe = \"*/mariadbd\", comm = [\"x\", \"maria*\"] }\nservice = \"db\"\nprofile = \"mysql\"\n\
             [[rule]]\nmatch = { exe = \"*\" }\nservice = \"rest\"\nprofile = \"mysql\"\n",
        );
        let of = |seen: &Seen| verdict(&config, seen);
        assert_eq!(of(&seen()), Verdict::Traced(1));
        let other = |change: fn(&mut Seen)| {
            let mut seen = seen();
            change(&mut seen);
            of(&seen)
        };
        let unit = |seen: &mut Seen| seen.cgroup = "/system.slice/test-db.service".to_owned();
        assert_eq!(other(unit), Verdict::NotWanted(0));
        assert_eq!(
            other(|seen| seen.comm = "my".to_owned()),
            Verdict::Traced(2)
        );
        let young = Duration::from_secs(4);
        let too_young = Verdict::TooYoung(1, Duration::from_secs(5));
        assert_eq!(other(|seen| seen.age = Duration::from_secs(4)), too_young);
        assert!(young < Duration::from_secs(5));
        // A path alone is that of this machine.
        assert_eq!(other(|seen| seen.is_host = false), Verdict::NoRule(Some(1)));
        let words = Words(&config, too_young).to_string();
        assert_eq!(words, "traced by the rule at line 4 when it is 5s old");
    }

    #[test]
    fn in_a_container_a_rule_names_it() {
        let config = parsed(
            "[[rule]]\nmatch = { exe = \"/a\", cgroup = \"*/docker-*\" }\nservice = \"a\"\nprofile = \"mysql\"\n",
        );
        let mut inside = Seen {
            exe: "/a".to_owned(),
            is_host: false,
            cgroup: "/system.slice/docker-1.scope".to_owned(),
            ..seen()
        };
        assert_eq!(verdict(&config, &inside), Verdict::Traced(0));
        inside.cgroup = "/".to_owned();
        assert_eq!(verdict(&config, &inside), Verdict::NoRule(None));
    }
}
