//! Disks: what they did in; the I/O of a thread, and who used disks when, out.

use std::collections::{BTreeMap, VecDeque};

use reqtrace_recording::{Comm, DiskUse};
use rustc_hash::FxHashMap;

use super::ThreadId;

/// I/O of threads that is kept: some 5 MB. The oldest goes.
const MAX_IO: usize = 1 << 16;
/// Sums of processes that are kept for the whole trace.
const MAX_USES: usize = 1 << 15;
/// Sums are over after so long.
pub(super) const SLICE_NS: u64 = 100_000_000;

/// One I/O.
#[derive(Clone, Copy, Debug)]
pub(super) struct Io {
    pub(super) device: u32,
    pub(super) is_kernel: bool,
    pub(super) from_ns: u64,
    pub(super) issued_ns: u64,
    pub(super) until_ns: u64,
    read_bytes: u64,
    written_bytes: u64,
}

/// Who used disks, and how much of what all did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Used {
    /// Without a thread it is a process.
    pub(crate) thread: ThreadId,
    /// The name of a process.
    pub(crate) comm: Option<Comm>,
    pub(crate) first_ns: u64,
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) all_bytes: u64,
    /// Length of the times that were looked at.
    pub(crate) of_ns: u64,
}

impl Used {
    pub(crate) const fn bytes(&self) -> u64 {
        self.read_bytes + self.written_bytes
    }
}

/// What disks did, as far as it is kept.
#[derive(Debug, Default)]
pub(crate) struct Disks {
    threads: FxHashMap<ThreadId, VecDeque<Io>>,
    order: VecDeque<ThreadId>,
    uses: VecDeque<DiskUse>,
    /// Sums that are not over, of processes whose I/O comes one by one.
    open: FxHashMap<(u32, u32), DiskUse>,
    /// Since then all I/O of threads is kept, and all sums of other processes.
    known_ns: u64,
    pub(super) names: FxHashMap<u32, Comm>,
    /// Sums that found no room.
    pub(super) forgotten: u64,
}

impl Disks {
    /// Takes an I/O, or a sum.
    pub(crate) fn take(&mut self, disk: &DiskUse) {
        if self.names.len() < MAX_USES {
            self.names.insert(disk.device, disk.disk);
        }
        if disk.is_sum {
            return self.used(disk.clone());
        }
        let thread = ThreadId {
            tgid: disk.tgid,
            tid: disk.tid,
        };
        // By their ends: those that end on different CPUs come a little out of order.
        let all = self.threads.entry(thread).or_default();
        let later = all.iter().rev();
        let later = later.take_while(|io| io.until_ns > disk.until_ns).count();
        all.insert(
            all.len() - later,
            Io {
                device: disk.device,
                is_kernel: disk.is_kernel,
                from_ns: disk.from_ns,
                issued_ns: disk.issued_ns,
                until_ns: disk.until_ns,
                read_bytes: disk.read_bytes,
                written_bytes: disk.written_bytes,
            },
        );
        self.order.push_back(thread);
        if self.order.len() > MAX_IO
            && let Some(oldest) = self.order.pop_front()
            && let Some(all) = self.threads.get_mut(&oldest)
        {
            let gone_ns = all.pop_front().map_or(0, |gone| gone.until_ns);
            self.known_ns = self.known_ns.max(gone_ns);
            if all.is_empty() {
                self.threads.remove(&oldest);
            }
        }
        let key = (disk.device, disk.tgid);
        // What comes after a pause is of another sum.
        let is_over = |open: &DiskUse| disk.until_ns.saturating_sub(open.from_ns) >= SLICE_NS;
        if self.open.get(&key).is_some_and(is_over)
            && let Some(sum) = self.open.remove(&key)
        {
            self.used(sum);
        }
        let open = self.open.entry(key).or_insert_with(|| DiskUse {
            read_bytes: 0,
            written_bytes: 0,
            count: 0,
            flushes: 0,
            ..disk.clone()
        });
        open.read_bytes += disk.read_bytes;
        open.written_bytes += disk.written_bytes;
        open.count += disk.count;
        open.flushes += disk.flushes;
        open.until_ns = open.until_ns.max(disk.until_ns);
        if (open.until_ns - open.from_ns >= SLICE_NS || self.open.len() > MAX_USES)
            && let Some(sum) = self.open.remove(&key)
        {
            self.used(sum);
        }
    }

