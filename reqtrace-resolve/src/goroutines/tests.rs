use reqtrace_common::label::label_kind;
use reqtrace_common::marker::AttributePlan;
use reqtrace_profile::{Origin, Profile};

use super::*;
use crate::fixtures::Fixture;
use crate::{ResolvedProfile, resolve_file};
use reqtrace_common::marker::{MAX_WAITS, park_kind};

/// As Go's compiler writes the functions that change the state of goroutines, and one of the program.
const RUNTIME: &str = r#"
    .section .go.buildinfo, "a"
    .ascii "\377 Go buildinf:\10\2"
    .zero 16
    .byte 8
    .ascii "VERSION"

    .text
    .macro function name
    .type "\name", @function
    "\name":
    .endm
    .macro calls name, from, to, callee=runtime.casgstatus
    function "\name"
    mov 0x18(%rsp), %rax
    mov $\from, %ebx
    mov $\to, %ecx
    call "\callee"
    ret
    .size "\name", .-"\name"
    .endm

    function runtime.casgstatus
    ret
    .size runtime.casgstatus, .-runtime.casgstatus
    function runtime.casGToPreemptScan
    ret
    .size runtime.casGToPreemptScan, .-runtime.casGToPreemptScan
    function runtime.mcall
    mov (%rsp), %rbx
    mov %rbx, 0x40(%r14)
    lea 0x8(%rsp), %rbx
    mov %rbx, 0x38(%r14)
    mov %rbp, 0x68(%r14)
    ret
    .size runtime.mcall, .-runtime.mcall
    calls runtime.newproc1, 6, 1
    function runtime.gogo
    ret
    .size runtime.gogo, .-runtime.gogo
    function runtime.coroswitch_m
    lea 0x38(%rdi), %rax
    mov %rax, (%rsp)
    call runtime.gogo
    ret
    .size runtime.coroswitch_m, .-runtime.coroswitch_m
    function runtime.recovery
    mov %rbx, 0x38(%rax)
    mov %rcx, 0x40(%rax)
    SCHED
    mov %rax, (%rsp)
    call runtime.gogo
    call runtime.throw
    ret
    .size runtime.recovery, .-runtime.recovery
    function runtime.throw
    ret
    .size runtime.throw, .-runtime.throw
    function runtime.goexit
    nop
    call runtime.throw
    nop
    .size runtime.goexit, .-runtime.goexit
    function runtime.Goexit
    call runtime.throw
    ret
    .size runtime.Goexit, .-runtime.Goexit
    calls runtime.ready, 4, 1
    calls runtime.findRunnable, 4, 1
    calls runtime.injectglist, 4, 1
    calls runtime.execute, 1, 2
    calls runtime.preemptPark, 2, 0x1009, runtime.casGToPreemptScan
    calls runtime.goschedImpl, 2, 1
    calls runtime.exitsyscall0, 3, 1
    calls runtime.gdestroy, 2, 6
    calls runtime.reentersyscall, 2, 3
    calls runtime.stopTheWorld, 2, 4
    calls runtime.debugCallWrap, 4, 1

    # Two of them, of which one is for another edge.
    function runtime.park_m
    mov $2, %ebx
    mov $4, %ecx
    call runtime.casgstatus
    mov $4, %ebx
    mov $1, %ecx
    call runtime.casgstatus
    ret
    .size runtime.park_m, .-runtime.park_m

    function main.large
    lea -0x3f98(%rsp), %r12
    cmp 0x10(%r14), %r12
    jbe 1f
    push %rbp
    test %rbx, %rbx
    je 2f
    pop %rbp
2:  ret
1:  mov %rax, 0x8(%rsp)
    call runtime.morestack_noctxt
    mov 0x8(%rsp), %rax
    jmp main.large
    .size main.large, .-main.large

    # What a goroutine starts with for `go large(…)`; one that does more; one whose function is not known.
    function main.f.gowrap1
    cmp 0x10(%r14), %rsp
    jbe 1f
    mov 0x8(%rdx), %rax
    call main.large
    ret
