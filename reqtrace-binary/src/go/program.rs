//! A program of Go: its sections in, what the runtime knows of its functions out.

use goblin::elf::SectionHeader;
use goblin::elf::section_header::SHT_NOBITS;

use super::{
    Inlined, MODULE_TEXT, TEXT, begins, first_function, functions, half, inlined, tables, version,
    word,
};
use crate::elf::{DefinedSymbols, FileHeader, MAX_SYMBOL_BYTES, ReadAt, Sections, read_section};

/// Where the runtime has what it knows of the program, from 1.26 on in the first one.
const MODULES: [&str; 4] = [".go.module", ".noptrdata", ".data.rel.ro", ".data"];

/// The relocation that puts an address of the object itself in its place, and the bytes of an `Elf64_Rela`.
const R_X86_64_RELATIVE: u32 = 8;
const RELA: usize = 24;

/// The functions that the linker names for the runtime, of a program without `.symtab`.
pub(crate) fn functions_of<S: ReadAt + ?Sized>(
    sections: &Sections,
    source: &S,
) -> Option<DefinedSymbols> {
    if sections.has_symtab() {
        return None;
    }
    let section = table_of(sections)?;
    let table = read_section(source, section, MAX_SYMBOL_BYTES).ok()?;
    let module = sections.contents(source, ".go.module");
    let module = module.as_deref();
    let first = first_of(sections, source, (section, table.as_slice()), module)?;
    functions(&table, module, first)
}

/// The address of the first function. In a program that can be moved the words that say so may be filled only when it is
/// loaded, and with C in it `.text` begins with other code.
fn first_of<S: ReadAt + ?Sized>(
    sections: &Sections,
    source: &S,
    (section, table): (&SectionHeader, &[u8]),
    module: Option<&[u8]>,
) -> Option<u64> {
    first_function(table, module, 0)
        .or_else(|| relocated(sections, source, section))
        .or_else(|| {
            let text = sections.find(".text")?.sh_addr;
            let entry = FileHeader::read(source).ok()?.fields().e_entry;
            begins(table, entry.checked_sub(text)?)?.then_some(text)
        })
}

/// What a relocation puts where `.gopclntab`, or the runtime's module, has the address of the first function.
fn relocated<S: ReadAt + ?Sized>(
    sections: &Sections,
    source: &S,
    table: &SectionHeader,
) -> Option<u64> {
    let module = sections.find(".go.module");
    let places = [
        table.sh_addr.checked_add(TEXT as u64),
        module.and_then(|module| module.sh_addr.checked_add(MODULE_TEXT as u64)),
    ];
    let all = read_section(source, sections.find(".rela.dyn")?, MAX_SYMBOL_BYTES).ok()?;
    let wanted = all.chunks_exact(RELA).find(|rela| {
        let place = word(rela, 0);
        half(rela, 8) == Some(R_X86_64_RELATIVE) && place.is_some() && places.contains(&place)
    });
    word(wanted?, 16).filter(|address| *address != 0)
}

fn table_of(sections: &Sections) -> Option<&SectionHeader> {
    sections
        .find(".gopclntab")
        .or_else(|| sections.find(".data.rel.ro.gopclntab"))
}

/// The calls that the compiler has inlined, as the runtime knows them.
pub(crate) fn inlined_in<S: ReadAt + ?Sized>(sections: &Sections, source: &S) -> Option<Inlined> {
    let table = table_of(sections)?;
    let version = version(&sections.contents(source, ".go.buildinfo")?)?;
    let tables = MODULES.iter().find_map(|name| {
        let bytes = read_section(source, sections.find(name)?, MAX_SYMBOL_BYTES).ok()?;
        tables(&bytes, table.sh_addr, &version)
    })?;
    let within = sections.headers().iter().find(|section| {
        let size = section.sh_size;
        section.sh_type != SHT_NOBITS
            && (section.sh_addr..section.sh_addr.saturating_add(size)).contains(&tables)
    })?;
    let bytes = read_section(source, within, MAX_SYMBOL_BYTES).ok()?;
    let bytes = bytes.get(usize::try_from(tables - within.sh_addr).ok()?..)?;
    let section = table;
    let table = read_section(source, section, MAX_SYMBOL_BYTES).ok()?;
    let module = sections.contents(source, ".go.module");
    let module = module.as_deref();
    let first = first_of(sections, source, (section, table.as_slice()), module)?;
    inlined(&table, module, first, bytes, &version)
}

#[cfg(test)]
mod tests {
    use goblin::elf::ProgramHeader;
    use goblin::elf::section_header::{SHT_PROGBITS, SHT_RELA, SHT_STRTAB};

    use super::super::tests::table;
    use super::*;

    /// A file of these sections (name, kind, address, contents) that begins to run there.
    fn image(sections: &[(&str, u32, u64, Vec<u8>)], entry: u64) -> Vec<u8> {
        const HEADERS: usize = 1024;
        let mut bytes: Vec<u8> = vec![0; HEADERS];
        let mut headers = vec![SectionHeader::default()];
        let mut names: Vec<u8> = vec![0];
        for (name, kind, address, contents) in sections {
            headers.push(SectionHeader {
                sh_name: names.len(),
                sh_type: *kind,
                sh_addr: *address,
                sh_offset: bytes.len() as u64,
                sh_size: contents.len() as u64,
                ..SectionHeader::default()
            });
            names.extend(name.as_bytes());
            names.push(0);
            bytes.extend(contents);
        }
        headers.push(SectionHeader {
            sh_type: SHT_STRTAB,
            sh_offset: bytes.len() as u64,
            sh_size: names.len() as u64,
            ..SectionHeader::default()
        });
        bytes.extend(names);
        let header = FileHeader::shared_object(headers.len());
        let image = header.image(&[ProgramHeader::default()], &headers).unwrap();
        bytes[..image.len()].copy_from_slice(&image);
        bytes[24..32].copy_from_slice(&entry.to_le_bytes());
        bytes
    }

    /// With C in it, `.text` begins with other code, and lld writes no addresses into the words.
    #[test]
    fn a_text_that_begins_with_other_code_names_nothing() {
        const TABLE: u64 = 0x5000;
        let first = |relocation: [u64; 3], entry: u64| {
            let relocation = relocation.iter().flat_map(|word| word.to_le_bytes());
            let sections = [
                (".text", SHT_PROGBITS, 0x9000, Vec::new()),
                (".gopclntab", SHT_PROGBITS, TABLE, table(0)),
                (".rela.dyn", SHT_RELA, 0, relocation.collect()),
            ];
            let image = image(&sections, entry);
            let sections = Sections::read(image.as_slice()).unwrap();
            let found = functions_of(&sections, image.as_slice())?;
            Some(found.symbols[0].address)
        };
        let relative = u64::from(R_X86_64_RELATIVE);
        let (other, place) = (TABLE + 8, TABLE + TEXT as u64);
        // Functions begin at 0 and 0x30.
        assert_eq!(first([other, relative, 0xa000], 0x9030), Some(0x9000));
        assert_eq!(first([other, relative, 0xa000], 0x9010), None);
        assert_eq!(first([other, relative, 0xa000], 0), None);
        assert_eq!(first([place, relative, 0xa000], 0x9010), Some(0xa000));
        assert_eq!(first([place, 6, 0xa000], 0x9010), None);
    }
}
