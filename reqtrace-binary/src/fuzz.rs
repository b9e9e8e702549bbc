//! Entries for the fuzzer: bytes that a traced process could have written in, nothing out. They may be
//! refused, and must not panic.

mod program;

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt as _;

use rustix::fs::{MemfdFlags, memfd_create};

use crate::debuginfo::{self, Links};
use crate::{elf, maps as process_maps, symbolize, unwind};
pub use program::{Program, WRAPS};
#[cfg(test)]
pub(crate) use program::{abbreviations, info};

/// Where names are asked for.
const ADDRESSES: [u64; 4] = [0, 0x1100, 0x2000, u64::MAX];

/// An ELF file, to every reader of one.
pub fn elf(bytes: &[u8]) {
    if let Ok(object) = unwind::Object::read(bytes) {
        let _ = unwind::Table::compile(&object);
        black_box(unwind::function_ranges(&object));
    }
    if let Ok(object) = elf::Object::parse(bytes.to_vec(), "fuzz") {
        for symbol in object.symbols().iter().take(100) {
            black_box(object.name(symbol));
            black_box(object.code(symbol.address));
            black_box(object.file_offset(symbol.address));
            let frames = object.frames();
            black_box(frames.range(symbol.address));
            black_box(frames.at_entry_level(symbol.address));
            black_box(frames.return_address(symbol.address));
            black_box(frames.begins(symbol.address));
        }
        black_box(object.imported().count());
        black_box(object.usdt_notes().count());
        for address in ADDRESSES {
            black_box(object.references(address).count());
            black_box(object.word(address));
        }
    }
    let Ok(file) = memfd_create("fuzz", MemfdFlags::CLOEXEC).map(File::from) else {
        return;
    };
    if file.write_all_at(bytes, 0).is_err() {
        return;
    }
    let links = Links::read(&file);
    let _ = debuginfo::functions(&file);
    black_box(debuginfo::find(&file, &links, &[], "/fuzz"));
    symbolize::fuzz_names(&file, &ADDRESSES);
}

/// A perf map.
pub fn perf_map(bytes: &[u8]) {
    symbolize::fuzz_perf_map(bytes, &ADDRESSES);
}

/// `/proc/PID/maps`.
pub fn maps(bytes: &[u8]) {
    for mapped in process_maps::parse(bytes) {
        black_box(mapped.behind());
        black_box(mapped.path());
        black_box(mapped.range());
        black_box(mapped.contains(0x1000));
    }
}
