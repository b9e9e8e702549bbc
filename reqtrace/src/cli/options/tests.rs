use std::ffi::OsString;

use clap::{CommandFactory as _, Parser as _};

use super::*;
use crate::cli::args::{Args, in_order};
use reqtrace_output::outputs::Target;

fn parse(line: &str) -> Result<TraceOptions> {
    let words = std::iter::once("reqtrace").chain(line.split_whitespace());
    Args::try_parse_from(words).unwrap().trace.into_options()
}

/// Message and advice of a line that must be refused.
fn refused(line: &str) -> String {
    let error = parse(line).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    format!("{error} / {}", error.advice().unwrap_or_default())
}

#[test]
fn clap_finds_nothing_wrong_with_the_definition() {
    Args::command().debug_assert();
}

#[test]
fn the_help_begins_with_examples() {
    let help = Args::command().render_help().to_string();
    assert!(help.starts_with("Examples:"), "{help}");
    assert!(help.contains("[OPTIONS] [DURATION]\n"), "{help}");
    assert!(help.contains("--record <FILE>"), "{help}");
}

#[test]
fn the_plain_case() {
    let options = parse("--profile mysql -p 4711 30").unwrap();
    assert_eq!(options.pids, [4711]);
    assert_eq!(options.duration, Some(Duration::from_secs(30)));
    assert!(options.follow);
    assert!(!options.outputs.takes_stdout());
    let stacks = options.outputs.spec().stacks;
    assert!(stacks.user && stacks.kernel);
}

#[test]
fn pids_come_with_commas_and_repeated() {
    let options = parse("--profile p -p 1,2 -p 3 -p 2 --no-follow").unwrap();
    assert_eq!(options.pids, [1, 2, 3]);
    assert_eq!(options.duration, None);
    assert!(!options.follow);
}

#[test]
fn what_is_not_given_is_left_to_be_found() {
    let options = parse("-p 1 30").unwrap();
    assert_eq!((options.profiles.len(), options.pids), (0, vec![1]));
    let options = parse("--profile p 30").unwrap();
    assert_eq!(options.profiles, ["p"]);
    assert!(options.pids.is_empty() && options.command.is_empty());
    let options = parse("--profile p 5 -q -- sleep -p 1").unwrap();
    assert_eq!(options.command, ["sleep", "-p", "1"]);
    assert_eq!(options.duration, Some(Duration::from_secs(5)));
    assert_eq!(parse("-- sleep 1").unwrap().duration, None);
}

#[test]
fn what_pgrep_makes_gets_a_hint() {
    let text = refused("--profile p -p 1 2 3 30");
    assert!(text.contains("-p 1,2,3 30"), "{text}");
    assert!(text.contains("pgrep -d,"), "{text}");
}

#[test]
fn outputs() {
    let options = parse("--profile p -p 1 0.5 -f --csv a.csv --slower-than 1.5ms").unwrap();
    assert_eq!(options.duration, Some(Duration::from_millis(500)));
    let targets = options.outputs.spec().targets;
    let target = |option| {
        let found = targets.iter().find(|(format, _)| format.option == option);
        found.map(|(_, target)| target.clone())
    };
    assert_eq!(target("folded"), Some(Target::Stdout));
    assert_eq!(target("csv"), Some(Target::File("a.csv".into())));
    assert_eq!(
        options.outputs.slower_than,
        Some(Duration::from_micros(1500))
    );
    assert!(options.outputs.takes_stdout());
    let text = refused("--profile p -p 1 -f --csv -");
    assert!(text.contains("--csv and -f"), "{text}");
    assert!(refused("--profile p -p 1 -f --folded x").contains("one of the two"));
}

#[test]
fn what_is_missing_or_contradictory_is_refused() {
    assert!(refused("30").contains("nothing to trace"));
    assert!(refused("-p 1 -- x").contains("both a process and a program"));
    assert!(refused("--comm x -- x").contains("both a process and a program"));
    assert!(refused("--profile p -p 1 -K -U").contains("-K and -U"));
    assert!(refused("--profile p -p mysqld").contains("`mysqld` is not a PID"));
    assert!(refused("--profile p -p 0").contains("`0` is not a PID"));
    assert!(refused("--profile p -p 1 0").contains("above 0"));
    assert!(refused("--profile p -p 1 -1").contains("above 0"));
    assert!(refused("--profile p -p 1 inf").contains("neither"));
    assert!(refused("--profile p --comm a-name-that-is-too-long").contains("15 bytes"));
    assert!(refused("chekc --profile p").contains("did you mean `reqtrace check`"));
}

