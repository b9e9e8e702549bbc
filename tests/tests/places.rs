//! Places: what is probed is the first byte of an instruction that the kernel probes, once for each event, and the
//! program computes what it computes untraced.
//!
//! Needs root, a kernel with BPF, objdump and openssl.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use reqtrace_binary::elf::Object;
use reqtrace_binary::lazy::LazyFile;
use reqtrace_capture::attach::count::{self, Counter, Whose};
use reqtrace_resolve::probeable::{Probing, probing};
use reqtrace_resolve::starts::{Begins, begins};
use reqtrace_resolve::symbols;
use reqtrace_tests::fixtures::{self, Fixture};
use reqtrace_tests::process::{Child, Stream, run};
use reqtrace_tests::reqtrace::{self as program, Outcome};
use reqtrace_tests::summary::Summary;
use reqtrace_tests::workspace;

/// Functions of a library whose every instruction is probed at once.
const FUNCTIONS: usize = 10;

/// Probes that are set at once, at most.
const MAX_PLACES: usize = 4000;

const LIMIT: Duration = Duration::from_secs(60);

fn profile(folder: &Path, request: &str) -> PathBuf {
    let path = folder.join("places.toml");
    let text = format!("[profile]\nname = \"places\"\n[[request]]\nname = \"r\"\n{request}\n");
    std::fs::write(&path, text).unwrap();
    path
}

fn place(object: &Path, file_offset: u64) -> count::Place {
    count::Place {
        object: LazyFile::at(object),
        file_offset,
        semaphore: None,
        on_return: false,
    }
}

fn accepted(object: &Object, range: Range<u64>) -> BTreeSet<u64> {
    let all = range.filter(|address| begins(object, *address) == Begins::Proven);
    all.collect()
}

/// First bytes of instructions as objdump has them.
fn listed(file: &Path, range: &Range<u64>) -> BTreeSet<u64> {
    let mut command = Command::new("objdump");
    command
        .args(["-d", "--no-show-raw-insn"])
        .arg(format!("--start-address=0x{:x}", range.start))
        .arg(format!("--stop-address=0x{:x}", range.end))
        .arg(file);
    let text = run(&mut command).unwrap();
    let lines = text.lines().filter_map(|line| line.split_once(":\t"));
    let addresses = lines.filter(|(_, code)| !code.contains("(bad)"));
    addresses
        .map(|(address, _)| u64::from_str_radix(address.trim(), 16).unwrap())
        .collect()
}

/// A marker in the constant of an instruction once made a service answer another number, with exit code 0.
#[test]
fn results_are_the_same_whatever_is_marked() {
    let mut untraced = Fixture::start("places", &[]).unwrap();
    let expected = untraced.work().unwrap();
    let executable = PathBuf::from(format!("/proc/{}/exe", untraced.pid()));
    let object = Object::open(&executable, "places").unwrap();
    let function = symbols::find(&object, "answer").unwrap().unwrap();
    let body = function.bodies[0].clone();
    untraced.end().unwrap();
    let starts = accepted(&object, body.clone());
    assert!(starts.len() >= 3 && starts.len() < (body.end - body.start) as usize / 2);

    let folder = workspace::scratch().unwrap();
    let traced = |marker: &str| -> (Outcome, String) {
        let request =
            format!("begin = {{ {marker} }}\nend = {{ function = \"answer\", at = \"return\" }}");
        let profile = profile(folder.path(), &request);
        let mut fixture = Fixture::start("places", &[]).unwrap();
        let mut command = program::command(["--profile"]).unwrap();
        command
            .arg(&profile)
            .args(["-p", &fixture.pid().to_string(), "--yes", "3"]);
        let (outcome, results) = std::thread::scope(|scope| {
            let trace = scope.spawn(|| program::run(command).unwrap());
            std::thread::sleep(Duration::from_secs(2));
            let results = fixture.work().unwrap();
            (trace.join().unwrap(), results)
        });
        fixture.end().unwrap();
        (outcome, results)
    };
    let constant = body
        .clone()
        .find(|address| !starts.contains(address))
        .unwrap();
    for (marker, word) in [
        (format!("address = {constant}"), "is inside the instruction"),
        (
            format!("offset = {}", object.file_offset(constant + 1).unwrap()),
            "is inside the instruction",
        ),
    ] {
        let (outcome, results) = traced(&marker);
        assert_eq!(results, expected);
        assert_eq!(outcome.code, Some(2), "{}", outcome.printed());
        assert!(outcome.stderr.contains(word), "{}", outcome.stderr);
    }
    let first = starts.first().unwrap();
    let (outcome, results) = traced(&format!("address = {first}"));
    assert_eq!(results, expected);
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());

    // All of them at once.
    let mut probed = Fixture::start("places", &[]).unwrap();
    let executable = PathBuf::from(format!("/proc/{}/exe", probed.pid()));
    let offset = |address: &u64| object.file_offset(*address).unwrap();
    let places: Vec<_> = starts
        .iter()
        .map(|at| place(&executable, offset(at)))
        .collect();
    let counter = Counter::attach(&places, Whose::Processes(&[probed.pid()])).unwrap();
    assert_eq!(probed.work().unwrap(), expected);
    assert_eq!(counter.hits().unwrap(), vec![1000; places.len()]);
    probed.end().unwrap();
}

