//! Where one function calls another: the code of both in, the instructions after the calls out.

use std::ops::Range;

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::instructions::decoder;
use reqtrace_binary::elf::Object;

/// Addresses at which a caller goes on after a call of a function, a direct one or one through the global offset table, as Rust's
/// from one crate to another are, without optimization by way of a register. Sorted; empty when it calls the function not at all,
/// through another pointer only, or in a tail call.
pub(super) fn returns_into(
    object: &Object,
    callers: &[Range<u64>],
    callees: &[Range<u64>],
) -> Vec<u64> {
    let mut after = Vec::new();
    for caller in callers {
        let its = calls(object, caller.clone()).into_iter();
        let of_these = its.filter(|(_, target)| callees.iter().any(|one| one.start == *target));
        after.extend(of_these.map(|(next, _)| next));
    }
    after.sort_unstable();
    after.dedup();
    after
}

/// The functions that code calls so.
pub(super) fn callees(object: &Object, code: Range<u64>) -> Vec<u64> {
    let all = calls(object, code).into_iter();
    all.map(|(_, target)| target).collect()
}

/// The calls in code: the instruction behind each, and what it calls.
fn calls(object: &Object, code: Range<u64>) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    let mut loaded = Loaded::default();
    for instruction in decoder(object, code) {
        if instruction.is_invalid() {
            break;
        }
        let target = target(object, &instruction).or_else(|| loaded.target(&instruction));
        found.extend(target.map(|target| (instruction.next_ip(), target)));
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
        let fixture = Fixture::c(SERVER, &["-O2", "-Wl,--no-relax"]);
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
