//! Just enough of BTF to find the offset of a member of a kernel structure.
//!
//! In: the bytes of `/sys/kernel/btf/vmlinux`. Out: byte offsets. The format is that of
//! `Documentation/bpf/btf.rst` in the kernel's source.

const MAGIC: u16 = 0xeb9f;
const HEADER_LEN: usize = 24;
const TYPE_LEN: usize = 12;
const MEMBER_LEN: usize = 12;
/// How deep anonymous structures are followed.
const MAX_NESTING: u32 = 16;

const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_TYPEDEF: u32 = 8;

/// The types of a BTF file.
pub struct Types<'a> {
    strings: &'a [u8],
    types: Vec<Type<'a>>,
}

#[derive(Clone, Copy)]
struct Type<'a> {
    name: u32,
    kind: u32,
    /// Members carry a bit-field size in the upper byte of their offset.
    kind_flag: bool,
    tail: &'a [u8],
}

impl<'a> Types<'a> {
    /// Reads all type headers.
    ///
    /// # Errors
    ///
    /// A sentence on what is malformed.
    pub fn parse(data: &'a [u8]) -> Result<Self, String> {
        let header = data
            .get(..HEADER_LEN)
            .ok_or("BTF is shorter than its header")?;
        let magic = u16::from_le_bytes([header[0], header[1]]);
        if magic != MAGIC {
            return Err(format!(
                "BTF begins with {magic:#06x} instead of {MAGIC:#06x}"
            ));
        }
        let field = |index: usize| word(data, 4 + 4 * index).unwrap_or(0) as usize;
        let (base, type_off, type_len) = (field(0), field(1), field(2));
        let (str_off, str_len) = (field(3), field(4));
        let section = |offset: usize, len: usize, name: &str| {
            let start = base.checked_add(offset).ok_or("BTF offset overflows")?;
            let end = start.checked_add(len).ok_or("BTF offset overflows")?;
            data.get(start..end)
                .ok_or_else(|| format!("BTF's {name} are cut off"))
        };
        let mut rest = section(type_off, type_len, "types")?;
        let strings = section(str_off, str_len, "strings")?;
        // Type ids start at 1; 0 is void.
        let mut types = vec![Type {
            name: 0,
            kind: 0,
            kind_flag: false,
            tail: &[],
        }];
        while !rest.is_empty() {
            let (name, info) = word(rest, 0)
                .zip(word(rest, 4))
                .ok_or("a BTF type is cut off")?;
            let kind = (info >> 24) & 0x1f;
            let tail_len = tail_len(kind, (info & 0xffff) as usize)
                .ok_or_else(|| format!("BTF type {} has the unknown kind {kind}", types.len()))?;
            let tail = rest
                .get(TYPE_LEN..TYPE_LEN + tail_len)
                .ok_or("a BTF type is cut off")?;
            types.push(Type {
                name,
                kind,
                kind_flag: info >> 31 != 0,
                tail,
            });
            rest = &rest[TYPE_LEN + tail_len..];
        }
        Ok(Self { strings, types })
    }

    /// Byte offset of a member, also inside anonymous structures and unions. `None` when there is
    /// no such member, or it is a bit field.
    #[must_use]
    pub fn member_offset(&self, structure: &str, member: &str) -> Option<u32> {
        self.types
            .iter()
            .filter(|ty| ty.kind == KIND_STRUCT && self.string(ty.name) == structure.as_bytes())
            .find_map(|ty| self.find(ty, member.as_bytes(), 0))
    }

    /// Whether there is a typedef of this name.
    #[must_use]
    pub fn has_typedef(&self, name: &str) -> bool {
        self.types
            .iter()
            .any(|ty| ty.kind == KIND_TYPEDEF && self.string(ty.name) == name.as_bytes())
    }

