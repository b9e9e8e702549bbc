//! Many entries of a map at once: a map in, copies of its entries out; keys of a hash map in, entries gone.
//!
//! `BPF_MAP_LOOKUP_BATCH` and `BPF_MAP_DELETE_BATCH` (5.6) take one system call for thousands of entries.
//! A bucket of a hash map is copied under its lock, so that an entry that stays is seen exactly once.

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsFd as _, AsRawFd as _};

use aya::Pod;
use aya::maps::Map;
use aya_obj::generated::{bpf_attr, bpf_cmd};

use super::maps::map_error;
use super::system::bpf;
use reqtrace_base::error::{Error, Result};

/// Entries taken at a time: more than any bucket has.
const AT_ONCE: usize = 1024;

/// Hands all entries of a map to `each`.
///
/// # Errors
///
/// When the map is no hash map and no array of these types, or the kernel cannot copy.
pub(super) fn entries<K: Pod, V: Pod>(map: &Map, each: impl FnMut(&K, &V)) -> Result<()> {
    first(map, usize::MAX, each)
}

/// The same of the first so many.
fn first<K: Pod, V: Pod>(map: &Map, mut left: usize, mut each: impl FnMut(&K, &V)) -> Result<()> {
    let fd = file::<K, V>(map)?;
    // Room only, of which most is not used: an entry may take kilobytes.
    let (mut keys, mut values) = (
        Vec::<K>::with_capacity(AT_ONCE),
        Vec::<V>::with_capacity(AT_ONCE),
    );
    // A place in the table: at most as large as a key, and at least four bytes.
    let mut place = vec![0_u8; size_of::<K>().max(8)];
    let mut is_first = true;
    loop {
        // SAFETY: all zeros is a valid value of these plain fields.
        let mut attr: bpf_attr = unsafe { zeroed() };
        let place = place.as_mut_ptr() as u64;
        attr.batch.in_batch = if is_first { 0 } else { place };
        attr.batch.out_batch = place;
        attr.batch.keys = keys.as_mut_ptr() as u64;
        attr.batch.values = values.as_mut_ptr() as u64;
        attr.batch.count = AT_ONCE.min(left) as u32;
        attr.batch.map_fd = fd;
        // SAFETY: both lists have room for so many entries of the map's sizes, which were compared.
        let called = unsafe { bpf(bpf_cmd::BPF_MAP_LOOKUP_BATCH as i64, &raw mut attr) };
        let is_last = match called {
            Ok(()) => false,
            // The end of the table; the last entries are there.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => true,
            Err(error) => return Err(failed("read", &error)),
        };
        // SAFETY: the kernel has written how many it has copied, which is no more than was asked for; any bytes are a valid
        // value of a `Pod`.
        let count = unsafe {
            let count = (attr.batch.count as usize).min(AT_ONCE);
            keys.set_len(count);
            values.set_len(count);
            count
        };
        for (key, value) in keys.iter().zip(&values) {
            each(key, value);
        }
        left -= count.min(left);
        if is_last || left == 0 {
            return Ok(());
        }
        is_first = false;
    }
}

/// Hands the entries of the first indices of an array that has one by index and CPU to `each`, each with its index. The kernel programs
/// find it in the same way.
///
/// # Errors
///
/// When the map is no array of these, or the kernel cannot copy.
pub(super) fn of_cpus<V: Pod>(
    map: &Map,
    indices: usize,
    mut each: impl FnMut(usize, &V),
) -> Result<()> {
    let cpus = cpus();
    first(map, indices * cpus as usize, |key: &u32, value: &V| {
        each((key / cpus) as usize, value);
    })
}

/// How many CPUs the kernel may have, which [`super::loader::load`] has read once. x86 numbers them without gaps.
pub(super) fn cpus() -> u32 {
    aya::util::nr_cpus().unwrap_or(1).max(1) as u32
}

/// Deletes entries. One that is gone already is passed over: the kernel programs may have taken it out.
///
/// # Errors
///
/// When the kernel cannot.
pub(super) fn delete<K: Pod, V: Pod>(map: &Map, keys: &[K]) -> Result<()> {
    delete_each::<K, V>(map, keys, |_| ())
}

/// The same, and tells which were there.
///
/// # Errors
///
/// As [`delete`].
pub(super) fn delete_each<K: Pod, V: Pod>(
    map: &Map,
    keys: &[K],
    mut deleted: impl FnMut(&K),
) -> Result<()> {
    let fd = file::<K, V>(map)?;
    let mut left = keys;
    while !left.is_empty() {
        let keys = &left[..left.len().min(AT_ONCE)];
        // SAFETY: all zeros is a valid value of these plain fields.
        let mut attr: bpf_attr = unsafe { zeroed() };
        attr.batch.keys = keys.as_ptr() as u64;
        attr.batch.count = keys.len() as u32;
        attr.batch.map_fd = fd;
        // SAFETY: the list has so many keys of the map's size, which was compared.
        let called = unsafe { bpf(bpf_cmd::BPF_MAP_DELETE_BATCH as i64, &raw mut attr) };
        // SAFETY: the kernel has written how many it has deleted: it stops at the first that it cannot.
        let count = unsafe { attr.batch.count } as usize;
        let (gone, done) = match called {
            Ok(()) => (keys.len(), keys.len()),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => (count, count + 1),
            Err(error) => return Err(failed("emptied", &error)),
        };
        keys.iter().take(gone).for_each(&mut deleted);
        left = &left[done.min(left.len())..];
    }
    Ok(())
}

/// The descriptor of a hash map whose keys and values are as large as these types.
fn file<K, V>(map: &Map) -> Result<u32> {
    let (Map::HashMap(data) | Map::Array(data)) = map else {
        return Err(Error::failed(
            "a table of the kernel object is no hash map and no array",
        ));
    };
    let info = data.info().map_err(map_error)?;
    if (info.key_size() as usize, info.value_size() as usize) != (size_of::<K>(), size_of::<V>()) {
        return Err(Error::failed(
            "a table of the kernel object has entries of another size",
        ));
    }
    Ok(data.fd().as_fd().as_raw_fd() as u32)
}

fn failed(what: &str, error: &io::Error) -> Error {
    Error::failed(format!(
        "a table of the kernel programs could not be {what}"
    ))
    .because(error.to_string())
}
