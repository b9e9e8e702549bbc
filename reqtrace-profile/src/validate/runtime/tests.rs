use crate::{
    AttributeAt, Change, Edge, GOES_ON, KeySpec, LabelKind, Origin, PlaceSpec, Profile, Profiles,
    RUNTIME, Role, Test, ValueSource, WAITS_OF_TOKIO,
};
use reqtrace_base::error::Result;
use reqtrace_common::marker::MAX_PLACES;
use reqtrace_common::registers::Register;

const HEAD: &str = "[profile]\nname = \"p\"\n";
const TOKIO: &str = "[runtime]\nkind = \"tokio\"\n";

fn parse(lines: &str) -> Result<Profile> {
    Profile::parse(&format!("{HEAD}{lines}"), "p.toml", Origin::BuiltIn)
}

#[track_caller]
fn refused(lines: &str, place: &str, words: &str) {
    let text = parse(lines).unwrap_err().to_string();
    assert!(
        text.starts_with(&format!("p.toml:{place}: ")) && text.contains(words),
        "{text}"
    );
}

fn whole(lines: &str) -> String {
    format!("{TOKIO}[[request]]\nname = \"job\"\nunit = \"*job*\"\n{lines}")
}

fn within(lines: &str) -> String {
    format!(
        "{TOKIO}[[request]]\nname = \"http\"\nkey = \"unit\"\nbegin = {{ function = \"b\" }}\n{lines}"
    )
}

#[test]
fn a_unit_is_a_request_from_its_spawn_to_its_end() {
    let profile = parse(&whole("")).unwrap();
    let job = &profile.requests[0];
    assert_eq!(job.unit(), Some("*job*"));
    assert!(job.is_keyed && job.begin.is_queued && !job.begin.is_touch);
    assert_eq!(job.places[0], RUNTIME);
    assert_eq!(job.places.len(), 11);
    for wait in WAITS_OF_TOKIO {
        assert!(job.places[wait.place()].starts_with("tokio "), "{wait:?}");
    }
    assert_eq!(job.begin.waits_in, Some(0));
    assert_eq!(job.begin.when.len(), 2);
    let markers: Vec<(Role, &PlaceSpec)> = job
        .more_markers()
        .map(|one| (one.role, &one.place))
        .collect();
    assert_eq!(
        markers,
        [
            (Role::Resume, &PlaceSpec::Edge(Edge::Resume)),
            (Role::Park, &PlaceSpec::Edge(Edge::Leave)),
            (Role::Note, &PlaceSpec::Edge(Edge::Wait)),
            (Role::Note, &PlaceSpec::Edge(Edge::Waker)),
            (Role::Note, &PlaceSpec::Edge(Edge::Done)),
            (Role::Ready, &PlaceSpec::Edge(Edge::Queue)),
            (Role::Ready, &PlaceSpec::Edge(Edge::Leave)),
            (Role::Child, &PlaceSpec::Edge(Edge::Queue)),
        ]
    );
    assert_eq!(job.done[0].key, KeySpec::Current);
    // The kernel programs know the places of a blocking job by the second one.
    let mut markers = job.more_markers();
    let of_jobs =
        markers.find(|one| one.role == Role::Note && one.place == PlaceSpec::Edge(Edge::Done));
    let pool = of_jobs.and_then(|one| one.waits_in).unwrap();
    assert_eq!(
        job.places[pool - 1..=pool + 1],
        [
            "tokio spawn_blocking",
            "waited for the blocking pool",
            "tokio join"
        ]
    );
    assert!(pool > MAX_PLACES, "their numbers follow each other: {pool}");
    // Tasks that are no request pass.
    let mut of_units = job.more_markers().chain(&job.end);
    assert!(of_units.all(|one| one.is_touch != (one.role == Role::Child)));
    assert_eq!(job.end.as_ref().unwrap().place, PlaceSpec::Edge(Edge::Done));
    // All tasks need no type.
    let all = parse(&whole("").replace("*job*", "*")).unwrap();
    let begin = &all.requests[0].begin;
    assert!(
        !begin
            .when
            .iter()
            .any(|when| matches!(when.test, Test::Unit(_)))
    );
    assert_eq!(all.requests[0].unit(), Some("*"));
    assert!(all.requests[0].done.is_empty(), "none is of another type");
}

