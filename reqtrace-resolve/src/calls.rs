//! Where one function calls another: the code of both in, the instructions after the calls out.

use std::ops::Range;

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::returns::{Behind, behind_calls, code_of};
use reqtrace_binary::elf::Object;

/// Addresses at which callers go on after a call of a function, a direct one or one through the global offset table, as Rust's
/// from one crate to another are, without optimization by way of a register. Sorted; empty when they call the function not at all,
/// through another pointer only, or in a tail call.
pub(super) fn returns_into(
    object: &Object,
    callers: &[Range<u64>],
    callees: &[Range<u64>],
) -> Behind {
    let mut found = Behind::default();
    for caller in callers {
        let its = calls(object, caller).into_iter();
        let of_these = its.filter(|(_, target)| callees.iter().any(|one| one.start == *target));
        let after: Vec<u64> = of_these.map(|(next, _)| next).collect();
        if !after.is_empty() {
            let Behind { probed, joined } = behind_calls(object, caller, &after);
            found.probed.extend(probed);
            found.joined.extend(joined);
        }
    }
    // Clones can share a cold part.
    for all in [&mut found.probed, &mut found.joined] {
        all.sort_unstable();
        all.dedup();
    }
    found
}

/// The functions that the one with this body calls so.
pub(super) fn callees(object: &Object, body: &Range<u64>) -> Vec<u64> {
    let all = calls(object, body).into_iter();
    all.map(|(_, target)| target).collect()
}

/// The calls in a function and its cold parts: the instruction behind each, and what it calls.
fn calls(object: &Object, body: &Range<u64>) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    let mut loaded = Loaded::default();
    let mut next = body.start;
    for instruction in code_of(object, body) {
        if instruction.ip() != next {
            loaded = Loaded::default();
        }
        next = instruction.next_ip();
        let target = target(object, &instruction).or_else(|| loaded.target(&instruction));
        found.extend(target.map(|target| (next, target)));
        loaded.step(object, &instruction);
    }
    found
}

/// The address of a function that a register was loaded with last, in code without a branch since.
#[derive(Clone, Copy, Debug, Default)]
struct Loaded(Option<(Register, u64)>);

impl Loaded {
    fn target(self, instruction: &Instruction) -> Option<u64> {
        let is_call = instruction.flow_control() == FlowControl::IndirectCall
            && instruction.op0_kind() == OpKind::Register;
        let (register, function) = self.0?;
        (is_call && instruction.op0_register() == register).then_some(function)
    }

    fn step(&mut self, object: &Object, instruction: &Instruction) {
        let written = instruction.op0_register().full_register();
        if instruction.flow_control() != FlowControl::Next {
            self.0 = None;
        } else if instruction.mnemonic() == Mnemonic::Mov
            && instruction.is_ip_rel_memory_operand()
            && written.is_gpr64()
            && let Some(function) = object.in_offset_table(instruction.ip_rel_memory_address())
        {
            self.0 = Some((written, function));
        } else if self.0.is_some_and(|(register, _)| register == written) {
            self.0 = None;
        }
    }
}

