use super::*;
use crate::builtin::{BUILT_IN, built_in, from_file};
use reqtrace_base::error::Kind;

const GOOD: &str =
    "[profile]\nname = \"p\"\n\n[[request]]\nname = \"r\"\nbegin = { function = \"f\" }\n";

fn parse(text: &str) -> Result<Profile> {
    Profile::parse(text, "p.toml", Origin::BuiltIn)
}

/// The message and the advice of a profile that must be refused.
fn refused(text: &str) -> (String, String) {
    let error = parse(text).unwrap_err();
    assert_eq!(error.kind(), Kind::Usage);
    (
        error.to_string(),
        error.advice().unwrap_or_default().to_owned(),
    )
}

#[test]
fn every_built_in_profile_is_valid() {
    for profile in BUILT_IN {
        let parsed = profile.parse().unwrap();
        assert_eq!(parsed.name, profile.name);
        assert!(!parsed.description.is_empty());
    }
    let parsed = |name| built_in(name).unwrap().parse().unwrap();
    assert_eq!(parsed("mysql"), parsed("mysql.toml"));
}

#[test]
fn only_requests_with_a_key_wait_at_sockets_and_those_of_redis_do_not() {
    let waits = |name: &str| {
        let profile = built_in(name).unwrap().parse().unwrap();
        profile.requests.iter().any(|request| request.sockets)
    };
    for (name, expected) in [
        ("nginx", true),
        ("axum", true),
        ("redis", false),
        ("mysql", false),
    ] {
        assert_eq!(waits(name), expected, "{name}");
    }
}

#[test]
fn the_smallest_profile_gets_its_defaults() {
    let profile = parse(GOOD).unwrap();
    let request = &profile.requests[0];
    assert_eq!(request.end, None);
    assert_eq!(request.reentry, cookie::Reentry::Nest);
    assert_eq!(request.return_probe, ReturnProbe::Sites);
    assert_eq!(
        request.begin.place,
        PlaceSpec::Function {
            patterns: vec!["f".into()],
            at: At::Entry
        }
    );
}

#[test]
fn everything_can_be_written() {
    let profile = parse(
        r#"
        [profile]
        name = "all"
        description = "everything"
        executables = ["a", "b"]
        [[request]]
        name = "one"
        begin = { function = ["f", "g"], at = "return", object = "libx.so*" }
        end = { offset = 0x1234 }
        reentry = "restart"
        return-probe = "uretprobe"
        [[wait]]
        name = "redo log"
        functions = "log_*"
        files = ["*/ib_logfile[01]"]
        kernel-functions = ["jbd2_*"]
        syscalls = ["fsync"]
        "#,
    )
    .unwrap();
    let request = &profile.requests[0];
    assert_eq!(request.reentry, cookie::Reentry::Restart);
    assert_eq!(request.return_probe, ReturnProbe::Uretprobe);
    assert_eq!(
        request.end.as_ref().unwrap().place,
        PlaceSpec::Offset(0x1234)
    );
    assert!(!request.begin.is_all);
    assert_eq!(profile.waits[0].functions, ["log_*"]);
}

#[test]
fn an_unknown_key_is_placed_and_a_known_one_suggested() {
    let (what, next) = refused(&GOOD.replace("begin", "beginn"));
    assert!(
        what.starts_with("p.toml:6:1: unknown field `beginn`"),
        "{what}"
    );
    assert_eq!(next, "did you mean `begin`?");
    let (what, next) = refused(&GOOD.replace("function", "fucntion"));
    assert!(what.starts_with("p.toml:6:11: unknown field"), "{what}");
    assert_eq!(next, "did you mean `function`?");
}

#[test]
fn a_wrong_value_is_placed_and_a_known_one_suggested() {
    let (what, next) = refused(&format!("{GOOD}reentry = \"restrat\"\n"));
    assert!(
        what.starts_with("p.toml:7:11: unknown variant `restrat`"),
        "{what}"
    );
    assert_eq!(next, "did you mean `restart`?");
    let (what, _) = refused(&GOOD.replace("\"f\"", "7"));
    assert!(
        what.contains("p.toml:6:22: invalid type: integer `7`, expected a string or a list"),
        "{what}"
    );
}

#[test]
fn malformed_toml_is_placed() {
    let (what, _) = refused("[profile]\nname = \"p\n");
    assert!(what.starts_with("p.toml:2:"), "{what}");
    let (what, _) = refused("");
    assert!(what.contains("missing field `profile`"), "{what}");
}

#[test]
fn lists_and_names_may_not_be_empty() {
    let (what, _) = refused(&GOOD.replace("\"f\"", "[]"));
    assert_eq!(what, "p.toml:6:22: function is an empty list");
    let (what, _) = refused(&GOOD.replace("\"f\"", "[\"f\", \"\"]"));
    assert_eq!(what, "p.toml:6:28: function is empty");
    let (what, _) = refused(&GOOD.replace("\"r\"", "\" \""));
    assert_eq!(what, "p.toml:5:8: a request's name is empty");
    let (what, next) = refused("[profile]\nname = \"p\"\n");
    assert!(what.contains("no [[request]]"), "{what}");
    assert!(next.contains("[[request]]"), "{next}");
}

