//! The kernel objects that are built into this program.
//!
//! In: the bytes that the build script made. Out: the same bytes, their ABI version checked.

use goblin::elf::Elf;

use reqtrace_base::error::{Error, Result};

/// The tracer, aligned as an ELF file must be.
pub(super) static OBJECT: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/reqtrace-ebpf"));

/// The program that only counts.
pub(super) static COUNT_OBJECT: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/reqtrace-count"));

/// Checks that an object speaks the same records and maps as this program.
///
/// # Errors
///
/// When it was built from another version of `reqtrace-common`.
pub(super) fn check_abi(object: &[u8]) -> Result<()> {
    let found = abi_version(object);
    if found == Some(reqtrace_common::ABI_VERSION) {
        return Ok(());
    }
    Err(Error::failed(format!(
        "the kernel programs have ABI version {found:?}, this program has {}",
        reqtrace_common::ABI_VERSION
    ))
    .next("build both again: cargo clean && cargo build --release"))
}

fn abi_version(object: &[u8]) -> Option<u32> {
    let elf = Elf::parse(object).ok()?;
    let symbol = elf
        .syms
        .iter()
        .find(|symbol| elf.strtab.get_at(symbol.st_name) == Some("ABI_VERSION"))?;
    let section = elf.section_headers.get(symbol.st_shndx)?;
    let start = usize::try_from(section.sh_offset.checked_add(symbol.st_value)?).ok()?;
    let bytes = object.get(start..start.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use aya_obj::generated::bpf_func_id::BPF_FUNC_tail_call;
    use aya_obj::{Object, ProgramSection};

    use super::*;

    /// `BPF_JMP | BPF_CALL`.
    const CALL: u8 = 0x85;

    #[test]
    fn programs_on_uprobes_have_no_stack_that_is_the_cpus() {
        let mut names = Vec::new();
        for object in [OBJECT, COUNT_OBJECT] {
            let object = Object::parse(object).unwrap();
            for (name, program) in &object.programs {
                let is_of_uprobe = matches!(
                    program.section,
                    ProgramSection::UProbe { .. } | ProgramSection::URetProbe { .. }
                );
                if !is_of_uprobe {
                    continue;
                }
                let function = &object.functions[&program.function_key()];
                let mut instructions = function.instructions.iter();
                let has_tail_call = instructions.any(|one| {
                    (one.code, one.src_reg()) == (CALL, 0) && one.imm == BPF_FUNC_tail_call as i32
                });
                assert!(has_tail_call, "{name}");
                names.push(name.clone());
            }
        }
        assert_eq!(names.len(), 11, "{names:?}");
    }

    #[test]
    fn the_objects_have_the_version_of_this_program() {
        check_abi(OBJECT).unwrap();
        check_abi(COUNT_OBJECT).unwrap();
        assert_eq!(abi_version(b"not an object"), None);
    }
}
