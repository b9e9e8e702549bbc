use super::*;
use crate::fixtures::Fixture;
use crate::returns::end_sites;
use crate::symbols;

/// Assembles one function `f`, beside one that fails as compilers let it.
fn object(code: &str) -> Object {
    Fixture::assembly(&format!(
        ".text\n.globl f\n.type f, @function\nf:\n.cfi_startproc\n{code}\n.cfi_endproc\n\
         .size f, .-f\n.globl other\n.type other, @function\nother:\n.cfi_startproc\n ret\n\
         .cfi_endproc\n.size other, .-other\n.section .note.GNU-stack\n"
    ))
    .object()
}

/// The names of the instructions probed for the returns of `f`, with condition, distance, and slot.
fn ends(code: &str) -> Vec<(String, Option<u8>, u64, ReturnSlot)> {
    let object = object(code);
    let body = symbols::find(&object, "f").unwrap().unwrap().bodies[0].clone();
    let (_, sites) = end_sites(&object, &body, false);
    let name = |site: &Site| instruction_at(&object, site.address).unwrap().0;
    sites
        .iter()
        .map(|site| (name(site), site.condition, site.distance, site.slot))
        .collect()
}

fn begin(code: &str, reads: Reads) -> (String, u64, ReturnSlot) {
    let object = object(code);
    let body = symbols::find(&object, "f").unwrap().unwrap().bodies[0].clone();
    let site = entry(&object, &body, reads);
    let name = instruction_at(&object, site.address).unwrap().0;
    (name, site.distance, site.slot)
}

fn rsp(words: u16) -> ReturnSlot {
    ReturnSlot {
        from_rbp: false,
        words,
    }
}

const RET: (&str, Option<u8>, u64) = ("ret", None, 0);

fn only(code: &str) -> (String, Option<u8>, u64) {
    let ends = ends(code);
    assert_eq!(ends.len(), 1, "{ends:?}");
    let (name, condition, distance, _) = ends[0].clone();
    (name, condition, distance)
}

#[test]
fn the_check_of_the_guard_stands_for_the_return() {
    // Whatever the indirect jump may lead to: no compiler returns without the check.
    let guarded = " push %rbx\n .cfi_adjust_cfa_offset 8\n cmp $3,%edi\n je 1f\n\
        \x20jmp *(%rsi)\n1: call other\n cmp %fs:0x28,%rax\n jne 2f\n mov %ebx,%eax\n pop %rbx\n\
        \x20.cfi_adjust_cfa_offset -8\n ret\n .cfi_adjust_cfa_offset 8\n\
        2: call __stack_chk_fail@PLT\n";
    let sites = ends(guarded);
    let guard = sites.iter().find(|site| site.2 > 0).unwrap();
    assert_eq!(guard, &("jne".to_owned(), None, 5, rsp(1)));
    // The same jump to anything else is just a jump.
    let other = guarded.replace("__stack_chk_fail@PLT", "other");
    assert!(ends(&other).iter().all(|site| site.2 == 0));
}

#[test]
fn the_frame_pointer_tells_the_frame_too() {
    let sites = ends(
        " push %rbp\n .cfi_def_cfa_offset 16\n mov %rsp,%rbp\n .cfi_def_cfa_register 6\n\
         \x20call other\n test %eax,%eax\n jne 1f\n call other\n1: nop\n mov %rbx,%rax\n leave\n\
         \x20.cfi_def_cfa 7, 8\n ret\n",
    );
    let slot = ReturnSlot {
        from_rbp: true,
        words: 1,
    };
    assert_eq!(sites, [("nop".to_owned(), None, 5, slot)]);
}

#[test]
fn jumps_to_a_return_stand_for_it() {
    // One way jumps, the other falls through behind a conditional jump out of no loop.
    let sites = ends(
        " test %edi,%edi\n jne 1f\n mov $1,%eax\n jmp 2f\n1: cmp $2,%edi\n jne 3f\n2: ret\n3: call other\n ud2\n",
    );
    let names: Vec<_> = sites.iter().map(|site| (site.0.as_str(), site.1)).collect();
    assert_eq!(names, [("jmp", None), ("jne", Some(4))]);
    // In a loop such a jump would be a trap each time round.
    assert_eq!(
        only(" mov %edi,%eax\n1: dec %edi\n jne 1b\n ret\n"),
        (RET.0.into(), RET.1, RET.2)
    );
    // Both ways leave.
    let sites = ends(" test %edi,%edi\n jne 1f\n ret\n1: mov $1,%eax\n ret\n");
    assert_eq!(sites.len(), 1);
    assert_eq!((sites[0].0.as_str(), sites[0].1), ("jne", None));
}

