use reqtrace_common::label::{NO_REGISTER, Reading};
use reqtrace_common::marker::{condition_kind, marker_flag, op};

use crate::fixtures::Fixture;
use crate::{ResolvedMarker, ResolvedRequest, resolve_file};
use reqtrace_base::error::Result;
use reqtrace_common::registers::Register;
use reqtrace_profile::{Origin, Profile, Role};

const SERVER: &str = r#"
    #include <stdlib.h>
    struct request { struct request *next; int state; };
    struct request *current, *table[4];
    __thread int own;
    __attribute__((noinline)) struct request *create(int a) { asm(""); return table[a & 3]; }
    __attribute__((noinline)) int run(struct request *r, int how) { asm(""); return r->state + how; }
    __attribute__((noinline)) int tail(struct request *r) { asm(""); return abs(rand() + r->state); }
    __attribute__((noinline)) int jump(struct request *r) { asm(""); r->state++; return rand(); }
    __attribute__((noinline)) void release(struct request *r) { asm(""); r->state = own; }
    int main(int c, char **v) {
        (void)v;
        struct request *r = current = create(c);
        int n = run(r, c) + tail(r) + jump(r);
        release(r);
        return n;
    }
"#;

fn resolved(request: &str) -> Result<ResolvedRequest> {
    let fixture = Fixture::c(SERVER, &["-O2", "-rdynamic"]);
    of(&fixture, request)
}

fn of(fixture: &Fixture, request: &str) -> Result<ResolvedRequest> {
    let text = format!("[profile]\nname = \"p\"\n[[request]]\nname = \"r\"\n{request}\n");
    let profile = Profile::parse(&text, "p.toml", Origin::BuiltIn)?;
    resolve_file(&profile, fixture.path()).map(|mut profile| profile.requests.remove(0))
}

#[track_caller]
fn refused(request: &str) -> String {
    let error = resolved(request).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    format!("{error} / {}", error.advice().unwrap_or_default())
}

fn start(reading: &Reading) -> (u8, &[i32], u8) {
    let reads = usize::from(reading.reads);
    (reading.base, &reading.offsets[..reads], reading.size)
}

const KEYED: &str = "key = { arg = 0 }\n\
    begin = { function = \"create\", at = \"return\", key = { arg = \"result\" } }\n\
    end = { function = \"release\" }\n";

fn find(request: &ResolvedRequest, role: Role) -> &ResolvedMarker {
    let mut found = request.markers().filter(|(of, _)| *of == role);
    found.next().unwrap().1
}

#[test]
fn each_marker_has_its_key() {
    let request = resolved(&format!(
        "{KEYED}resume = {{ function = \"run\", touch = true, as = \"client\" }}\n\
         park = {{ function = \"run\", at = \"return\" }}\n\
         idle = {{ function = \"tail\" }}\n\
         ready = {{ function = \"tail\", key = {{ arg = 0, deref = [8] }} }}\n\
         adopt = {{ function = \"release\", to = {{ register = \"rbx\" }} }}"
    ))
    .unwrap();
    assert!(request.is_keyed && !request.same_frame);
    let plan = |role| find(&request, role).sites[0].marks[0];
    let begin = plan(Role::Begin);
    assert_eq!((begin.op, begin.flags), (op::BEGIN, 0));
    assert_eq!(start(&begin.key[0]), (Register::Rax.index(), &[][..], 8));
    let resume = plan(Role::Resume);
    assert_eq!(
        (resume.op, resume.flags, resume.place),
        (op::RESUME, marker_flag::TOUCH, 1)
    );
    assert_eq!(start(&resume.key[0]), (Register::Rdi.index(), &[][..], 8));
    for role in [Role::Park, Role::Idle] {
        let park = plan(role);
        assert_eq!(
            (park.op, park.flags, park.place),
            (op::PARK, marker_flag::CURRENT, 0)
        );
    }
    assert_eq!(
        start(&plan(Role::Ready).key[0]),
        (Register::Rdi.index(), &[8][..], 8)
    );
    let adopt = plan(Role::Adopt);
    assert_eq!(start(&adopt.to[0]), (Register::Rbx.index(), &[][..], 8));
    assert_eq!(plan(Role::End).op, op::END);
    let names: Vec<&str> = request.markers().map(|(role, _)| role.name()).collect();
    assert_eq!(
        names,
        ["begin", "resume", "park", "idle", "ready", "adopt", "end"]
    );
}

