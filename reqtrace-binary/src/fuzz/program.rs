//! What is to be odd in, an ELF file with a symbol table and debug information that are so out.

use std::io;
use std::iter::repeat_n;

use goblin::elf::program_header::{PF_R, PF_X, PT_LOAD};
use goblin::elf::section_header::{SHT_PROGBITS, SHT_STRTAB, SHT_SYMTAB};
use goblin::elf::{ProgramHeader, SectionHeader};

use crate::elf::FileHeader;

/// Where the function `f` is, and how long.
const ADDRESS: u64 = 0x1100;
const SIZE: u64 = 64;
const HEADER: usize = 64;
const PROGRAM: usize = 56;
const SECTION: usize = 64;
/// The section of the names of sections, the last one.
const NAMES: &str = ".shstrtab";

/// A program with a function `f`, into which `g` is inlined.
#[derive(Clone, Copy, Debug, Default)]
pub struct Program {
    /// How many functions without a name are inlined into each other, in `f`.
    pub depth: u32,
    /// A file that is named as supplement of its debug information.
    pub supplement: Option<&'static str>,
    /// Whether another function, at [`WRAPS`], ends behind the last address, by its symbol and by its debug
    /// information.
    pub wraps: bool,
}

/// Where that function begins.
pub const WRAPS: u64 = 0x2000;

impl Program {
    /// The bytes of the file.
    ///
    /// # Errors
    ///
    /// None, unless headers cannot be written.
    pub fn image(self) -> io::Result<Vec<u8>> {
        let mut symbols = vec![0; 24];
        // Its name, a function for other objects too, in section 1.
        let symbol = [1, 0, 0, 0, 0x12, 0, 1, 0];
        symbols.extend(symbol);
        symbols.extend(place(ADDRESS, SIZE));
        if self.wraps {
            symbols.extend(symbol);
            symbols.extend(place(WRAPS, u64::MAX));
        }
        let mut sections = vec![
            (".text", SHT_PROGBITS, vec![0x90; SIZE as usize]),
            (".symtab", SHT_SYMTAB, symbols),
            (".strtab", SHT_STRTAB, b"\0f\0".to_vec()),
            (".debug_info", SHT_PROGBITS, info(self.depth, self.wraps)),
            (".debug_abbrev", SHT_PROGBITS, abbreviations(0)),
            (".debug_line", SHT_PROGBITS, lines()),
        ];
        if let Some(path) = self.supplement {
            // Version 5, not itself a supplement, no checksum.
            let link = [b"\x05\0\0", path.as_bytes(), b"\0\0"].concat();
            sections.push((".debug_sup", SHT_PROGBITS, link));
        }
        // Made of the names of all.
        sections.push((NAMES, SHT_STRTAB, Vec::new()));
        image(&sections)
    }
}

fn place(address: u64, size: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&address.to_le_bytes());
    bytes[8..].copy_from_slice(&size.to_le_bytes());
    bytes
}

/// `.debug_info` of a unit with these functions.
pub(crate) fn info(depth: u32, wraps: bool) -> Vec<u8> {
    // Version 4, its abbreviations at 0, addresses of 8 bytes.
    let mut unit = vec![4, 0, 0, 0, 0, 0, 8];
    unit.push(1);
    unit.extend(place(ADDRESS, SIZE));
    unit.extend([0; 4]);
    unit.push(2);
    unit.extend(place(ADDRESS, SIZE));
    unit.extend(b"f\0");
    unit.push(4);
    unit.extend(place(ADDRESS, SIZE));
    unit.extend(b"g\0");
    unit.extend(repeat_n(3, depth as usize));
    unit.extend(repeat_n(0, depth as usize + 1));
    if wraps {
        unit.push(2);
        unit.extend(place(WRAPS, u64::MAX));
        unit.extend(b"h\0\0");
    }
    unit.push(0);
    let length = u32::try_from(unit.len()).unwrap_or(u32::MAX);
    [&length.to_le_bytes(), unit.as_slice()].concat()
}

