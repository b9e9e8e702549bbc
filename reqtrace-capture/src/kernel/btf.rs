//! Just enough of BTF to find members of structures, arguments of tracepoints and names of enumerations.
//!
//! In: the bytes of `/sys/kernel/btf/vmlinux`, and the names that are wanted. Out: what the kernel has of them,
//! found in one walk. The format is that of `Documentation/bpf/btf.rst` in the kernel's source.

use rustc_hash::FxHashMap;

const MAGIC: u16 = 0xeb9f;
const HEADER_LEN: usize = 24;
const TYPE_LEN: usize = 12;
const MEMBER_LEN: usize = 12;
/// Of a parameter, and of a value of an enumeration.
const PARAMETER_LEN: usize = 8;
/// How deep anonymous structures are followed.
const MAX_NESTING: u32 = 16;

const KIND_INTEGER: u32 = 1;
const KIND_POINTER: u32 = 2;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_ENUM: u32 = 6;
const KIND_TYPEDEF: u32 = 8;
const KIND_PROTOTYPE: u32 = 13;
const KIND_SECTION: u32 = 15;
/// Volatile, constant, restricted: no types of their own.
const QUALIFIERS: std::ops::RangeInclusive<u32> = 9..=11;

/// The types of a BTF file.
pub(super) struct Types<'a> {
    strings: &'a [u8],
    types: Vec<Type<'a>>,
    /// Places in `types` of those that have a wanted name.
    named: FxHashMap<&'a [u8], Vec<usize>>,
}

/// What a tracepoint hands to a program, as far as programs tell arguments apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Argument {
    /// A pointer to a structure of this name.
    Pointer(String),
    /// A number of so many bytes.
    Number(u32),
    /// Anything else.
    Other,
}

#[derive(Clone, Copy)]
struct Type<'a> {
    name: u32,
    kind: u32,
    /// Members carry a bit-field size in the upper byte of their offset.
    kind_flag: bool,
    /// Its size in bytes, or the type that it refers to.
    size_or_type: u32,
    tail: &'a [u8],
}