1:  call runtime.morestack_noctxt
    jmp main.f.gowrap1
    .size main.f.gowrap1, .-main.f.gowrap1
    function main.f.func2
    call main.nosplit
    call main.large
    ret
    .size main.f.func2, .-main.f.func2
    function main.f.func3
    call *(%rdx)
    call main.large
    ret
    .size main.f.func3, .-main.f.func3

    # What the compiler has put into a closure is no name for it.
    function main.f.func4
    call runtime.growslice
    ret
    .size main.f.func4, .-main.f.func4
    function runtime.growslice
    ret
    .size runtime.growslice, .-runtime.growslice

    function main.nosplit
    test %rbx, %rbx
    je 1f
    nop
1:  ret
    .size main.nosplit, .-main.nosplit

    function runtime.morestack_noctxt
    ret
    .size runtime.morestack_noctxt, .-runtime.morestack_noctxt
"#;

fn program(version: &str) -> Object {
    assert_eq!(version.len(), 8);
    of(&RUNTIME.replace("VERSION", version))
}

/// As newer compilers write it, and older ones.
const SCHED_OF: [&str; 2] = ["lea 0x38(%rax), %rax", "add $0x38, %rax"];

fn of(source: &str) -> Object {
    Fixture::assembly(&source.replace("SCHED", SCHED_OF[0])).object()
}

fn inside(object: &Object, calls: &[u64]) -> Vec<String> {
    let around = |call: &u64| {
        let mut symbols = object.symbols().iter();
        symbols.rfind(|symbol| symbol.address <= *call)
    };
    let named = calls.iter().filter_map(around);
    named.map(|symbol| object.name(symbol).to_owned()).collect()
}

#[test]
fn edges_are_the_calls_with_their_constants() {
    let object = program("go1.26.6");
    for (change, functions) in [
        (
            Change::Ready,
            &["ready", "findRunnable", "injectglist", "park_m"][..],
        ),
        (Change::Resume, &["execute"]),
        (Change::Park, &["park_m"]),
        (Change::Stop, &["preemptPark"]),
        (Change::Leave, &["goschedImpl", "exitsyscall0"]),
        (Change::Done, &["gdestroy"]),
        (Change::Spawn, &["newproc1"]),
        (Change::Switch, &["coroswitch_m"]),
        (Change::Recover, &["recovery"]),
    ] {
        let calls = edge(&object, change).unwrap();
        let wanted: Vec<String> = functions
            .iter()
            .map(|name| format!("runtime.{name}"))
            .collect();
        assert_eq!(inside(&object, &calls), wanted, "{change:?}");
        for call in calls {
            let instruction = decoder(&object, call..call + 16).next().unwrap();
            assert_eq!(instruction.flow_control(), FlowControl::Call);
        }
    }
}

#[test]
fn what_is_not_known_is_refused_with_its_name() {
    let old = edge(&program("go1.18.9"), Change::Done)
        .unwrap_err()
        .to_string();
    assert!(
        old.contains("go1.18.9") && old.contains("Go 1.19 to 1.27"),
        "{old}"
    );
    let without = RUNTIME
        .replace("VERSION", "go1.24.1")
        .replace("runtime.exitsyscall0", "runtime.exitsyscall1");
    let object = of(&without);
    let missing = edge(&object, Change::Leave).unwrap_err().to_string();
    assert!(missing.contains("runtime.exitsyscallNoP"), "{missing}");
    let without = RUNTIME
        .replace("VERSION", "go1.24.1")
        .replace("runtime.coroswitch_m", "runtime.other");
    let object = of(&without);
    assert_eq!(edge(&object, Change::Switch).unwrap(), []);
    let other = RUNTIME
        .replace("VERSION", "go1.24.1")
        .replace("0x38(%rdi)", "0x30(%rdi)");
    let object = of(&other);
    let other = edge(&object, Change::Switch).unwrap_err().to_string();
    assert!(other.contains("has at 0x38"), "{other}");
    let elsewhere = RUNTIME
        .replace("VERSION", "go1.24.1")
        .replace("SCHED", SCHED_OF[0])
        .replace("0x40(%r14)", "0x48(%r14)");
    let object = of(&elsewhere);
    assert_eq!(edge(&object, Change::Spawn).unwrap().len(), 1);
    let elsewhere = started_by(&object, "*").unwrap_err().to_string();
    assert!(elsewhere.contains("goes on at 0x40"), "{elsewhere}");
    let other = Fixture::c("int main(void) { return 0; }", &[]);
    let other = edge(&other.object(), Change::Done).unwrap_err().to_string();
    assert!(other.contains("is no program of Go"), "{other}");
    let unsaid = RUNTIME.replace(".section .go.buildinfo", ".section .gopclntab");
    let object = of(&unsaid);
    let unsaid = edge(&object, Change::Done).unwrap_err().to_string();
    assert!(unsaid.contains("does not say which version"), "{unsaid}");
}

