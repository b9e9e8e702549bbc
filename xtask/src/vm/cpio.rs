//! The archive format of an initramfs: cpio "newc".
//!
//! In: folders, files and links, parents before their children. Out: bytes the kernel unpacks.

/// Magic number of the format.
const MAGIC: &str = "070701";
/// Name of the entry that ends an archive.
const TRAILER: &str = "TRAILER!!!";
/// Every name and every content starts at a multiple of this.
const ALIGN: usize = 4;

const FOLDER: u32 = 0o040_755;
const FILE: u32 = 0o100_644;
const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_777;

/// An archive being written.
#[derive(Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    inode: u32,
}

impl Archive {
    /// Adds a folder.
    pub(crate) fn folder(&mut self, name: &str) {
        self.entry(name, FOLDER, &[]);
    }

    /// Adds a file that can be run.
    pub(crate) fn program(&mut self, name: &str, content: &[u8]) {
        self.entry(name, PROGRAM, content);
    }

    /// Adds a file.
    pub(crate) fn file(&mut self, name: &str, content: &[u8]) {
        self.entry(name, FILE, content);
    }

    /// Adds a symbolic link.
    pub(crate) fn link(&mut self, name: &str, target: &str) {
        self.entry(name, LINK, target.as_bytes());
    }

    /// Ends the archive.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry(TRAILER, 0, &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.inode += 1;
        let links = if mode == FOLDER { 2 } else { 1 };
        let (uid, gid, time, device, check) = (0, 0, 0, 0, 0);
        let size = content.len();
        // The name's length counts its final zero.
        let name_size = name.len() + 1;
        let inode = self.inode;
        self.bytes.extend_from_slice(
            format!(
                "{MAGIC}{inode:08x}{mode:08x}{uid:08x}{gid:08x}{links:08x}{time:08x}{size:08x}\
                 {device:08x}{device:08x}{device:08x}{device:08x}{name_size:08x}{check:08x}{name}\0"
            )
            .as_bytes(),
        );
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes
            .resize(self.bytes.len().next_multiple_of(ALIGN), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names, modes and contents of an archive, read back field by field.
    fn read(bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut entries = Vec::new();
        let mut at = 0;
        loop {
            let header = std::str::from_utf8(&bytes[at..at + 110]).unwrap();
            assert_eq!(&header[..6], MAGIC);
            let field = |index: usize| {
                let begin = 6 + 8 * index;
                usize::from_str_radix(&header[begin..begin + 8], 16).unwrap()
            };
            let (mode, size, name_size) = (field(1), field(6), field(11));
            let name = &bytes[at + 110..at + 110 + name_size - 1];
            assert_eq!(bytes[at + 110 + name_size - 1], 0);
            let begin = (at + 110 + name_size).next_multiple_of(ALIGN);
            let name = String::from_utf8(name.to_vec()).unwrap();
            let content = bytes[begin..begin + size].to_vec();
            at = (begin + size).next_multiple_of(ALIGN);
            if name == TRAILER {
                assert_eq!(at, bytes.len());
                return entries;
            }
            entries.push((name, u32::try_from(mode).unwrap(), content));
        }
    }

    #[test]
    fn what_was_written_is_read_back() {
        let mut archive = Archive::default();
        archive.folder("bin");
        archive.program("bin/tool", b"12345");
        archive.file("etc", b"");
        archive.link("bin/sh", "tool");
        let entries = read(&archive.finish());
        let expected = [
            ("bin", FOLDER, ""),
            ("bin/tool", PROGRAM, "12345"),
            ("etc", FILE, ""),
            ("bin/sh", LINK, "tool"),
        ];
        let expected = expected.map(|(n, m, c)| (n.to_owned(), m, c.as_bytes().to_vec()));
        assert_eq!(entries, expected);
    }
}