impl<'a> Types<'a> {
    /// Reads all type headers, and notes where the types of these names are.
    ///
    /// # Errors
    ///
    /// A sentence on what is malformed.
    pub(super) fn parse(data: &'a [u8], wanted: impl Fn(&[u8]) -> bool) -> Result<Self, String> {
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
            size_or_type: 0,
            tail: &[],
        }];
        let mut named: FxHashMap<&[u8], Vec<usize>> = FxHashMap::default();
        while !rest.is_empty() {
            let (name, info) = word(rest, 0)
                .zip(word(rest, 4))
                .ok_or("a BTF type is cut off")?;
            let size_or_type = word(rest, 8).ok_or("a BTF type is cut off")?;
            let kind = (info >> 24) & 0x1f;
            let tail_len = tail_len(kind, (info & 0xffff) as usize)
                .ok_or_else(|| format!("BTF type {} has the unknown kind {kind}", types.len()))?;
            let tail = rest
                .get(TYPE_LEN..TYPE_LEN + tail_len)
                .ok_or("a BTF type is cut off")?;
            let text = string(strings, name);
            if matches!(kind, KIND_STRUCT | KIND_ENUM | KIND_TYPEDEF | KIND_SECTION) && wanted(text)
            {
                named.entry(text).or_default().push(types.len());
            }
            types.push(Type {
                name,
                kind,
                kind_flag: info >> 31 != 0,
                size_or_type,
                tail,
            });
            rest = &rest[TYPE_LEN + tail_len..];
        }
        Ok(Self {
            strings,
            types,
            named,
        })
    }

    /// All types of a kind with a name that was wanted.
    fn named(&self, kind: u32, name: &str) -> impl Iterator<Item = &Type<'a>> {
        let places = self.named.get(name.as_bytes());
        let types = places.into_iter().flatten().map(|&at| &self.types[at]);
        types.filter(move |ty| ty.kind == kind)
    }

    /// Byte offset of a member, also inside anonymous structures and unions, or of a variable in a section of the kernel. `None`
    /// when there is none, or it is a bit field.
    pub(super) fn member_offset(&self, structure: &str, member: &str) -> Option<u32> {
        self.named(KIND_STRUCT, structure)
            .find_map(|ty| self.find(ty, member.as_bytes(), 0))
            .or_else(|| self.variable_offset(structure, member))
    }

    /// Byte offset of a variable in a section of the kernel.
    fn variable_offset(&self, section: &str, variable: &str) -> Option<u32> {
        let mut sections = self.named(KIND_SECTION, section);
        let mut variables = sections.next()?.tail.chunks_exact(MEMBER_LEN);
        variables.find_map(|it| {
            let ty = self.types.get(word(it, 0)? as usize)?;
            (self.string(ty.name) == variable.as_bytes()).then(|| word(it, 4))?
        })
    }

    /// What a tracepoint hands to a program; `None` when there is no such tracepoint.
    pub(super) fn tracepoint(&self, name: &str) -> Option<Vec<Argument>> {
        // A pointer to a function; its first argument is the tracepoint's own.
        let name = typedef_of(name);
        let typedef = self.named(KIND_TYPEDEF, &name).next()?;
        let pointer = self.types.get(typedef.size_or_type as usize)?;
        let function = self.types.get(pointer.size_or_type as usize)?;
        if (pointer.kind, function.kind) != (KIND_POINTER, KIND_PROTOTYPE) {
            return None;
        }
        let arguments = function.tail.chunks_exact(PARAMETER_LEN).skip(1);
        Some(arguments.map(|it| self.argument(it)).collect())
    }

    /// Whether an enumeration has this name among its values.
    pub(super) fn has_value(&self, enumeration: &str, value: &str) -> bool {
        self.named(KIND_ENUM, enumeration).any(|ty| {
            let mut values = ty.tail.chunks_exact(PARAMETER_LEN);
            values.any(|it| word(it, 0).is_some_and(|at| self.string(at) == value.as_bytes()))
        })
    }

    fn argument(&self, parameter: &[u8]) -> Argument {
        let type_of = |id: u32| self.real_type(id);
        let Some(ty) = word(parameter, 4).and_then(type_of) else {
            return Argument::Other;
        };
        match ty.kind {
            KIND_INTEGER => Argument::Number(ty.size_or_type),
            KIND_POINTER => match type_of(ty.size_or_type) {
                Some(to) if to.kind == KIND_STRUCT => {
                    Argument::Pointer(String::from_utf8_lossy(self.string(to.name)).into_owned())
                }
                _ => Argument::Other,
            },
            _ => Argument::Other,
        }
    }

    /// What a type is called for, without qualifiers and other names of it.
    fn real_type(&self, mut id: u32) -> Option<&Type<'a>> {
        for _ in 0..MAX_NESTING {
            let ty = self.types.get(id as usize)?;
            if ty.kind != KIND_TYPEDEF && !QUALIFIERS.contains(&ty.kind) {
                return Some(ty);
            }
            id = ty.size_or_type;
        }
        None
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
        string(self.strings, offset)
    }
}

/// The type that a tracepoint has in BTF.
pub(super) fn typedef_of(tracepoint: &str) -> String {
    format!("btf_trace_{tracepoint}")
}

