use crate::{Origin, Profile};

const TEXT: &str = "[profile]\nname = \"p\"\n[[request]]\nname = \"r\"\nbegin = { function = \"f\" }\n\
    [[request.instead]]\nonly-if = { function = \"g\" }\nkey = { arg = 0 }\nend = { function = \"h\" }\n\
    park = { function = \"i\", as = \"log\" }\n\
    [[request.attribute]]\nname = \"a\"\narg = 0\n\
    [[request]]\nname = \"other one\"\nbegin = { function = \"f\" }\n";

fn parse(text: &str) -> Profile {
    Profile::parse(text, "p.toml", Origin::BuiltIn).unwrap()
}

#[test]
fn what_was_chosen_is_read_from_the_text_again() {
    let profile = parse(TEXT);
    assert!(profile.has_alternatives());
    let plain = profile.settled(|_| None);
    let keyed = profile.settled(|request| {
        assert_eq!(request.name, "r");
        Some(0)
    });
    assert!(!plain.requests[0].is_keyed && keyed.requests[0].is_keyed);
    assert_eq!(keyed.requests[0].places, ["log"]);
    assert_eq!(keyed.requests[0].attribute_names(), ["a"]);
    assert_ne!(plain.text, keyed.text);
    for settled in [plain, keyed] {
        assert!(!settled.has_alternatives());
        assert_eq!(parse(&settled.text), settled);
        assert_eq!(settled.settled(|_| unreachable!()), settled);
    }
}

#[test]
fn a_profile_without_alternatives_stays_as_it_is() {
    let profile =
        parse("[profile]\nname = \"p\"\n[[request]]\nname = \"r\"\nbegin = { function = \"f\" }\n");
    assert_eq!(profile.settled(|_| Some(0)), profile);
}

#[test]
fn what_was_chosen_must_be_there() {
    let refused = |chosen: &str| {
        let text = format!("{TEXT}[as-traced]\ninstead = {{ {chosen} }}\n");
        let error = Profile::parse(&text, "p.toml", Origin::BuiltIn).unwrap_err();
        error.to_string()
    };
    let error = refused("r = 2");
    assert!(
        error.contains("p.toml:18:") && error.contains("has 1 [[request.instead]]"),
        "{error}"
    );
    assert!(refused("r = -1").contains("none has the number -1"));
    assert!(refused("q = 0").contains("there is no request `q`"));
}
