use crate::{
    At, ConditionSpec, KeySpec, MarkerSpec, Origin, PlaceSpec, Profile, RequestSpec, Role, Test,
    ValueSource, ValueSpec,
};
use reqtrace_base::error::Result;
use reqtrace_common::registers::Register;

const HEAD: &str = "[profile]\nname = \"p\"\n[[request]]\nname = \"r\"\n";

/// The request with these lines, the first of which is the fifth of the file.
fn request(lines: &str) -> Result<RequestSpec> {
    let text = format!("{HEAD}{lines}\n");
    Profile::parse(&text, "p.toml", Origin::BuiltIn).map(|mut profile| profile.requests.remove(0))
}

#[track_caller]
fn refused(lines: &str, place: &str, words: &str) -> String {
    let error = request(lines).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with(&format!("p.toml:{place}: ")), "{text}");
    assert!(text.contains(words), "{text}");
    error.advice().unwrap_or_default().to_owned()
}

fn value(source: ValueSource, deref: &[i32]) -> ValueSpec {
    ValueSpec {
        source,
        add: 0,
        deref: deref.to_vec(),
        size: None,
    }
}

fn argument(index: u8) -> KeySpec {
    KeySpec::Key(vec![value(ValueSource::Argument(index), &[])])
}

const KEYED: &str = "key = { arg = 0 }\nbegin = { function = \"b\" }\nend = { function = \"e\" }\n";

#[test]
fn a_keyed_request_has_all_its_markers() {
    let http = request(
        r#"
        key    = { arg = 0 }
        begin  = { function = "create", at = "return", key = { arg = "result" } }
        resume = [ { function = "run" },
                   { function = "recv", key = { arg = 0, deref = [0, 0x3f0] }, as = "client", touch = true } ]
        park   = { function = "posted", at = "return", as = "upstream" }
        idle   = { function = "epoll_wait", object = "libc.so*", as = "client" }
        ready  = { function = "push", key = { register = "rbx" }, as = "pool queue" }
        adopt  = { function = "assign", key = "current", to = { arg = 1 } }
        end    = { function = "free", when = { arg = 1, equals = 7 } }"#,
    )
    .unwrap();
    assert!(http.is_keyed);
    assert_eq!(
        http.begin.key,
        KeySpec::Key(vec![value(ValueSource::Result, &[])])
    );
    assert_eq!(http.resume[0].key, argument(0));
    assert_eq!(
        http.resume[1].key,
        KeySpec::Key(vec![value(ValueSource::Argument(0), &[0, 0x3f0])])
    );
    assert_eq!(
        (http.resume[0].is_touch, http.resume[1].is_touch),
        (false, true)
    );
    let roles: Vec<(Role, &KeySpec)> = http.park.iter().map(|one| (one.role, &one.key)).collect();
    assert_eq!(
        roles,
        [
            (Role::Park, &KeySpec::Current),
            (Role::Idle, &KeySpec::Current)
        ]
    );
    assert_eq!(
        http.ready[0].key,
        KeySpec::Key(vec![value(ValueSource::Register(Register::Rbx), &[])])
    );
    assert_eq!(http.adopt[0].key, KeySpec::Current);
    assert_eq!(
        http.adopt[0].to,
        Some(vec![value(ValueSource::Argument(1), &[])])
    );
    let end = http.end.as_ref().unwrap();
    assert_eq!((&end.key, end.when.len()), (&argument(0), 1));
    // In the order of the file, each once.
    assert_eq!(http.places, ["client", "upstream", "pool queue"]);
    let of = |list: &[MarkerSpec]| list.iter().map(|one| one.waits_in).collect::<Vec<_>>();
    assert_eq!(of(&http.resume), [None, Some(0)]);
    assert_eq!(of(&http.park), [Some(1), Some(0)]);
    assert_eq!(of(&http.ready), [Some(2)]);
    assert_eq!(http.more_markers().count(), 6);
}

#[test]
fn a_request_without_a_key_is_what_it_was() {
    let plain = request("begin = { function = \"f\" }").unwrap();
    assert!(!plain.is_keyed && plain.end.is_none());
    assert_eq!(plain.begin.key, KeySpec::Current);
    assert_eq!(plain.begin.role, Role::Begin);
    assert_eq!(plain.more_markers().count(), 0);
}