#[test]
fn what_is_not_certain_is_left_at_the_return() {
    let ret = (RET.0.to_owned(), RET.1, RET.2);
    // A call in between, or a system call.
    assert_eq!(only(" nop\n call other\n ret\n"), ret);
    assert_eq!(only(" nop\n syscall\n ret\n"), ret);
    // A way in from a switch that is not understood.
    assert!(
        ends(" cmp $1,%edi\n je 1f\n jmp *(%rsi)\n1: nop\n ret\n")
            .iter()
            .all(|site| site.2 == 0)
    );
    // Another function begins in between.
    assert_eq!(
        only(" nop\n.globl g\n.type g, @function\n.size g, 1\ng: mov %edi,%eax\n ret\n"),
        ret
    );
    // No row, or one that says something else.
    assert_eq!(only(" nop\n .cfi_def_cfa_offset 24\n ret\n"), ret);
    assert_eq!(
        only(" nop\n .cfi_def_cfa_register 3\n mov %edi,%eax\n .cfi_def_cfa 7, 8\n ret\n").0,
        "nop"
    );
    // A nop of five bytes is never chosen.
    assert_eq!(only(" nopl 0(%rax,%rax,1)\n ret\n"), ret);
}

#[test]
fn a_landing_pad_in_between_leaves_the_return() {
    let source = r#"
        struct Guard { int *at; ~Guard() { __atomic_fetch_add(at, 1, 0); } };
        void may_throw(int);
        extern "C" __attribute__((noinline)) int serve(int a, int *b) {
            try { Guard guard{b}; may_throw(a); } catch (int caught) { return caught; }
            return a;
        }
        __attribute__((noinline)) void may_throw(int a) { if (a > 3) throw a; }
        int main(int c, char **) { int b = 0; return serve(c, &b) + b; }
    "#;
    let object = Fixture::cpp(source, &["-O2"]).object();
    let body = symbols::find(&object, "serve").unwrap().unwrap().bodies[0].clone();
    let pads = object.landing_pads(&body).unwrap();
    let mut all = pads.clone();
    for part in object.symbols() {
        if object.name(part).starts_with("serve.cold") {
            all.extend(
                object
                    .landing_pads(&(part.address..part.address + part.size))
                    .unwrap(),
            );
        }
    }
    assert!(!all.is_empty());
    let (exits, sites) = end_sites(&object, &body, false);
    for site in sites.iter().filter(|site| site.distance > 0) {
        let until = site.address + site.distance;
        assert!(
            !all.iter()
                .any(|pad| (site.address + 1..=until).contains(pad))
        );
    }
    assert!(!exits.sites.is_empty());
}

#[test]
fn a_begin_moves_while_its_arguments_stand() {
    let push =
        " push %rbx\n .cfi_adjust_cfa_offset 8\n pop %rbx\n .cfi_adjust_cfa_offset -8\n ret\n";
    let at = |code: &str, reads| begin(&format!("{code}{push}"), reads);
    assert_eq!(at("", Reads::Arguments), ("push".into(), 0, rsp(0)));
    assert_eq!(
        at(" endbr64\n", Reads::Arguments),
        ("push".into(), 4, rsp(0))
    );
    // Nothing is changed by it, so nothing that is read is either.
    assert_eq!(at(" endbr64\n", Reads::Anything).1, 4);
    assert_eq!(at(" mov %rsp,%rax\n", Reads::Arguments).1, 3);
    assert_eq!(at(" mov %rsp,%rax\n", Reads::Anything).1, 0);
    // An argument is overwritten, memory is read, control comes back behind the entry.
    assert_eq!(at(" xor %edi,%edi\n", Reads::Arguments).1, 0);
    assert_eq!(at(" mov (%rdi),%rax\n", Reads::Arguments).1, 0);
    assert_eq!(
        at(" dec %eax\n1: dec %eax\n jne 1b\n", Reads::Arguments).1,
        0
    );
    // The frame has grown.
    let grown = begin(
        " sub $24,%rsp\n .cfi_adjust_cfa_offset 24\n jne 1f\n nop\n1: add $24,%rsp\n .cfi_adjust_cfa_offset -24\n ret\n",
        Reads::Arguments,
    );
    assert_eq!(grown, ("jne".into(), 4, rsp(3)));
}

/// The instruction probed in place of the first that reads at `%rdi`, with its condition.
fn beside_load(code: &str) -> (String, Option<u8>) {
    let object = object(code);
    let body = symbols::find(&object, "f").unwrap().unwrap().bodies[0].clone();
    let mut all = decoder(&object, body);
    let load = all.find(|code| code.memory_base() == Register::RDI);
    let site = beside(&object, load.unwrap().ip(), &[Register::RDI]);
    let name = instruction_at(&object, site.address).unwrap().0;
    (name, site.condition)
}