/// `.debug_abbrev` of it. Functions that are inlined have so many attributes without contents.
pub(crate) fn abbreviations(attributes: usize) -> Vec<u8> {
    const UNIT: u8 = 0x11;
    const FUNCTION: u8 = 0x2e;
    const INLINED: u8 = 0x1d;
    const CHILDREN: u8 = 1;
    const LOW_PC_AS_ADDRESS: [u8; 2] = [0x11, 0x01];
    const LINES_AS_OFFSET: [u8; 2] = [0x10, 0x17];
    const HIGH_PC_AS_SIZE: [u8; 2] = [0x12, 0x07];
    const NAME_AS_STRING: [u8; 2] = [0x03, 0x08];
    const ARTIFICIAL_AS_FLAG: [u8; 2] = [0x34, 0x19];
    const END: [u8; 2] = [0, 0];
    let place = [LOW_PC_AS_ADDRESS, HIGH_PC_AS_SIZE].concat();
    let unit = [
        &[1, UNIT, CHILDREN],
        place.as_slice(),
        &LINES_AS_OFFSET,
        &END,
    ]
    .concat();
    let function = [
        &[2, FUNCTION, CHILDREN],
        place.as_slice(),
        &NAME_AS_STRING,
        &END,
    ]
    .concat();
    let flags = ARTIFICIAL_AS_FLAG.repeat(attributes);
    let inlined = [&[3, INLINED, CHILDREN], flags.as_slice(), &END].concat();
    let named = [&[4, INLINED, 0], place.as_slice(), &NAME_AS_STRING, &END].concat();
    [unit, function, inlined, named, vec![0]].concat()
}

/// `.debug_line`: one line of `f.c`. blazesym looks for inlined functions only where it knows the line.
fn lines() -> Vec<u8> {
    // One byte an instruction, one operation each, lines from -5 in steps of 14, opcodes from 13.
    let mut header = vec![1, 1, 1, 0xfb, 14, 13];
    header.extend([0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1]);
    // No folder; a file in folder 0.
    header.extend(b"\0f.c\0\0\0\0\0");
    let address = ADDRESS.to_le_bytes();
    // Set the address, a row, as many bytes further, the end.
    let rows = [&[0, 9, 2], address.as_slice(), &[1, 2, SIZE as u8, 0, 1, 1]].concat();
    let after = u32::try_from(header.len())
        .unwrap_or(u32::MAX)
        .to_le_bytes();
    let unit = [&[4, 0], after.as_slice(), &header, &rows].concat();
    let length = u32::try_from(unit.len()).unwrap_or(u32::MAX);
    [&length.to_le_bytes(), unit.as_slice()].concat()
}

/// A file of these sections, the first of which is loaded.
fn image(contents: &[(&str, u32, Vec<u8>)]) -> io::Result<Vec<u8>> {
    let names: Vec<u8> = contents
        .iter()
        .flat_map(|(name, ..)| [name.as_bytes(), b"\0"].concat())
        .collect();
    let count = contents.len() + 1;
    let mut bytes = vec![0; HEADER + PROGRAM + count * SECTION];
    let mut headers = vec![SectionHeader::default()];
    let mut name = 0;
    for (own, kind, content) in contents {
        let content = if *own == NAMES { &names } else { content };
        headers.push(SectionHeader {
            sh_name: name,
            sh_type: *kind,
            sh_offset: bytes.len() as u64,
            sh_size: content.len() as u64,
            ..SectionHeader::default()
        });
        name += own.len() + 1;
        bytes.extend(content);
    }
    let loaded = ProgramHeader {
        p_type: PT_LOAD,
        p_flags: PF_R | PF_X,
        p_offset: headers[1].sh_offset,
        p_vaddr: ADDRESS,
        p_filesz: SIZE,
        p_memsz: SIZE,
        ..ProgramHeader::default()
    };
    let image = FileHeader::shared_object(headers.len()).image(&[loaded], &headers)?;
    bytes[..image.len()].copy_from_slice(&image);
    Ok(bytes)
}