#[test]
fn names_are_unique_and_not_taken() {
    let (what, _) = refused(&format!(
        "{GOOD}[[request]]\nname = \"r\"\nbegin = {{ function = \"g\" }}\n"
    ));
    assert_eq!(what, "p.toml:8:8: there are two requests named `r`");
    for name in ["disk", "Run Queue", "on_cpu", "page fault"] {
        let (what, _) = refused(&format!(
            "{GOOD}[[wait]]\nname = \"{name}\"\nfiles = \"*\"\n"
        ));
        assert!(what.starts_with("p.toml:8:8: "), "{what}");
        assert!(what.contains("is already"), "{what}");
    }
    let (what, _) = refused(&format!(
        "{GOOD}[[wait]]\nname = \"a b\"\nfiles = \"*\"\n[[wait]]\nname = \"a_b\"\nfiles = \"*\"\n"
    ));
    assert!(what.contains("would share one column"), "{what}");
}

#[test]
fn seventeen_request_types_are_too_many() {
    let mut text = String::from("[profile]\nname = \"p\"\n");
    for number in 0..17 {
        text.push_str(&format!(
            "[[request]]\nname = \"r{number}\"\nbegin = {{ function = \"f\" }}\n"
        ));
    }
    let (what, _) = refused(&text);
    assert!(
        what.starts_with("p.toml:51:1: 17 request types, but at most 16"),
        "{what}"
    );
}

#[test]
fn a_wait_matches_something_with_valid_globs() {
    let (what, _) = refused(&format!("{GOOD}[[wait]]\nname = \"w\"\n"));
    assert!(
        what.contains("p.toml:7:1: the wait `w` has nothing to match"),
        "{what}"
    );
    let (what, _) = refused(&format!(
        "{GOOD}[[wait]]\nname = \"w\"\nfiles = [\"a\", \"[z-a]\"]\n"
    ));
    assert!(
        what.starts_with("p.toml:9:15: `[z-a]` is not a valid glob"),
        "{what}"
    );
}

#[test]
fn what_is_not_built_yet_is_refused_not_ignored() {
    for (key, text) in [
        (
            "build-id",
            GOOD.replace("\"f\"", "\"f\", build-id = \"00\""),
        ),
        (
            "offsets",
            format!("{GOOD}[[wait]]\nname = \"w\"\noffsets = [1]\n"),
        ),
    ] {
        let (what, _) = refused(&text);
        assert!(
            what.contains(&format!("`{key}` is not supported yet")),
            "{what}"
        );
    }
}

#[test]
fn a_usdt_probe_is_named_by_provider_and_name() {
    let usdt = |name: &str| {
        GOOD.replace(
            "{ function = \"f\" }",
            &format!("{{ usdt = \"{name}\" }}\nend = {{ offset = 1 }}"),
        )
    };
    let profile = parse(&usdt("shop:order")).unwrap();
    assert_eq!(
        profile.requests[0].begin.place,
        PlaceSpec::Usdt {
            provider: "shop".to_owned(),
            name: "order".to_owned()
        }
    );
    for name in ["order", ":order", "shop:", "shop:order:late", ""] {
        let (what, next) = refused(&usdt(name));
        assert!(
            what.starts_with(&format!("p.toml:6:18: `{name}` is not a USDT probe")),
            "{what}"
        );
        assert!(next.contains("\"provider:name\""), "{next}");
    }
    let (what, next) = refused(&GOOD.replace("function = \"f\"", "usdt = \"a:b\""));
    assert!(
        what.contains("begins at a USDT probe needs an `end`"),
        "{what}"
    );
    assert!(next.contains("usdt = "), "{next}");
    let (what, _) = refused(&GOOD.replace("\"f\"", "\"f\", usdt = \"a:b\""));
    assert!(
        what.contains("either a `function` or `usdt`, not both"),
        "{what}"
    );
    let at = usdt("a:b").replace("\"a:b\"", "\"a:b\", at = \"return\"");
    let (what, _) = refused(&at);
    assert!(what.contains("`at` belongs to `function`"), "{what}");
}

#[test]
fn a_marker_is_exactly_one_place() {
    let (what, _) = refused(&GOOD.replace("\"f\"", "\"f\", offset = 1"));
    assert!(what.contains("not both"), "{what}");
    let (what, _) = refused(&GOOD.replace("function = \"f\"", ""));
    assert!(what.contains("names no place"), "{what}");
    let (what, _) = refused(&GOOD.replace("function = \"f\"", "offset = -1"));
    assert!(what.contains("offset -1 is negative"), "{what}");
    let (what, _) = refused(&GOOD.replace("function = \"f\"", "address = -1"));
    assert!(what.contains("address -1 is negative"), "{what}");
    let (what, _) = refused(&GOOD.replace("function = \"f\"", "address = 1, offset = 1"));
    assert!(what.contains("either a `offset` or `address`"), "{what}");
    let (what, _) = refused(&GOOD.replace("function = \"f\"", "address = 1, all = true"));
    assert!(what.contains("`all` belongs to `function`"), "{what}");
    let (what, _) = refused(&GOOD.replace("function = \"f\"", "offset = 1, at = \"return\""));
    assert!(what.contains("`at` belongs to `function`"), "{what}");
    let (what, _) = refused(&GOOD.replace("\"f\"", "\"f\", at = \"return\""));
    assert!(what.contains("needs an `end`"), "{what}");
}

#[test]
fn profiles_are_found_by_path_or_name() {
    let error = built_in("msql").unwrap_err();
    assert_eq!(error.to_string(), "there is no built-in profile `msql`");
    assert!(error.advice().unwrap().starts_with("did you mean `mysql`?"));
    let error = from_file("nowhere/p.toml".as_ref()).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.toml");
    std::fs::write(&path, GOOD).unwrap();
    let profile = from_file(&path).unwrap();
    assert_eq!(profile.origin, Origin::File(path));
}
