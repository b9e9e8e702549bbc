//! Profiles of a session that lasts: the stacks of one request type in a period in, a gzipped profile that says of how many
//! requests it is, and what it lacks, out.

use std::io;

use reqtrace_analysis::report::palette::Time;
use reqtrace_analysis::report::{Places, Report, STACK_NOT_TAKEN, StackKind, StackLine, StacksRow};

use super::wire::Sample;
use super::{Builder, gzipped, signed};
use crate::folded::{FoldedOptions, frames};

/// What the times of stacks are called.
#[derive(Clone, Debug, Default)]
pub struct NamesOfTimes {
    /// Wait classes, in the order of every ledger.
    pub classes: Vec<String>,
    /// Where requests are while no thread runs them.
    pub places: Places,
}

/// A profile of the time that requests of one type were off the CPU in a period, gzipped. Its samples have one value, ns
/// of all requests, where some stand for others: a record of a request has sums, and does not tell how often it was somewhere.
/// Its comments begin with words, and go on with `KEY=NUMBER`: how many requests there were, their Σ of latencies, and of the time what has no stack.
///
/// # Errors
///
/// Never: memory takes everything.
pub fn of_period(row: &StacksRow, service: &str, names: &NamesOfTimes) -> io::Result<Vec<u8>> {
    let named = Report {
        classes: names.classes.clone(),
        places: names.places.clone(),
        ..Report::default()
    };
    let mut builder = Builder::new(&row.modules);
    let time = builder.value_type("time", "nanoseconds");
    builder.profile.sample_type = vec![time];
    builder.profile.default_sample_type = time.r#type;
    // Each nanosecond is counted.
    builder.profile.period_type = Some(time);
    builder.profile.period = 1;
    builder.profile.time_nanos = signed(row.start_unix_ns);
    builder.profile.duration_nanos = signed(row.length_ns);
    for comment in comments(row, service) {
        builder.comment(&comment);
    }
    for line in &row.stacks {
        let frames = frames(line, FoldedOptions::default());
        let location_id = frames.iter().rev().map(|name| builder.location(name));
        let location_id = location_id.collect();
        let class = Time::of(line).name(&named);
        let label = vec![
            builder.label("process", &line.comm),
            builder.label("request", &line.request),
            builder.label("class", &class),
        ];
        builder.profile.sample.push(Sample {
            location_id,
            value: vec![signed(line.ns)],
            label,
        });
    }
    gzipped(&builder.profile)
}

fn comments(row: &StacksRow, service: &str) -> [String; 9] {
    let sum = |which: &dyn Fn(&StackLine) -> bool| {
        let those = row.stacks.iter().filter(|line| which(line));
        those.map(|line| line.ns).sum::<u64>()
    };
    let is_blocked = |line: &StackLine| line.kind == StackKind::Blocked;
    let not_taken = |line: &StackLine| {
        line.user
            .first()
            .is_some_and(|name| name == STACK_NOT_TAKEN)
    };
    [
        format!(
            "off-CPU time of requests {} of {service}, by reqtrace {}",
            row.request,
            env!("CARGO_PKG_VERSION")
        ),
        format!("requests={}", row.requests),
        format!("requests_recorded={}", row.recorded),
        format!("requests_incomplete={}", row.incomplete),
        format!("latency_ns={}", row.latency_ns),
        format!("on_cpu_ns={}", row.on_cpu_ns),
        format!("off_cpu_ns={}", sum(&|_| true)),
        format!("blocked_ns={}", sum(&is_blocked)),
        format!("stack_not_taken_ns={}", sum(&not_taken)),
    ]
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::GzDecoder;
    use prost::Message as _;
    use reqtrace_analysis::report::Module;
    use reqtrace_base::plain::Plain;

    use super::super::wire::Profile;
    use super::*;

    fn line(user: &[&str], kind: StackKind, class: Option<usize>, ns: u64) -> StackLine {
        StackLine {
            comm: Plain::of("shop"),
            request: "order".to_owned(),
            user: user.iter().map(|name| (*name).to_owned()).collect(),
            kernel: Vec::new(),
            kind,
            class,
            ns,
            count: 3,
            longest_ns: 0,
        }
    }

    #[test]
    fn it_says_what_it_is_of_and_what_it_lacks() {
        let row = StacksRow {
            start_unix_ns: 60_000_000_000,
            length_ns: 60_000_000_000,
            request: "order".to_owned(),
            recorded: 5,
            requests: 20,
            incomplete: 1,
            latency_ns: 1_000,
            on_cpu_ns: 300,
            stacks: vec![
                line(&["main", "pay"], StackKind::Blocked, Some(1), 400),
                line(&[STACK_NOT_TAKEN], StackKind::Blocked, Some(0), 200),
                line(&[], StackKind::Preempted, None, 100),
            ],
            modules: vec![Module {
                path: "/bin/shop".to_owned(),
                build_id: vec![0xab, 0xcd],
                functions: vec!["main".to_owned(), "pay".to_owned()],
            }],
        };
        let names = NamesOfTimes {
            classes: vec!["disk".to_owned(), "network".to_owned()],
            places: Places::default(),
        };
        let bytes = of_period(&row, "shop", &names).unwrap();
        let mut whole = Vec::new();
        GzDecoder::new(&bytes[..]).read_to_end(&mut whole).unwrap();
        let profile = Profile::decode(&whole[..]).unwrap();
        let text = |at: i64| profile.string_table[at as usize].as_str();
        let comments: Vec<&str> = profile.comment.iter().map(|at| text(*at)).collect();
        assert!(
            comments[0].starts_with("off-CPU time of requests order of shop"),
            "{comments:?}"
        );
        assert_eq!(
            comments[1..],
            [
                "requests=20",
                "requests_recorded=5",
                "requests_incomplete=1",
                "latency_ns=1000",
                "on_cpu_ns=300",
                "off_cpu_ns=700",
                "blocked_ns=600",
                "stack_not_taken_ns=200"
            ]
        );
        let values: Vec<_> = profile.sample.iter().map(|of| &of.value[..]).collect();
        assert_eq!(values, [[400], [200], [100]]);
        let classes: Vec<&str> = profile
            .sample
            .iter()
            .map(|of| text(of.label[2].str))
            .collect();
        assert_eq!(classes, ["network", "disk", "preempted"]);
        let (mapping, location) = (&profile.mapping[0], &profile.location[0]);
        assert_eq!(
            (text(mapping.build_id), mapping.id),
            ("abcd", location.mapping_id)
        );
        assert_eq!((profile.period, profile.time_nanos), (1, 60_000_000_000));
        assert_eq!(of_period(&row, "shop", &names).unwrap(), bytes);
    }
}