/// What a library computes does not change under probes on all instructions of its functions: those of
/// OpenSSL are written by hand. AVX instructions are left out, which the kernel takes for others.
#[test]
fn a_library_written_by_hand_computes_the_same_under_probes_everywhere() {
    let folder = workspace::scratch().unwrap();
    let library = folder.path().join("libcrypto.so.3");
    workspace::copy_program(
        Path::new("/usr/lib/x86_64-linux-gnu/libcrypto.so.3"),
        &library,
    )
    .unwrap();
    let text = folder.path().join("text");
    std::fs::write(&text, vec![b'x'; 1000]).unwrap();
    let compute = || {
        let mut all = String::new();
        for line in [
            &["dgst", "-sha256"][..],
            &["dgst", "-sha512"],
            &["dgst", "-sha1"],
            &["dgst", "-md5"],
            &["enc", "-aes-256-cbc", "-K", "11", "-iv", "22", "-a", "-in"],
            &["enc", "-chacha20", "-K", "11", "-iv", "22", "-a", "-in"],
        ] {
            let mut command = Command::new("openssl");
            command
                .args(line)
                .arg(&text)
                .env("LD_LIBRARY_PATH", folder.path());
            all.push_str(&run(&mut command).unwrap());
        }
        all
    };
    let expected = compute();
    let object = Object::open(&library, "libcrypto").unwrap();
    let (first, last) = (
        object.symbols().first().unwrap(),
        object.symbols().last().unwrap(),
    );
    let mut functions = Vec::new();
    let mut at = first.address;
    while at < last.address {
        match object.frames().range(at) {
            Some(range) => {
                at = range.end;
                functions.push(range);
            }
            None => at += 1,
        }
    }
    // The largest of those that are called, but for those whose every byte takes a minute to judge.
    functions.retain(|range| range.end - range.start < 5000);
    functions.sort_by_key(|range| range.start.wrapping_sub(range.end));
    functions.truncate(MAX_PLACES);
    let offset = |address: u64| object.file_offset(address).unwrap();
    let entries: Vec<_> = functions
        .iter()
        .map(|range| place(&library, offset(range.start)))
        .collect();
    let mut counter = Counter::attach(&entries, Whose::Everybody).unwrap();
    assert_eq!(compute(), expected);
    let hits = counter.hits().unwrap();
    counter.detach();
    let called = functions.iter().zip(&hits).filter(|(_, hits)| **hits > 0);
    let chosen: Vec<&Range<u64>> = called.map(|(range, _)| range).take(FUNCTIONS).collect();
    assert_eq!(chosen.len(), FUNCTIONS);
    let mut places = Vec::new();
    let mut equal = 0;
    for range in chosen {
        let (accepted, listed) = (accepted(&object, range.clone()), listed(&library, range));
        assert!(accepted.is_subset(&listed), "{range:x?}");
        equal += usize::from(accepted == listed);
        places.extend(accepted.iter().map(|at| place(&library, offset(*at))));
    }
    println!("{} places, all of {equal} functions", places.len());
    assert!(equal >= FUNCTIONS - 2, "{equal}");
    places.truncate(MAX_PLACES);
    let mut counter = Counter::attach(&places, Whose::Everybody).unwrap();
    assert_eq!(compute(), expected);
    let hits = counter.hits().unwrap();
    counter.detach();
    let hit = hits.iter().filter(|hits| **hits > 0).count();
    println!("{hit} places hit {} times", hits.iter().sum::<u64>());
    assert!(hit > 300, "{hit}");
}