#[test]
fn a_key_that_a_marker_cannot_have_is_refused() {
    let at_return = |role: &str| {
        format!(
            "{KEYED}{role} = {{ function = \"f\", at = \"return\", to = {{ register = \"rbx\" }} }}"
        )
    };
    for role in ["resume", "ready"] {
        let lines = at_return(role).replace(", to = { register = \"rbx\" }", "");
        let column = role.len() + 4;
        let next = refused(
            &lines,
            &format!("8:{column}"),
            &format!("this `{role}` is at a return"),
        );
        assert!(next.contains("arg = \"result\""), "{next}");
    }
    refused(&at_return("adopt"), "8:9", "this `adopt` is at a return");
    let begin = KEYED.replace("\"b\"", "\"b\", at = \"return\"");
    refused(&begin, "6:9", "this `begin` is at a return");
    // What is there at a return too is the key there.
    let global = begin.replace(
        "{ arg = 0 }",
        "{ global = \"current_request\", deref = [0] }",
    );
    let global = request(&global).unwrap();
    let source = ValueSource::Global("current_request".to_owned());
    assert_eq!(global.begin.key, KeySpec::Key(vec![value(source, &[0])]));
    let result = KEYED.replace("{ arg = 0 }", "{ arg = \"result\" }");
    refused(
        &result,
        "6:9",
        "is what a function returns, and this `begin` is not",
    );
    refused(
        &format!("{KEYED}idle = {{ function = \"f\", key = {{ arg = 0 }} }}"),
        "8:32",
        "about whatever the thread runs",
    );
    refused(
        &format!("{KEYED}resume = {{ function = \"f\", key = \"current\" }}"),
        "8:34",
        "a `resume` is where a thread takes another one",
    );
    let next = refused(
        &format!("{KEYED}park = {{ function = \"f\", key = \"curent\" }}"),
        "8:32",
        "unknown variant `curent`",
    );
    assert_eq!(next, "did you mean `current`?");
    refused(
        &KEYED.replace("arg = 0", "register = \"edi\""),
        "5:20",
        "`edi` is no 64-bit register",
    );
    refused(
        &KEYED.replace("arg = 0", "arg = 16"),
        "5:15",
        "there is no argument 16",
    );
}

#[test]
fn a_key_needs_an_end_and_some_markers_need_a_key() {
    let without = KEYED.replace("end = { function = \"e\" }\n", "");
    let next = refused(&without, "6:9", "a request with a `key` needs an `end`");
    assert!(next.contains("end = "), "{next}");
    for role in ["resume", "park", "idle", "ready", "adopt"] {
        let lines = format!("begin = {{ function = \"f\" }}\n{role} = {{ function = \"g\" }}");
        let column = role.len() + 4;
        let next = refused(
            &lines,
            &format!("6:{column}"),
            &format!("`{role}` is for requests with a `key`"),
        );
        assert!(next.contains("key = "), "{next}");
    }
    refused(
        "begin = { function = \"f\" }\nsockets = false",
        "6:11",
        "`sockets` is for requests with a `key`",
    );
    refused(
        "begin = { function = \"f\", key = { arg = 0 } }",
        "5:33",
        "its request has none",
    );
    refused(
        &format!("{KEYED}reentry = \"nest\""),
        "8:11",
        "has no `reentry`",
    );
    refused(
        &format!("{KEYED}return-probe = \"sites\""),
        "8:16",
        "has no `return-probe`",
    );
    refused(&format!("{KEYED}park = []"), "8:8", "park is an empty list");
}

#[test]
fn a_key_of_too_many_values_or_of_none_is_refused() {
    let with = |key: &str| KEYED.replace("key = { arg = 0 }", &format!("key = {key}"));
    for (key, what) in [
        (
            "[{ arg = 0 }, { arg = 1 }, { arg = 2 }]",
            "a key of 3 values",
        ),
        ("[]", "a key of 0 values"),
    ] {
        let advice = refused(&with(key), "5:7", what);
        assert_eq!(advice, "a key is one value, or a list of up to 2");
    }
    let of_marker = "park = { function = \"f\", key = [{ arg = 0 }, { arg = 1 }, { arg = 2 }] }";
    refused(&format!("{KEYED}{of_marker}"), "8:32", "a key of 3 values");
}

