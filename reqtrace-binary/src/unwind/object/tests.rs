//! Objects, whole and broken.

use std::fs::File;

use super::*;

fn own() -> Vec<u8> {
    std::fs::read("/proc/self/exe").unwrap()
}

#[test]
fn reads_a_file_and_its_bytes_alike() {
    let file = File::open("/proc/self/exe").unwrap();
    let object = Object::read(&file).unwrap();
    assert_eq!(object, Object::read(own().as_slice()).unwrap());
    assert!(object.frames.bytes.len() > 10_000);
    assert!(object.segments.iter().any(|segment| segment.executable));
}

#[test]
fn without_section_headers_it_goes_by_the_program_header() {
    let bytes = own();
    let with = Object::read(bytes.as_slice()).unwrap();
    let mut stripped = bytes;
    stripped[40..48].fill(0);
    let without = Object::read(stripped.as_slice()).unwrap();
    assert_eq!(with.frames.address, without.frames.address);
    assert!(without.frames.bytes.starts_with(&with.frames.bytes));
}

#[test]
fn what_is_no_object_is_refused() {
    assert!(matches!(
        Object::read(b"#!/bin/sh\n".as_slice()),
        Err(ObjectError::NotElf)
    ));
    let mut other = own();
    other[18] = 183;
    assert!(matches!(
        Object::read(other.as_slice()),
        Err(ObjectError::Machine { machine: 183, .. })
    ));
    let bytes = own();
    for length in [0, 3, 63, 64, 100, 1000] {
        assert!(Object::read(&bytes[..length]).is_err(), "{length}");
    }
}

#[test]
fn a_hole_in_the_headers_never_panics() {
    let mut bytes = own();
    for at in 16..64 + 10 * 56 {
        let kept = std::mem::replace(&mut bytes[at], 0xff);
        let _ = Object::read(bytes.as_slice());
        bytes[at] = kept;
    }
}

#[test]
fn a_file_offset_becomes_an_address() {
    let segments = [
        Segment {
            offset: 0,
            address: 0,
            file_size: 0x1800,
            memory_size: 0x1800,
            executable: false,
        },
        Segment {
            offset: 0x1800,
            address: 0x2800,
            file_size: 0x3000,
            memory_size: 0x3000,
            executable: true,
        },
    ];
    assert_eq!(Object::address_of(&segments, 0x1000), Some(0x2000));
    assert_eq!(Object::address_of(&segments, 0x4000), Some(0x5000));
    assert_eq!(Object::address_of(&segments, 0x5000), None);
    assert_eq!(Object::address_of(&segments, 0), None);
}