/// Instructions, and what the kernel does with a probe on them.
const INSTRUCTIONS: [&str; 39] = [
    "push %rbp",
    "push %r15",
    "nop",
    "endbr64",
    "mov %rsp, %rbp",
    "sub $8, %rsp",
    "ret",
    "repz ret",
    "lea 1(%rdi), %rax",
    "test %rdi, %rdi",
    "xor %eax, %eax",
    "mov %fs:40, %rax",
    "movzbl (%rdi), %eax",
    "cmove %rax, %rbx",
    "bswap %rax",
    "cmpxchg %rax, (%rdi)",
    "movaps %xmm0, (%rsp)",
    "nopl 8(%rax)",
    "sete %al",
    "imul %rax, %rbx",
    "movabs $0x1122334455667788, %rax",
    "jmp .",
    "call .",
    "je .",
    "vpsrlq $1, %xmm0, %xmm0",
    "vzeroupper",
    "vpor %xmm0, %xmm0, %xmm0",
    "vcmppd $0, %xmm0, %xmm0, %xmm0",
    "vmovups (%rdi), %zmm0",
    "lock addq $1, (%rdi)",
    "lock xaddw %ax, (%rdi)",
    "notrack jmp *%rax",
    "cs nopw 8(%rax,%rax)",
    "ds jne .",
    "int3",
    "hlt",
    "inb %dx, %al",
    "cli",
    "outsb",
];

#[test]
fn the_kernel_takes_and_refuses_what_is_known_of_it() {
    let mut source = String::from("asm(\".text\\n\"\n");
    for (number, instruction) in INSTRUCTIONS.iter().enumerate() {
        let name = format!("place_{number:02}");
        writeln!(
            source,
            "\".globl {name}\\n.type {name}, @function\\n{name}: {instruction}\\nud2\\n\""
        )
        .unwrap();
    }
    source.push_str(
        ");\n#include <stdio.h>\nint main(void) { puts(\"ready\"); fflush(stdout); getchar(); }\n",
    );
    let folder = workspace::scratch().unwrap();
    let (file, binary) = (folder.path().join("all.c"), folder.path().join("all"));
    std::fs::write(&file, source).unwrap();
    run(Command::new("gcc").arg(&file).arg("-o").arg(&binary)).unwrap();
    let mut process = Child::start(Command::new(&binary), folder.path(), "all").unwrap();
    process.wait_for_line(Stream::Out, "ready", LIMIT).unwrap();
    let object = Object::open(&binary, "all").unwrap();
    let address = |number| {
        object
            .address_of_symbol(&format!("place_{number:02}"))
            .unwrap()
    };
    let places: Vec<_> = (0..INSTRUCTIONS.len())
        .map(|number| place(&binary, object.file_offset(address(number)).unwrap()))
        .collect();
    let counter = Counter::attach(&places, Whose::Processes(&[process.pid()])).unwrap();
    let refused: BTreeSet<usize> = counter.refused().map(|(index, _)| index).collect();
    let (mut taken, mut not) = (0, 0);
    for (number, instruction) in INSTRUCTIONS.iter().enumerate() {
        let known = probing(object.code(address(number)));
        let is_refused = refused.contains(&number);
        match known {
            Probing::Taken => assert!(!is_refused, "{instruction}"),
            Probing::Refused(_) => assert!(is_refused, "{instruction}"),
            Probing::Unsure => continue,
        }
        *(if is_refused { &mut not } else { &mut taken }) += 1;
    }
    println!("{taken} taken, {not} refused");
    assert!(taken >= 22 && not >= 15, "{taken} {not}");
    drop(counter);
    process.stop().unwrap();
}

/// It was `0 requests` of a program that reqtrace starts, and error 524 of one that runs.
#[test]
fn a_function_that_begins_with_a_lock_is_counted() {
    let folder = workspace::scratch().unwrap();
    let path = profile(folder.path(), "begin = { function = \"locked\" }");
    let fixture = Fixture::start("places", &[]).unwrap();
    let (outcome, _) = fixture.traced(&path, &["--yes"]).unwrap();
    assert_eq!(outcome.summary().unwrap().request("r").unwrap().count, 3000);

    let program = fixtures::compile("places", folder.path()).unwrap();
    let out = folder.path().join("out");
    let mut command = program::command(["--profile"]).unwrap();
    command
        .arg(&path)
        .arg("--out")
        .arg(&out)
        .arg("--")
        .arg(&program)
        .arg("alone");
    let outcome = program::run(command).unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    let text = std::fs::read_to_string(out.join("summary.json")).unwrap();
    let summary = Summary::read(&text).unwrap();
    assert_eq!(summary.request("r").unwrap().count, 3000);
}