#[test]
fn queued_belongs_to_the_begin_of_a_request_with_a_key() {
    for marker in ["resume", "park", "ready", "idle"] {
        let line = format!("{marker} = {{ function = \"f\", queued = true }}");
        let column = line.find("true").unwrap() + 1;
        refused(
            &format!("{KEYED}{line}"),
            &format!("8:{column}"),
            "`queued` belongs to `begin` only",
        );
    }
    refused(
        "begin = { function = \"b\", queued = true }\n",
        "5:36",
        "`queued` is for requests with a `key`, and this one has none",
    );
}

#[test]
fn keys_that_belong_elsewhere_are_refused() {
    refused(
        &format!("{KEYED}park = {{ function = \"f\", touch = true }}"),
        "8:34",
        "`touch` belongs to `resume` and `ready` only",
    );
    refused(
        &format!("{KEYED}park = {{ function = \"f\", to = {{ arg = 0 }} }}"),
        "8:31",
        "`to` belongs to `adopt` only",
    );
    refused(
        &format!("{KEYED}adopt = {{ function = \"f\" }}"),
        "8:9",
        "does not say which key the request gets",
    );
    refused(
        &format!("{KEYED}adopt = {{ function = \"f\", to = {{ arg = 0 }}, as = \"x\" }}"),
        "8:50",
        "`adopt` does neither",
    );
    refused(
        &KEYED.replace("\"b\"", "\"b\", as = \"x\""),
        "6:32",
        "`begin` does neither",
    );
}

#[test]
fn names_of_places_are_columns() {
    let with = |park: &str, ready: &str| {
        format!(
            "{KEYED}park = {{ function = \"f\", as = \"{park}\" }}\n\
             ready = {{ function = \"g\", as = \"{ready}\" }}"
        )
    };
    for taken in ["disk", "Run Queue", "parked", "queued", "cause disk"] {
        refused(&with(taken, "q"), "8:31", "is already");
    }
    refused(
        &with("x", "x"),
        "9:32",
        "parked in `x` here, and queued in `x` there",
    );
    refused(&with("a b", "a_b"), "9:32", "would share one column");
    refused(&with(" ", "q"), "8:31", "the name of a place is empty");
    refused(
        &format!(
            "{}\n[[wait]]\nname = \"up stream\"\nfiles = \"*\"",
            with("up-stream", "q")
        ),
        "8:31",
        "would share one column",
    );
    let nine: Vec<String> = (0..9)
        .map(|n| format!("{{ function = \"f\", as = \"p{n}\" }}"))
        .collect();
    let nine = format!("{KEYED}park = [{}]", nine.join(", "));
    assert!(
        request(&nine)
            .unwrap_err()
            .to_string()
            .contains("more than 8 names")
    );
    // Another request type may have the same, but not for a queue.
    let second = |role: &str| {
        let first = with("client", "q");
        format!(
            "{first}\n[[request]]\nname = \"s\"\n{KEYED}{role} = {{ function = \"f\", as = \"client\" }}"
        )
    };
    assert_eq!(request(&second("park")).unwrap().places, ["client", "q"]);
    let error = request(&second("ready")).unwrap_err().to_string();
    assert!(error.starts_with("p.toml:15:"), "{error}");
}

fn conditions(when: &str) -> Result<Vec<ConditionSpec>> {
    request(&format!("begin = {{ function = \"f\", when = {when} }}"))
        .map(|request| request.begin.when)
}

