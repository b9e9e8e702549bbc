use super::*;
use crate::{Origin, Profile, RequestSpec, Test, ValueSource};

const HEAD: &str =
    "[profile]\nname = \"p\"\n[[request]]\nname = \"r\"\nbegin = { function = \"f\" }\n";

/// The request with attributes; their text begins in the sixth line.
fn request(attributes: &str) -> Result<RequestSpec> {
    let text = format!("{HEAD}{attributes}\n");
    Profile::parse(&text, "p.toml", Origin::BuiltIn).map(|mut profile| profile.requests.remove(0))
}

/// The place of what is wrong with one attribute of these lines, and its words.
#[track_caller]
fn refused(lines: &str, place: &str, words: &str) {
    let text = request(&format!("[[request.attribute]]\n{lines}"))
        .unwrap_err()
        .to_string();
    assert!(text.starts_with(&format!("p.toml:{place}: ")), "{text}");
    assert!(text.contains(words), "{text}");
}

#[test]
fn a_symbol_is_no_number_and_no_text() {
    let all = request(
        "[[request.attribute]]\nname = \"task\"\ntype = \"symbol\"\narg = 0\nderef = [0]\n",
    )
    .unwrap();
    assert_eq!(all.attributes[0].kind, LabelKind::Symbol);
    // No user has written it.
    assert!(!all.attributes[0].is_text());
    let symbol = "name = \"task\"\ntype = \"symbol\"\narg = 0\n";
    let refuses = |line: &str, place: &str, words: &str| {
        refused(&format!("{symbol}{line}"), place, words);
    };
    refuses("max-length = 8", "10:14", "a symbol has no `max-length`");
    refuses("length = 8", "10:10", "a symbol has no `length`");
    refuses("size = 4", "10:8", "a symbol is found by an address");
    refuses("names = { 1 = \"a\" }", "10:9", "this is a symbol");
}

#[test]
fn an_attribute_has_its_defaults_and_everything_can_be_written() {
    let all = request(
        r#"
        [[request.attribute]]
        name = "user"
        arg = 1
        [[request.attribute]]
        name = "command"
        type = "integer"
        arg = 0
        names = { 3 = "query", 0 = "sleep", -1 = "none" }
        keep = "last"
        [[request.attribute]]
        name = "sql"
        function = "execute"
        object = "libsql.so*"
        arg = 0
        deref = [0x10]
        length = { arg = 3 }
        max-length = 1024
        until = ";"
        when = { arg = 2, not-equals = "x" }
        [[request.attribute]]
        name = "status"
        on = "end"
        type = "unsigned"
        size = 2
        arg = "result""#,
    )
    .unwrap();
    assert_eq!(all.attribute_names(), ["user", "command", "sql", "status"]);
    let [user, command, sql, status] = all.attributes.as_slice() else {
        panic!("{:?}", all.attributes);
    };
    assert_eq!((user.most, user.until, user.keep_last), (128, None, false));
    assert_eq!(
        (&user.read, &user.kind),
        (&AttributeAt::Begin, &LabelKind::CString)
    );
    assert!(user.is_text() && !command.is_text());
    let names = [(-1, "none"), (0, "sleep"), (3, "query")];
    assert_eq!(
        command.names,
        names.map(|(value, name)| (value, name.to_owned()))
    );
    assert!(command.keep_last);
    let AttributeAt::Marker(marker) = &sql.read else {
        panic!("{:?}", sql.read);
    };
    assert_eq!(marker.object.as_deref(), Some("libsql.so*"));
    assert!(matches!(sql.kind, LabelKind::Counted(_)));
    assert_eq!((sql.most, sql.until), (1024, Some(b';')));
    assert_eq!(sql.when[0].test, Test::Text(vec!["x".to_owned()]));
    assert!(sql.when[0].negate);
    // The request ends at a return.
    assert_eq!(status.read, AttributeAt::End);
    assert_eq!(status.value.source, ValueSource::Result);
    assert_eq!(all.more_markers().count(), 1);
}

