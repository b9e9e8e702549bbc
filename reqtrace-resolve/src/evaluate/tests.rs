use super::*;
use crate::fixtures::Fixture;

/// What the exchange is of that this code comes to, if `rdi` points to this number.
fn exchanged(code: &str, number: u64) -> Stop {
    let source = format!(
        ".text\n.cfi_startproc\ncode:\n{code}\n.cfi_endproc\n.globl helper\nhelper: add $2, %rax\nret\n\
         .globl code\n.type code, @function\n"
    );
    let object = Fixture::assembly(&source).object();
    let start = object
        .symbols()
        .iter()
        .find(|one| object.name(one) == "code");
    let mut machine = Machine::new(&object);
    machine.set(Register::RDI, 0x1000);
    machine.store(0x1000, number);
    match machine.run(start.unwrap().address) {
        Stop::Exchange { address, new, .. } => Stop::Exchange {
            at: 0,
            address,
            new,
        },
        Stop::Unknown => Stop::Unknown,
    }
}

fn of(new: u64) -> Stop {
    Stop::Exchange {
        at: 0,
        address: 0x1000,
        new,
    }
}

#[test]
fn turns_are_taken_as_the_numbers_say() {
    let code = "mov (%rdi), %rax\nlea -64(%rax), %rcx\ncmp $63, %rax\nja 1f\nmov %rax, %rcx\nneg %rcx\n\
                1: lock cmpxchg %rcx, (%rdi)";
    assert_eq!(exchanged(code, 64), of(0));
    assert_eq!(exchanged(code, 63), of(63_u64.wrapping_neg()));
    let code = "mov (%rdi), %rax\nxor %ecx, %ecx\nbt $3, %rax\nsetc %cl\ntest %al, %al\ncmovs %rax, %rcx\n\
                lock cmpxchg %rcx, (%rdi)";
    assert_eq!(exchanged(code, 8), of(1));
    assert_eq!(exchanged(code, 0x70), of(0));
    assert_eq!(exchanged(code, 0x80), of(0x80));
    // Four bytes clear the others, one does not.
    let code = "mov (%rdi), %rax\nmov $-1, %rcx\nmov %eax, %ecx\nmovb $1, %ch\nshl $4, %rcx\nlock cmpxchg %rcx, (%rdi)";
    assert_eq!(exchanged(code, 0xffff_ffff_0000_0002), of(0x1020));
}

#[test]
fn the_stack_and_calls_are_followed() {
    let code = "mov (%rdi), %rax\nsub $16, %rsp\nmov %rax, 8(%rsp)\npush %rax\ncall helper\nmov %rax, %rcx\npop %rax\n\
                add 8(%rsp), %rcx\nlock cmpxchg %rcx, (%rdi)";
    assert_eq!(exchanged(code, 5), of(12));
}

#[test]
fn nothing_is_guessed() {
    for code in [
        // What a register holds that nothing has set.
        "mov (%rdi), %rax\nlock cmpxchg %rdx, (%rdi)",
        "mov (%rdi), %rax\ntest %rdx, %rdx\njne 1f\n1: mov %rax, %rcx\nlock cmpxchg %rcx, (%rdi)",
        // Memory that nothing has set, and what is written to where nobody knows.
        "mov (%rdi), %rax\nmov 8(%rdi), %rcx\nlock cmpxchg %rcx, (%rdi)",
        "mov (%rdi), %rax\nmov %rax, (%rdx)\nmov %rax, %rcx\nlock cmpxchg %rcx, (%rdi)",
        // Half of it, another number expected, no end.
        "mov (%rdi), %rax\nmov %eax, %ecx\nlock cmpxchg %ecx, (%rdi)",
        "mov $1, %eax\nmov %eax, %ecx\nlock cmpxchg %rcx, (%rdi)",
        "1: jmp 1b",
        "mov (%rdi), %rax\njmp *%rdx",
        "ret",
    ] {
        assert_eq!(exchanged(code, 5), Stop::Unknown, "{code}");
    }
}