#[test]
fn conditions_are_on_numbers_ranges_and_texts() {
    let of = |when: &str| {
        let all = conditions(when).unwrap().into_iter();
        all.map(|one| (one.test, one.negate)).collect::<Vec<_>>()
    };
    let texts = |all: &[&str]| Test::Text(all.iter().map(|&text| text.to_owned()).collect());
    assert_eq!(
        of("{ arg = 1, equals = 3 }"),
        [(Test::OneOf(vec![3]), false)]
    );
    assert_eq!(
        of("{ arg = 1, not-equals = [0, -1] }"),
        [(Test::OneOf(vec![0, -1]), true)]
    );
    assert_eq!(
        of("{ arg = 1, from = 2 }"),
        [(Test::Range(2, i64::MAX), false)]
    );
    assert_eq!(
        of("[{ arg = 1, to = 9 }, { arg = 0, equals = [\"do_GET\", \"do_PUT\"] }]"),
        [
            (Test::Range(i64::MIN, 9), false),
            (texts(&["do_GET", "do_PUT"]), false)
        ]
    );
    // Each of several texts that may not be there is a condition of its own.
    assert_eq!(
        of("{ arg = 0, not-equals = [\"a\", \"b\"] }"),
        [(texts(&["a"]), true), (texts(&["b"]), true)]
    );
    let result = "begin = { function = \"f\", at = \"return\", when = { arg = \"result\", equals = 0 } }\n\
                  end = { usdt = \"a:b\", when = { arg = 2, equals = 0 } }";
    let request = request(result).unwrap();
    assert_eq!(request.begin.when[0].value.source, ValueSource::Result);
    assert!(matches!(
        request.begin.place,
        PlaceSpec::Function { at: At::Return, .. }
    ));
    assert_eq!(request.end.unwrap().when.len(), 1);
}

#[test]
fn what_is_wrong_with_a_condition_is_reported_with_its_place() {
    let long = "x".repeat(33);
    for (when, column, words) in [
        ("{ arg = 1 }", 34, "compares its value with nothing"),
        ("{ equals = 1 }", 34, "does not say where the value is"),
        ("[]", 34, "`when` is an empty list"),
        ("{ arg = 1, equals = [] }", 54, "0 values in `equals`"),
        (
            "{ arg = 1, equals = [1,2,3,4,5] }",
            54,
            "5 values in `equals`",
        ),
        (
            "{ arg = 1, not-equals = [] }",
            58,
            "0 values in `not-equals`",
        ),
        ("{ arg = 1, equals = [1, \"a\"] }", 54, "numbers and texts"),
        ("{ arg = 1, equals = 1, from = 2 }", 64, "one of these"),
        (
            "{ arg = 1, from = 2, to = 1 }",
            60,
            "no number is from 2 to 1",
        ),
        (
            "{ arg = 1, equals = true }",
            54,
            "expected a number, a text",
        ),
        (
            "{ arg = 1, equals = \"a\", size = 8 }",
            66,
            "`size` is that of a number",
        ),
        (
            &format!("{{ arg = 1, equals = \"{long}\" }}"),
            54,
            "has 33 bytes",
        ),
        (
            "{ arg = 1, equals = \"a\\u0000b\" }",
            54,
            "has a NUL inside",
        ),
        ("{ arg = 1, equal = 3 }", 45, "unknown field `equal`"),
        (
            "{ arg = \"result\", equals = 3 }",
            42,
            "and this is read before",
        ),
        ("{ arg = \"x\", equals = 3 }", 42, "unknown variant `x`"),
        (
            "{ arg = 1, register = \"rdi\", equals = 3 }",
            56,
            "not both",
        ),
        ("{ global = \"\", equals = 3 }", 45, "global is empty"),
        (
            "[{ arg = 1, equals = 1 }, { arg = 2, equals = 1 }, { arg = 3, equals = 1 }]",
            34,
            "3 conditions, where 2 fit",
        ),
        (
            "[{ arg = 1, equals = [\"a\",\"b\",\"c\"] }, { arg = 2, equals = [\"a\",\"b\",\"c\"] }]",
            34,
            "can be combined in 9 ways",
        ),
    ] {
        let error = conditions(when).unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("p.toml:5:{column}: ")),
            "{when}: {error}"
        );
        assert!(error.contains(words), "{when}: {error}");
    }
    refused(
        "begin = { function = \"f\" }\nend = { function = \"f\", at = \"return\", when = { arg = 0, equals = 3 } }",
        "6:55",
        "arguments are gone",
    );
}

#[test]
fn a_key_may_be_so_many_bytes_from_an_argument() {
    let lines = |key: &str| KEYED.replacen("{ arg = 0 }", key, 1);
    let part = request(&lines("{ arg = 1, add = -32 }")).unwrap();
    let expected = ValueSpec {
        add: -32,
        ..value(ValueSource::Argument(1), &[])
    };
    assert_eq!(part.begin.key, KeySpec::Key(vec![expected]));
    let both = lines("{ arg = 0, add = 8, deref = [0] }");
    let next = refused(&both, "5:24", "`add` and `deref` in one value");
    assert!(next.contains("first offset"), "{next}");
}
