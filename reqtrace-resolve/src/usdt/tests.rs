use proptest::prelude::*;

use super::argument::{argument, operand_value};
use super::notes::NOTE_OWNER;
use super::*;
use crate::fixtures::Fixture;
use reqtrace_common::registers::Register;

/// A library with probes as `sys/sdt.h` writes them; `%base%` is what the notes think the base is.
const LIBRARY: &str = r#"
    .text
    .globl serve
    .type serve, @function
serve:
one:    nop
        nop
two:    nop
        ret
    .size serve, . - serve

    .section .stapsdt.base, "aG", "progbits", .stapsdt.base, comdat
base:   .space 1

    .section .probes, "aw", "progbits"
    .space 6
semaphore: .short 0

    .data
    .globl counter
    .type counter, @object
counter: .quad 7
    .size counter, 8

    .macro probe place, sem, provider, name, arguments
    .pushsection .note.stapsdt, "", "note"
    .balign 4
    .4byte 992f-991f, 994f-993f, 3
991:    .asciz "stapsdt"
992:    .balign 4
993:    .8byte \place
        .8byte base
        .8byte \sem
        .asciz "\provider"
        .asciz "\name"
        .asciz "\arguments"
994:    .balign 4
    .popsection
    .endm

    probe two, 0, shop, order, "-4@%eax 8@-16(%rbp)"
    probe one, 0, shop, order, "-4@$5 8@counter+4(%rip)"
    probe one, semaphore, shop, guarded, ""
    probe 0x7000000, 0, shop, nowhere, ""
    probe one, 0x7000000, shop, unguarded, ""
"#;

fn library() -> Object {
    Fixture::assembly(LIBRARY).object()
}

#[test]
fn a_probe_has_all_its_places_with_their_own_arguments() {
    let object = library();
    let found = usdt_probes(&object);
    let names: Vec<String> = found.probes.iter().map(UsdtProbe::full_name).collect();
    assert_eq!(names, ["shop:guarded", "shop:order"]);
    let serve = object.address_of_symbol("serve").unwrap();
    let order = found.find("shop", "order").unwrap();
    let addresses: Vec<u64> = order.sites.iter().map(|site| site.address).collect();
    assert_eq!(addresses, [serve, serve + 2]);
    for site in &order.sites {
        assert_eq!(Some(site.file_offset), object.file_offset(site.address));
        assert_eq!(site.semaphore, None);
    }
    let counter = object.address_of_symbol("counter").unwrap();
    assert_eq!(
        order.sites[0].arguments[0].value,
        Some(ArgumentValue::Constant(5))
    );
    assert_eq!(
        order.sites[0].arguments[1].value,
        Some(ArgumentValue::Memory {
            base: Some(Register::Rip),
            index: None,
            displacement: (counter + 4).wrapping_sub(serve).cast_signed(),
        })
    );
    assert_eq!(order.sites[1].arguments[1].text, "8@-16(%rbp)");
    assert!(found.find("shop", "other").is_none());
}

#[test]
fn a_semaphore_is_an_offset_in_the_file() {
    let fixture =
        Fixture::assembly(&LIBRARY.replace("semaphore: .short 0", "semaphore: .short 0x5a7e"));
    let object = fixture.object();
    let found = usdt_probes(&object);
    let guarded = found.find("shop", "guarded").unwrap();
    let offset = guarded.sites[0].semaphore.unwrap() as usize;
    let bytes = std::fs::read(fixture.path()).unwrap();
    assert_eq!(bytes[offset..offset + 2], [0x7e, 0x5a]);
    // Data and code are loaded at different distances from the file.
    assert_eq!(object.file_offset(offset as u64), None);
}

#[test]
fn notes_of_places_outside_the_file_are_counted() {
    // `nowhere` is not code, the semaphore of `unguarded` is no data.
    assert_eq!(usdt_probes(&library()).malformed, 2);
}

#[test]
fn prelinked_addresses_are_moved() {
    // As if the file had been moved down by 0x100 after the notes were written.
    let moved = LIBRARY
        .replace(".8byte base", ".8byte base + 0x100")
        .replace(".8byte \\place", ".8byte \\place + 0x100")
        .replace("probe one, semaphore", "probe one, semaphore + 0x100");
    let expected = usdt_probes(&library());
    let found = usdt_probes(&Fixture::assembly(&moved).object());
    assert_eq!(found.probes[0], expected.probes[0]);
    assert_eq!(
        found.probes[1].sites[1].address,
        expected.probes[1].sites[1].address
    );
}

#[test]
fn a_file_without_notes_has_no_probes() {
    let object = Fixture::c("int main(void) { return 0; }", &[]).object();
    assert_eq!(usdt_probes(&object), UsdtProbes::default());
}

