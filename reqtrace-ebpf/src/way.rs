//! Ends of TCP connections: a socket in; addresses and ports that both ends agree on, out.

use reqtrace_common::origin::Way;

use aya_ebpf::Global;

use crate::before::{Object, at, field, read};
use crate::file;
use crate::globals::{SK_ADDRESSES, SK_FAMILY, SK_NET, SK_PORTS, SK_V6_LOCAL, SK_V6_REMOTE};

const AF_INET6: u16 = 10;
/// The first half of an address of IPv6 that is one of IPv4, behind eight zeros; as it lies in memory.
const MAPPED: u64 = 0xffff_0000;

/// How the fields of a socket are read.
trait Fields {
    fn get<T: Default + Copy>(sk: Object, offset: &Global<u32>, behind: usize) -> Option<T>;
}

/// Of one that a program was given: by loads, since the verifier knows what it is.
struct Typed;

/// Of one whose address was read.
struct Untyped;

impl Fields for Typed {
    #[inline(always)]
    fn get<T: Default + Copy>(sk: Object, offset: &Global<u32>, behind: usize) -> Option<T> {
        // SAFETY: a load of a field from a BTF pointer; a fault yields 0.
        Some(unsafe { field(sk.wrapping_add(behind), offset) })
    }
}

impl Fields for Untyped {
    #[inline(always)]
    fn get<T: Default + Copy>(sk: Object, offset: &Global<u32>, behind: usize) -> Option<T> {
        read(at(sk, offset).wrapping_add(behind))
    }
}

/// The way from a TCP socket that the program was given to its other end.
#[inline(always)]
pub(crate) fn way_from(sk: Object) -> Way {
    way::<Typed>(sk).unwrap_or_default()
}

/// The same of one whose address was read.
#[inline(always)]
pub(crate) fn way_from_untyped(sk: Object) -> Option<Way> {
    way::<Untyped>(sk)
}

#[inline(always)]
fn way<F: Fields>(sk: Object) -> Option<Way> {
    // In memory the remote port comes first, in the order of bytes of the network, and so does the address.
    let ports: u32 = F::get(sk, &SK_PORTS, 0)?;
    let addresses: u64 = F::get(sk, &SK_ADDRESSES, 0)?;
    let (mut to, mut from) = (addresses & 0xffff_ffff, addresses >> 32);
    let mut is_own = from & 0xff == 127;
    if F::get::<u16>(sk, &SK_FAMILY, 0)? == AF_INET6 {
        let local = [F::get(sk, &SK_V6_LOCAL, 0)?, F::get(sk, &SK_V6_LOCAL, 8)?];
        let far = [F::get(sk, &SK_V6_REMOTE, 0)?, F::get(sk, &SK_V6_REMOTE, 8)?];
        (to, from) = (number(far), number(local));
        is_own = local == [0, 1 << 56] || from & !0xffff_ff00 == 127;
    }
    let net = if is_own { F::get(sk, &SK_NET, 0)? } else { 0 };
    let far_port = u64::from((ports as u16).swap_bytes());
    Some(Way {
        from,
        to,
        ports: u64::from(ports >> 16) | far_port << 32,
        net,
    })
}

/// An address as a number; of IPv4 itself.
#[inline(always)]
fn number(address: [u64; 2]) -> u64 {
    if address[0] == 0 && address[1] & 0xffff_ffff == MAPPED {
        address[1] >> 32
    } else {
        file::mix(file::mix(1, address[0]), address[1]) | 1 << 63
    }
}

/// The address of the other end.
#[inline(always)]
pub(crate) fn remote(sk: Object) -> [u64; 2] {
    if read::<u16>(at(sk, &SK_FAMILY)) == Some(AF_INET6) {
        return read(at(sk, &SK_V6_REMOTE)).unwrap_or_default();
    }
    let addresses: u64 = read(at(sk, &SK_ADDRESSES)).unwrap_or(0);
    [0, addresses << 32 | MAPPED]
}
