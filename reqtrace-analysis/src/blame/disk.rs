//! Disks: what they did, and the pieces of each request that end at one, in; whose I/O that was, how long it was queued and
//! served, who else used the disk, and stalls that several requests stood for, out.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use reqtrace_recording::{Comm, DiskUse};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Cause, Culprit, Parts, Piece, ThreadId};
use crate::report::blame::{DiskUser, DiskWaits};

/// I/O of threads that is kept: some 5 MB. The oldest goes.
const MAX_IO: usize = 1 << 16;
/// Sums of processes that are kept for the whole trace.
const MAX_USES: usize = 1 << 15;
/// Tenths of a second in which requests of one type waited, and waits that may be stalls.
const MAX_SLICES: usize = 1 << 17;
const MAX_STANDS: usize = 1 << 14;
const SLICE_NS: u64 = 100_000_000;
/// A wait that is shorter is no stall.
const STALL_NS: u64 = 10_000_000;
/// Waits that a stall ends do so together.
const TOGETHER_NS: u64 = 20_000_000;
/// Users that are named.
const MOST_USERS: usize = 5;

/// One I/O.
#[derive(Clone, Copy, Debug)]
struct Io {
    device: u32,
    is_kernel: bool,
    from_ns: u64,
    issued_ns: u64,
    until_ns: u64,
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
    names: FxHashMap<u32, Comm>,
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
            all.pop_front();
            if all.is_empty() {
                self.threads.remove(&oldest);
            }
        }
        let key = (disk.device, disk.tgid);
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
        if self.uses.len() >= MAX_USES {
            self.uses.pop_front();
            self.forgotten += 1;
        }
        self.uses.push_back(sum);
    }

    /// Who had most bytes in times that do not overlap, in order: a thread of which each I/O is known, or another process. A
    /// thread of the kernel's own is neither: what it writes, or a limit has it submit later, is somebody else's.
    pub(crate) fn most_used(&self, times: &[(u64, u64)]) -> Option<Used> {
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
            comm: named.map(|used| used.comm),
            ..most
        })
    }

    /// I/O of a thread that overlaps with a time, the last that was complete first.
    fn of(&self, thread: ThreadId, from_ns: u64, until_ns: u64) -> Vec<Io> {
        let all = self.threads.get(&thread).into_iter().flatten();
        all.rev()
            .take_while(|io| io.until_ns > from_ns)
            .filter(|io| io.from_ns < until_ns)
            .copied()
            .collect()
    }
}

/// Waits for disks of the requests of one type.
#[derive(Clone, Debug, Default)]
pub(super) struct AtDisks {
    sum: DiskWaits,
    devices: BTreeMap<u32, u64>,
    slices: BTreeSet<u64>,
    stands: Vec<(u64, u64)>,
}

impl AtDisks {
    /// Adds what one request of this thread, which stands for so many, waited for disks.
    pub(super) fn add(&mut self, disks: &Disks, parts: &Parts<'_>, thread: ThreadId, weight: u64) {
        let mut longest: Option<(u64, u64)> = None;
        for piece in parts.pieces.iter().filter(|piece| is_at_disk(piece)) {
            self.piece(disks, piece, thread, weight);
            let (from_ns, until_ns) = (piece.from_ns, piece.from_ns + piece.ns);
            let first = from_ns / SLICE_NS;
            for slice in first..=(until_ns / SLICE_NS).min(first + MAX_SLICES as u64) {
                if self.slices.len() < MAX_SLICES {
                    self.slices.insert(slice);
                }
            }
            if longest.is_none_or(|(from, until)| piece.ns > until - from) {
                longest = Some((from_ns, until_ns));
            }
        }
        if let Some(stand) = longest
            && stand.1 - stand.0 >= STALL_NS
            && self.stands.len() < MAX_STANDS
        {
            self.stands.push(stand);
        }
    }

