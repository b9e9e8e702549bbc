//! Waiting for a disk.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use super::{Span, Wait};
use crate::partner::{Partner, Woken, wake_in};

/// Size of a page and of a block, and their alignment.
const PAGE: usize = 4096;
/// Size of the files that are read.
const FILE: usize = 1024 * PAGE;
/// How many pages a request reads.
const PAGES: usize = 4;
/// What lies between two of them, so that the disk does not bring the second with the first.
const STRIDE: usize = 64 * PAGE;

/// Writes some pages and waits until they are on the disk.
pub(crate) struct Sync(File);

impl Sync {
    pub(crate) fn new(data: &Path) -> io::Result<Self> {
        Ok(Self(File::create(data.join("synced"))?))
    }
}

impl Wait for Sync {
    fn class(&self) -> Option<&'static str> {
        Some("disk")
    }

    fn wait(&mut self) -> io::Result<()> {
        self.0.write_all(&[1; PAGES * PAGE])?;
        self.0.sync_all()
    }
}

/// Reads what is in no cache.
pub(crate) struct ColdRead {
    file: File,
    next: usize,
}

impl ColdRead {
    pub(crate) fn new(data: &Path) -> io::Result<Self> {
        let file = fill(&data.join("cold"))?;
        // No page is read because a neighbour is.
        advise(&file, libc::POSIX_FADV_RANDOM)?;
        Ok(Self { file, next: 0 })
    }
}

impl Wait for ColdRead {
    fn class(&self) -> Option<&'static str> {
        Some("disk")
    }

    fn prepare(&mut self, _: Duration) -> io::Result<()> {
        advise(&self.file, libc::POSIX_FADV_DONTNEED)
    }

    fn wait(&mut self) -> io::Result<()> {
        for at in places(&mut self.next) {
            self.file.read_exact_at(&mut [0], at as u64)?;
        }
        Ok(())
    }
}

/// Waits for the lock of a file.
pub(crate) struct FileLock {
    ours: File,
    theirs: Arc<File>,
    held: (Sender<()>, Receiver<()>),
    partner: Partner,
}

impl FileLock {
    pub(crate) fn new(data: &Path) -> io::Result<Self> {
        let path = data.join("locked");
        Ok(Self {
            ours: File::create(&path)?,
            theirs: Arc::new(File::open(path)?),
            held: channel(),
            partner: Partner::start()?,
        })
    }
}

impl Wait for FileLock {
    fn class(&self) -> Option<&'static str> {
        Some("lock")
    }

    fn prepare(&mut self, end_in: Duration) -> io::Result<()> {
        let (file, held) = (Arc::clone(&self.theirs), self.held.0.clone());
        self.partner.begin(move || {
            file.lock()?;
            held.send(()).map_err(io::Error::other)?;
            wake_in(end_in, || file.unlock())
        })?;
        self.held.1.recv().map_err(io::Error::other)
    }

    fn wait(&mut self) -> io::Result<()> {
        self.ours.lock()?;
        self.ours.unlock()
    }

    fn woken(&mut self, _: Span) -> io::Result<Woken> {
        self.partner.woken()
    }
}

/// A page in memory, aligned as `O_DIRECT` wants it.
#[repr(C, align(4096))]
struct Page([u8; PAGE]);

/// Reads past the page cache.
pub(crate) struct DirectRead {
    file: File,
    page: Box<Page>,
    next: usize,
}

impl DirectRead {
    pub(crate) fn new(data: &Path) -> io::Result<Self> {
        let path = data.join("direct");
        fill(&path)?;
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_DIRECT);
        Ok(Self {
            file: options.open(path)?,
            page: Box::new(Page([0; PAGE])),
            next: 0,
        })
    }
}

impl Wait for DirectRead {
    fn class(&self) -> Option<&'static str> {
        Some("disk")
    }

    fn wait(&mut self) -> io::Result<()> {
        for at in places(&mut self.next) {
            self.file.read_exact_at(&mut self.page.0, at as u64)?;
        }
        Ok(())
    }
}

/// Touches pages of a mapped file that are not in memory.
pub(crate) struct ColdMapping {
    file: File,
    begin: *mut u8,
    next: usize,
}

impl ColdMapping {
    pub(crate) fn new(data: &Path) -> io::Result<Self> {
        let file = fill(&data.join("mapped"))?;
        // SAFETY: a new mapping of an open file; it stays until the program ends.
        let begin = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                FILE,
                libc::PROT_READ,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if begin == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // No page is read because a neighbour is.
        // SAFETY: the mapping is ours.
        if unsafe { libc::madvise(begin, FILE, libc::MADV_RANDOM) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            file,
            begin: begin.cast(),
            next: 0,
        })
    }
}

impl Wait for ColdMapping {
    fn class(&self) -> Option<&'static str> {
        Some("page-fault")
    }

    /// Drops the mapped pages, then the cached ones, which mapped ones would not allow.
    fn prepare(&mut self, _: Duration) -> io::Result<()> {
        // SAFETY: the mapping is ours and clean.
        if unsafe { libc::madvise(self.begin.cast(), FILE, libc::MADV_DONTNEED) } != 0 {
            return Err(io::Error::last_os_error());
        }
        advise(&self.file, libc::POSIX_FADV_DONTNEED)
    }

    fn wait(&mut self) -> io::Result<()> {
        for at in places(&mut self.next) {
            // SAFETY: within the mapping, which is readable.
            unsafe { self.begin.add(at).read_volatile() };
        }
        Ok(())
    }
}

/// Where a request reads, other places than the one before.
fn places(next: &mut usize) -> impl Iterator<Item = usize> + use<> {
    let first = *next;
    *next += PAGE;
    (0..PAGES).map(move |page| (first + page * STRIDE) % FILE)
}

/// Makes a file that is on the disk.
fn fill(path: &Path) -> io::Result<File> {
    std::fs::write(path, vec![1; FILE])?;
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    file.sync_all()?;
    Ok(file)
}

fn advise(file: &File, advice: i32) -> io::Result<()> {
    // SAFETY: no pointers.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, advice) } {
        0 => Ok(()),
        failed => Err(io::Error::from_raw_os_error(failed)),
    }
}