#[test]
fn a_function_begins_behind_the_check_of_its_stack() {
    let object = program("go1.26.6");
    let large = body(&object, function(&object, "main.large").unwrap());
    let site = begin(&object, &large).unwrap();
    let jump = decoder(&object, site.address..large.end).next().unwrap();
    assert_eq!(jump.mnemonic(), Mnemonic::Jbe);
    // Counts when `ja` would be taken.
    assert_eq!(site.condition, Some(7));
    assert_eq!(site.distance, site.address - large.start);
    let nosplit = body(&object, function(&object, "main.nosplit").unwrap());
    assert_eq!(begin(&object, &nosplit), None);
    let code = decoder(&object, large.clone());
    let jumps: Vec<u64> = code
        .filter(|code| code.mnemonic() == Mnemonic::Jmp)
        .map(|code| code.ip())
        .collect();
    let site = |address| Site::itself(address, None);
    assert!(restarts(&object, &large, &site(jumps[0])));
    assert!(!restarts(&object, &large, &site(large.start)));
}

#[test]
fn a_closure_that_only_calls_a_function_goes_by_its_name() {
    let object = program("go1.26.6");
    let starts = |pattern: &str| inside(&object, &started_by(&object, pattern).unwrap());
    assert_eq!(starts("main.large"), ["main.large", "main.f.gowrap1"]);
    let closures = ["main.f.func2", "main.f.func3", "main.f.func4"];
    assert_eq!(starts("main.f.func*"), closures);
    let none = started_by(&object, "main.none").unwrap_err().to_string();
    assert!(none.contains("no function `main.none`"), "{none}");
    let apart =
        |units: &[(&str, &str)]| told_apart(&object, units).map_err(|error| error.to_string());
    assert_eq!(apart(&[("a", "main.large"), ("b", "main.f.func*")]), Ok(()));
    let both = apart(&[("a", "main.large"), ("b", "*gowrap1")]).unwrap_err();
    assert!(both.contains("start with `main.f.gowrap1`"), "{both}");
    let all = apart(&[("a", "main.large"), ("b", "*")]).unwrap_err();
    assert!(all.contains("all goroutines are requests of `b`"), "{all}");
}

/// All goroutines, with the functions that they start with.
fn resolved(fixture: &Fixture) -> ResolvedProfile {
    let text = "[profile]\nname = \"p\"\n[runtime]\nkind = \"go\"\n[[request]]\nname = \"r\"\nunit = \"*\"\n\
                [[request.attribute]]\nname = \"starts\"\ntype = \"unit\"\n";
    let profile = Profile::parse(text, "p.toml", Origin::BuiltIn).unwrap();
    resolve_file(&profile, fixture.path()).unwrap()
}

#[test]
fn a_goroutine_has_the_name_of_the_function_that_its_closure_calls() {
    let fixture = Fixture::assembly(
        &RUNTIME
            .replace("VERSION", "go1.26.6")
            .replace("SCHED", SCHED_OF[0]),
    );
    let profile = resolved(&fixture);
    let object = fixture.object();
    let closure = function(&object, "main.f.gowrap1").unwrap();
    let units = profile.units.unwrap();
    let named = [(
        object.file_offset(closure).unwrap(),
        "main.large".to_owned(),
    )];
    assert_eq!(units.by_offset, named.into());
    assert!(units.others_are_symbols);
    let [request] = profile.requests.as_slice() else {
        panic!("{:?}", profile.requests);
    };
    assert_eq!(request.unread, []);
    // It is read from the goroutine that is made, where it has what it goes on at.
    let sites = request.begin.sites.iter();
    let read: Vec<&AttributePlan> = sites.flat_map(|site| &site.attributes).collect();
    let [plan] = read.as_slice() else {
        panic!("{read:?}");
    };
    assert_eq!(plan.kind, label_kind::NUMBER);
    assert_eq!(
        plan.value.base,
        reqtrace_common::registers::Register::Rax.index()
    );
    assert_eq!(
        (plan.value.offsets[0], plan.value.reads, plan.value.size),
        (GOES_ON, 1, 8)
    );
}