    /// From its end back: of I/O at the same time the last one is what was waited for.
    fn piece(&mut self, disks: &Disks, piece: &Piece, thread: ThreadId, weight: u64) {
        let (whose, is_other) = match piece.outcome.culprit {
            Culprit::Request(other, ..) | Culprit::Thread(other) => (other, other != thread),
            _ => (thread, false),
        };
        let from_ns = piece.from_ns;
        let mut until_ns = from_ns + piece.ns;
        self.sum.waited_ns += piece.ns * weight;
        for io in disks.of(whose, from_ns, until_ns) {
            let end_ns = io.until_ns.min(until_ns);
            let begin_ns = io.from_ns.max(from_ns);
            if begin_ns >= end_ns {
                continue;
            }
            // A flush that the kernel did with others has no time of its own at the device.
            let issued_ns = match io.issued_ns {
                0 => begin_ns,
                issued_ns => issued_ns.clamp(begin_ns, end_ns),
            };
            let ns = (end_ns - begin_ns) * weight;
            self.sum.queued_ns += (issued_ns - begin_ns) * weight;
            self.sum.served_ns += (end_ns - issued_ns) * weight;
            self.sum.count += weight;
            let into = match (io.is_kernel, is_other) {
                (true, _) => &mut self.sum.journal_ns,
                (false, true) => &mut self.sum.others_ns,
                (false, false) => &mut self.sum.own_ns,
            };
            *into += ns;
            *self.devices.entry(io.device).or_default() += ns;
            until_ns = begin_ns;
        }
    }

    /// With who else used these disks meanwhile; none without waits, or where the trace does not say what disks did.
    pub(super) fn report(&self, disks: &Disks, servers: &FxHashSet<u32>) -> Option<DiskWaits> {
        if self.sum.waited_ns == 0 || disks.names.is_empty() {
            return None;
        }
        let name = |device: u32| disks.names.get(&device).map(Comm::text);
        let mut by_time: Vec<_> = self.devices.iter().collect();
        by_time.sort_by_key(|(device, ns)| (Reverse(**ns), **device));
        let mut users: BTreeMap<(u32, u32), DiskUser> = BTreeMap::new();
        let is_it = |used: &&DiskUse| {
            let slices = used.from_ns / SLICE_NS..=used.until_ns / SLICE_NS;
            let is_here = self.devices.is_empty() || self.devices.contains_key(&used.device);
            is_here && !servers.contains(&used.tgid) && self.slices.range(slices).next().is_some()
        };
        for used in disks.uses.iter().chain(disks.open.values()).filter(is_it) {
            let user = users.entry((used.device, used.tgid)).or_default();
            user.pid = used.tgid;
            user.comm = used.comm.text();
            user.disk = used.disk.text();
            user.is_kernel = used.is_kernel;
            user.read_bytes += used.read_bytes;
            user.written_bytes += used.written_bytes;
            user.flushes += used.flushes;
            user.count += used.count;
        }
        let mut users: Vec<DiskUser> = users.into_values().collect();
        users.sort_by_key(|user| (Reverse(user.read_bytes + user.written_bytes), user.pid));
        users.truncate(MOST_USERS);
        let (stalls, longest_stall) = stalls(&self.stands);
        Some(DiskWaits {
            disks: by_time
                .into_iter()
                .filter_map(|(device, _)| name(*device))
                .collect(),
            users,
            stalls,
            longest_stall,
            ..self.sum.clone()
        })
    }
}

fn is_at_disk(piece: &Piece) -> bool {
    piece.outcome.cause == Cause::Disk && piece.from_ns != 0
}

/// Times that requests stood for, in; how many stalls there were, and of the longest how many requests stood for the same
/// nanoseconds, out. Waits that end together are of one stall, but for those that lasted less than half as long as the longest.
pub(crate) fn stalls(stands: &[(u64, u64)]) -> (u64, Option<(u64, u64)>) {
    let mut stands = stands.to_vec();
    stands.sort_by_key(|(from, until)| (*until, *from));
    let mut count = 0;
    let mut longest: Option<(u64, u64)> = None;
    for together in stands.chunk_by(|one, next| next.1 - one.1 <= TOGETHER_NS) {
        let most = together.iter().map(|(from, until)| until - from).max();
        let least = most.unwrap_or(0) / 2;
        let of = together
            .iter()
            .filter(|(from, until)| until - from >= least);
        let begin = of.clone().map(|(from, _)| *from).max().unwrap_or(0);
        let end = of.clone().map(|(_, until)| *until).min().unwrap_or(0);
        let (requests, common) = (of.count() as u64, end.saturating_sub(begin));
        if requests < 2 || common < STALL_NS {
            continue;
        }
        count += 1;
        if longest.is_none_or(|(_, ns)| common > ns) {
            longest = Some((requests, common));
        }
    }
    (count, longest)
}