#[test]
fn what_is_wrong_with_an_attribute_is_reported_with_its_place() {
    refused("name = \"a\"", "6:1", "does not say where the value is");
    refused("name = \"a\"\narg = 0\nn = 1", "9:1", "unknown field `n`");
    refused("arg = 0", "6:1", "missing field `name`");
    for name in ["", "a b", "größe"] {
        refused(
            &format!("name = \"{name}\"\narg = 0"),
            "7:8",
            "cannot be a column",
        );
    }
    for name in ["label", "Reason", "fingerprint", "pid"] {
        refused(
            &format!("name = \"{name}\"\narg = 0"),
            "7:8",
            "is already a column",
        );
    }
    refused("name = \"wait_ns\"\narg = 0", "7:8", "a column of times");
    refused(
        "name = \"a\"\narg = 0\non = \"start\"",
        "9:6",
        "unknown variant `start`",
    );
    refused(
        "name = \"a\"\narg = 0\non = \"end\"\nfunction = \"g\"",
        "9:6",
        "not both",
    );
    refused(
        "name = \"a\"\narg = 0\nat = \"return\"",
        "9:6",
        "`at` belongs to `function`",
    );
    refused(
        "name = \"a\"\narg = 0\nobject = \"x\"",
        "6:1",
        "names no place",
    );
    refused(
        "name = \"a\"\narg = 0\non = \"end\"",
        "8:7",
        "arguments are gone",
    );
    refused(
        "name = \"a\"\narg = \"result\"",
        "8:7",
        "and this is read before",
    );
    refused(
        "name = \"a\"\narg = 0\nsize = 4",
        "9:8",
        "the attribute is a string",
    );
    for bytes in [0, -1, 1025] {
        refused(
            &format!("name = \"a\"\narg = 0\nmax-length = {bytes}"),
            "9:14",
            "where 1 to 1024 fit",
        );
    }
    for until in ["", "ab", "ü"] {
        refused(
            &format!("name = \"a\"\narg = 0\nuntil = \"{until}\""),
            "9:9",
            "not one ASCII character",
        );
    }
    let number = "name = \"a\"\narg = 0\ntype = \"integer\"\n";
    refused(
        &format!("{number}until = \" \""),
        "10:9",
        "a number has no `until`",
    );
    refused(
        &format!("{number}max-length = 9"),
        "10:14",
        "a number has no `max-length`",
    );
    refused(
        &format!("{number}length = 9"),
        "10:10",
        "a number has no `length`",
    );
    refused(
        &format!("{number}names = {{ a = \"b\" }}"),
        "10:11",
        "`a` is no number",
    );
    refused(
        &format!("{number}names = {{ 1 = \"\" }}"),
        "10:11",
        "name of 1 is empty",
    );
    refused(
        &format!("{number}names = {{ }}"),
        "10:9",
        "names is an empty table",
    );
    refused(
        "name = \"a\"\narg = 0\nnames = { 1 = \"b\" }",
        "9:9",
        "`names` are those of numbers",
    );
    refused(
        "name = \"a\"\narg = 0\nkeep = \"best\"",
        "9:8",
        "unknown variant `best`",
    );
}

#[test]
fn ways_to_read_one_attribute_agree() {
    let two = |more: &str| {
        request(&format!(
            "[[request.attribute]]\nname = \"a\"\narg = 0\n\
             [[request.attribute]]\nname = \"a\"\nfunction = \"g\"\narg = 1\n{more}"
        ))
    };
    let both = two("length = 3").unwrap();
    assert_eq!(
        (both.attribute_names().len(), both.attributes.len()),
        (1, 2)
    );
    for (more, key) in [
        ("type = \"integer\"", "type"),
        ("max-length = 7", "max-length"),
        ("until = \" \"", "until"),
    ] {
        let text = two(more).unwrap_err().to_string();
        assert!(text.starts_with("p.toml:10:8: `a` has another"), "{text}");
        assert!(text.contains(&format!("`{key}`")), "{text}");
    }
}

#[test]
fn nine_attributes_are_too_many_and_names_differ_by_more_than_case() {
    let nine = (0..9).map(|n| format!("[[request.attribute]]\nname = \"a{n}\"\narg = 0\n"));
    let text = request(&nine.collect::<String>()).unwrap_err().to_string();
    assert!(
        text.starts_with("p.toml:31:8: more than 8 attributes"),
        "{text}"
    );
    let text = request(
        "[[request.attribute]]\nname = \"sql\"\narg = 0\n[[request.attribute]]\nname = \"SQL\"\narg = 0",
    )
    .unwrap_err()
    .to_string();
    assert!(text.contains("hard to tell apart"), "{text}");
}
