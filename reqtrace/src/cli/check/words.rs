//! Values, conditions and attributes of a profile in words, for `check`.

use reqtrace_profile::{
    At, AttributeSpec, ConditionSpec, LabelKind, PlaceSpec, Test, ValueSource, ValueSpec,
};
use reqtrace_resolve::Choice;

/// Where a value is: `*(argument 0 + 0x10)`.
pub(super) fn value(spec: &ValueSpec) -> String {
    let mut text = match &spec.source {
        ValueSource::Argument(index) => format!("argument {index}"),
        ValueSource::Register(register) => {
            format!("register {}", format!("{register:?}").to_lowercase())
        }
        ValueSource::Result => "what the function returns".to_owned(),
        ValueSource::Global(name) => format!("&{name}"),
        ValueSource::Constant(constant) => constant.to_string(),
        ValueSource::Unit(_) => "the unit".to_owned(),
    };
    match spec.add {
        0 => {}
        add if add < 0 => text = format!("{text} - {:#x}", add.unsigned_abs()),
        add => text = format!("{text} + {add:#x}"),
    }
    for offset in &spec.deref {
        text = match *offset {
            0 => format!("*({text})"),
            offset if offset < 0 => format!("*({text} - 0x{:x})", offset.unsigned_abs()),
            offset => format!("*({text} + 0x{offset:x})"),
        };
    }
    match spec.size {
        Some(bytes) if !matches!(spec.source, ValueSource::Constant(_)) => {
            let plural = if bytes == 1 { "" } else { "s" };
            format!("{text} of {bytes} byte{plural}")
        }
        _ => text,
    }
}

/// Which alternative of a request type is taken, and why.
pub(super) fn choice(choice: &Choice) -> String {
    let why = &choice.why;
    match (choice.taken, choice.is_unknown) {
        (None, _) => format!("  as it stands, not as a [[request.instead]] says: {why}\n"),
        (Some(index), false) => format!("  as [[request.instead]] {} says: {why}\n", index + 1),
        (Some(index), true) => format!(
            "  as [[request.instead]] {} says, unless a process shows that it is not needed: {why}\n",
            index + 1
        ),
    }
}

/// Conditions, all of which must hold.
pub(super) fn conditions(all: &[ConditionSpec]) -> String {
    all.iter().map(condition).collect::<Vec<_>>().join(" and ")
}

fn condition(spec: &ConditionSpec) -> String {
    let value = value(&spec.value);
    match &spec.test {
        Test::OneOf(numbers) => {
            let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
            let is = if spec.negate { "is not" } else { "is" };
            format!("{value} {is} {}", numbers.join(" or "))
        }
        Test::Range(i64::MIN, to) => format!("{value} is at most {to}"),
        Test::Range(from, i64::MAX) => format!("{value} is at least {from}"),
        Test::Range(from, to) => format!("{value} is from {from} to {to}"),
        Test::Bits { mask, are } => format!("of {value} the bits {mask:#x} are {are:#x}"),
        Test::Unit(pattern) if spec.negate => {
            format!("{value} polls no task of the type {pattern}")
        }
        Test::Unit(pattern) => format!("{value} polls a task of the type {pattern}"),
        Test::Starts(pattern) if spec.negate => format!("{value} is not the function {pattern}"),
        Test::Starts(pattern) => format!("{value} is the function {pattern}"),
        Test::Job => format!("{value} is that of a job of the blocking pool"),
        Test::Text(texts) => {
            let texts: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
            let points = if spec.negate {
                "does not point to"
            } else {
                "points to"
            };
            format!("{value} {points} {}", texts.join(" or "))
        }
    }
}

/// What kind of thing an attribute is, and what reading it takes.
pub(super) fn attribute(spec: &AttributeSpec) -> String {
    let mut parts = Vec::new();
    match spec.kind {
        LabelKind::Integer | LabelKind::Unsigned => {
            parts.push("a number".to_owned());
            if !spec.names.is_empty() {
                parts.push(format!("{} with a name", spec.names.len()));
            }
        }
        LabelKind::Symbol => parts.push("the name of what lies at an address".to_owned()),
        LabelKind::Unit => {
            parts.push("the type of a task, or the function of a goroutine".to_owned());
        }
        LabelKind::CString | LabelKind::Counted(_) => {
            parts.push(format!("text of up to {} bytes", spec.most));
            if let Some(until) = spec.until {
                parts.push(format!("until {:?}", char::from(until)));
            }
        }
    }
    parts.push(if spec.is_text() {
        "read with --labels only".to_owned()
    } else {
        "always read".to_owned()
    });
    parts.join(", ")
}

