use crate::{Origin, Profile, Sign, Test, ValueSource};
use reqtrace_base::error::Result;

/// A profile whose attribute has these conditions; they stand in line 9.
fn profile(conditions: &str) -> Result<Profile> {
    let text = format!(
        "[profile]\nname = \"p\"\n[[request]]\nname = \"r\"\nbegin = {{ function = \"f\" }}\n\
         [[request.attribute]]\nname = \"a\"\narg = 0\n{conditions}\n"
    );
    Profile::parse(&text, "p.toml", Origin::BuiltIn)
}

#[track_caller]
fn refused(conditions: &str, words: &str) {
    let error = profile(conditions).unwrap_err();
    let text = format!("{error} / {}", error.advice().unwrap_or_default());
    assert!(
        text.starts_with("p.toml:9:") && text.contains(words),
        "{text}"
    );
}

#[test]
fn conditions_are_on_functions_their_code_and_variables() {
    let parsed = profile(
        "only-if = [{ function = \"g(int)\", code = [\"48 8b\", \"C3 90\"] }, \
         { object = \"libx.so*\", global = \"mode\", deref = [0, 8], size = 8, not-equals = [1, 2] }]\n\
         unless = { function = \"h\" }",
    )
    .unwrap();
    let only_if = &parsed.requests[0].attributes[0].only_if;
    assert_eq!((only_if.all.len(), only_if.unless.len()), (2, 1));
    assert_eq!(
        only_if.all[0].sign,
        Sign::Function {
            pattern: "g(int)".to_owned(),
            code: vec![vec![0x48, 0x8b], vec![0xc3, 0x90]],
        }
    );
    assert_eq!(only_if.all[1].object.as_deref(), Some("libx.so*"));
    let Sign::Number(number) = &only_if.all[1].sign else {
        panic!("{only_if:?}");
    };
    assert_eq!(number.value.source, ValueSource::Global("mode".to_owned()));
    assert_eq!(
        (&number.value.deref, number.value.size),
        (&vec![0, 8], Some(8))
    );
    assert_eq!(
        (&number.test, number.negate),
        (&Test::OneOf(vec![1, 2]), true)
    );
    assert!(
        profile("").unwrap().requests[0].attributes[0]
            .only_if
            .is_always()
    );
}

#[test]
fn bad_conditions_say_what_is_wrong() {
    refused("only-if = []", "`only-if` is an empty list");
    refused("unless = []", "`unless` is an empty list");
    refused("only-if = {}", "does not say what of the program");
    refused("only-if = 3", "a table");
    refused("only-if = { function = \" \" }", "function is empty");
    refused(
        "only-if = { function = \"f\", equals = 2 }",
        "belongs to a `global`",
    );
    refused("only-if = { function = \"f\", global = \"g\" }", "not both");
    refused(
        "only-if = { global = \"g\", equals = 2 }",
        "add deref = [0]",
    );
    refused(
        "only-if = { global = \"g\", deref = [0] }",
        "compares its value with nothing",
    );
    refused(
        "only-if = { global = \"g\", deref = [0], equals = \"x\" }",
        "compares numbers",
    );
    refused(
        "only-if = { global = \"g\", deref = [0], equals = 1, code = \"48 8b\" }",
        "belongs to a `function`",
    );
    for code in ["48", "48 8", "48 8b xx", "488b", ""] {
        refused(
            &format!("only-if = {{ function = \"f\", code = \"{code}\" }}"),
            "is not machine code",
        );
    }
    refused(
        "only-if = { function = \"f\", code = [] }",
        "code is an empty list",
    );
    refused("only-if = { functoin = \"f\" }", "did you mean `function`?");
}

#[test]
fn an_alternative_says_where_it_holds() {
    let with = |instead: &str| {
        let text = format!(
            "[profile]\nname = \"p\"\n[[request]]\nname = \"r\"\nbegin = {{ function = \"f\" }}\n\
             [[request.instead]]\n{instead}\n"
        );
        Profile::parse(&text, "p.toml", Origin::BuiltIn)
    };
    let error = with("key = { arg = 0 }\nend = { function = \"g\" }").unwrap_err();
    assert!(error.to_string().contains("in which programs"), "{error}");
    // Each alternative is checked as a request of its own.
    let error = with("only-if = { function = \"g\" }\nkey = { arg = 0 }").unwrap_err();
    assert!(error.to_string().contains("needs an `end`"), "{error}");
    let error = with("only-if = { function = \"g\" }\nname = \"other\"").unwrap_err();
    assert!(
        error.to_string().contains("unknown field `name`"),
        "{error}"
    );
    let good = with("only-if = { function = \"g\" }\nend = { function = \"g\" }").unwrap();
    assert_eq!(good.requests[0].instead.len(), 1);
    assert!(good.requests[0].end.is_none());
}
