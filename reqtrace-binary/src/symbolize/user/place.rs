//! Where an address lies: a process and an address in, the mapped object and the offset in it out.

use super::{ANONYMOUS, AddressSpace, Behind, FileKey, UserSymbols, clean, maps};

/// What is mapped: the same in every process that has it, where that is known.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ObjectKey {
    /// An ELF file, by device and inode, and its path.
    File(FileKey),
    /// A name of the kernel's without its brackets, such as `vdso`.
    Special(String),
    /// Memory of one process: without a file, or with one that is no ELF file. Offsets are addresses.
    Own(AddressSpace, String),
}

impl ObjectKey {
    /// Its path, `[vdso]` and the like, or nothing for memory without a file.
    #[must_use]
    pub fn path(&self) -> String {
        match self {
            Self::File((_, _, path)) => path.to_string_lossy().into_owned(),
            Self::Own(_, path) => path.clone(),
            Self::Special(name) => format!("[{name}]"),
        }
    }
}

/// Where an address lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// What is mapped there.
    pub object: ObjectKey,
    /// Offset of the address in it, bytes.
    pub offset: u64,
    /// First address of the mapping.
    pub start: u64,
    /// Behind its last address.
    pub end: u64,
    /// Offset of its first address in the object, bytes.
    pub start_offset: u64,
}

/// Where an address lies in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFile {
    /// Which file.
    pub file: maps::FileKey,
    /// Offset of the address in it, bytes.
    pub offset: u64,
    /// The address as it was linked.
    pub linked: u64,
}

impl Place {
    /// What stands for a name when none is looked for: the object's file and the offset in it.
    #[must_use]
    pub fn without_name(&self) -> String {
        let path = self.object.path();
        if path.is_empty() {
            return ANONYMOUS.to_owned();
        }
        let file = path.rsplit('/').next().unwrap_or(&path);
        format!(
            "[{}@{:#x}]",
            clean(file.trim_matches(['[', ']'])),
            self.offset
        )
    }
}

impl UserSymbols {
    /// Where an address lies; `None` when nothing that is known is mapped there.
    #[must_use]
    pub fn place(&self, space: AddressSpace, address: u64, is_return: bool) -> Option<Place> {
        let looked_up = address.saturating_sub(u64::from(is_return));
        let (mapping, module) = self.find(space, looked_up)?;
        let in_mapping = address - mapping.start;
        let is_elf = module.as_ref().is_some_and(|module| module.is_elf());
        let (object, offset) = match mapping.behind() {
            Behind::File if is_elf => (
                ObjectKey::File((mapping.device, mapping.inode, mapping.name.clone())),
                in_mapping + mapping.offset,
            ),
            Behind::File => {
                let path = mapping.path().into_owned();
                (ObjectKey::Own(space, path), address)
            }
            Behind::Special(name) => (ObjectKey::Special(name.to_owned()), in_mapping),
            Behind::Nothing => (ObjectKey::Own(space, String::new()), address),
        };
        Some(Place {
            object,
            offset,
            start_offset: offset.wrapping_sub(in_mapping),
            start: mapping.start,
            end: mapping.end,
        })
    }

    /// The file that is mapped at an address; `None` when none is known to be.
    #[must_use]
    pub fn in_file(&self, space: AddressSpace, address: u64) -> Option<InFile> {
        let (mapping, module) = self.find(space, address)?;
        let module = module.as_ref().filter(|module| module.is_elf())?;
        let offset = address - mapping.start + mapping.offset;
        Some(InFile {
            file: module.key()?,
            offset,
            linked: module.virtual_address(offset),
        })
    }

    /// The build id of a file; empty when it has none.
    #[must_use]
    pub fn build_id(&self, object: &ObjectKey) -> Vec<u8> {
        let ObjectKey::File(key) = object else {
            return Vec::new();
        };
        let module = self.modules.get(key);
        module.map_or_else(Vec::new, |module| module.build_id().to_vec())
    }
}
