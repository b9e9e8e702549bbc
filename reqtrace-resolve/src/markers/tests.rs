use super::*;
use crate::ResolvedMarker;
use crate::fixtures::Fixture;
use reqtrace_profile::Origin;

const PROGRAM: &str = r#"
    #include <stdlib.h>
    __attribute__((noinline)) int serve(int a) { asm(""); return a + 1; }
    __attribute__((noinline)) int read_packet(int a) { asm(""); return a + 2; }
    __attribute__((noinline)) int wrapper(int a) { asm(""); return abs(a) + 1 < 0 ? 0 : rand(); }
    __attribute__((noinline)) void never(void) { asm(""); exit(1); }
    int main(int c, char **v) { (void)v; if (c > 9) never(); return serve(c) + read_packet(c) + wrapper(c); }
"#;

fn resolve_text(fixture: &Fixture, request: &str) -> Result<ResolvedProfile> {
    resolve_as(fixture, request, Origin::File("p.toml".into()))
}

fn resolve_as(fixture: &Fixture, request: &str, origin: Origin) -> Result<ResolvedProfile> {
    let text = format!(
        "[profile]\nname = \"p\"\nexecutables = [\"shop\"]\n[[request]]\nname = \"r\"\n{request}\n"
    );
    let profile = Profile::parse(&text, "p.toml", origin).unwrap();
    resolve_file(&profile, fixture.path())
}

#[test]
fn begin_and_return_of_one_function_share_a_frame() {
    let fixture = Fixture::c(PROGRAM, &["-O2"]);
    let resolved =
        resolve_text(&fixture, "begin = { function = [\"missing\", \"serve\"] }").unwrap();
    let request = &resolved.requests[0];
    assert!(request.same_frame);
    assert_eq!(request.begin.symbol, "serve");
    assert_eq!(
        request.begin.sites[0].file_offset,
        request.begin.entry_offset
    );
    assert_eq!(request.end.at, At::Return);
    assert!(request.end.sites[0].file_offset > request.begin.entry_offset);
    assert!(
        resolved.warnings[0].contains("made for shop"),
        "{:?}",
        resolved.warnings
    );

    let offset = request.begin.entry_offset;
    let by_offset = resolve_text(&fixture, &format!("begin = {{ offset = {offset} }}")).unwrap();
    assert_eq!(by_offset.requests[0].end.sites, request.end.sites);
    assert!(by_offset.requests[0].same_frame);
}

#[test]
fn begin_at_the_return_of_another_function() {
    let fixture = Fixture::c(PROGRAM, &["-O2"]);
    let resolved = resolve_text(
        &fixture,
        "begin = { function = \"read_packet\", at = \"return\" }\n\
         end = { function = \"serve\", at = \"return\" }",
    )
    .unwrap();
    let request = &resolved.requests[0];
    assert!(!request.same_frame);
    assert_eq!(request.begin.at, At::Return);
    assert_ne!(request.begin.sites, request.end.sites);
}

#[test]
fn a_uretprobe_needs_the_entry_alone() {
    let fixture = Fixture::c(PROGRAM, &["-O2"]);
    let resolved = resolve_text(
        &fixture,
        "begin = { function = \"never\" }\nreturn-probe = \"uretprobe\"",
    )
    .unwrap();
    let end = &resolved.requests[0].end;
    assert_eq!(end.at, At::Return);
    let offsets = |marker: &ResolvedMarker| -> Vec<u64> {
        marker.sites.iter().map(|site| site.file_offset).collect()
    };
    assert_eq!(offsets(end), offsets(&resolved.requests[0].begin));
}

#[test]
fn what_cannot_be_resolved_says_where() {
    let fixture = Fixture::c(PROGRAM, &["-O2"]);
    let refused = |request: &str| {
        let error = resolve_text(&fixture, request).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        format!("{error} / {}", error.advice().unwrap_or_default())
    };
    let text = refused("begin = { function = \"never\" }");
    assert!(
        text.contains("request `r`, end: found no instruction that leaves `never`"),
        "{text}"
    );
    assert!(text.contains("uretprobe"), "{text}");
    let text = refused("begin = { offset = 0x7fffffff }");
    assert!(
        text.contains("begin: offset 0x7fffffff is not in the code"),
        "{text}"
    );
    let text = refused("begin = { function = \"serve\", object = \"libx.so\" }");
    assert!(text.contains("is not that"), "{text}");
    let text = refused("begin = { function = \"serv\" }");
    assert!(text.contains("near to it: `serve`"), "{text}");
}

