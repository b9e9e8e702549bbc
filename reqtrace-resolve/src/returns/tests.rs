use super::*;
use crate::fixtures::Fixture;
use crate::symbols;

/// Exits of a function, as distances from its start; those in other parts are negative or large.
/// Tail callees are not followed.
fn exits_of(object: &Object, name: &str) -> Vec<(i64, Option<u8>)> {
    sites_of(object, name, false)
}

fn sites_of(object: &Object, name: &str, tied: bool) -> Vec<(i64, Option<u8>)> {
    let function = symbols::find(object, name).unwrap().unwrap();
    let body = &function.bodies[0];
    exits(object, body, tied)
        .sites
        .into_iter()
        .map(|(address, condition)| (address.wrapping_sub(body.start) as i64, condition))
        .collect()
}

/// The instruction at a distance from a function's start.
fn at(object: &Object, name: &str, distance: i64) -> Instruction {
    let function = symbols::find(object, name).unwrap().unwrap();
    let address = function.bodies[0].start.wrapping_add_signed(distance);
    decoder(object, address..address + 15).next().unwrap()
}

const SHAPES: &str = r#"
typedef int (*handler)(int);
extern handler handlers[8];
__attribute__((noinline)) int callee(int a) { asm(""); return a * 3; }
__attribute__((noinline, cold)) int failed(int a) { asm(""); return a - 7; }
__attribute__((noinline)) int busy(int a) {
    return callee(a) + callee(a + 1) + callee(a + 2) + callee(a + 3) + callee(a + 4) + callee(a + 5);
}
__attribute__((noinline)) int worker(int a) { asm(""); return a * 5; }
__attribute__((noinline)) int wrapper(int a) { asm(""); return worker(a + 1); }
__attribute__((noinline)) int plain(int a) { asm(""); return a + 1; }
__attribute__((noinline)) int tail(int a) { asm(""); return callee(a + 1); }
__attribute__((noinline)) int tail_if(int a) { if (a) return callee(a); asm(""); return a; }
__attribute__((noinline)) int tail_pointer(int a, handler h) { asm(""); return h(a); }
__attribute__((noinline)) int tail_table(int a) { asm(""); return handlers[a & 7](a); }
extern void exit(int) __attribute__((noreturn));
__attribute__((noinline)) int never(int a) { asm(""); exit(a); }
__attribute__((noinline)) int cold_part(int a, int *p) {
    if (__builtin_expect(a == 77, 0)) { *p = failed(a); *p += failed(*p); return *p - failed(3); }
    asm("");
    return a + *p;
}
__attribute__((noinline)) int chosen(int a, int b) {
    switch (a) {
    case 0: asm("nop"); return b * 7; case 1: asm("nop"); return b - 9;
    case 2: asm("nop"); return b / 3; case 3: asm("nop"); return b ^ 5;
    case 4: asm("nop"); return b + 8; case 5: asm("nop"); return b | 1;
    case 6: asm("nop"); return b & 3; case 7: asm("nop"); return b << 2;
    default: return callee(b);
    }
}
handler handlers[8] = {callee, callee, callee, callee, callee, callee, callee, callee};
int main(int argc, char **argv) {
    (void)argv;
    int x = argc;
    return plain(argc) + busy(argc) + wrapper(argc) + tail(argc) + tail_if(argc) + tail_pointer(argc, callee)
        + tail_table(argc) + cold_part(argc, &x) + chosen(argc, x) + (argc > 9 ? never(argc) : 0);
}
"#;

