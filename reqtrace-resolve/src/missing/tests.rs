use super::*;
use crate::fixtures::Fixture;

const PROGRAM: &str =
    "extern \"C\" int puts(const char *);\nint main(int, char **v) { return puts(v[0]); }";

fn why(object: &Object, pattern: &str, elsewhere: &[String]) -> String {
    let error = missing(object, &[pattern.to_owned()], None, elsewhere);
    format!("{error} / {}", error.advice().unwrap_or_default())
}

#[test]
fn without_symbols_a_library_is_named_only_for_what_is_imported() {
    let fixture = Fixture::cpp(PROGRAM, &["-O1"]).stripped();
    let object = fixture.object();
    assert!(why(&object, "puts", &[]).contains("set object ="));
    for pattern in ["p*", "*ts", "serve"] {
        let text = why(&object, pattern, &[]);
        assert!(!text.contains("object ="), "{text}");
        assert!(
            text.contains("no function symbols at all. Install its debug symbols"),
            "{text}"
        );
    }
}

#[test]
fn a_go_program_and_java_have_no_debug_symbols_to_install() {
    let go = PROGRAM.to_owned()
        + "\n__attribute__((section(\".gopclntab\"), used)) static const char table[8] = {};";
    let fixture = Fixture::cpp(&go, &["-O1"]).stripped();
    let text = why(&fixture.object(), "main.handle", &[]);
    assert!(text.contains("build it without -ldflags=-s"), "{text}");
    assert!(!text.contains("Install its debug"), "{text}");

    let fixture = Fixture::cpp(PROGRAM, &["-O1"]).stripped();
    let object = Object::open(fixture.path(), "/usr/lib/jvm/java-17/bin/java").unwrap();
    let text = why(&object, "com.shop.Cart.add", &[]);
    assert!(text.contains("Functions of Java are in no file"), "{text}");
    assert!(
        !text.contains("debug symbols") && !text.contains("inlined"),
        "{text}"
    );
}

#[test]
fn what_is_in_another_file_is_not_taken_for_inlined() {
    let fixture = Fixture::cpp(PROGRAM, &["-O1"]);
    let object = fixture.object();
    let elsewhere = ["/usr/lib/libpython3.12.so.1.0".to_owned()];
    let text = why(&object, "_PyEval_EvalFrameDefault", &elsewhere);
    assert!(
        text.contains("it is in /usr/lib/libpython3.12.so.1.0"),
        "{text}"
    );
    assert!(
        text.contains("add object = \"libpython3.12.so.1.0\" to the marker"),
        "{text}"
    );
    assert!(!text.contains("inlined"), "{text}");
    assert!(has_named(&object, "main") && !has_named(&object, "mai") && !has_named(&object, "m*"));
}