    fn used(&mut self, sum: DiskUse) {
        if self.uses.len() >= MAX_USES
            && let Some(gone) = self.uses.pop_front()
        {
            self.forgotten += 1;
            if gone.is_sum {
                self.known_ns = self.known_ns.max(gone.until_ns);
            }
        }
        self.uses.push_back(sum);
    }

    /// Who had most bytes in times that do not overlap, in order: a thread of which each I/O is known, or another process. A
    /// thread of the kernel's own is neither: what it writes, or a limit has it submit later, is somebody else's. Times of which
    /// something was forgotten are left out; `None` if they are more than half.
    pub(crate) fn most_used(&self, times: &[(u64, u64)]) -> Option<Used> {
        let all_ns = length(times);
        let first = times.partition_point(|(from, _)| *from < self.known_ns);
        let times = &times[first..];
        let of_ns = length(times);
        if 2 * of_ns < all_ns {
            return None;
        }
        let overlaps = |from_ns: u64, until_ns: u64| {
            let at = times.partition_point(|(_, until)| *until <= from_ns);
            times.get(at).is_some_and(|(from, _)| *from < until_ns)
        };
        let mut users: BTreeMap<(u32, u32), Used> = BTreeMap::new();
        let mut all_bytes = 0;
        let mut add = |tgid, tid, [read_bytes, written_bytes]: [u64; 2], from_ns, is_kernel| {
            all_bytes += read_bytes + written_bytes;
            if is_kernel {
                return;
            }
            let used = users.entry((tgid, tid)).or_insert_with(|| Used {
                thread: ThreadId { tgid, tid },
                first_ns: from_ns,
                ..Used::default()
            });
            used.read_bytes += read_bytes;
            used.written_bytes += written_bytes;
            used.first_ns = used.first_ns.min(from_ns);
        };
        for (thread, all) in &self.threads {
            for io in all.iter().filter(|io| overlaps(io.from_ns, io.until_ns)) {
                let bytes = [io.read_bytes, io.written_bytes];
                add(thread.tgid, thread.tid, bytes, io.from_ns, io.is_kernel);
            }
        }
        let sums = self.uses.iter().filter(|used| used.is_sum);
        for used in sums.filter(|used| overlaps(used.from_ns, used.until_ns)) {
            let bytes = [used.read_bytes, used.written_bytes];
            add(used.tgid, 0, bytes, used.from_ns, used.is_kernel);
        }
        let most = users.into_values().max_by_key(Used::bytes)?;
        let named = self.uses.iter().rev();
        let named = named
            .filter(|used| used.is_sum)
            .find(|used| used.tgid == most.thread.tgid);
        Some(Used {
            all_bytes,
            of_ns,
            comm: named.map(|used| used.comm),
            ..most
        })
    }

    /// I/O of a thread that overlaps with a time, the last that was complete first.
    pub(super) fn of(&self, thread: ThreadId, from_ns: u64, until_ns: u64) -> Vec<Io> {
        let all = self.threads.get(&thread).into_iter().flatten();
        all.rev()
            .take_while(|io| io.until_ns > from_ns)
            .filter(|io| io.from_ns < until_ns)
            .copied()
            .collect()
    }

    /// Sums so far, those that are not over too.
    pub(super) fn uses(&self) -> impl Iterator<Item = &DiskUse> {
        self.uses.iter().chain(self.open.values())
    }
}

