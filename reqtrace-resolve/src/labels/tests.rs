use reqtrace_common::label::NO_REGISTER;
use reqtrace_common::registers::Register;

use super::*;
use crate::fixtures::Fixture;
use crate::readings::Arguments;
use crate::target::Target;
use crate::usdt::{ArgumentValue, UsdtSite};
use crate::{ResolvedRequest, resolve_file};
use reqtrace_profile::{Origin, Profile, ValueSource};

/// `dispatch_command` as MariaDB 10.11, MySQL 8 and something else declare it.
const MARIADB: &str = "dispatch_command(enum_server_command, THD*, char*, unsigned, bool)";
const MYSQL: &str = "dispatch_command(THD*, const COM_DATA*, enum_server_command)";
const OTHER: &str = "dispatch_command(int)";

fn server(signature: &str) -> Fixture {
    let source = format!(
        "enum enum_server_command {{ QUERY = 3 }}; struct THD; union COM_DATA;\n\
         __attribute__((noinline)) int {signature} {{ asm(\"\"); return 0; }}\n\
         int main() {{ return 0; }}"
    );
    Fixture::cpp(&source, &["-rdynamic"])
}

/// Labels for two servers, each of which has its own signature of one function.
const LABELS: &str = r#"
    begin = { function = "dispatch_command" }
    label = [
        { function = "dispatch_command(enum_server_command, THD*, char*, unsigned int*)", when = { arg = 0, equals = [3, 22] }, arg = 2, length = { arg = 3 } },
        { function = "dispatch_command(THD*, COM_DATA const*, enum_server_command)", when = { arg = 2, equals = [3, 22] }, arg = 1, deref = [0], length = { arg = 1, deref = [8] } },
    ]"#;

fn mysql(signature: &str) -> ResolvedRequest {
    resolved(&server(signature), LABELS).unwrap()
}

fn resolved(fixture: &Fixture, request: &str) -> Result<ResolvedRequest> {
    let text = format!("[profile]\nname = \"p\"\n[[request]]\nname = \"r\"\n{request}\n");
    let profile = Profile::parse(&text, "p.toml", Origin::BuiltIn).unwrap();
    resolve_file(&profile, fixture.path()).map(|mut profile| profile.requests.remove(0))
}

fn only(request: &ResolvedRequest) -> LabelPlan {
    match request.begin.sites[0].labels.as_slice() {
        [one] => *one,
        other => panic!("{} plans", other.len()),
    }
}

fn start(reading: &Reading) -> (u8, &[i32], u8) {
    let reads = usize::from(reading.reads);
    (reading.base, &reading.offsets[..reads], reading.size)
}

#[test]
fn each_server_has_the_label_of_its_own_signature() {
    let request = mysql(MARIADB);
    let plan = only(&request);
    assert_eq!(start(&plan.when), (Register::Rdi.index(), &[][..], 4));
    assert_eq!((plan.equals, plan.equals_used), ([3, 22, 0, 0], 2));
    assert_eq!(plan.kind, label_kind::BYTES);
    assert_eq!(start(&plan.value), (Register::Rdx.index(), &[][..], 8));
    assert_eq!(start(&plan.length), (Register::Rcx.index(), &[][..], 4));

    let plan = only(&mysql(MYSQL));
    assert_eq!(start(&plan.when), (Register::Rdx.index(), &[][..], 4));
    assert_eq!(start(&plan.value), (Register::Rsi.index(), &[0][..], 8));
    assert_eq!(start(&plan.length), (Register::Rsi.index(), &[8][..], 4));

    let request = mysql(OTHER);
    assert!(request.begin.sites[0].labels.is_empty());
    let why = request.unlabelled.unwrap();
    assert!(
        why.contains("no label of the profile is for `dispatch_command(int)`"),
        "{why}"
    );
}

#[test]
fn an_argument_without_a_register_is_on_the_stack() {
    let fixture = server(OTHER);
    let request = |label: &str| {
        let request = format!("begin = {{ function = \"dispatch_command\" }}\nlabel = {label}");
        only(&resolved(&fixture, &request).unwrap())
    };
    let rsp = Register::Rsp.index();
    let seventh = request("{ arg = 6, type = \"unsigned\", size = 2 }");
    assert_eq!(start(&seventh.value), (rsp, &[8][..], 2));
    let pointed = request("{ arg = 7, deref = [16, 0] }");
    assert_eq!(start(&pointed.value), (rsp, &[16, 16, 0][..], 8));
    assert_eq!(pointed.kind, label_kind::C_STRING);
    let deep = request("{ arg = 6, deref = [1, 2, 3, 4], length = 16 }");
    assert_eq!(start(&deep.value), (rsp, &[8, 1, 2, 3, 4][..], 8));
    assert_eq!((deep.length.constant, deep.length.base), (16, NO_REGISTER));
    let saved = request("{ register = \"r12\", type = \"integer\" }");
    assert_eq!(start(&saved.value), (Register::R12.index(), &[][..], 4));
    assert_eq!(saved.value.signed, 1);
}