fn string(strings: &[u8], offset: u32) -> &[u8] {
    let rest = strings.get(offset as usize..).unwrap_or(&[]);
    rest.split(|&byte| byte == 0).next().unwrap_or(&[])
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
        KIND_STRUCT | KIND_UNION | KIND_SECTION | 19 => members * 12,
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
pub(super) mod tests {
    use super::*;

    /// BTF of these types; `name` of a string is its offset.
    fn btf(strings: &[u8], words: &[Vec<u32>]) -> Vec<u8> {
        let types: Vec<u8> = words
            .iter()
            .flatten()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        let len = types.len() as u32;
        let header = [24, 0, len, len, strings.len() as u32];
        let mut data = vec![0x9f, 0xeb, 1, 0];
        data.extend(header.iter().flat_map(|word| word.to_le_bytes()));
        data.extend(types);
        data.extend(strings);
        data
    }

    fn head(kind: u32, count: u32) -> u32 {
        kind << 24 | count
    }

    /// `struct task_struct { int state; struct { int pid; int flag:1; }; int tgid; }`,
    /// `enum helper { HELPER_loop }`, and the tracepoint `switch(const int, struct task_struct *)`.
    pub(in super::super) fn sample() -> Vec<u8> {
        let strings =
            b"\0int\0task_struct\0state\0pid\0tgid\0flag\0helper\0HELPER_loop\0btf_trace_switch\0";
        let at = |name: &str| {
            let needle = [name.as_bytes(), b"\0"].concat();
            let mut windows = strings.windows(needle.len());
            windows.position(|window| window == needle).unwrap() as u32
        };
        let flagged = 1 << 31 | head(KIND_STRUCT, 2);
        let inner = [at("pid"), 1, 0, at("flag"), 1, 1 << 24 | 32];
        let outer = [at("state"), 1, 0, 0, 2, 32, at("tgid"), 1, 96];
        btf(
            strings,
            &[
                vec![at("int"), head(KIND_INTEGER, 0), 4, 32],
                [&[0, flagged, 8][..], &inner].concat(),
                [&[at("task_struct"), head(KIND_STRUCT, 3), 16][..], &outer].concat(),
                vec![at("helper"), head(KIND_ENUM, 1), 4, at("HELPER_loop"), 7],
                vec![0, head(KIND_POINTER, 0), 3],
                vec![0, head(10, 0), 1],
                vec![0, head(KIND_PROTOTYPE, 3), 0, 0, 5, 0, 6, 0, 5],
                vec![0, head(KIND_POINTER, 0), 7],
                vec![at("btf_trace_switch"), head(KIND_TYPEDEF, 0), 8],
            ],
        )
    }

    fn parse(data: &[u8]) -> Result<Types<'_>, String> {
        Types::parse(data, |name| !name.is_empty())
    }

    #[test]
    fn members_are_found_inside_anonymous_structures() {
        let data = sample();
        let types = parse(&data).unwrap();
        assert_eq!(types.member_offset("task_struct", "state"), Some(0));
        assert_eq!(types.member_offset("task_struct", "pid"), Some(4));
        assert_eq!(types.member_offset("task_struct", "tgid"), Some(12));
        assert_eq!(types.member_offset("task_struct", "flag"), None);
        assert_eq!(types.member_offset("task_struct", "missing"), None);
        assert_eq!(types.member_offset("missing", "pid"), None);
    }

    #[test]
    fn arguments_and_values_are_found() {
        let data = sample();
        let types = parse(&data).unwrap();
        let task = Argument::Pointer("task_struct".to_owned());
        assert_eq!(
            types.tracepoint("switch"),
            Some(vec![Argument::Number(4), task])
        );
        assert_eq!(types.tracepoint("wake"), None);
        assert!(types.has_value("helper", "HELPER_loop"));
        assert!(!types.has_value("helper", "HELPER_other"));
        assert!(!types.has_value("task_struct", "pid"));
    }

    #[test]
    fn what_is_not_wanted_is_not_kept() {
        let data = sample();
        let types = Types::parse(&data, |name| name == b"helper").unwrap();
        assert!(types.has_value("helper", "HELPER_loop"));
        assert_eq!(types.member_offset("task_struct", "pid"), None);
    }

    #[test]
    fn cut_off_data_is_an_error_or_has_less() {
        let data = sample();
        for len in 0..data.len() {
            if let Ok(types) = parse(&data[..len]) {
                let _ = types.member_offset("task_struct", "tgid");
                let _ = types.tracepoint("switch");
            }
        }
        assert!(parse(b"\x7fELF....................").is_err());
    }
}
