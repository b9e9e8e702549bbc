//! What attributes point to: addresses of traced processes in, the names of the functions and variables there out.

use reqtrace_base::frame::{AddressSpace, UNKNOWN};
use reqtrace_base::names::without_signature;
use reqtrace_binary::symbolize::user::UserSymbols;
use reqtrace_binary::variables::Memory;
use reqtrace_common::marker::MAX_TEXT;
use reqtrace_recording::{NumberOf, TextOf};
use rustc_hash::FxHashMap;

use super::MAX_KNOWN;

/// What an address is named for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Is {
    /// What lies there.
    Symbol,
    /// The unit of the runtime that has it.
    Unit,
}

/// Attributes that are addresses with names, and names that were found for them.
#[derive(Default)]
pub(super) struct Pointed {
    /// Of each request type, a bit for each attribute that is a symbol.
    symbols: Vec<u32>,
    /// The same of those that say what its unit is.
    units: Vec<u32>,
    names: FxHashMap<(AddressSpace, u64, Is), String>,
}

impl Pointed {
    /// As [`reqtrace_profile::Profiles`] has them.
    pub(super) fn new(symbols: Vec<u32>, units: Vec<u32>) -> Self {
        Self {
            symbols,
            units,
            ..Self::default()
        }
    }

    /// Processes have other mappings now.
    pub(super) fn changed(&mut self) {
        self.names.clear();
    }

    /// Makes the addresses among the numbers of a request texts. A null pointer has none.
    pub(super) fn name(
        &mut self,
        request_type: u32,
        (numbers, texts): (&mut Vec<NumberOf>, &mut Vec<TextOf>),
        mut look_up: impl FnMut(u64, Is) -> Option<String>,
        space: AddressSpace,
    ) {
        let of_type = |all: &[u32]| all.get(request_type as usize).copied().unwrap_or_default();
        let (symbols, units) = (of_type(&self.symbols), of_type(&self.units));
        if symbols | units == 0 {
            return;
        }
        numbers.retain(|of| {
            let bit = 1 << of.index;
            let is = match (symbols & bit != 0, units & bit != 0) {
                (true, _) => Is::Symbol,
                (_, true) => Is::Unit,
                _ => return true,
            };
            if of.number != 0 {
                let key = (space, of.number, is);
                let known = self.names.get(&key).cloned();
                let name = known.or_else(|| {
                    let found = look_up(of.number, is)?;
                    if self.names.len() >= MAX_KNOWN {
                        self.names.clear();
                    }
                    self.names.insert(key, found.clone());
                    Some(found)
                });
                let mut name = name.unwrap_or_else(|| UNKNOWN.to_owned());
                let is_cut = name.len() > MAX_TEXT;
                name.truncate(name.floor_char_boundary(MAX_TEXT));
                texts.push(TextOf {
                    index: of.index,
                    bytes: name.into_bytes(),
                    is_cut,
                });
            }
            false
        });
    }
}

/// The function at an address, without its parameters, else the variable, else what it lies in; `None` when nothing is mapped
/// there.
pub(super) fn lies_at(
    space: AddressSpace,
    address: u64,
    symbols: &mut UserSymbols,
    memory: &mut Memory,
) -> Option<String> {
    if symbols.place(space, address, false).is_some() {
        let frames = symbols.frame(space, address, false);
        // Of inlined calls the last one is the function that lies there.
        return frames
            .last()
            .map(|frame| without_signature(&frame.name).to_owned());
    }
    memory
        .variable(space, address)
        .or_else(|| memory.lies_in(space, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_become_names_and_other_numbers_stay() {
        let mut pointed = Pointed::new(vec![0, 0b101], vec![0, 0b1000]);
        let number = |index, number| NumberOf { index, number };
        let mut asked = Vec::new();
        for _ in 0..2 {
            let mut numbers = vec![
                number(0, 0x10),
                number(1, 0x10),
                number(2, 0),
                number(3, 0x10),
            ];
            let mut texts = Vec::new();
            let look_up = |address, is| {
                asked.push((address, is));
                Some(match is {
                    Is::Symbol => "Order::ship".to_owned(),
                    Is::Unit => "u".repeat(MAX_TEXT + 1),
                })
            };
            let space = AddressSpace::default();
            pointed.name(1, (&mut numbers, &mut texts), look_up, space);
            assert_eq!(numbers, [number(1, 0x10)]);
            let found: Vec<_> = texts
                .iter()
                .map(|text| (text.index, text.bytes.len(), text.is_cut))
                .collect();
            assert_eq!(found, [(0, 11, false), (3, MAX_TEXT, true)]);
            pointed.name(0, (&mut numbers, &mut texts), |_, _| None, space);
            assert_eq!(numbers, [number(1, 0x10)]);
        }
        assert_eq!(asked, [(0x10, Is::Symbol), (0x10, Is::Unit)]);
    }

    #[test]
    fn what_lies_nowhere_is_not_known() {
        let mut pointed = Pointed::new(vec![1], vec![0]);
        let mut numbers = vec![NumberOf {
            index: 0,
            number: 7,
        }];
        let mut texts = Vec::new();
        pointed.name(
            0,
            (&mut numbers, &mut texts),
            |_, _| None,
            AddressSpace::default(),
        );
        assert!(numbers.is_empty());
        assert_eq!(texts[0].bytes, UNKNOWN.as_bytes());
    }

    #[test]
    fn functions_and_variables_of_this_process_have_their_names() {
        static TABLE: [u64; 4] = [1, 2, 3, 4];
        let space = AddressSpace {
            tgid: std::process::id(),
            exec_generation: 0,
        };
        let mut symbols = UserSymbols::new();
        assert!(symbols.remember(space));
        let mut memory = Memory::default();
        let function = lies_at as *const () as u64;
        let name = lies_at(space, function, &mut symbols, &mut memory).unwrap();
        assert!(name.ends_with("pointed::lies_at"), "{name}");
        let inside = &raw const TABLE[2] as u64;
        let name = lies_at(space, inside, &mut symbols, &mut memory).unwrap();
        assert!(name.ends_with("TABLE"), "{name}");
        assert_eq!(lies_at(space, 8, &mut symbols, &mut memory), None);
    }
}