/// All that must hold whether the program is position-independent, or stripped.
fn check_shapes(object: &Object) {
    let only = |name: &str| {
        let exits = exits_of(object, name);
        assert_eq!(exits.len(), 1, "{name}: {exits:x?}");
        at(object, name, exits[0].0)
    };
    assert_eq!(only("plain").flow_control(), FlowControl::Return);
    assert_eq!(
        only("tail").flow_control(),
        FlowControl::UnconditionalBranch
    );
    assert_eq!(
        only("tail_pointer").flow_control(),
        FlowControl::IndirectBranch
    );
    assert_eq!(
        only("tail_table").flow_control(),
        FlowControl::IndirectBranch
    );
    assert_eq!(exits_of(object, "never"), []);

    // Nobody else calls the worker: a request ends where the wrapper's caller goes on.
    assert_eq!(
        only("wrapper").flow_control(),
        FlowControl::UnconditionalBranch
    );
    let followed = sites_of(object, "wrapper", true);
    assert_eq!(followed.len(), 1);
    let code = at(object, "wrapper", followed[0].0);
    assert_eq!(code.flow_control(), FlowControl::Return);

    // Some compilers make one conditional jump of it.
    assert_eq!(exits_of(object, "tail_if").len(), 2);

    // The tail callee has many callers here, so its returns are not probed.
    assert_eq!(exits_of(object, "tail"), sites_of(object, "tail", true));

    // The cold part's return, and the hot one's. Neither has a frame, so in a stripped program
    // the cold part looks like a function that is called from one place, and is followed as such.
    let cold = sites_of(object, "cold_part", true);
    assert!(cold.len() >= 2, "{cold:x?}");
    for (site, condition) in &cold {
        assert_eq!(
            at(object, "cold_part", *site).flow_control(),
            FlowControl::Return
        );
        assert_eq!(*condition, None);
    }

    // Every case returns, the default leaves by a tail call, the switch itself does not leave.
    let chosen = exits_of(object, "chosen");
    assert!(chosen.len() >= 9, "{chosen:x?}");
    for (site, _) in &chosen {
        let flow = at(object, "chosen", *site).flow_control();
        assert_ne!(flow, FlowControl::IndirectBranch);
    }
}

#[test]
fn shapes_of_gcc() {
    for flags in [
        &["-O2", "-fPIE", "-pie"][..],
        &["-O2", "-fno-pie", "-no-pie"],
        &["-O2", "-fPIE", "-pie", "-fcf-protection=full"],
        &["-Os", "-fPIE", "-pie", "-freorder-blocks-and-partition"],
    ] {
        let flags: Vec<&str> = flags
            .iter()
            .copied()
            .chain(["-fjump-tables", "--param=case-values-threshold=4"])
            .collect();
        if flags[0] == "-O2" {
            check_shapes(&Fixture::c(SHAPES, &flags).object());
            let exported: Vec<&str> = flags.iter().copied().chain(["-rdynamic"]).collect();
            check_shapes(&Fixture::c(SHAPES, &exported).stripped().object());
        } else {
            let fixture = Fixture::c(SHAPES, &flags);
            assert_eq!(exits_of(&fixture.object(), "plain").len(), 1);
        }
    }
}

#[test]
fn without_optimisation_there_is_one_return() {
    let fixture = Fixture::c(SHAPES, &["-O0"]);
    let object = fixture.object();
    for name in [
        "plain",
        "tail",
        "tail_if",
        "tail_table",
        "cold_part",
        "chosen",
    ] {
        assert_eq!(exits_of(&object, name).len(), 1, "{name}");
    }
}

#[test]
fn a_call_through_the_linkage_table_is_a_tail_call() {
    let source = "extern int puts(const char *);\n\
        __attribute__((noinline)) int say(const char *s) { asm(\"\"); return puts(s + 1); }\n\
        int main(int c, char **v) { (void)c; return say(v[0]); }";
    for flags in [
        &["-O2", "-rdynamic"][..],
        &["-O2", "-rdynamic", "-fcf-protection=full", "-Wl,-z,ibtplt"],
        &["-O2", "-rdynamic", "-fno-plt"],
    ] {
        for fixture in [
            Fixture::c(source, flags),
            Fixture::c(source, flags).stripped(),
        ] {
            let exits = exits_of(&fixture.object(), "say");
            assert_eq!(exits.len(), 1, "{flags:?}: {exits:x?}");
        }
    }
}