#[test]
fn a_goroutine_that_has_its_function_elsewhere_has_no_name() {
    let elsewhere = RUNTIME
        .replace("VERSION", "go1.26.6")
        .replace("SCHED", SCHED_OF[0])
        .replace("0x40(%r14)", "0x48(%r14)");
    let profile = resolved(&Fixture::assembly(&elsewhere));
    let request = &profile.requests[0];
    let sites = &request.begin.sites;
    assert!(sites.iter().all(|site| site.attributes.is_empty()));
    let [unread] = request.unread.as_slice() else {
        panic!("{:?}", request.unread);
    };
    assert_eq!(unread.attribute, "starts");
    assert!(unread.why.contains("goes on at 0x40"), "{}", unread.why);
}

/// The names of functions that are looked for where a goroutine goes on behind a panic, and what each says.
fn looked_for(object: &Object, plan: &ParkPlan) -> Vec<(String, u32)> {
    let here = edge(object, Change::Recover).unwrap()[0];
    let used = plan.waits[..plan.waits_used as usize].iter();
    used.map(|wait| {
        let at = here.wrapping_add_signed(i64::from(wait.from));
        assert_eq!(body(object, at), at..at + u64::from(wait.size));
        (inside(object, &[at]).remove(0), wait.place)
    })
    .collect()
}

#[test]
fn a_panic_leaves_a_function_or_what_ends_the_goroutine() {
    use reqtrace_common::recovered::code::{OF_THE_REQUEST, OUTERMOST};
    let source = RUNTIME.replace("VERSION", "go1.26.6");
    for sched in SCHED_OF {
        let object = Fixture::assembly(&source.replace("SCHED", sched)).object();
        let of_main = ["main.nosplit", "main.large"];
        let of_main = of_main.map(|name| body(&object, function(&object, name).unwrap()));
        let plan = recovered(&object, &of_main).unwrap();
        assert_eq!(
            (plan.kind, plan.pc, plan.bp),
            (park_kind::RECOVERED, 0x40, 0x68)
        );
        let mut told = looked_for(&object, &plan);
        told.sort_unstable();
        let told: Vec<(&str, u32)> = told.iter().map(|(name, of)| (&**name, *of)).collect();
        assert_eq!(
            told,
            [
                ("main.large", OF_THE_REQUEST),
                ("main.nosplit", OF_THE_REQUEST),
                ("runtime.Goexit", OF_THE_REQUEST),
                ("runtime.goexit", OUTERMOST),
            ]
        );
        let from = plan.waits[..4].iter().map(|wait| wait.from);
        assert!(from.is_sorted());
    }
}

#[test]
fn a_panic_of_which_too_little_is_known_leaves_nothing() {
    let source = RUNTIME.replace("VERSION", "go1.26.6");
    let unknown = |source: &str, functions: usize| {
        let object = of(source);
        let code = body(&object, function(&object, "main.large").unwrap());
        recovered(&object, &vec![code; functions]).unwrap_err()
    };
    for (what, instead, wanted) in [
        (
            "SCHED",
            "lea 0x40(%rax), %rax",
            "`runtime.recovery` does not",
        ),
        (
            "runtime.recovery",
            "runtime.recovers",
            "`runtime.recovery` does not",
        ),
        (
            "runtime.goexit",
            "runtime.exits",
            "`runtime.goexit` is not there",
        ),
        (
            "mov %rbp, 0x68(%r14)",
            "",
            "where a goroutine goes on is not known",
        ),
    ] {
        let printed = unknown(&source.replace(what, instead), 1);
        assert!(
            printed.starts_with("a request whose function is left by a panic has no end")
                && printed.contains(wanted),
            "{printed}"
        );
    }
    assert!(unknown(&source, 0).contains("of another file"));
    assert!(unknown(&source, MAX_WAITS).contains("too many"));
    let object = of(&source.replace("runtime.recovery", "runtime.recovers"));
    assert_eq!(edge(&object, Change::Recover).unwrap(), []);
}