/// Nanoseconds of all of them.
fn length(times: &[(u64, u64)]) -> u64 {
    times.iter().map(|(from, until)| until - from).sum()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::blame) const MS: u64 = 1_000_000;
    pub(in crate::blame) const SERVER: ThreadId = ThreadId { tgid: 10, tid: 11 };
    pub(in crate::blame) const JOURNAL: ThreadId = ThreadId { tgid: 20, tid: 20 };

    pub(in crate::blame) fn io(thread: ThreadId, times: [u64; 3]) -> DiskUse {
        DiskUse {
            device: 7,
            disk: Comm::from("vda"),
            tgid: thread.tgid,
            tid: thread.tid,
            comm: Comm::from("x"),
            is_kernel: thread == JOURNAL,
            from_ns: times[0] * MS,
            issued_ns: times[1] * MS,
            until_ns: times[2] * MS,
            written_bytes: 4096,
            count: 1,
            ..DiskUse::default()
        }
    }

    #[test]
    fn who_had_most_bytes_is_a_thread_or_another_process() {
        let mut disks = Disks::default();
        let dd = ThreadId { tgid: 30, tid: 30 };
        let of = |thread, times, written_bytes| DiskUse {
            written_bytes,
            ..io(thread, times)
        };
        disks.take(&of(SERVER, [100, 102, 110], 3_000));
        disks.take(&of(SERVER, [150, 152, 160], 9_000_000));
        disks.take(&DiskUse {
            is_sum: true,
            ..of(dd, [90, 0, 120], 2_000)
        });
        let times = [(80 * MS, 120 * MS), (200 * MS, 210 * MS)];
        let most = disks.most_used(&times).unwrap();
        assert_eq!((most.thread, most.comm), (SERVER, None));
        assert_eq!((most.bytes(), most.all_bytes), (3_000, 5_000));
        disks.take(&DiskUse {
            is_sum: true,
            ..of(dd, [200, 0, 300], 2_000)
        });
        let most = disks.most_used(&times).unwrap();
        assert_eq!(most.thread, ThreadId { tgid: 30, tid: 0 });
        assert_eq!(most.comm, Some(Comm::from("x")));
        assert_eq!((most.bytes(), most.all_bytes), (4_000, 7_000));
        assert!(disks.most_used(&[(500 * MS, 600 * MS)]).is_none());
        disks.take(&of(JOURNAL, [500, 502, 510], 8_000));
        assert!(disks.most_used(&[(500 * MS, 600 * MS)]).is_none());
    }

    /// A thread has 410 kB of each tenth of a second and another process 300 kB; of the first minute the I/O of the thread is
    /// forgotten.
    #[test]
    fn times_of_which_io_is_forgotten_are_left_out() {
        let mut disks = Disks::default();
        let backup = ThreadId { tgid: 30, tid: 30 };
        for at in 0..2 * MAX_IO as u64 {
            disks.take(&io(SERVER, [at, at, at + 1]));
            if at.is_multiple_of(100) {
                disks.take(&DiskUse {
                    is_sum: true,
                    written_bytes: 300_000,
                    ..io(backup, [at, 0, at + 100])
                });
            }
        }
        let seconds = |from: u64, until: u64| (from * 1_000 * MS, until * 1_000 * MS);
        let times = [seconds(0, 1), seconds(100, 102)];
        let most = disks.most_used(&times).unwrap();
        assert_eq!((most.thread, most.bytes()), (SERVER, 2_000 * 4_096));
        assert_eq!(most.all_bytes, 2_000 * 4_096 + 20 * 300_000);
        assert_eq!(most.of_ns, 2_000 * MS);
        let mostly_forgotten = [seconds(0, 3), seconds(100, 102)];
        assert!(disks.most_used(&mostly_forgotten).is_none());
    }

    #[test]
    fn io_after_a_pause_is_of_another_sum() {
        let mut disks = Disks::default();
        for at in [1_000, 1_050, 600_000] {
            disks.take(&io(SERVER, [at, at + 1, at + 2]));
        }
        let sums = disks.uses();
        let sums = sums.map(|sum| (sum.from_ns / MS, sum.until_ns / MS, sum.count));
        let wanted = [(1_000, 1_052, 2), (600_000, 600_002, 1)];
        assert_eq!(sums.collect::<Vec<_>>(), wanted);
    }
}
