use super::*;
use crate::{Origin, Profile, ValueSource};
use reqtrace_common::registers::Register;

const GOOD: &str =
    "[profile]\nname = \"p\"\n\n[[request]]\nname = \"r\"\nbegin = { function = \"f\" }\n";

fn labels(label: &str) -> Result<Vec<LabelSpec>> {
    let text = format!("{GOOD}label = {label}\n");
    Profile::parse(&text, "p.toml", Origin::BuiltIn).map(|mut profile| {
        let request = profile.requests.remove(0);
        request.labels
    })
}

fn argument(index: u8, deref: &[i32], size: Option<u8>) -> ValueSpec {
    ValueSpec {
        source: ValueSource::Argument(index),
        add: 0,
        deref: deref.to_vec(),
        size,
    }
}

#[test]
fn a_label_is_a_c_string_unless_it_says_otherwise() {
    let found = labels("{ arg = 2 }").unwrap();
    assert_eq!(
        found,
        [LabelSpec {
            function: None,
            when: None,
            value: argument(2, &[], None),
            kind: LabelKind::CString,
        }]
    );
    let found = labels(
        "[ { function = \"f(int)\", when = { arg = 0, deref = [4], size = 1, equals = [3, -1] }, \
           arg = 1, deref = [8, -16], length = { arg = 2 } }, \
         { register = \"rbx\", type = \"unsigned\", size = 8 }, { arg = 0, length = 32 } ]",
    )
    .unwrap();
    assert_eq!(found[0].function.as_deref(), Some("f(int)"));
    let when = found[0].when.clone().unwrap();
    assert_eq!((when.test, when.negate), (Test::OneOf(vec![3, -1]), false));
    assert_eq!(when.value, argument(0, &[4], Some(1)));
    assert_eq!(found[0].value, argument(1, &[8, -16], None));
    assert_eq!(found[0].kind, LabelKind::Counted(argument(2, &[], None)));
    assert_eq!(found[1].value.source, ValueSource::Register(Register::Rbx));
    assert_eq!(found[1].kind, LabelKind::Unsigned);
    let LabelKind::Counted(fixed) = &found[2].kind else {
        panic!("{:?}", found[2].kind);
    };
    assert_eq!(fixed.source, ValueSource::Constant(32));
}

#[test]
fn what_is_wrong_with_a_label_is_reported_with_its_place() {
    for (label, place, words) in [
        ("{ }", "7:9", "does not say where the value is"),
        ("[]", "7:9", "label is an empty list"),
        ("3", "7:9", "expected a table such as { arg = 0 }"),
        ("{ arg = 16 }", "7:17", "there is no argument 16"),
        ("{ arg = -1 }", "7:17", "there is no argument -1"),
        ("{ arg = 0, register = \"rdi\" }", "7:31", "not both"),
        (
            "{ register = \"edi\" }",
            "7:22",
            "`edi` is no 64-bit register",
        ),
        ("{ register = \"r8d\" }", "7:22", "no 64-bit register"),
        ("{ arg = 0, deref = [] }", "7:28", "0 offsets in `deref`"),
        ("{ arg = 0, deref = [1,2,3,4,5] }", "7:28", "5 offsets"),
        ("{ arg = 0, deref = [4294967296] }", "7:28", "beyond 2 GiB"),
        ("{ arg = 0, size = 8 }", "7:27", "the label is a string"),
        (
            "{ arg = 0, type = \"integer\", size = 3 }",
            "7:45",
            "3 bytes",
        ),
        (
            "{ arg = 0, type = \"integer\", length = 3 }",
            "7:47",
            "no `length`",
        ),
        ("{ arg = 0, length = 0 }", "7:29", "holds no text"),
        ("{ arg = 0, length = { } }", "7:29", "does not say where"),
        (
            "{ arg = 0, length = \"x\" }",
            "7:29",
            "expected a number of bytes",
        ),
        (
            "{ arg = 0, when = { arg = 1 } }",
            "7:27",
            "compares its value with nothing",
        ),
        (
            "{ arg = 0, when = { arg = 1, equals = [] } }",
            "7:47",
            "0 values in `equals`",
        ),
        (
            "{ arg = 0, when = { arg = 1, equals = [1,2,3,4,5] } }",
            "7:47",
            "5 values",
        ),
        (
            "{ arg = 0, when = { arg = 1, equals = \"GET\" } }",
            "7:27",
            "one condition: a number",
        ),
        (
            "{ arg = 0, when = { arg = 1, not-equals = 3 } }",
            "7:27",
            "one condition: a number",
        ),
        (
            "{ arg = 0, when = { equals = 1 } }",
            "7:27",
            "does not say where",
        ),
        (
            "{ arg = 0, typ = \"string\" }",
            "7:20",
            "unknown field `typ`",
        ),
        (
            "{ arg = 0, type = \"text\" }",
            "7:27",
            "unknown variant `text`",
        ),
        (
            "[ {arg=0}, {arg=0}, {arg=0}, {arg=0}, {arg=0} ]",
            "7:47",
            "5 ways to read a label",
        ),
    ] {
        let error = labels(label).unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with(&format!("p.toml:{place}: ")),
            "{label}: {text}"
        );
        assert!(text.contains(words), "{label}: {text}");
    }
}

#[test]
fn what_a_begin_does_not_have_is_refused() {
    let with = |begin: &str, label: &str| {
        let text = GOOD.replace("{ function = \"f\" }", begin);
        let text = format!("{text}end = {{ offset = 1 }}\nlabel = {label}\n");
        Profile::parse(&text, "p.toml", Origin::BuiltIn)
            .unwrap_err()
            .to_string()
    };
    let text = with("{ function = \"f\", at = \"return\" }", "{ arg = 0 }");
    assert!(text.contains("where arguments are gone"), "{text}");
    let text = with("{ usdt = \"a:b\" }", "{ function = \"f\", arg = 0 }");
    assert!(text.contains("and that names none"), "{text}");
}