#[test]
fn an_instruction_inside_is_exchanged_for_one_beside_it() {
    const READ: (&str, Option<u8>) = ("mov", None);
    for (code, wanted) in [
        // What comes next, if nothing else leads there.
        (
            "mov (%rdi),%rax\n jmp 1f\n call other\n1: ret\n",
            ("jmp", None),
        ),
        (
            "mov (%rdi),%rax\n lock xadd %rcx,(%rdi)\n nop\n ret\n",
            ("nop", None),
        ),
        // The head of a loop is hit again: what was before, under the condition that leads there.
        (
            " test %rsi,%rsi\n je 2f\n mov (%rdi),%rax\n1: test $1,%al\n jne 1b\n2: ret\n",
            ("je", Some(5)),
        ),
        (
            " push %rbx\n .cfi_adjust_cfa_offset 8\n mov %rdi,%rbx\n mov (%rdi),%rax\n1: test $1,%al\n\
             \x20jne 1b\n pop %rbx\n .cfi_adjust_cfa_offset -8\n ret\n",
            ("push", None),
        ),
        // What is read has changed by then, others see something first, or something is called.
        ("mov (%rdi),%rdi\n nop\n ret\n", READ),
        ("mov (%rdi),%rax\n mov %rax,(%rsi)\n nop\n ret\n", READ),
        (
            "mov (%rdi),%rax\n lock cmpxchg %rcx,(%rdi)\n nop\n ret\n",
            READ,
        ),
        ("mov (%rdi),%rax\n call other\n nop\n ret\n", READ),
    ] {
        let (name, condition) = beside_load(code);
        assert_eq!((name.as_str(), condition), wanted, "{code}");
    }
}

#[test]
fn what_was_loaded_is_still_there_at_the_instruction_behind() {
    for (code, wanted, is_first) in [
        (
            " push %rbx\n mov (%rdi),%rax\n test $1,%al\n je 1f\n call other\n1: ret\n",
            Some("je"),
            true,
        ),
        // It is not any more, or something else may lead there.
        (" mov (%rdi),%rax\n mov %rdi,%rax\n nop\n ret\n", None, true),
        (" mov (%rdi),%rax\n mov %rax,%rdi\n nop\n ret\n", None, true),
        (
            " mov (%rdi),%rax\n1: nop\n test $1,%al\n jne 1b\n ret\n",
            None,
            true,
        ),
        (" mov %rdi,%rax\n mov (%rax),%rax\n nop\n ret\n", None, true),
        // Not each call of the function comes to the load, or one does twice.
        (
            " test %rsi,%rsi\n je 1f\n mov (%rdi),%rax\n nop\n1: ret\n",
            Some("nop"),
            false,
        ),
        (
            "1: mov (%rdi),%rax\n nop\n test $1,%al\n jne 1b\n ret\n",
            Some("nop"),
            true,
        ),
        (
            " nop\n1: mov (%rdi),%rax\n nop\n test $1,%al\n jne 1b\n ret\n",
            Some("nop"),
            false,
        ),
    ] {
        let object = object(code);
        let body = symbols::find(&object, "f").unwrap().unwrap().bodies[0].clone();
        let mut all = decoder(&object, body.clone());
        let is_load = |code: &Instruction| code.op1_kind() == iced_x86::OpKind::Memory;
        let load = all.find(is_load).unwrap();
        let (kept, load) = ([load.memory_base()], load.ip());
        let site = behind_load(&object, load, Register::RAX, &kept);
        let name = site.map(|site| instruction_at(&object, site.address).unwrap().0);
        assert_eq!(name.as_deref(), wanted, "{code}");
        assert_eq!(comes_to(&object, &body, load), is_first, "{code}");
    }
}

#[test]
fn a_switch_whose_index_is_checked_nowhere_leads_no_further_than_its_table() {
    let switch = |entry: &str| {
        let code = format!(
            "mov (%rdi),%rax\n2: nop\n1: movzbl %al,%eax\n lea table(%rip),%rcx\n movslq (%rcx,%rax,4),%rax\n\
             \x20add %rcx,%rax\n jmp *%rax\n3: ret\n .pushsection .rodata\n .p2align 2\ntable:\n .long 3b - table\n\
             \x20.long {entry} - table\n .long 0x7fffffff\n .popsection\n"
        );
        beside_load(&code)
    };
    assert_eq!(switch("1b"), ("nop".to_owned(), None));
    assert_eq!(switch("2b"), ("mov".to_owned(), None));
}
