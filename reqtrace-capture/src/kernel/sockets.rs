//! What `--before`, and blame of requests with a key, need of the running kernel: its tracepoints of sockets, and where a socket keeps what; BTF in,
//! values of globals out.

use super::btf::Types;
use super::{Host, btf_advice};
use reqtrace_base::error::{Error, Result};

/// Tracepoints of TCP sockets, in the order in which they are attached.
const TCP: [&str; 3] = ["inet_sock_set_state", "tcp_probe", "tcp_rcv_space_adjust"];

/// Tracepoints of all sockets, used for Unix sockets: since Linux 6.3.
const UNIX: [&str; 3] = ["sk_data_ready", "sock_recv_length", "sock_send_length"];

/// Globals of the kernel programs, each with the members whose offsets it is the sum of.
const MEMBERS: [(&str, &[(&str, &str)]); 18] = [
    (
        "SK_FAMILY",
        &[("sock", "__sk_common"), ("sock_common", "skc_family")],
    ),
    ("SK_SOCKET", &[("sock", "sk_socket")]),
    (
        "SK_QUEUE_LEN",
        &[("sock", "sk_receive_queue"), ("sk_buff_head", "qlen")],
    ),
    ("SKB_LEN", &[("sk_buff", "len")]),
    ("SKB_DATA", &[("sk_buff", "data")]),
    ("TCP_RECEIVED", &[("tcp_sock", "rcv_nxt")]),
    ("TCP_COPIED", &[("tcp_sock", "copied_seq")]),
    (
        "SK_ADDRESSES",
        &[("sock", "__sk_common"), ("sock_common", "skc_addrpair")],
    ),
    (
        "SK_PORTS",
        &[("sock", "__sk_common"), ("sock_common", "skc_portpair")],
    ),
    (
        "SK_V6_REMOTE",
        &[("sock", "__sk_common"), ("sock_common", "skc_v6_daddr")],
    ),
    (
        "SK_V6_LOCAL",
        &[("sock", "__sk_common"), ("sock_common", "skc_v6_rcv_saddr")],
    ),
    (
        "SK_NET",
        &[("sock", "__sk_common"), ("sock_common", "skc_net")],
    ),
    ("SK_PROTOCOL", &[("sock", "sk_protocol")]),
    ("TCP_WRITTEN", &[("tcp_sock", "write_seq")]),
    ("FILE_PRIVATE", &[("file", "private_data")]),
    ("SOCKET_FILE", &[("socket", "file")]),
    ("SOCKET_SK", &[("socket", "sk")]),
    ("ICSK_ULP_OPS", &[("inet_connection_sock", "icsk_ulp_ops")]),
];

/// What the running kernel shows of sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketTypes {
    globals: Vec<(&'static str, u32)>,
    has_unix: bool,
}

impl SocketTypes {
    /// Looks at the kernel's types.
    ///
    /// # Errors
    ///
    /// [`reqtrace_base::error::Kind::Unsupported`] when it does not show TCP sockets.
    pub fn read(host: &Host) -> Result<Self> {
        let path = &host.btf_path;
        let unsupported = |what: String| {
            Error::unsupported(format!("{}: {what}", path.display())).next(btf_advice())
        };
        let data = std::fs::read(path).map_err(|error| unsupported(error.to_string()))?;
        let types = Types::parse(&data).map_err(unsupported)?;
        Self::of(&types).map_err(|missing| unsupported(format!("{missing} is missing")))
    }

    /// The error is what is missing.
    fn of(types: &Types<'_>) -> std::result::Result<Self, String> {
        let has = |name: &&str| types.has_typedef(&format!("btf_trace_{name}"));
        if let Some(absent) = TCP.iter().find(|name| !has(name)) {
            return Err(format!("the tracepoint `{absent}`"));
        }
        let globals = MEMBERS.iter().map(|(global, members)| {
            let sum = members.iter().try_fold(0, |sum, (structure, member)| {
                let offset = types.member_offset(structure, member);
                offset
                    .map(|offset| sum + offset)
                    .ok_or_else(|| format!("{structure}.{member}"))
            });
            sum.map(|offset| (*global, offset))
        });
        Ok(Self {
            globals: globals.collect::<std::result::Result<_, _>>()?,
            has_unix: UNIX.iter().all(has),
        })
    }

    /// The values, each with its global.
    pub fn globals(&self) -> impl Iterator<Item = (&'static str, &u32)> {
        self.globals
            .iter()
            .map(|(global, offset)| (*global, offset))
    }

    /// Whether it shows Unix sockets.
    #[must_use]
    pub fn has_unix(&self) -> bool {
        self.has_unix
    }

    /// The tracepoints that it has.
    pub(crate) fn tracepoints(&self) -> impl Iterator<Item = &'static str> {
        let has_unix = self.has_unix;
        let unix = UNIX.into_iter().filter(move |_| has_unix);
        TCP.into_iter().chain(unix)
    }
}

/// All tracepoints of sockets; a trace may have none of them.
pub(crate) fn all_tracepoints() -> impl Iterator<Item = &'static str> {
    TCP.into_iter().chain(UNIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_these_types_is_told_what_is_missing() {
        let header = [24_u32, 0, 0, 0, 1];
        let mut data = vec![0x9f, 0xeb, 1, 0];
        data.extend(header.iter().flat_map(|word| word.to_le_bytes()));
        data.push(0);
        let types = Types::parse(&data).unwrap();
        let missing = SocketTypes::of(&types).unwrap_err();
        assert_eq!(missing, "the tracepoint `inet_sock_set_state`");
    }
}