/// One way to read an attribute.
pub(super) fn way(spec: &AttributeSpec) -> String {
    let mut text = value(&spec.value);
    if let LabelKind::Counted(length) = &spec.kind {
        text.push_str(&format!(", as long as {}", value(length)));
    }
    if spec.keep_last {
        text.push_str(", the last one");
    }
    if !spec.when.is_empty() {
        text.push_str(&format!(", if {}", conditions(&spec.when)));
    }
    text
}

/// A place that was not found.
pub(super) fn place(spec: &PlaceSpec) -> String {
    match spec {
        PlaceSpec::Edge(edge) => edge.words().to_owned(),
        PlaceSpec::Function { patterns, at } => {
            let end = if *at == At::Return { "return" } else { "entry" };
            format!("{} ({end})", patterns.join(" or "))
        }
        PlaceSpec::Offset(offset) => format!("0x{offset:x}"),
        PlaceSpec::Address(address) => format!("address 0x{address:x}"),
        PlaceSpec::Usdt { provider, name } => format!("{provider}:{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqtrace_profile::{Origin, Profile, RequestSpec};

    fn request(lines: &str) -> RequestSpec {
        let text = format!("[profile]\nname = \"p\"\n[[request]]\nname = \"r\"\n{lines}\n");
        let mut profile = Profile::parse(&text, "p.toml", Origin::BuiltIn).unwrap();
        profile.requests.remove(0)
    }

    fn when(when: &str) -> String {
        let request = request(&format!("begin = {{ function = \"f\", when = {when} }}"));
        conditions(&request.begin.when)
    }

    #[test]
    fn conditions_are_read_as_sentences() {
        for (given, words) in [
            ("{ arg = 0, equals = 3 }", "argument 0 is 3"),
            ("{ arg = 0, equals = [3, 22] }", "argument 0 is 3 or 22"),
            (
                "{ register = \"rbx\", not-equals = 0, size = 1 }",
                "register rbx of 1 byte is not 0",
            ),
            ("{ arg = 1, from = 2 }", "argument 1 is at least 2"),
            ("{ arg = 1, to = 9 }", "argument 1 is at most 9"),
            ("{ arg = 1, from = 2, to = 9 }", "argument 1 is from 2 to 9"),
            (
                "{ arg = 1, deref = [0, 16, -8], equals = \"GET\" }",
                "*(*(*(argument 1) + 0x10) - 0x8) points to \"GET\"",
            ),
            (
                "[{ global = \"port\", deref = [0], not-equals = \"a\" }, { arg = 0, equals = 1 }]",
                "*(&port) does not point to \"a\" and argument 0 is 1",
            ),
        ] {
            assert_eq!(when(given), words);
        }
    }

    #[test]
    fn attributes_say_what_they_need() {
        let request = request(
            "begin = { function = \"f\" }\n\
             [[request.attribute]]\nname = \"sql\"\narg = 2\nlength = { arg = 3 }\nuntil = \" \"\nkeep = \"last\"\n\
             [[request.attribute]]\nname = \"command\"\ntype = \"integer\"\narg = 0\nnames = { 3 = \"query\" }\nwhen = { arg = 0, from = 1 }",
        );
        let [sql, command] = request.attributes.as_slice() else {
            panic!("{:?}", request.attributes);
        };
        assert_eq!(
            attribute(sql),
            "text of up to 128 bytes, until ' ', read with --labels only"
        );
        assert_eq!(way(sql), "argument 2, as long as argument 3, the last one");
        assert_eq!(attribute(command), "a number, 1 with a name, always read");
        assert_eq!(way(command), "argument 0, if argument 0 is at least 1");
    }
}