/// What an instruction calls, if that is known.
fn target(object: &Object, instruction: &Instruction) -> Option<u64> {
    match instruction.flow_control() {
        FlowControl::Call => Some(instruction.near_branch_target()),
        FlowControl::IndirectCall if instruction.is_ip_rel_memory_operand() => {
            object.in_offset_table(instruction.ip_rel_memory_address())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::fixtures::Fixture;
    use crate::{ResolvedRequest, resolve_file};
    use reqtrace_profile::{Origin, Profile};

    const SERVER: &str = r#"
        __attribute__((noinline)) int read_packet(int a) { asm(""); return a + 1; }
        __attribute__((noinline)) int login(int a) { asm(""); return read_packet(a) + read_packet(2 * a); }
        __attribute__((noinline)) int run(int a) { asm(""); return a * 3; }
        __attribute__((noinline)) int command(int a) { asm(""); a = read_packet(a); return run(a) + 1; }
        int (*pointer)(int) = read_packet;
        __attribute__((noinline)) int any(int a) { return pointer(a) + 1; }
        __attribute__((noinline)) int elsewhere(int a) {
            int result;
            asm volatile("call *read_packet@GOTPCREL(%%rip)" : "=a"(result) : "D"(a) : "memory");
            return result + 1;
        }
        __attribute__((noinline)) int by_register(int a) {
            int result;
            asm volatile("mov read_packet@GOTPCREL(%%rip), %%rax; mov %%edi, %%ecx; call *%%rax"
                : "=a"(result) : "D"(a) : "memory", "rcx");
            asm volatile("mov read_packet@GOTPCREL(%%rip), %%rax; mov pointer(%%rip), %%rax; call *%%rax"
                : "=a"(result) : "D"(result) : "memory", "rcx");
            return result + 1;
        }
        int main(int c, char **v) {
            (void)v;
            return login(c) + command(c) + any(c) + elsewhere(c) + by_register(c);
        }
    "#;

    fn resolve(begin: &str) -> reqtrace_base::error::Result<ResolvedRequest> {
        of(&Fixture::c(SERVER, &["-O2", "-Wl,--no-relax"]), begin)
    }

    fn of(fixture: &Fixture, begin: &str) -> reqtrace_base::error::Result<ResolvedRequest> {
        let text = format!(
            "[profile]\nname = \"p\"\n[[request]]\nname = \"r\"\nbegin = {begin}\n\
             end = {{ function = \"command\", at = \"return\" }}\n"
        );
        let profile = Profile::parse(&text, "p.toml", Origin::BuiltIn).unwrap();
        resolve_file(&profile, fixture.path()).map(|mut profile| profile.requests.remove(0))
    }

    fn called_by(caller: &str) -> String {
        format!("{{ function = \"read_packet\", at = \"return\", called-by = \"{caller}\" }}")
    }

    /// `command`, which calls `read_packet`, with this code in its parts.
    fn command(parts: &[(&str, &str)]) -> reqtrace_base::error::Result<ResolvedRequest> {
        let mut source = ".text\n".to_owned();
        for (name, code) in [("read_packet", " ret")].iter().chain(parts) {
            source.push_str(&format!(
                ".type {name}, @function\n{name}:\n.cfi_startproc\n{code}\n.cfi_endproc\n\
                 .size {name}, .-{name}\n"
            ));
        }
        source.push_str(".section .note.GNU-stack\n");
        of(&Fixture::assembly(&source), &called_by("command"))
    }

    #[test]
    fn where_control_comes_also_without_the_call_is_refused() {
        let skipped = " test %edi,%edi\n je 1f\n call read_packet\n1: nop\n ret";
        let head = " call read_packet\n1: nop\n dec %edi\n jne 1b\n ret";
        let case = " cmp $1,%edi\n ja 4f\n lea 5f(%rip),%rdx\n movslq (%rdx,%rdi,4),%rax\n\
            \x20add %rdx,%rax\n jmp *%rax\n2: call read_packet\n3: nop\n4: ret\n\
            .pushsection .rodata\n.balign 4\n5: .long 2b-5b, 3b-5b\n.popsection";
        for code in [skipped, head, case] {
            let error = command(&[("command", code)]).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            let text = error.to_string();
            assert!(text.contains("also without that call"), "{text}");
        }
        // A jump to the call makes it.
        let again = " nop\n1: call read_packet\n nop\n dec %edi\n jne 1b\n ret";
        assert_eq!(command(&[("command", again)]).unwrap().begin.sites.len(), 1);
    }

    #[test]
    fn two_calls_that_go_on_at_one_place_are_probed_there() {
        let code = " test %edi,%edi\n je 1f\n call read_packet\n jmp 2f\n\
            1: call read_packet\n2: nop\n ret";
        let found = command(&[("command", code)]).unwrap();
        let [site] = found.begin.sites.as_slice() else {
            panic!("{:?}", found.begin.sites);
        };
        assert_eq!(site.instruction, [0x90, 0xc3]);
        // What else comes there makes neither call.
        let joined = code
            .replace("1: call", " call")
            .replace("2: nop", "1:\n2: nop");
        let error = command(&[("command", &joined)]).unwrap_err().to_string();
        assert!(error.contains("also without that call"), "{error}");
    }

    #[test]
    fn calls_in_cold_parts_and_behind_data_are_seen() {
        let hot = " test %edi,%edi\n jne command.cold\n call read_packet\n nop\n ret";
        let cold = " call read_packet\n nop\n ret";
        let found = command(&[("command", hot), ("command.cold", cold)]).unwrap();
        assert_eq!(found.begin.sites.len(), 2);
        // 0x06 is no instruction.
        let data = " jmp 1f\n .byte 0x06\n1: call read_packet\n nop\n ret";
        assert_eq!(command(&[("command", data)]).unwrap().begin.sites.len(), 1);
    }

    #[test]
    fn the_return_of_a_call_is_in_its_caller() {
        let command = resolve(&called_by("command")).unwrap();
        let [site] = command.begin.sites.as_slice() else {
            panic!("{:?}", command.begin.sites);
        };
        let end = &command.end;
        assert!((end.entry_offset..end.sites[0].file_offset).contains(&site.file_offset));
        assert_eq!(command.begin.symbol, "read_packet, called by command");
        assert!(!command.same_frame);
        assert_eq!(resolve(&called_by("login")).unwrap().begin.sites.len(), 2);
    }

    #[test]
    fn a_call_through_the_global_offset_table_is_one() {
        let found = resolve(&called_by("elsewhere")).unwrap();
        assert_eq!(found.begin.sites.len(), 1);
        // The other one is of what the register was loaded with since.
        let found = resolve(&called_by("by_register")).unwrap();
        assert_eq!(found.begin.sites.len(), 1);
        // What a variable points to may change.
        let error = resolve(&called_by("any")).unwrap_err().to_string();
        assert!(error.contains("`any` makes no direct call"), "{error}");
    }

    #[test]
    fn a_caller_that_does_not_call_it_is_named() {
        let error = resolve(&called_by("run")).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        let text = error.to_string();
        assert!(
            text.contains("`run` makes no direct call of `read_packet`"),
            "{text}"
        );
        let error = resolve(&called_by("comand")).unwrap_err().to_string();
        assert!(error.contains("no function `comand`"), "{error}");
    }
}
