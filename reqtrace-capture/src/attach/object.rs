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
mod stack;
#[cfg(test)]
mod tests;