#[test]
fn a_tail_call_out_of_reach_is_warned_about() {
    let fixture = Fixture::c(PROGRAM, &["-O2"]);
    let resolved = resolve_text(&fixture, "begin = { function = \"wrapper\" }").unwrap();
    let warning = &resolved.warnings[1];
    assert!(
        warning.contains("`wrapper` can end in a tail call (of a function of another object)"),
        "{warning}"
    );
    assert!(resolved.notes.is_empty());
    // The author of a built-in profile knows.
    let marker = "begin = { function = \"wrapper\" }";
    let known = resolve_as(&fixture, marker, Origin::BuiltIn).unwrap();
    assert_eq!(known.warnings, resolved.warnings[..1]);
    assert_eq!(known.notes, resolved.warnings[1..]);
}

#[test]
fn an_offset_inside_a_function_is_no_entry() {
    let fixture = Fixture::c(PROGRAM, &["-O2"]);
    let whole = resolve_text(&fixture, "begin = { function = \"serve\" }").unwrap();
    let begin = &whole.requests[0].begin;
    assert!(begin.is_function);
    let object = reqtrace_binary::elf::Object::open(fixture.path(), "program").unwrap();
    let entry = object.address_of(begin.entry_offset).unwrap();
    let mut code = crate::instructions::decoder(&object, entry..entry + 16);
    let inside = begin.entry_offset + code.next().unwrap().len() as u64;
    let text = format!(
        "begin = {{ offset = {inside} }}\nend = {{ function = \"serve\", at = \"return\" }}"
    );
    let resolved = resolve_text(&fixture, &text).unwrap();
    assert!(!resolved.requests[0].begin.is_function);
}

/// The code of a program is at another offset in its file than its address.
fn moved() -> Fixture {
    Fixture::c(
        PROGRAM,
        &["-O2", "-Wl,-z,noseparate-code,-Ttext-segment=0x10000"],
    )
}

fn refusal(fixture: &Fixture, marker: &str) -> String {
    let end = "end = { function = \"serve\", at = \"return\" }";
    let error = resolve_text(fixture, &format!("begin = {{ {marker} }}\n{end}")).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    format!("{error} / {}", error.advice().unwrap_or_default())
}

#[test]
fn an_offset_inside_an_instruction_is_refused() {
    let fixture = Fixture::c(PROGRAM, &["-O2"]);
    let whole = resolve_text(&fixture, "begin = { function = \"serve\" }").unwrap();
    let entry = whole.requests[0].begin.entry_offset;
    for inside in [entry + 1, entry + 2] {
        let text = refusal(&fixture, &format!("offset = {inside}"));
        assert!(text.contains("inside the instruction `lea`"), "{text}");
        assert!(text.contains(&format!("write 0x{entry:x} if")), "{text}");
    }
    let object = reqtrace_binary::elf::Object::open(fixture.path(), "program").unwrap();
    let address = object.address_of(entry).unwrap();
    let text = refusal(&fixture, &format!("address = {}", address + 1));
    assert!(text.contains(&format!("write 0x{address:x} if")), "{text}");
}

#[test]
fn an_address_is_as_good_as_an_offset_and_neither_is_taken_for_the_other() {
    let fixture = moved();
    let whole = resolve_text(&fixture, "begin = { function = \"serve\" }").unwrap();
    let begin = &whole.requests[0].begin;
    let object = reqtrace_binary::elf::Object::open(fixture.path(), "program").unwrap();
    let offset = begin.entry_offset;
    let address = object.address_of(offset).unwrap();
    assert_ne!(offset, address);
    let by_address = resolve_text(&fixture, &format!("begin = {{ address = {address} }}")).unwrap();
    assert_eq!(by_address.requests[0].begin.entry_offset, offset);
    assert_eq!(
        by_address.requests[0].end.sites,
        whole.requests[0].end.sites
    );
    assert!(by_address.doubts.is_empty());

    let text = refusal(&fixture, &format!("offset = {address}"));
    assert!(
        text.contains(&format!("did you mean 0x{offset:x}?")),
        "{text}"
    );
    assert!(text.contains(&format!("address = 0x{address:x}")), "{text}");
    let text = refusal(&fixture, &format!("address = {offset}"));
    assert!(
        text.contains(&format!("did you mean 0x{address:x}?")),
        "{text}"
    );
}