#[test]
fn what_a_function_returns_is_read_where_it_is_final() {
    let request = resolved(&format!(
        "{KEYED}park = {{ function = \"run\", at = \"return\", when = {{ arg = \"result\", from = 2, to = 5 }} }}"
    ))
    .unwrap();
    for site in &find(&request, Role::Park).sites {
        let when = site.marks[0].when[0];
        assert_eq!(
            (when.kind, when.numbers[..2].to_vec()),
            (condition_kind::RANGE, vec![2, 5])
        );
        assert_eq!(start(&when.value), (Register::Rax.index(), &[][..], 4));
        assert_eq!(when.value.signed, 1);
    }
    // Its last act is a call, which has the result.
    let text = refused(&format!(
        "{KEYED}park = {{ function = \"jump\", at = \"return\", when = {{ arg = \"result\", equals = 2 }} }}"
    ));
    assert!(
        text.contains("request `r`, park: `jump` can end in a tail call"),
        "{text}"
    );
    assert!(text.contains("called-by"), "{text}");
    // Its caller has it.
    resolved(&format!(
        "{KEYED}park = {{ function = \"jump\", at = \"return\", called-by = \"main\", when = {{ arg = \"result\", equals = 2 }} }}"
    ))
    .unwrap();
    // Nothing is read there.
    resolved(&format!(
        "{KEYED}park = {{ function = \"jump\", at = \"return\" }}"
    ))
    .unwrap();
}

#[test]
fn a_variable_is_found_from_the_probed_instruction() {
    let fixture = Fixture::c(SERVER, &["-O2", "-rdynamic"]);
    let object = fixture.object();
    let text = format!(
        "{KEYED}idle = {{ function = \"tail\", when = {{ global = \"current\", deref = [0, 8], equals = 3 }} }}"
    );
    let request = of(&fixture, &text).unwrap();
    let sites = &find(&request, Role::Idle).sites;
    assert!(!sites.is_empty());
    for site in sites {
        let value = site.marks[0].when[0].value;
        assert_eq!(start(&value), (Register::Rip.index(), &[0, 8][..], 4));
        assert_eq!(value.index, NO_REGISTER);
        let here = object.address_of(site.file_offset).unwrap();
        let found = here.wrapping_add_signed(value.constant);
        assert_eq!(Some(found), object.address_of_symbol("current"));
    }
    let of = |name: &str| {
        let text = text.replace("\"current\"", &format!("\"{name}\""));
        refused(&text)
    };
    let text = of("curent");
    assert!(
        text.contains("no variable `curent`") && text.contains("current"),
        "{text}"
    );
    let text = of("own");
    assert!(text.contains("each thread has a variable `own`"), "{text}");
    // A function is none.
    assert!(of("run").contains("no variable `run`"));
    let text = refused(
        "return-probe = \"uretprobe\"\nbegin = { function = \"run\" }\n\
         end = { function = \"run\", at = \"return\", when = { global = \"current\", equals = 0 } }",
    );
    assert!(
        text.contains("a uretprobe cannot read the variable"),
        "{text}"
    );
}

#[test]
fn variables_of_one_name_are_listed() {
    let fixture = Fixture::c_of_two_depths(SERVER, &["-O2", "-rdynamic"]);
    let read = |name: &str| {
        let idle = format!(
            "idle = {{ function = \"tail\", when = {{ global = \"{name}\", deref = [0], equals = 3 }} }}"
        );
        of(&fixture, &format!("{KEYED}{idle}"))
    };
    let error = read("depth").unwrap_err();
    assert_eq!(error.exit_code(), 2);
    let text = error.to_string();
    assert!(
        text.contains("`depth` is ambiguous in ") && text.contains(": 2 variables match: "),
        "{text}"
    );
    assert_eq!(text.matches("depth (address 0x").count(), 2, "{text}");
    // Both tables of symbols have this one.
    read("current").unwrap();
}

#[test]
fn each_text_of_a_condition_is_a_way() {
    let request = resolved(
        "begin = { function = \"run\", when = [\
         { arg = 0, equals = [\"do_GET\", \"do_PUT\"] }, { arg = 1, not-equals = [1, 2] }] }",
    )
    .unwrap();
    let marks = &request.begin.sites[0].marks;
    let texts: Vec<&[u8]> = marks
        .iter()
        .map(|plan| &plan.when[0].text[..plan.when[0].used as usize])
        .collect();
    assert_eq!(texts, [b"do_GET", b"do_PUT"]);
    for plan in marks {
        assert_eq!(plan.when[0].value.size, 8);
        assert_eq!((plan.when[1].negate, plan.when[1].used), (1, 2));
    }
}

