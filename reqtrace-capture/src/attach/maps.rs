//! The tables of a kernel object: a name in, the table out.
//!
//! Whoever has their descriptors uses them; that needs no privilege from Linux 5.19 on.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use aya::Ebpf;
use aya::maps::{Array, Map, MapData, MapError};

use crate::kernel::memory::fd_field;
use reqtrace_base::error::{Error, Result};

/// All tables of an object.
#[derive(Debug)]
pub(crate) struct Maps(BTreeMap<String, Map>);

impl Maps {
    /// Takes those that aya has made.
    pub(super) fn of(ebpf: &mut Ebpf) -> Self {
        let names: Vec<String> = ebpf.maps().map(|(name, _)| name.to_owned()).collect();
        let maps = names.into_iter().filter_map(|name| {
            let map = ebpf.take_map(&name)?;
            Some((name, map))
        });
        Self(maps.collect())
    }

    /// Those that another process has made.
    ///
    /// # Errors
    ///
    /// When one is no table.
    pub(crate) fn handed(files: impl IntoIterator<Item = (String, OwnedFd)>) -> Result<Self> {
        let maps = files.into_iter().map(|(name, file)| {
            let map = MapData::from_fd(file).and_then(Map::from_map_data);
            Ok((name, map.map_err(map_error)?))
        });
        maps.collect::<Result<_>>().map(Self)
    }

    /// Their descriptors.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, BorrowedFd<'_>)> {
        let files = self.0.iter();
        files.filter_map(|(name, map)| Some((name.as_str(), file_of(map)?)))
    }

    /// Kernel memory of all, bytes, as the kernel accounts for it.
    pub(super) fn memory(&self) -> u64 {
        let files = self.files();
        files
            .filter_map(|(_, file)| fd_field(file.as_raw_fd(), "memlock"))
            .sum()
    }

    /// A table, which is another's from now on.
    pub(super) fn take(&mut self, name: &str) -> Result<Map> {
        self.0.remove(name).ok_or_else(|| missing(name))
    }

    /// A table.
    pub(super) fn map_mut(&mut self, name: &str) -> Result<&mut Map> {
        self.0.get_mut(name).ok_or_else(|| missing(name))
    }

    /// A table, for reading.
    pub(super) fn map(&self, name: &str) -> Result<&Map> {
        self.0.get(name).ok_or_else(|| missing(name))
    }

    /// An array, for reading.
    pub(super) fn array<V: aya::Pod>(&self, name: &str) -> Result<Array<&MapData, V>> {
        Array::try_from(self.map(name)?).map_err(map_error)
    }

    /// Writes entries into an array, from its first on.
    pub(super) fn fill<'a, P: aya::Pod>(
        &mut self,
        name: &str,
        entries: impl IntoIterator<Item = &'a P>,
    ) -> Result<()> {
        let mut map: Array<&mut MapData, P> =
            Array::try_from(self.map_mut(name)?).map_err(map_error)?;
        for (index, entry) in entries.into_iter().enumerate() {
            map.set(index as u32, entry, 0).map_err(map_error)?;
        }
        Ok(())
    }
}

fn missing(name: &str) -> Error {
    Error::failed(format!("the kernel object has no map `{name}`"))
}

/// The descriptor of a map of one of the kinds that the kernel programs have.
pub(super) fn file_of(map: &Map) -> Option<BorrowedFd<'_>> {
    match map {
        Map::Array(data)
        | Map::HashMap(data)
        | Map::LruHashMap(data)
        | Map::PerCpuArray(data)
        | Map::RingBuf(data) => Some(data.fd().as_fd()),
        _ => None,
    }
}

/// A map could not be used.
pub(super) fn map_error(error: MapError) -> Error {
    Error::failed("a map of the kernel object could not be used").because(error)
}
