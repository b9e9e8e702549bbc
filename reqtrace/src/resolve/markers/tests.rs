use super::*;
use crate::profile::Origin;
use crate::resolve::ResolvedMarker;
use crate::resolve::fixtures::Fixture;

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
    let inside = begin.entry_offset + 1;
    let text = format!(
        "begin = {{ offset = {inside} }}\nend = {{ function = \"serve\", at = \"return\" }}"
    );
    let resolved = resolve_text(&fixture, &text).unwrap();
    assert!(!resolved.requests[0].begin.is_function);
}

/// No Go compiler is needed to see what its linker leaves.
#[test]
fn whatever_is_missing_in_a_go_program_it_is_said_to_be_one() {
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
