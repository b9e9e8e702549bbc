//! What units of a runtime are: the address of what polls a task, or of the function that a goroutine starts with, in; the
//! task's type, or that function's name, out.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reqtrace_base::frame::AddressSpace;
use reqtrace_binary::maps::FileKey;
use reqtrace_binary::symbolize::user::UserSymbols;
use reqtrace_resolve::UnitNames;
use rustc_hash::FxHashMap;

use crate::attach::Identity;

/// What units of the traced programs are called. Clones have the same names.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnitsOfPrograms(Arc<Mutex<FxHashMap<FileKey, (Identity, UnitNames)>>>);

impl UnitsOfPrograms {
    /// Knows what those of a program are called, if an attribute says so.
    pub(crate) fn add(&self, program: Identity, names: Option<UnitNames>) {
        if let Some(names) = names {
            self.all().insert(names.file, (program, names));
        }
    }

    /// Nobody runs a program any more.
    pub(crate) fn forget(&self, program: &Identity) {
        self.all().retain(|_, (known, _)| known != program);
    }

    /// What the unit is of this address of a process; where that is not known, the address as it was linked. `None`: no file
    /// is mapped there. `is_late`: no symbols are looked up any more.
    pub(super) fn name(
        &self,
        space: AddressSpace,
        address: u64,
        symbols: &mut UserSymbols,
        is_late: bool,
    ) -> Option<String> {
        if symbols.in_file(space, address).is_none() {
            // Naming looks at the mappings again.
            symbols.frame(space, address, false);
        }
        let place = symbols.in_file(space, address)?;
        let linked = || format!("{:#x}", place.linked);
        let all = self.all();
        let Some((_, names)) = all.get(&place.file) else {
            return Some(linked());
        };
        if let Some(name) = names.by_offset.get(&place.offset) {
            return Some(name.clone());
        }
        if is_late || !names.others_are_symbols {
            return Some(linked());
        }
        let frames = symbols.frame(space, address, false);
        // Of inlined calls the last one is the function that lies there. What has no name stands in brackets.
        let own = frames.last().filter(|frame| !frame.name.starts_with('['));
        Some(own.map_or_else(linked, |frame| frame.name.to_string()))
    }

    fn all(&self) -> MutexGuard<'_, FxHashMap<FileKey, (Identity, UnitNames)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named() {}

    #[test]
    fn units_have_the_names_of_their_program_and_else_addresses() {
        let space = AddressSpace {
            tgid: std::process::id(),
            exec_generation: 0,
        };
        let mut symbols = UserSymbols::new();
        assert!(symbols.remember(space));
        let (poll, other) = (
            named as *const () as u64,
            UnitsOfPrograms::add as *const () as u64,
        );
        let own = std::env::current_exe().unwrap();
        let file = FileKey::of(&std::fs::metadata(&own).unwrap());
        let at = symbols.in_file(space, poll).unwrap();
        assert_eq!(at.file, file);
        let linked = |symbols: &UserSymbols, address| {
            format!("{:#x}", symbols.in_file(space, address).unwrap().linked)
        };
        let units = UnitsOfPrograms::default();
        let mut name = |address, is_late| units.name(space, address, &mut symbols, is_late);
        let unknown = name(poll, false);
        let known = |others_are_symbols| UnitNames {
            file,
            by_offset: [(at.offset, "app::job::{closure#0}".to_owned())].into(),
            others_are_symbols,
        };
        let program = Identity::at(&own);
        units.add(program.clone(), Some(known(false)));
        for is_late in [false, true] {
            let found = name(poll, is_late);
            assert_eq!(found.as_deref(), Some("app::job::{closure#0}"));
        }
        let of_other = name(other, false);
        units.add(program.clone(), Some(known(true)));
        let (symbol, late) = (name(other, false).unwrap(), name(other, true));
        assert!(
            symbol.ends_with("UnitsOfPrograms>::add") || symbol.ends_with("UnitsOfPrograms::add"),
            "{symbol}"
        );
        assert_eq!(name(8, false), None);
        units.forget(&program);
        let forgotten = name(poll, false);
        assert_eq!(
            [unknown, forgotten],
            [(); 2].map(|()| Some(linked(&symbols, poll)))
        );
        assert_eq!(
            [of_other, late],
            [(); 2].map(|()| Some(linked(&symbols, other)))
        );
    }
}
