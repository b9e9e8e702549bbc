use super::*;
use crate::fixtures::Fixture;

/// What is read, as compilers of Go write it. `SAVE` is the code of `runtime.mcall`.
const RUNTIME: &str = r#"
    .macro function name
    .type "\name", @function
    "\name":
    .endm

    .text
    function runtime.mcall
    SAVE
    mov 0x30(%r14), %rbx
    mov (%rbx), %rsi
    cmp %r14, %rsi
    jne 1f
1:  ret
    .size runtime.mcall, .-runtime.mcall

    function runtime.gopark
    cmp 0x10(%r14), %rsp
    jbe 2f
    mov 0x30(%r14), %rdx
    incl 0x108(%rdx)
    mov 0x30(%r14), %rdx
    mov 0xc0(%rdx), %r8
    mov 0x90(%r8), %r9d
    cmp $2, %r9d
    jne 2f
    mov %rbx, 0x280(%rdx)
    mov REASON, 0xb0(%r8)
    mov %dil, 0x288(%rdx)
    mov 0x108(%rdx), %ecx
    ret
2:  mov %cl, 0x18(%rsp)
    movzbl 0x18(%rsp), %ecx
    ret
    .size runtime.gopark, .-runtime.gopark

    function "runtime.waitReason.String"
    cmp $4, %al
    jb 3f
    lea unknown(%rip), %rax
    mov $5, %ebx
    ret
3:  movzbl %al, %ecx
    shl $4, %rcx
    lea table(%rip), %rdx
    mov (%rdx, %rcx, 1), %rax
    mov 8(%rdx, %rcx, 1), %rbx
    ret
    .size "runtime.waitReason.String", .-"runtime.waitReason.String"

    .data
unknown: .ascii "what?"
one: .ascii "chan receive"
two: .ascii "sleep"
three: .ascii "something new"
    .balign 16
table:
    .quad 0, 0
    .quad one, 12
    .quad two, 5
    .quad three, 13
"#;

const UP_TO_GO_1_20: &str = "mov %rax, %rdx; mov (%rsp), %rbx; mov %rbx, 0x40(%r14); lea 8(%rsp), %rbx; mov %rbx, 0x38(%r14); \
                             mov %rbp, 0x68(%r14)";
const FROM_GO_1_21_ON: &str = "push %rbp; mov %rsp, %rbp; mov %rax, %rdx; mov %rsp, %rbx; mov 8(%rbx), %rbx; \
                               mov %rbx, 0x40(%r14); lea 16(%rsp), %rbx; mov %rbx, 0x38(%r14); mov 0(%rbp), %rbx; \
                               mov %rbx, 0x60(%r14)";

fn read(save: &str, reason: &str) -> (ParkPlan, Vec<String>) {
    let source = RUNTIME.replace("SAVE", save).replace("REASON", reason);
    plan(&Fixture::fixed_assembly(&source).object())
}

#[test]
fn offsets_and_names_are_those_of_the_code() {
    for (save, bp) in [(UP_TO_GO_1_20, 0x68), (FROM_GO_1_21_ON, 0x60)] {
        let (plan, unknown) = read(save, "%cl");
        assert_eq!(unknown, [""; 0]);
        assert_eq!((plan.reason, plan.pc, plan.bp), (0xb0, 0x40, bp));
        let place = |name| place_number(place_of_reason(name)) + 1;
        let places: Vec<u32> = (0..6).map(|reason| plan.place(reason)).collect();
        assert_eq!(
            places,
            [
                0,
                place("chan receive"),
                place("sleep"),
                place("another"),
                0,
                0
            ]
        );
        assert_ne!(place("chan receive"), place("another"));
    }
}

#[test]
fn what_is_not_known_is_left_out_with_a_sentence() {
    // Another value than the argument, and a frame pointer from somewhere else.
    let (plan, unknown) = read(UP_TO_GO_1_20, "%sil");
    assert_eq!((plan.reason, plan.places), (0, [0; MAX_REASONS / 8]));
    assert_eq!((plan.pc, plan.bp), (0x40, 0x68));
    assert!(
        unknown[0].contains("has no reason") && unknown[0].contains(PARKS),
        "{unknown:?}"
    );
    let changed = FROM_GO_1_21_ON.replace("mov 0(%rbp), %rbx", "mov 8(%rdi), %rbx");
    let (plan, unknown) = read(&changed, "%cl");
    assert_eq!((plan.pc, plan.bp), (0, 0));
    assert_eq!(plan.reason, 0xb0);
    assert!(
        unknown[0].contains("has no stack") && unknown[0].contains(SWITCHES),
        "{unknown:?}"
    );
}

#[test]
fn a_table_that_is_filled_in_when_it_is_loaded_has_no_names() {
    let source = RUNTIME
        .replace("SAVE", UP_TO_GO_1_20)
        .replace("REASON", "%cl")
        .replace(".quad one, 12", ".quad 0, 12");
    let (plan, unknown) = plan(&Fixture::fixed_assembly(&source).object());
    assert_eq!(plan.reason, 0);
    assert!(unknown[0].contains(NAMES), "{unknown:?}");
}
