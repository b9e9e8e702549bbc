//! What resolving does with files that are no programs, truncated or malformed: errors, never a panic.

use std::path::Path;

use proptest::prelude::*;

use crate::fixtures::Fixture;
use crate::hazards::hazards;
use crate::search::search;
use crate::usdt::usdt_probes;
use crate::{resolve_file, returns, symbols};
use reqtrace_base::error::{Error, Kind};
use reqtrace_binary::elf::Object;
use reqtrace_profile::builtin::built_in;

const PROGRAM: &str = "\
    __attribute__((noinline)) int serve(int a) { asm(\"\"); return a; }\n\
    int main(int c, char **v) { (void)v; return serve(c); }";

fn refused(bytes: &[u8]) -> Error {
    Object::parse(bytes.to_vec(), "x").unwrap_err()
}

#[test]
fn what_is_not_a_program_is_named() {
    let error = refused(b"#!/usr/bin/env python3 -u\nprint()\n");
    assert_eq!(error.kind(), Kind::Usage);
    assert!(
        error
            .to_string()
            .contains("script for the interpreter /usr/bin/env python3 -u")
    );
    assert!(refused(b"hello").to_string().contains("not an ELF program"));
    assert!(refused(b"").to_string().contains("not an ELF program"));
    let folder = tempfile::tempdir().unwrap();
    let open = |path: &Path| Object::open(path, "x").unwrap_err();
    assert_eq!(open(folder.path()).to_string(), "x is not a regular file");
    assert_eq!(
        open(&folder.path().join("none")).to_string(),
        "there is no file x"
    );
    let empty = folder.path().join("empty");
    std::fs::write(&empty, "").unwrap();
    assert!(open(&empty).to_string().contains("not an ELF program"));
}

#[test]
fn another_machine_is_unsupported() {
    let fixture = Fixture::c(PROGRAM, &[]);
    let mut bytes = std::fs::read(fixture.path()).unwrap();
    bytes[18] = 183;
    let error = refused(&bytes);
    assert_eq!(error.exit_code(), 3);
    assert_eq!(error.to_string(), "x is for another machine: AARCH64");
    bytes[4] = 1;
    bytes[18] = 3;
    assert_eq!(
        refused(&bytes).to_string(),
        "x is for another machine: 32-bit 386"
    );
    let object = Fixture::c(PROGRAM, &["-c"]);
    let error = Object::open(object.path(), "x.o").unwrap_err();
    assert!(
        error
            .to_string()
            .contains("neither a program nor a shared library"),
        "{error}"
    );
}

#[test]
fn addresses_and_offsets_belong_together() {
    for flags in [&["-pie", "-fPIE"][..], &["-no-pie", "-fno-pie"]] {
        let fixture = Fixture::c(PROGRAM, flags);
        let object = fixture.object();
        let serve = symbols::find(&object, "serve").unwrap().unwrap();
        let address = serve.bodies[0].start;
        let offset = object.file_offset(address).unwrap();
        assert_eq!(object.address_of(offset), Some(address));
        let bytes = std::fs::read(fixture.path()).unwrap();
        assert!(bytes[offset as usize..].starts_with(&object.code(address)[..8]));
        assert_eq!(object.file_offset(u64::MAX), None);
        assert!(object.code(1).is_empty());
    }
}

#[test]
fn a_wrong_program_gets_the_profile_error_not_a_panic() {
    let fixture = Fixture::c(PROGRAM, &[]);
    let profile = built_in("mysql").unwrap().parse().unwrap();
    let error = resolve_file(&profile, fixture.path()).unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with(
            "the profile `mysql` is made for mysqld, mariadbd, and the executable is "
        ),
        "{text}"
    );
    assert!(
        text.contains(": request `command`, begin: no function `dispatch_command` in "),
        "{text}"
    );
    // Names of this program are no help.
    let advice = error.advice().unwrap();
    assert!(advice.contains("pgrep -a 'mysqld|mariadbd'"), "{advice}");
    assert!(!advice.contains("near to it"), "{advice}");
}

/// Everything that resolving does to a file.
fn exercise(bytes: Vec<u8>) {
    let Ok(object) = Object::parse(bytes, "x") else {
        return;
    };
    let _ = object.imported().count();
    let _ = hazards(&object);
    let _ = usdt_probes(&object);
    for found in search(&object, "*") {
        let _ = (
            found.probing(&object),
            found.size(),
            found.spelling(&object),
        );
    }
    let _ = super::missing::missing(&object, &["serv".to_owned()], None, &[]);
    for symbol in object.symbols() {
        let body = symbols::body(&object, symbol.address);
        let _ = object.file_offset(symbol.address);
        let _ = super::starts::begins(&object, symbol.address.wrapping_add(1));
        let _ = returns::exits(&object, &body, true);
        let _ = object.references(symbol.address).count();
    }
}

#[test]
fn truncated_files_never_panic() {
    let fixture = Fixture::c(PROGRAM, &["-O2", "-s", "-rdynamic"]);
    let bytes = std::fs::read(fixture.path()).unwrap();
    // The section headers come last, so that what is cut off there matters most.
    let end = bytes.len();
    let lengths = (0..512)
        .chain((512..end).step_by(97))
        .chain(end - 2048..end);
    for length in lengths {
        exercise(bytes[..length].to_vec());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn damaged_files_never_panic(seed in proptest::collection::vec((any::<u32>(), any::<u8>()), 1..40)) {
        thread_local! {
            static PRISTINE: Vec<u8> =
                std::fs::read(Fixture::c(PROGRAM, &["-O2"]).path()).unwrap();
        }
        let mut bytes = PRISTINE.with(Clone::clone);
        // Headers, then the section headers at the end, then anywhere.
        let length = bytes.len();
        for (index, (place, value)) in seed.into_iter().enumerate() {
            let place = place as usize;
            let at = match index % 3 {
                0 => 16 + place % 800,
                1 => length - 1 - place % 2000,
                _ => place % length,
            };
            bytes[at] = value;
        }
        exercise(bytes);
    }
}