#[test]
fn a_request_within_a_unit_has_its_own_begin_and_end() {
    let profile = parse(&within("end = { function = \"e\", at = \"return\" }\n")).unwrap();
    let http = &profile.requests[0];
    assert_eq!(http.unit(), None);
    assert!(http.is_keyed && !http.begin.is_queued);
    assert_eq!(
        (&http.begin.key, &http.end.as_ref().unwrap().key),
        (&KeySpec::Unit, &KeySpec::Unit)
    );
    let roles = http.done.iter().map(|one| one.role);
    assert_eq!(roles.collect::<Vec<_>>(), [Role::Done, Role::Child]);
    assert_eq!(http.more_markers().count(), 9);
}

#[test]
fn children_are_requests_of_a_type_behind_that_of_who_makes_them() {
    let of_go = |text: String| text.replace("tokio", "go");
    let cases = [
        (whole("children = true\n"), Edge::Queue, 2),
        (
            within("end = { function = \"e\" }\nchildren = true\n"),
            Edge::Queue,
            1,
        ),
        (
            of_go(whole("children = true\n")),
            Edge::Goroutine(Change::Spawn),
            2,
        ),
        (
            of_go(within("end = { function = \"e\" }\nchildren = true\n")),
            Edge::Goroutine(Change::Spawn),
            1,
        ),
    ];
    for (text, edge, conditions) in cases {
        let profile = parse(&text).unwrap();
        let [parent, child] = profile.requests.as_slice() else {
            panic!("{text}: {} types", profile.requests.len());
        };
        assert_eq!(child.name, format!("{} children", parent.name));
        assert_eq!((child.unit(), child.is_keyed), (None, true), "{text}");
        assert_eq!((child.begin.is_child, parent.begin.is_child), (true, false));
        assert_eq!(
            (&child.places, child.begin.is_queued),
            (&parent.places, true)
        );
        assert_eq!(child.begin.place, PlaceSpec::Edge(edge));
        // What is a request itself is no child.
        let when = &child.begin.when;
        assert_eq!(when.len(), conditions, "{text}");
        assert!(when[1..].iter().all(|when| when.negate), "{text}");
        assert!(child.done.is_empty(), "a child's children are of its type");
        assert_eq!(child.attribute_names(), ["unit"]);
    }
    assert_eq!(
        parse(&whole("children = false\n")).unwrap().requests.len(),
        1
    );
}

#[test]
fn children_of_what_is_no_unit_or_is_every_one_are_refused() {
    let plain = "[[request]]\nname = \"r\"\nbegin = { function = \"b\" }\nchildren = true\n";
    refused(plain, "6:12", "the request is tied to none");
    let all = whole("children = true\n").replace("*job*", "*");
    refused(&all, "8:12", "each child is a request itself");
    let two = whole("children = true\n") + "[[request]]\nname = \"b\"\nunit = \"*b*\"\n";
    refused(&two, "8:12", "in profiles with one [[request]]");
    refused(&whole("children = 1\n"), "8:12", "");
    let taken = within("end = { function = \"e\" }\nchildren = true\n")
        + "[[request]]\nname = \"http children\"\nkey = \"unit\"\nbegin = { function = \"b\" }\nend = { function = \"e\" }\n";
    refused(&taken, "12:8", "two requests named `http children`");
}

#[test]
fn what_the_runtime_says_is_not_said_again() {
    for (line, key) in [
        ("begin = { function = \"b\" }\n", "begin"),
        ("end = { function = \"b\" }\n", "end"),
        ("key = { arg = 0 }\n", "key"),
        ("label = { arg = 0 }\n", "label"),
        ("ready = { function = \"r\" }\n", "ready"),
        ("reentry = \"nest\"\n", "reentry"),
    ] {
        let column = key.len() + 4;
        refused(
            &whole(line),
            &format!("8:{column}"),
            &format!("a unit has no `{key}`"),
        );
    }
    refused(
        &within("park = { function = \"p\" }\n"),
        "9:8",
        "key = \"unit\" has no `park`",
    );
    refused(&within(""), "8:9", "needs an `end`");
    let end = "end = { function = \"e\", key = { arg = 0 } }\n";
    refused(&within(end), "9:31", "is its unit");
    let attribute = "[[request.attribute]]\nname = \"n\"\narg = 0\n";
    refused(&whole(attribute), "8:1", "nothing of it can be read");
}