#[test]
fn a_throwing_function_is_left_by_its_returns_only() {
    let source = r#"
        #include <stdexcept>
        #include <string>
        __attribute__((noinline)) int inner(int a) { if (a > 3) throw std::runtime_error("x"); return a; }
        __attribute__((noinline)) int serve(int a) { std::string s(a, 'x'); return inner(a) + s.size(); }
        int main(int argc, char **) { try { return serve(argc); } catch (...) { return 1; } }
    "#;
    for fixture in [
        Fixture::cpp(source, &["-O2", "-rdynamic"]),
        Fixture::cpp(source, &["-O2", "-rdynamic"]).stripped(),
    ] {
        let object = fixture.object();
        for (site, _) in exits_of(&object, "serve") {
            assert_eq!(
                at(&object, "serve", site).flow_control(),
                FlowControl::Return
            );
        }
        assert_eq!(exits_of(&object, "serve").len(), 1);
    }
}

#[test]
fn conditional_tail_calls_carry_their_condition() {
    let shapes = ".text\n\
         .globl callee\n.type callee, @function\ncallee:\n.cfi_startproc\n ret\n.cfi_endproc\n\
         .size callee, .-callee\n\
         .globl some\n.type some, @function\nsome:\n.cfi_startproc\n test %edi,%edi\n\
          jne callee\n jl callee\n ja 1f\n js rarely\n1: ret\n.cfi_endproc\n.size some, .-some\n\
         .type rarely, @function\nrarely:\n.cfi_startproc\n sub $8,%rsp\n call callee\n\
          add $8,%rsp\n jmp 1b\n.cfi_endproc\n.size rarely, .-rarely\n\
         .section .note.GNU-stack\n";
    // With all symbols, `rarely` is a function like any other.
    let object = Fixture::assembly(shapes).object();
    let conditions = |object: &Object| -> Vec<Option<u8>> {
        exits_of(object, "some")
            .into_iter()
            .map(|exit| exit.1)
            .collect()
    };
    assert_eq!(conditions(&object), [Some(5), Some(0xc), Some(8), None]);
    // Without, it jumps back into `some`, as only a piece of it can.
    let object = Fixture::assembly(shapes).stripped().object();
    assert_eq!(conditions(&object), [Some(5), Some(0xc), None]);
}

#[test]
fn assembly_without_frame_information() {
    let fixture = Fixture::assembly(
        ".text\n\
         .globl loops\n.type loops, @function\nloops: dec %rdi\n jne loops\n ret\n.size loops, .-loops\n\
         .globl pops\n.type pops, @function\npops: ret $8\n.size pops, .-pops\n\
         .globl data\n.type data, @function\ndata: jmp 1f\n .byte 0x06, 0xc3, 0x06\n1: ret\n.size data, .-data\n\
         .globl sizeless\n.type sizeless, @function\nsizeless: nop\n ret\n\
         .globl last\n.type last, @function\nlast: repz ret\n",
    );
    let object = fixture.object();
    // A jump to the own entry begins again, so it also ends.
    assert_eq!(exits_of(&object, "loops"), [(3, Some(5)), (5, None)]);
    let body = symbols::find(&object, "loops").unwrap().unwrap().bodies[0].clone();
    assert!(exits(&object, &body, true).reenters);
    assert_eq!(exits_of(&object, "pops"), [(0, None)]);
    // 0x06 is no instruction: what stands between is data, and its 0xc3 no return.
    assert_eq!(exits_of(&object, "data"), [(5, None)]);
    assert_eq!(exits_of(&object, "sizeless"), [(1, None)]);
    assert_eq!(exits_of(&object, "last"), [(0, None)]);
}

/// What a file states of its functions is not believed: a large one would take memory for each of its instructions.
#[test]
fn a_function_with_too_many_instructions_is_not_decoded() {
    let of = |instructions: usize| {
        let code = format!(
            ".text\n.globl large\n.type large, @function\nlarge: .fill {instructions}, 1, 0x90\n ret\n.size large, .-large\n"
        );
        exits_of(&Fixture::assembly(&code).object(), "large")
    };
    assert_eq!(of(1000), [(1000, None)]);
    assert_eq!(of(MAX_INSTRUCTIONS), []);
    assert_eq!(of(MAX_FUNCTION as usize), []);
}