/// What only this kernel refuses is found by trying it, before the program begins.
#[test]
fn a_place_that_this_kernel_refuses_is_an_error_and_not_0_requests() {
    let folder = workspace::scratch().unwrap();
    let (file, binary) = (folder.path().join("v.c"), folder.path().join("v"));
    let source = "asm(\".globl v\\n.type v, @function\\nv: .cfi_startproc\\n.byte 0x66, 0xeb, 0\\n\
                  ret\\n.cfi_endproc\\n.size v, .-v\\n\");\nvoid v(void);\n\
                  int main(void) { for (int i = 0; i < 10; i++) v(); }\n";
    std::fs::write(&file, source).unwrap();
    run(Command::new("gcc").arg(&file).arg("-o").arg(&binary)).unwrap();
    let object = Object::open(&binary, "v").unwrap();
    let address = object.address_of_symbol("v").unwrap();
    assert_eq!(probing(object.code(address)), Probing::Unsure);
    let request =
        format!("begin = {{ address = {address} }}\nend = {{ function = \"v\", at = \"return\" }}");
    let path = profile(folder.path(), &request);
    let mut check = program::command(["check", "--profile"]).unwrap();
    check.arg(&path).arg(&binary);
    let mut trace = program::command(["--profile"]).unwrap();
    trace.arg(&path).arg("--").arg(&binary);
    for command in [check, trace] {
        let outcome = program::run(command).unwrap();
        let words = "this kernel sets no probe on the `jmp` instruction";
        assert!(outcome.stderr.contains(words), "{}", outcome.printed());
        assert_eq!(outcome.code, Some(2), "{}", outcome.printed());
    }
}

/// A destructor that frees calls the one that does not: both were hit, and each second end had no request.
#[test]
fn a_destruction_is_one_end() {
    let folder = workspace::scratch().unwrap();
    let request = "key = { arg = 0 }\nbegin = { function = \"Ticket::Ticket\" }\n\
                   resume = { function = \"Ticket::work\" }\nend = { function = \"Ticket::~Ticket\" }";
    let path = profile(folder.path(), request);
    let fixture = Fixture::start("places", &[]).unwrap();
    let (outcome, results) = fixture.traced(&path, &["--yes"]).unwrap();
    assert!(results.contains(" 500 "), "{results}");
    let summary = outcome.summary().unwrap();
    let request = summary.request("r").unwrap();
    assert_eq!(
        (request.count, request.begins, request.ends),
        (500, 500, 500)
    );
    assert_eq!(request.unknown_keys, Some(0));
}

/// A profile that begins at this marker, and what `check` makes of it in the fixture.
fn checked(folder: &Path, fixture: &Fixture, marker: &str) -> (PathBuf, Outcome) {
    let path = profile(folder, &format!("begin = {{ {marker} }}"));
    let mut command = program::command(["check", "--profile"]).unwrap();
    command.arg(&path).args(["-p", &fixture.pid().to_string()]);
    (path, program::run(command).unwrap())
}

#[test]
fn all_copies_of_a_generic_are_one_request_type() {
    let folder = workspace::scratch().unwrap();
    let fixture = Fixture::start("places", &[]).unwrap();
    let check = |marker: &str| checked(folder.path(), &fixture, marker);
    let (_, outcome) = check("function = \"twice\"");
    assert_eq!(outcome.code, Some(2), "{}", outcome.printed());
    assert!(
        outcome.stderr.contains("3 functions match"),
        "{}",
        outcome.stderr
    );
    assert!(
        outcome.stderr.contains("all = true marks all of them"),
        "{}",
        outcome.stderr
    );
    let (path, outcome) = check("function = \"twice\", all = true");
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    assert!(outcome.stdout.contains("3 probes"), "{}", outcome.stdout);
    let (outcome, _) = fixture.traced(&path, &["--yes"]).unwrap();
    assert_eq!(outcome.summary().unwrap().request("r").unwrap().count, 60);
}

/// The message was that the function may have been inlined.
#[test]
fn a_function_of_a_library_is_reported_to_be_there() {
    let folder = workspace::scratch().unwrap();
    let fixture = Fixture::start("places", &[]).unwrap();
    let check = |marker: &str| checked(folder.path(), &fixture, marker).1;
    let outcome = check("function = \"qsort_r\"");
    assert_eq!(outcome.code, Some(2), "{}", outcome.printed());
    assert!(
        outcome
            .stderr
            .contains("/libc.so.6, which the process has mapped"),
        "{}",
        outcome.stderr
    );
    assert!(
        outcome.stderr.contains("add object = \"libc.so.6\""),
        "{}",
        outcome.stderr
    );
    assert!(!outcome.stderr.contains("inlined"), "{}", outcome.stderr);
    let outcome = check("function = \"qsort_r\", object = \"libc.so.6\"");
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    fixture.end().unwrap();
}