#[test]
fn a_runtime_and_its_units_belong_together() {
    let job = "[[request]]\nname = \"job\"\nunit = \"*job*\"\n";
    refused(job, "5:8", "the profile has none");
    let plain = "[[request]]\nname = \"r\"\nbegin = { function = \"f\" }\n";
    refused(&format!("{TOKIO}{plain}"), "4:8", "about a unit");
    refused(
        &format!("[runtime]\nkind = \"java\"\n{job}"),
        "4:8",
        "unknown variant `java`",
    );
    let both = within("end = { function = \"e\" }\n") + job;
    refused(&both, "12:8", "some are within units");
    refused(&whole("").replace("*job*", ""), "7:8", "unit is empty");
    let marker = "[[request]]\nname = \"r\"\nkey = { arg = 0 }\nbegin = { function = \"f\", key = \"unit\" }\nend = { function = \"e\" }\n";
    refused(marker, "6:33", "of all markers of a request, or of none");
    refused(
        &plain.replace("begin = { function = \"f\" }\n", ""),
        "4:8",
        "missing field `begin`",
    );
}

#[test]
fn a_request_within_a_goroutine_has_its_edges_and_the_register_as_key() {
    let text = within("end = { function = \"e\" }\n").replace("tokio", "go");
    let profile = parse(&text).unwrap();
    assert!(profile.is_about_goroutines());
    let http = &profile.requests[0];
    let key = KeySpec::Key(vec![crate::runtime::goroutine()]);
    assert_eq!(
        (&http.begin.key, &http.end.as_ref().unwrap().key),
        (&key, &key)
    );
    let markers: Vec<(Role, &PlaceSpec)> = http
        .more_markers()
        .map(|one| (one.role, &one.place))
        .collect();
    let at = [
        (Role::Resume, Change::Resume),
        (Role::Resume, Change::Switch),
        (Role::Park, Change::Park),
        (Role::Park, Change::Stop),
        (Role::Ready, Change::Ready),
        (Role::Ready, Change::Leave),
        (Role::Done, Change::Done),
        (Role::Child, Change::Spawn),
    ]
    .map(|(role, change)| (role, PlaceSpec::Edge(Edge::Goroutine(change))));
    let at: Vec<(Role, &PlaceSpec)> = at.iter().map(|(role, place)| (*role, place)).collect();
    assert_eq!(markers, at);
    let mut of_goroutines = http.more_markers();
    assert!(of_goroutines.all(|one| one.is_touch != (one.role == Role::Child)));
}

/// Whether a panic can end a request that is within a goroutine, with these as its begin and end.
fn left_by_a_panic(begin: &str, end: &str) -> bool {
    let text = format!(
        "[runtime]\nkind = \"go\"\n[[request]]\nname = \"r\"\nkey = \"unit\"\n\
         begin = {{ {begin} }}\nend = {{ {end} }}\n"
    );
    let profile = parse(&text).unwrap();
    let mut markers = profile.requests[0].more_markers();
    markers.any(|one| one.role == Role::Recover)
}

#[test]
fn a_call_of_one_function_is_left_by_a_panic() {
    let of_e = "function = \"e\", at = \"return\"";
    assert!(left_by_a_panic("function = \"e\"", of_e));
    let when = "function = \"e\", when = [{ arg = 1, equals = 0 }]";
    assert!(left_by_a_panic(when, of_e));
    // What of another one is on the stack says nothing, nor does one whose return may be none.
    assert!(!left_by_a_panic("function = \"b\"", of_e));
    assert!(!left_by_a_panic(of_e, of_e));
    assert!(!left_by_a_panic("function = \"e\"", "function = \"e\""));
    let sometimes = format!("{of_e}, when = [{{ arg = \"result\", equals = 0 }}]");
    assert!(!left_by_a_panic("function = \"e\"", &sometimes));
    let called = format!("{of_e}, called-by = \"c\"");
    assert!(!left_by_a_panic("function = \"e\"", &called));
    // Tasks of tokio are done then.
    let tokio = within(&format!("end = {{ {} }}\n", of_e.replace("\"e\"", "\"b\"")));
    let tokio = parse(&tokio).unwrap();
    let mut markers = tokio.requests[0].more_markers();
    assert!(markers.all(|one| one.role != Role::Recover));
}

