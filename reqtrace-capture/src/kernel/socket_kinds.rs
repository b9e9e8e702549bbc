//! What kinds of sockets a process has: `/proc/PID` in, their names out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::processes::text_of;

/// Files of `/proc/PID/net`, the kind of their sockets, and the column of the inode.
const TABLES: [(&str, &str, usize); 5] = [
    ("tcp", "TCP", 9),
    ("tcp6", "TCP", 9),
    ("unix", "Unix", 6),
    ("udp", "UDP", 9),
    ("udp6", "UDP", 9),
];

/// Kinds of the sockets that processes have now; those of processes that have left are unknown.
pub(crate) fn of(pids: &[u32]) -> BTreeSet<&'static str> {
    pids.iter().flat_map(|&pid| of_one(pid)).collect()
}

fn of_one(pid: u32) -> BTreeSet<&'static str> {
    let files = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten();
    let links = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    let open: BTreeSet<u64> = links.filter_map(|link| inode(link.to_str()?)).collect();
    let mut kinds: BTreeMap<u64, &'static str> = BTreeMap::new();
    for (table, kind, column) in TABLES {
        let text = text_of(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        kinds.extend(inodes(&text, column).map(|inode| (inode, kind)));
    }
    open.iter()
        .filter_map(|inode| kinds.get(inode).copied())
        .collect()
}

/// That of a link to a socket.
fn inode(link: &str) -> Option<u64> {
    let number = link.strip_prefix("socket:[")?.strip_suffix(']')?;
    number.parse().ok()
}

/// Those of a table, below its head.
fn inodes(table: &str, column: usize) -> impl Iterator<Item = u64> {
    let lines = table.lines().skip(1);
    lines.filter_map(move |line| line.split_whitespace().nth(column)?.parse().ok())
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn sockets_of_this_process_are_known() {
        let folder = tempfile::tempdir().unwrap();
        let _udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let _tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let _unix = UnixListener::bind(folder.path().join("socket")).unwrap();
        let kinds = of(&[std::process::id()]);
        assert_eq!(
            kinds.into_iter().collect::<Vec<_>>(),
            ["TCP", "UDP", "Unix"]
        );
        assert!(of(&[u32::MAX]).is_empty());
    }

    #[test]
    fn an_inode_is_read_from_links_and_tables() {
        assert_eq!(inode("socket:[4711]"), Some(4711));
        assert_eq!(inode("pipe:[4711]"), None);
        let table =
            "Num RefCount Protocol Flags Type St Inode Path\n0: 2 0 10000 1 1 815 /run/x\nshort\n";
        assert_eq!(inodes(table, 6).collect::<Vec<_>>(), [815]);
    }
}