const ATTRIBUTE: &str =
    "begin = { function = \"run\" }\n[[request.attribute]]\nname = \"state\"\ntype = \"integer\"\n";

#[test]
fn attributes_are_read_at_their_markers() {
    let request = resolved(&format!(
        "{ATTRIBUTE}arg = 1\n[[request.attribute]]\nname = \"how\"\non = \"end\"\ntype = \"integer\"\narg = \"result\"\n\
         [[request.attribute]]\nname = \"sql\"\nfunction = \"tail\"\narg = 0\nlength = 8\nmax-length = 99\nkeep = \"last\""
    ))
    .unwrap();
    let begin = request.begin.sites[0].attributes[0];
    assert_eq!(
        (begin.index, start(&begin.value).0),
        (0, Register::Rsi.index())
    );
    for site in &request.end.sites {
        let end = site.attributes[0];
        assert_eq!((end.index, start(&end.value).0), (1, Register::Rax.index()));
    }
    let own = find(&request, Role::Attribute);
    let sql = own.sites[0].attributes[0];
    assert_eq!((sql.index, sql.most, sql.keep_last), (2, 99, 1));
    assert_eq!((sql.length.constant, own.sites[0].marks.len()), (8, 0));
    assert!(request.unread.is_empty());
}

#[test]
fn an_attribute_that_a_program_does_not_have_is_noted() {
    let request = resolved(&format!(
        "{ATTRIBUTE}arg = 1\n[[request.attribute]]\nname = \"state\"\ntype = \"integer\"\nfunction = \"runn\"\narg = 0"
    ))
    .unwrap();
    let [missing] = request.unread.as_slice() else {
        panic!("{:?}", request.unread);
    };
    assert!(missing.why.contains("no function `runn`"), "{missing:?}");
    assert!(missing.is_read && !missing.is_text);
    for (attribute, words) in [
        ("function = \"runn\"\narg = 0", "no function `runn`"),
        ("global = \"nowhere\"", "no variable `nowhere`"),
        (
            "function = \"jump\"\nat = \"return\"\narg = \"result\"",
            "tail call",
        ),
    ] {
        let request = resolved(&format!("{ATTRIBUTE}{attribute}")).unwrap();
        let [missing] = request.unread.as_slice() else {
            panic!("{:?}", request.unread);
        };
        assert!(missing.why.contains(words), "{missing:?}");
        assert!(!missing.is_read);
        assert!(request.begin.sites[0].attributes.is_empty() && request.more.is_empty());
    }
}

#[test]
fn a_result_that_is_not_known_at_a_tail_call_is_unread_and_the_end_stays() {
    let result = "[[request.attribute]]\nname = \"number\"\non = \"end\"\ntype = \"integer\"\narg = \"result\"\n\
        [[request.attribute]]\nname = \"table\"\non = \"end\"\ntype = \"integer\"\nglobal = \"table\"";
    let request = resolved(&format!("begin = {{ function = \"jump\" }}\n{result}")).unwrap();
    let [unread] = request.unread.as_slice() else {
        panic!("{:?}", request.unread);
    };
    assert_eq!(
        (unread.attribute.as_str(), unread.is_read),
        ("number", false)
    );
    assert!(
        unread.why.contains("can end in a tail call"),
        "{}",
        unread.why
    );
    for site in &request.end.sites {
        assert_eq!(site.attributes.len(), 1, "the other one is read");
    }
    // A marker that needs the result itself has no end without it.
    let text = refused(
        "begin = { function = \"run\" }\nend = { function = \"jump\", at = \"return\", \
         when = { arg = \"result\", equals = 0 } }",
    );
    assert!(text.contains("tail call"), "{text}");
}

#[test]
fn markers_at_one_place_share_its_probes() {
    // The label needs a register that the beginning of the function changes: the probe stays at the entry.
    let alone = resolved(&format!("{KEYED}resume = {{ function = \"run\" }}")).unwrap();
    let together = resolved(&format!(
        "{KEYED}resume = {{ function = \"run\" }}\n\
         idle = {{ function = \"run\", when = {{ register = \"rbx\", equals = 1 }} }}"
    ))
    .unwrap();
    let offsets = |request: &ResolvedRequest, role| -> Vec<u64> {
        let sites = find(request, role).sites.iter();
        sites.map(|site| site.file_offset).collect()
    };
    let of_resume = offsets(&together, Role::Resume);
    assert_eq!(of_resume, offsets(&together, Role::Idle));
    assert_eq!(of_resume, [find(&together, Role::Resume).entry_offset]);
    assert_eq!(offsets(&alone, Role::Resume).len(), 1);
}
