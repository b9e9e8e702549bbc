//! The maps and programs of the kernel object: a name in, what has it out.

use aya::Ebpf;
use aya::maps::{Array, Map, MapData, MapError};
use aya::programs::{Program, ProgramError};

use reqtrace_base::error::{Error, Result};

/// A program of the object by its name, for looking at it.
pub(super) fn program_of<'a, P>(ebpf: &'a Ebpf, name: &str) -> Result<&'a P>
where
    &'a P: TryFrom<&'a Program, Error = ProgramError>,
{
    let missing = || Error::failed(format!("the kernel object has no program `{name}`"));
    ebpf.program(name)
        .ok_or_else(missing)?
        .try_into()
        .map_err(|error: ProgramError| missing().because(error))
}

/// A program of the object by its name.
pub(super) fn program<'a, P>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut P>
where
    &'a mut P: TryFrom<&'a mut Program, Error = ProgramError>,
{
    let missing = || Error::failed(format!("the kernel object has no program `{name}`"));
    ebpf.program_mut(name)
        .ok_or_else(missing)?
        .try_into()
        .map_err(|error: ProgramError| missing().because(error))
}

/// A map of the object by its name.
pub(super) fn map_mut<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut Map> {
    ebpf.map_mut(name)
        .ok_or_else(|| Error::failed(format!("the kernel object has no map `{name}`")))
}

/// A map of the object by its name, for reading.
pub(super) fn map<'a>(ebpf: &'a Ebpf, name: &str) -> Result<&'a Map> {
    ebpf.map(name)
        .ok_or_else(|| Error::failed(format!("the kernel object has no map `{name}`")))
}

/// An array map by its name, for reading.
pub(super) fn array<'a, V: aya::Pod>(ebpf: &'a Ebpf, name: &str) -> Result<Array<&'a MapData, V>> {
    Array::try_from(map(ebpf, name)?).map_err(map_error)
}

/// A map could not be used.
pub(super) fn map_error(error: MapError) -> Error {
    Error::failed("a map of the kernel object could not be used").because(error)
}

/// Writes entries into an array map, from its first on.
pub(super) fn fill<'a, P: aya::Pod>(
    ebpf: &mut Ebpf,
    name: &str,
    entries: impl IntoIterator<Item = &'a P>,
) -> Result<()> {
    let mut map: Array<&mut MapData, P> =
        Array::try_from(map_mut(ebpf, name)?).map_err(map_error)?;
    for (index, entry) in entries.into_iter().enumerate() {
        map.set(index as u32, entry, 0).map_err(map_error)?;
    }
    Ok(())
}