#[cfg(test)]
mod tests {
    use reqtrace_base::plain::Plain;

    use super::super::Outcome;
    use super::*;

    const MS: u64 = 1_000_000;
    const SERVER: ThreadId = ThreadId { tgid: 10, tid: 11 };
    const JOURNAL: ThreadId = ThreadId { tgid: 20, tid: 20 };

    fn io(thread: ThreadId, times: [u64; 3]) -> DiskUse {
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

    fn waits(disks: &Disks, culprit: Culprit, from: u64, ns: u64) -> DiskWaits {
        let outcome = Outcome {
            cause: Cause::Disk,
            reason: None,
            culprit,
            depth: 0,
        };
        let piece = Piece {
            class: None,
            outcome,
            ns: ns * MS,
            from_ns: from * MS,
            wait: None,
        };
        let parts = Parts {
            pieces: vec![piece],
            ..Parts::default()
        };
        let mut at = AtDisks::default();
        at.add(disks, &parts, SERVER, 2);
        let servers = FxHashSet::from_iter([SERVER.tgid]);
        at.report(disks, &servers).unwrap()
    }

    #[test]
    fn a_wait_is_split_into_queue_device_and_what_is_not_bound() {
        let mut disks = Disks::default();
        // The last to be complete counts; the other only for the time before it.
        disks.take(&io(SERVER, [100, 102, 110]));
        disks.take(&io(SERVER, [105, 106, 120]));
        // Before, and late.
        disks.take(&io(SERVER, [10, 11, 12]));
        disks.take(&io(JOURNAL, [90, 91, 130]));
        let own = waits(&disks, Culprit::OwnInterrupt, 95, 25);
        assert_eq!(own.waited_ns, 50 * MS);
        assert_eq!((own.own_ns, own.journal_ns, own.others_ns), (40 * MS, 0, 0));
        assert_eq!((own.queued_ns, own.served_ns), (2 * 3 * MS, 2 * 17 * MS));
        assert_eq!(own.not_bound_ns(), 10 * MS);
        assert_eq!(own.disks, [Plain::of("vda")]);
        let behalf = waits(&disks, Culprit::Thread(JOURNAL), 95, 25);
        assert_eq!((behalf.own_ns, behalf.journal_ns), (0, 50 * MS));
        let nobody = waits(&disks, Culprit::OwnInterrupt, 200, 5);
        assert_eq!(nobody.not_bound_ns(), 10 * MS);
    }

    #[test]
    fn who_used_the_disk_meanwhile_and_not_at_another_time() {
        let mut disks = Disks::default();
        let dd = ThreadId { tgid: 30, tid: 30 };
        let sum = |from, until| DiskUse {
            is_sum: true,
            flushes: 1,
            ..io(dd, [from, 0, until])
        };
        disks.take(&sum(100, 210));
        disks.take(&sum(5_000, 5_100));
        disks.take(&io(SERVER, [100, 102, 110]));
        let own = waits(&disks, Culprit::OwnInterrupt, 95, 15);
        let [user] = own.users.as_slice() else {
            panic!("{own:?}");
        };
        assert_eq!((user.pid, user.written_bytes, user.flushes), (30, 4096, 1));
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

    #[test]
    fn waits_that_end_together_are_one_stall() {
        let ms = |from: u64, until: u64| (from * MS, until * MS);
        let all = [
            ms(0, 926),
            ms(10, 930),
            ms(5, 927),
            ms(900, 928),
            ms(2_000, 2_300),
            ms(4_000, 4_200),
            ms(4_050, 4_201),
        ];
        assert_eq!(stalls(&all), (2, Some((3, 916 * MS))));
        assert_eq!(stalls(&all[4..5]), (0, None));
        assert_eq!(stalls(&[]), (0, None));
    }
}