#[test]
fn arguments_are_read_in_the_notation_of_the_assembler() {
    use ArgumentValue::{Constant, Memory, Register as In};
    let object = library();
    let read = |text: &str| argument(&object, 0x1000, text);
    let memory = |base, index, displacement| {
        Some(Memory {
            base,
            index,
            displacement,
        })
    };
    let register = |register, shift| Some(In { register, shift });
    for (text, size, signed, value) in [
        ("-4@%eax", 4, true, register(Register::Rax, 0)),
        ("1@%ah", 1, false, register(Register::Rax, 8)),
        ("-1@%r10b", 1, true, register(Register::R10, 0)),
        ("2@%si", 2, false, register(Register::Rsi, 0)),
        ("%rdx", 8, false, register(Register::Rdx, 0)),
        ("4@$5", 4, false, Some(Constant(5))),
        ("-8@$-17", 8, true, Some(Constant(-17))),
        ("8@$0xfffffffffffffffe", 8, false, Some(Constant(-2))),
        ("8@$18446744073709551615", 8, false, Some(Constant(-1))),
        (
            "8@-16(%rbp)",
            8,
            false,
            memory(Some(Register::Rbp), None, -16),
        ),
        ("8@(%rsp)", 8, false, memory(Some(Register::Rsp), None, 0)),
        (
            "8@0x18(%rdi)",
            8,
            false,
            memory(Some(Register::Rdi), None, 24),
        ),
        (
            "8@8-24(%rdi)",
            8,
            false,
            memory(Some(Register::Rdi), None, -16),
        ),
        (
            "-4@8(%rax,%rcx,4)",
            4,
            true,
            memory(Some(Register::Rax), Some((Register::Rcx, 4)), 8),
        ),
        (
            "8@(%rax,%r13)",
            8,
            false,
            memory(Some(Register::Rax), Some((Register::R13, 1)), 0),
        ),
        (
            "8@32(,%rdx,8)",
            8,
            false,
            memory(None, Some((Register::Rdx, 8)), 32),
        ),
    ] {
        let found = read(text);
        assert_eq!(
            (found.size, found.signed, found.value),
            (size, signed, value),
            "{text}"
        );
        assert_eq!(found.text, text);
    }
    let counter = object.address_of_symbol("counter").unwrap();
    for (text, distance) in [
        ("8@counter(%rip)", 0),
        ("8@counter+4(%rip)", 4),
        ("8@-8+counter(%rip)", -8),
        ("8@counter", 0),
    ] {
        let target = counter.wrapping_add_signed(distance);
        let expected = memory(
            Some(Register::Rip),
            None,
            (target.wrapping_sub(0x1000)).cast_signed(),
        );
        assert_eq!(read(text).value, expected, "{text}");
    }
    for text in [
        "",
        "@",
        "4@",
        "4@$",
        "4@$x",
        "3@%eax",
        "4@%xmm0",
        "8f@%rax",
        "4@%",
        "8@%fs:-8",
        "8@%fs:0(%rax)",
        "8@4(%rip)",
        "8@none(%rip)",
        "8@none",
        "8@(",
        "8@()",
        "8@(,)",
        "8@(%rax",
        "8@(%eax)",
        "8@(%rax,%rbx,3)",
        "8@(%rax,%rbx,4,5)",
        "8@--(%rax)",
        "8@+(%rax)",
        "8@4+(%rax)",
        "99999999999@%rax",
        "8@$99999999999999999999",
    ] {
        assert_eq!(read(text).value, None, "{text}");
    }
}

#[test]
fn a_variable_of_whose_name_there_are_several_is_not_read() {
    let source = "int only = 3;\nint main(void) { return only; }\n";
    let object = Fixture::c_of_two_depths(source, &["-O2", "-rdynamic"]).object();
    assert_eq!(object.address_of_symbol("depth"), None);
    let read = |text: &str| argument(&object, 0x1000, text).value;
    assert_eq!(read("-4@depth(%rip)"), None);
    // Both tables of symbols have this one.
    assert!(read("-4@only(%rip)").is_some());
}

/// The range of the library's notes in its bytes.
fn with_notes(edit: impl FnOnce(&mut [u8])) -> UsdtProbes {
    thread_local! {
        static PRISTINE: Vec<u8> = std::fs::read(Fixture::assembly(LIBRARY).path()).unwrap();
    }
    let mut bytes = PRISTINE.with(Clone::clone);
    let start = bytes
        .windows(8)
        .position(|window| window == NOTE_OWNER)
        .unwrap()
        - 12;
    let length = Object::parse(bytes.clone(), "x")
        .unwrap()
        .usdt_notes()
        .map(<[u8]>::len)
        .sum::<usize>();
    edit(&mut bytes[start..start + length]);
    usdt_probes(&Object::parse(bytes, "x").unwrap())
}

