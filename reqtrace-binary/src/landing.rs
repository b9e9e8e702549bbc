//! Landing pads: the exception table of a function (`.gcc_except_table`) in, the addresses at which
//! an exception may enter it out.

/// Encodings of the table (DWARF exception header encoding, Linux Standard Base).
const OMIT: u8 = 0xff;
const FORMAT: u8 = 0x0f;
const APPLICATION: u8 = 0x70;
const PC_RELATIVE: u8 = 0x10;

/// The landing pads in the table `bytes`, which stands at `address` and belongs to the code that
/// begins at `function`. `None` when it is not understood.
pub(super) fn landing_pads(bytes: &[u8], address: u64, function: u64) -> Option<Vec<u64>> {
    let mut reader = Reader {
        bytes,
        address,
        at: 0,
    };
    let base = match reader.byte()? {
        OMIT => function,
        encoding => reader.pointer(encoding)?,
    };
    if reader.byte()? != OMIT {
        reader.uleb()?;
    }
    let encoding = reader.byte()?;
    let length = usize::try_from(reader.uleb()?).ok()?;
    let end = reader.at.checked_add(length)?;
    if end > bytes.len() || encoding & APPLICATION != 0 {
        return None;
    }
    let mut pads = Vec::new();
    while reader.at < end {
        reader.pointer(encoding)?;
        reader.pointer(encoding)?;
        let pad = reader.pointer(encoding)?;
        reader.uleb()?;
        if pad != 0 {
            pads.push(base.wrapping_add(pad));
        }
    }
    Some(pads)
}

struct Reader<'a> {
    bytes: &'a [u8],
    address: u64,
    at: usize,
}

impl Reader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn uleb(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        let mut shift = 0;
        loop {
            let byte = self.byte()?;
            if shift > 63 {
                return None;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
            shift += 7;
        }
    }

    fn word<const N: usize>(&mut self) -> Option<u64> {
        let bytes = self.bytes.get(self.at..self.at + N)?;
        self.at += N;
        let mut word = [0; 8];
        word[..N].copy_from_slice(bytes);
        Some(u64::from_le_bytes(word))
    }

    fn pointer(&mut self, encoding: u8) -> Option<u64> {
        let here = self.address.wrapping_add(self.at as u64);
        let value = match encoding & FORMAT {
            0x00 | 0x04 | 0x0c => self.word::<8>()?,
            0x01 => self.uleb()?,
            0x02 => self.word::<2>()?,
            0x03 => self.word::<4>()?,
            0x0b => i64::from(self.word::<4>()? as u32 as i32).cast_unsigned(),
            _ => return None,
        };
        match encoding & !FORMAT {
            0 => Some(value),
            PC_RELATIVE => Some(value.wrapping_add(here)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pads_are_counted_from_the_function_or_from_the_tables_own_base() {
        // No base, no types, entries in uleb128: two of three have a pad.
        let table = [
            OMIT, OMIT, 0x01, 12, 0, 5, 0, 0, 5, 9, 0x80, 0x01, 1, 14, 3, 0x20,
        ];
        // The last entry is cut off: the action is missing.
        assert_eq!(landing_pads(&table, 0x9000, 0x1000), None);
        let table = [
            OMIT, OMIT, 0x01, 13, 0, 5, 0, 0, 5, 9, 0x80, 0x01, 1, 14, 3, 0x20, 0,
        ];
        assert_eq!(
            landing_pads(&table, 0x9000, 0x1000),
            Some(vec![0x1080, 0x1020])
        );
        // A base of its own, four bytes, relative to where it stands.
        let table = [
            0x1b, 0xff, 0xff, 0xff, 0xff, OMIT, 0x03, 13, 0, 0, 0, 0, 4, 0, 0, 0, 0x10, 0, 0, 0, 0,
        ];
        assert_eq!(landing_pads(&table, 0x9000, 0x1000), Some(vec![0x9010]));
        assert_eq!(landing_pads(&[0x70, 0], 0x9000, 0x1000), None);
        assert_eq!(landing_pads(&[], 0, 0), None);
    }
}