#[test]
fn clap_refuses_with_exit_code_2() {
    for line in [
        "reqtrace --profle x",
        "reqtrace -q -v",
        "reqtrace --slower-than 10",
        "reqtrace check --profile p -p 1 /bin/true",
        "reqtrace report --attribute status trace.rec",
        "reqtrace report --attribute =500 trace.rec",
    ] {
        let error = Args::try_parse_from(line.split_whitespace()).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{line}");
    }
}

#[test]
fn verbose_may_come_before_a_command() {
    for (line, wanted) in [
        ("reqtrace -v doctor", "reqtrace doctor -v"),
        (
            "reqtrace -vv --verbose report x.rec",
            "reqtrace report -vv --verbose x.rec",
        ),
        ("reqtrace -v -p 7", "reqtrace -v -p 7"),
        ("reqtrace -- doctor", "reqtrace -- doctor"),
        ("reqtrace", "reqtrace"),
    ] {
        let words = in_order(line.split(' ').map(Into::into).collect());
        let wanted: Vec<OsString> = wanted.split(' ').map(Into::into).collect();
        assert_eq!(words, wanted);
        assert!(Args::try_parse_from(words).is_ok(), "{line}");
    }
}

#[test]
fn a_duration_may_have_a_unit() {
    for (word, wanted) in [
        ("30", Duration::from_secs(30)),
        ("2s", Duration::from_secs(2)),
        ("500ms", Duration::from_millis(500)),
        ("0.25s", Duration::from_millis(250)),
    ] {
        assert_eq!(parse_duration(word).unwrap(), wanted, "{word}");
    }
    for word in ["0", "0s", "-1", "2h", "s", "nan", "1e30", "9999999999999"] {
        let error = parse_duration(word).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{word}");
        assert!(error.advice().unwrap().contains("500ms"), "{word}");
    }
}

#[test]
fn a_sample_is_one_of_n() {
    let every = |line: &str| parse(&format!("--profile p -p 1 {line}")).map(|o| o.sample_every);
    assert_eq!(every("").unwrap(), 1);
    assert_eq!(every("--sample 1/8").unwrap(), 8);
    assert_eq!(every("--sample 100").unwrap(), 100);
    for word in ["0", "1/0", "2/3", "0.5", "1/2000000", "-1"] {
        let words = ["reqtrace", "--profile", "p", "-p", "1"];
        let sample = format!("--sample={word}");
        let line = words.into_iter().chain([sample.as_str()]);
        let error = Args::try_parse_from(line).unwrap_err().to_string();
        assert!(error.contains("such as 1/8"), "{error}");
    }
}

#[test]
fn slow_requests_are_kept_with_one_in_so_many_of_the_others() {
    let keep = |line: &str| {
        parse(&format!("--profile p -p 1 {line}"))
            .unwrap()
            .keep_slow
    };
    assert_eq!(keep(""), KeepSlow::ALL);
    for (line, slow_ns, one_in) in [
        ("--keep-slow 20ms", 20_000_000, 100),
        ("--keep-slow 1.5s --one-in 4000", 1_500_000_000, 4_000),
    ] {
        assert_eq!(keep(line), KeepSlow { slow_ns, one_in });
    }
    for (line, says) in [
        ("--keep-slow=0ms", "such as 20ms"),
        ("--keep-slow=20", "unit"),
        ("--one-in=10", "--keep-slow"),
        ("--keep-slow=20ms --one-in=0", "1..=4000"),
        ("--keep-slow=20ms --one-in=4001", "1..=4000"),
    ] {
        let words = ["reqtrace", "--profile", "p", "-p", "1"].into_iter();
        let error = Args::try_parse_from(words.chain(line.split(' '))).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[test]
fn intervals_turn_blame_on() {
    let blame = |line: &str| parse(&format!("--profile p -p 1 {line}")).map(|o| o.blame);
    assert!(!blame("").unwrap());
    assert!(!blame("--pprof p.pb.gz").unwrap());
    for option in ["--intervals", "--perfetto", "--html"] {
        assert!(blame(&format!("{option} file")).unwrap());
        assert!(blame(&format!("{option} file --sample 1/8")).unwrap());
    }
    let both = blame("--intervals - --csv -").unwrap_err();
    assert!(both.to_string().contains("--intervals"), "{both}");
}

#[test]
fn preemptions_have_stacks_when_they_are_asked_for() {
    let wanted = |line: &str| {
        parse(&format!("--profile p -p 1 {line}"))
            .unwrap()
            .preempted_stacks
    };
    assert!(!wanted(""));
    assert!(wanted("--preempted-stacks"));
    assert!(wanted("--state 0"));
    assert!(!wanted("--state 1"));
    let both = refused("--profile p -p 1 --state 1 --preempted-stacks");
    assert!(both.contains("--state 1"), "{both}");
}
