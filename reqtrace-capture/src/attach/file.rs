//! Names of files: what the kernel sends in, a path out.

use reqtrace_common::record::file_name;

const S_IFMT: u32 = 0o170_000;
const S_IFIFO: u32 = 0o010_000;
const S_IFSOCK: u32 = 0o140_000;
/// `ANON_INODE_FS_MAGIC`.
const ANON_INODES: u32 = 0x0904_1934;
/// `TMPFS_MAGIC`: what `memfd_create` and shared memory make.
const TMPFS: u32 = 0x0102_1994;

/// The path of a file; `names` are those of a [`reqtrace_common::record::FileRecord`]. `None` when
/// the kind of the name is not known.
pub(super) fn file_path(name: u32, mode: u32, magic: u32, names: &[u8]) -> Option<String> {
    let names: Vec<_> = names
        .split(|&byte| byte == 0)
        .filter(|name| !name.is_empty())
        .map(String::from_utf8_lossy)
        .collect();
    let joined = || {
        names
            .iter()
            .rev()
            .fold(String::new(), |path, name| path + "/" + name)
    };
    Some(match name {
        file_name::WHOLE if names.is_empty() => "/".to_owned(),
        file_name::WHOLE => joined(),
        file_name::CUT => format!("…{}", joined()),
        file_name::NO_FOLDER => {
            let name = names.first().map_or("", |name| name);
            match (mode & S_IFMT, magic) {
                (S_IFSOCK, _) => "socket:[]".to_owned(),
                (S_IFIFO, _) => "pipe:[]".to_owned(),
                (_, ANON_INODES) => format!("anon_inode:{name}"),
                (_, TMPFS) => format!("/{name}"),
                _ => format!("{name}:[]"),
            }
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: u32 = 0o100_644;

    #[test]
    fn names_become_paths() {
        let whole = |names: &[u8]| file_path(file_name::WHOLE, FILE, 0xef53, names);
        assert_eq!(whole(b"db\0lib\0var\0").as_deref(), Some("/var/lib/db"));
        assert_eq!(whole(b"").as_deref(), Some("/"));
        let cut = file_path(file_name::CUT, FILE, 0xef53, b"db\0lib\0");
        assert_eq!(cut.as_deref(), Some("…/lib/db"));
        let bytes = whole(b"\xff\0tmp\0").unwrap();
        assert!(bytes.starts_with("/tmp/"), "{bytes}");
        assert_eq!(file_path(9, FILE, 0, b""), None);
    }

    #[test]
    fn what_is_in_no_folder_has_the_kernels_name() {
        let name = |mode, magic, names| file_path(file_name::NO_FOLDER, mode, magic, names);
        for (mode, magic, names, wanted) in [
            (S_IFSOCK, 0x534f_434b, &b"TCP\0"[..], "socket:[]"),
            (S_IFIFO, 0x5049_5045, b"", "pipe:[]"),
            (0o600, ANON_INODES, b"[eventfd]\0", "anon_inode:[eventfd]"),
            (FILE, TMPFS, b"memfd:ring\0", "/memfd:ring"),
            (FILE, 0x6e73_6673, b"mnt\0", "mnt:[]"),
        ] {
            assert_eq!(name(mode, magic, names).as_deref(), Some(wanted));
        }
    }
}