#[test]
fn notes_that_are_cut_off_are_counted() {
    let whole = with_notes(|_| ());
    let sites = |found: &UsdtProbes| {
        found
            .probes
            .iter()
            .map(|probe| probe.sites.len())
            .sum::<usize>()
    };
    assert_eq!((sites(&whole), whole.malformed), (3, 2));
    let object = library();
    let notes: Vec<u8> = object.usdt_notes().flatten().copied().collect();
    for length in 0..notes.len() {
        let mut rest = &notes[..length];
        let mut seen = 0;
        while let Some((Note::Probe(description), after)) = next_note(rest) {
            seen += usize::from(probe(&object, description).is_some());
            rest = after;
        }
        assert!(seen <= 3, "{length}");
    }
    // A size that reaches behind the section hides what follows, and says so.
    let found = with_notes(|notes| notes[4..8].copy_from_slice(&u32::MAX.to_le_bytes()));
    assert_eq!((sites(&found), found.malformed), (0, 1));
    // Without its last string a note is malformed; the others stay.
    let found = with_notes(|notes| notes[4..8].copy_from_slice(&24_u32.to_le_bytes()));
    assert!(found.malformed >= 1, "{found:?}");
    // Another owner's note is none of ours, and no error.
    let found = with_notes(|notes| notes[12] = b'S');
    assert_eq!((sites(&found), found.malformed), (2, 2));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn damaged_notes_never_panic(damage in proptest::collection::vec((any::<u16>(), any::<u8>()), 1..24)) {
        let found = with_notes(|notes| {
            for (place, value) in damage {
                let at = usize::from(place) % notes.len();
                notes[at] = value;
            }
        });
        prop_assert!(found.probes.iter().all(|probe| !probe.sites.is_empty()));
    }

    #[test]
    fn no_argument_panics(text in "[-0-9@$%()a-z,+:*. ]{0,24}") {
        let _ = operand_value(&Object::parse(LIBRARY_BYTES.with(Clone::clone), "x").unwrap(), 4096, &text);
    }
}

thread_local! {
    static LIBRARY_BYTES: Vec<u8> = std::fs::read(Fixture::assembly(LIBRARY).path()).unwrap();
}

fn resolve_request(markers: &str) -> reqtrace_base::error::Result<crate::ResolvedProfile> {
    let fixture = Fixture::assembly(LIBRARY);
    let text = format!("[profile]\nname = \"p\"\n[[request]]\nname = \"r\"\nbegin = {markers}\n");
    let profile =
        reqtrace_profile::Profile::parse(&text, "p.toml", reqtrace_profile::Origin::BuiltIn)
            .unwrap();
    crate::resolve_file(&profile, fixture.path())
}

#[test]
fn a_marker_is_set_at_all_places_of_its_probe() {
    let object = library();
    let at = |distance| object.file_offset(object.address_of_symbol("serve").unwrap() + distance);
    let resolved =
        resolve_request("{ usdt = \"shop:order\" }\nend = { usdt = \"shop:guarded\" }").unwrap();
    let request = &resolved.requests[0];
    let offsets: Vec<Option<u64>> = request
        .begin
        .sites
        .iter()
        .map(|s| Some(s.file_offset))
        .collect();
    assert_eq!(offsets, [at(0), at(2)]);
    assert_eq!(request.begin.symbol, "shop:order");
    assert!(!request.same_frame);
    assert!(request.end.sites[0].semaphore.is_some());
    assert!(
        resolved.warnings[0].starts_with("2 USDT notes of "),
        "{:?}",
        resolved.warnings
    );
    // Begin and end of different kinds.
    let resolved = resolve_request(
        "{ usdt = \"shop:order\" }\nend = { function = \"serve\", at = \"return\" }",
    )
    .unwrap();
    assert_eq!(resolved.requests[0].end.sites.len(), 1);
}

#[test]
fn a_probe_that_is_not_there_is_named_with_the_nearest() {
    let refused = |markers: &str| {
        let error = resolve_request(markers).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        format!("{error} / {}", error.advice().unwrap_or_default())
    };
    let text = refused("{ usdt = \"shop:ordr\" }\nend = { usdt = \"shop:guarded\" }");
    assert!(
        text.contains("request `r`, begin: no USDT probe `shop:ordr` in "),
        "{text}"
    );
    assert!(text.contains("such as shop:order"), "{text}");
    let text = refused("{ usdt = \"a:b\", object = \"libx.so\" }\nend = { offset = 1 }");
    assert!(text.contains("is not that"), "{text}");
}