#[test]
fn an_instruction_has_registers_and_no_arguments() {
    let fixture = server(OTHER);
    let object = fixture.object();
    let entry = crate::symbols::find(&object, "dispatch_command")
        .unwrap()
        .unwrap()
        .bodies[0]
        .start;
    let inside = object.file_offset(entry).unwrap() + 1;
    let request = |label: &str| {
        resolved(
            &fixture,
            &format!(
                "begin = {{ offset = {inside} }}\nend = {{ offset = {inside} }}\nlabel = {label}"
            ),
        )
    };
    let error = request("{ arg = 0 }").unwrap_err();
    assert!(
        error
            .to_string()
            .contains("request `r`, label: no function is known"),
        "{error}"
    );
    assert!(error.advice().unwrap().contains("register = "), "{error:?}");
    let plan = only(&request("{ register = \"rdi\" }").unwrap());
    assert_eq!(start(&plan.value), (Register::Rdi.index(), &[][..], 8));
}

fn site(arguments: Vec<(u8, Option<ArgumentValue>)>) -> UsdtSite {
    UsdtSite {
        address: 0x1000,
        file_offset: 0x800,
        semaphore: None,
        arguments: arguments
            .into_iter()
            .map(|(size, value)| super::super::usdt::UsdtArgument {
                text: "8@…".to_owned(),
                size,
                signed: false,
                value,
            })
            .collect(),
    }
}

fn spec(argument: u8, deref: &[i32], kind: LabelKind) -> LabelSpec {
    LabelSpec {
        function: None,
        when: None,
        value: ValueSpec {
            source: ValueSource::Argument(argument),
            add: 0,
            deref: deref.to_vec(),
            size: None,
        },
        kind,
    }
}

#[test]
fn a_probes_note_says_where_its_arguments_are() {
    let site = site(vec![
        (
            8,
            Some(ArgumentValue::Register {
                register: Register::Rbx,
                shift: 0,
            }),
        ),
        (
            1,
            Some(ArgumentValue::Register {
                register: Register::Rax,
                shift: 8,
            }),
        ),
        (
            2,
            Some(ArgumentValue::Memory {
                base: Some(Register::Rbp),
                index: Some((Register::Rcx, 4)),
                displacement: -16,
            }),
        ),
        (4, Some(ArgumentValue::Constant(7))),
        (8, None),
        (
            8,
            Some(ArgumentValue::Memory {
                base: None,
                index: None,
                displacement: 1 << 40,
            }),
        ),
    ]);
    let own = std::env::current_exe().unwrap();
    let target = Target::file(&own);
    let object = target.open(target.executable()).unwrap();
    let place = Place {
        unit: None,
        symbol: "a:b",
        arguments: Arguments::Usdt(&site),
        object: &object,
        address: Some(site.address),
    };
    let plan = |spec: LabelSpec| plans(&[&spec], &place).map(|plans| plans[0]);
    let text = plan(spec(0, &[], LabelKind::CString)).unwrap().value;
    assert_eq!(start(&text), (Register::Rbx.index(), &[][..], 8));
    let byte = plan(spec(1, &[], LabelKind::Unsigned)).unwrap().value;
    assert_eq!((byte.shift, byte.size), (8, 1));
    let word = plan(spec(2, &[], LabelKind::Integer)).unwrap().value;
    assert_eq!(start(&word), (Register::Rbp.index(), &[-16][..], 2));
    assert_eq!((word.index, word.scale), (Register::Rcx.index(), 4));
    // What it points to has a size of its own.
    let pointed = plan(spec(2, &[8], LabelKind::Integer)).unwrap().value;
    assert_eq!(start(&pointed), (Register::Rbp.index(), &[-16, 8][..], 4));
    let constant = plan(spec(3, &[], LabelKind::Integer)).unwrap().value;
    assert_eq!((constant.constant, constant.base), (7, NO_REGISTER));
    for (argument, words) in [
        (4, "cannot be read"),
        (5, "cannot be read"),
        (6, "it has 6"),
    ] {
        let error = plan(spec(argument, &[], LabelKind::CString)).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains(words), "{error}");
    }
}