#[test]
fn a_request_that_is_a_goroutine_begins_in_a_queue_where_it_is_made() {
    let profile = parse(&whole("").replace("tokio", "go")).unwrap();
    let job = &profile.requests[0];
    assert!(job.is_keyed && job.begin.is_queued && !job.begin.is_touch);
    let at = |change| PlaceSpec::Edge(Edge::Goroutine(change));
    let end = job.end.as_ref().unwrap();
    assert_eq!(
        (&job.begin.place, &end.place, end.role),
        (&at(Change::Spawn), &at(Change::Done), Role::End)
    );
    let places = job.done.iter().map(|one| &one.place);
    assert_eq!(places.collect::<Vec<_>>(), [&at(Change::Spawn)]);
    assert!(profile.is_about_goroutines());
    assert_eq!(job.unit(), Some("*job*"));
    let all = whole("").replace("tokio", "go").replace("*job*", "*");
    let all = &parse(&all).unwrap().requests[0];
    // Only that it is no coroutine.
    assert_eq!((all.unit(), all.begin.when.len()), (Some("*"), 1));
}

/// An attribute that says what the unit is; its lines are the last ones.
fn of_unit(lines: &str) -> String {
    format!("[[request.attribute]]\nname = \"task\"\n{lines}type = \"unit\"\n")
}

#[test]
fn what_a_unit_is_is_read_where_it_is_spawned() {
    for (runtime, source, deref) in [
        ("tokio", ValueSource::Unit(1), vec![16, 0]),
        ("go", ValueSource::Register(Register::Rax), vec![GOES_ON]),
    ] {
        let text = whole(&of_unit("only-if = { function = \"f\" }\n")).replace("tokio", runtime);
        let profile = parse(&text).unwrap();
        let [task] = profile.requests[0].attributes.as_slice() else {
            panic!("{profile:?}");
        };
        assert_eq!(
            (&task.kind, &task.read),
            (&LabelKind::Unit, &AttributeAt::Begin)
        );
        assert_eq!(
            (&task.value.source, &task.value.deref, task.value.size),
            (&source, &deref, Some(8))
        );
        // No user has written it.
        assert!(!task.is_text() && !task.only_if.is_always());
        let profiles = Profiles::from(profile);
        assert_eq!((profiles.units(), profiles.symbols()), (vec![1], vec![0]));
    }
}

#[test]
fn what_a_unit_is_is_read_in_one_way() {
    for line in [
        "arg = 0",
        "register = \"rdi\"",
        "global = \"g\"",
        "deref = [0]",
        "size = 8",
        "length = 8",
        "max-length = 8",
        "until = \" \"",
        "names = { 1 = \"a\" }",
        "keep = \"last\"",
        "on = \"end\"",
        "function = \"f\"",
        "usdt = \"a:b\"",
        "object = \"o\"",
        "when = { arg = 0, equals = 1 }",
    ] {
        let (key, _) = line.split_once(' ').unwrap();
        refused(
            &whole(&of_unit(&format!("{line}\n"))),
            &format!("10:{}", key.len() + 4),
            &format!("an attribute with type = \"unit\" has no `{key}`"),
        );
    }
    let other = "[[request.attribute]]\nname = \"task\"\nfunction = \"f\"\narg = 0\n";
    let both = whole(&(of_unit("") + other));
    refused(&both, "12:8", "`task` has another `type`");
}

#[test]
fn a_request_that_is_no_unit_has_no_type_of_one() {
    let within = within(&format!("end = {{ function = \"e\" }}\n{}", of_unit("")));
    refused(&within, "12:8", "begins within its task or goroutine");
    let plain = "[[request]]\nname = \"r\"\nbegin = { function = \"f\" }\n";
    refused(
        &format!("{plain}{}", of_unit("")),
        "8:8",
        "this request is neither",
    );
    let label = "label = { arg = 0, type = \"unit\" }\n";
    refused(
        &format!("{plain}{label}"),
        "6:27",
        "a text or a number, and not what a unit is",
    );
}