    fn find(&self, ty: &Type<'a>, wanted: &[u8], depth: u32) -> Option<u32> {
        if depth > MAX_NESTING {
            return None;
        }
        for member in ty.tail.chunks_exact(MEMBER_LEN) {
            let (name, type_id, offset) = (word(member, 0)?, word(member, 4)?, word(member, 8)?);
            let (bits, bit_field) = if ty.kind_flag {
                (offset & 0x00ff_ffff, offset >> 24)
            } else {
                (offset, 0)
            };
            if self.string(name) == wanted {
                return (bit_field == 0 && bits % 8 == 0).then_some(bits / 8);
            }
            if !self.string(name).is_empty() {
                continue;
            }
            let inner = self.types.get(type_id as usize)?;
            if matches!(inner.kind, KIND_STRUCT | KIND_UNION)
                && let Some(found) = self.find(inner, wanted, depth + 1)
            {
                return Some(bits / 8 + found);
            }
        }
        None
    }

    fn string(&self, offset: u32) -> &'a [u8] {
        let rest = self.strings.get(offset as usize..).unwrap_or(&[]);
        rest.split(|&byte| byte == 0).next().unwrap_or(&[])
    }
}

/// Bytes that follow the common part of a type.
fn tail_len(kind: u32, members: usize) -> Option<usize> {
    Some(match kind {
        // pointer, forward, typedef, volatile, const, restrict, function, float, type tag
        2 | 7..=12 | 16 | 18 => 0,
        // integer, variable, declaration tag
        1 | 14 | 17 => 4,
        // array
        3 => 12,
        // structure, union, data section, 64-bit enumeration
        KIND_STRUCT | KIND_UNION | 15 | 19 => members * 12,
        // enumeration, function prototype
        6 | 13 => members * 8,
        _ => return None,
    })
}

fn word(data: &[u8], offset: usize) -> Option<u32> {
    let bytes = data.get(offset..offset.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `struct task_struct { int state; struct { int pid; int flag:1; }; int tgid; }`
    fn sample() -> Vec<u8> {
        let strings = b"\0int\0task_struct\0state\0pid\0tgid\0flag\0";
        let at = |name: &str| {
            let needle = [name.as_bytes(), b"\0"].concat();
            strings
                .windows(needle.len())
                .position(|w| w == needle)
                .unwrap() as u32
        };
        let structure =
            |kind_flag: u32, members: u32| kind_flag << 31 | KIND_STRUCT << 24 | members;
        let words = [
            vec![at("int"), 1 << 24, 4, 32],
            vec![
                0,
                structure(1, 2),
                8,
                at("pid"),
                1,
                0,
                at("flag"),
                1,
                1 << 24 | 32,
            ],
            vec![
                at("task_struct"),
                structure(0, 3),
                16,
                at("state"),
                1,
                0,
                0,
                2,
                32,
                at("tgid"),
                1,
                96,
            ],
        ]
        .concat();
        let types: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let header = [
            24,
            0,
            types.len() as u32,
            types.len() as u32,
            strings.len() as u32,
        ];
        let mut data = vec![0x9f, 0xeb, 1, 0];
        data.extend(header.iter().flat_map(|word| word.to_le_bytes()));
        data.extend(types);
        data.extend(strings);
        data
    }

    #[test]
    fn members_are_found_inside_anonymous_structures() {
        let data = sample();
        let types = Types::parse(&data).unwrap();
        assert_eq!(types.member_offset("task_struct", "state"), Some(0));
        assert_eq!(types.member_offset("task_struct", "pid"), Some(4));
        assert_eq!(types.member_offset("task_struct", "tgid"), Some(12));
        assert_eq!(types.member_offset("task_struct", "flag"), None);
        assert_eq!(types.member_offset("task_struct", "missing"), None);
        assert_eq!(types.member_offset("missing", "pid"), None);
    }

    #[test]
    fn cut_off_data_is_an_error_or_has_less() {
        let data = sample();
        for len in 0..data.len() {
            if let Ok(types) = Types::parse(&data[..len]) {
                let _ = types.member_offset("task_struct", "tgid");
            }
        }
        assert!(Types::parse(b"\x7fELF....................").is_err());
    }
}