#[test]
fn where_nothing_tells_the_start_of_a_function_an_offset_is_doubted() {
    let fixture = Fixture::assembly(".text\nnop\nnop\nret\n").stripped();
    let object = fixture.object();
    let address = (0..0x3000).find(|at| object.code(*at).starts_with(&[0x90, 0x90, 0xc3]));
    let text = format!(
        "begin = {{ address = {0} }}\nend = {{ address = {0} }}",
        address.unwrap()
    );
    let resolved = resolve_text(&fixture, &text).unwrap();
    let doubt = &resolved.doubts[0];
    let unknown = "nothing tells whether an instruction begins";
    assert!(doubt.what.contains(unknown), "{doubt:?}");
    assert!(doubt.next.contains("--yes"), "{doubt:?}");
}

const LOCKED: &str = r#"
    #include <stdatomic.h>
    atomic_long hits;
    __attribute__((noinline)) long handle(const char *line, long n) { hits++; return hits; }
    __attribute__((noinline)) void only(void) { hits++; }
    int main(int c, char **v) { only(); return (int)handle(v[0], c); }
"#;

#[test]
fn a_begin_that_no_kernel_probes_is_moved_behind_it_or_refused() {
    let fixture = Fixture::c(LOCKED, &["-O2", "-fcf-protection=none"]);
    let resolved = resolve_text(&fixture, "begin = { function = \"handle\" }").unwrap();
    let begin = &resolved.requests[0].begin;
    let [site] = begin.sites.as_slice() else {
        panic!("{:?}", begin.sites);
    };
    assert_eq!(
        (site.distance, site.file_offset),
        (9, begin.entry_offset + 9)
    );
    // What is read on the stack or in any register must be as it was at the entry.
    let error = resolve_text(
        &fixture,
        "begin = { function = \"handle\", when = { register = \"r11\", equals = 1 } }",
    );
    let text = error.unwrap_err().to_string();
    assert!(
        text.contains("`handle` cannot be marked at its instruction `lock add`"),
        "{text}"
    );
    assert!(
        text.contains("sets no probe on an instruction with a lock prefix"),
        "{text}"
    );
    let offset = format!("{{ offset = {} }}", begin.entry_offset);
    let error = resolve_text(&fixture, &format!("begin = {offset}\nend = {offset}"));
    let text = error.unwrap_err().to_string();
    assert!(
        text.contains("cannot be marked at its instruction `lock add`"),
        "{text}"
    );
}

#[test]
fn a_profile_for_go_finds_nothing_in_another_program() {
    let fixture = Fixture::c(PROGRAM, &["-O2"]);
    let text = r#"
[profile]
name = "p"

[runtime]
kind = "go"

[[request]]
name = "r"
key = "unit"
begin = { function = "main.handle" }
end = { function = "main.handle", at = "return" }
"#;
    let profile = Profile::parse(text, "p.toml", Origin::File("p.toml".into())).unwrap();
    let error = resolve_file(&profile, fixture.path()).unwrap_err();
    let advice = error.advice().unwrap_or_default();
    assert!(advice.contains("is no Go program"), "{error} / {advice}");
}

/// No Go compiler is needed to see what its linker leaves.
#[test]
fn whatever_is_missing_in_a_go_program_it_is_reported_to_be_one() {
    let go = PROGRAM.to_owned()
        + "\n__attribute__((section(\".gopclntab\"), used)) static const char table[8];";
    let fixture = Fixture::c(&go, &["-O2"]).stripped();
    for marker in [
        "{ function = \"main.handle\" }",
        "{ function = \"serve\" }\nend = { usdt = \"go:gc\" }",
        "{ usdt = \"go:gc\" }\nend = { function = \"serve\" }",
        "{ offset = 0x7fffffff }",
    ] {
        let error = resolve_text(&fixture, &format!("begin = {marker}")).unwrap_err();
        let advice = error.advice().unwrap_or_default();
        assert!(
            advice.contains("is a Go program"),
            "{marker}: {error} / {advice}"
        );
    }
}
