//! Waits for disks: pieces of each request that end at one, and what disks did, in; whose I/O that was, how long it was queued and
//! served, who else used the disk, and stalls that several requests stood for, out.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use reqtrace_recording::{Comm, DiskUse};

use super::disk::{Disks, SLICE_NS};
use super::servers::Servers;
use super::{Cause, Culprit, Parts, Piece, ThreadId};
use crate::report::blame::{DiskUser, DiskWaits};

/// Tenths of a second in which requests of one type waited, and waits that may be stalls.
const MAX_SLICES: usize = 1 << 17;
const MAX_STANDS: usize = 1 << 14;
/// A wait that is shorter is no stall.
const STALL_NS: u64 = 10_000_000;
/// Waits that a stall ends do so together.
const TOGETHER_NS: u64 = 20_000_000;
/// Users that are named.
const MOST_USERS: usize = 5;

/// How many stalls there were, and of the longest how many requests stood for the same nanoseconds.
type Stalls = (u64, Option<(u64, u64)>);

/// Waits for disks of the requests of one type.
#[derive(Clone, Debug, Default)]
pub(super) struct AtDisks {
    sum: DiskWaits,
    devices: BTreeMap<u32, u64>,
    slices: BTreeSet<u64>,
    stands: Vec<(u64, u64)>,
    /// Of waits that are no more in `stands`.
    over: Stalls,
    /// Waits that are not looked at, because too many ended together.
    pub(super) left_out: u64,
}

impl AtDisks {
    /// Adds what one request of this thread, which stands for so many, waited for disks.
    pub(super) fn add(&mut self, disks: &Disks, parts: &Parts<'_>, thread: ThreadId, weight: u64) {
        let mut longest: Option<(u64, u64)> = None;
        for piece in parts.pieces.iter().filter(|piece| is_at_disk(piece)) {
            self.piece(disks, parts, piece, thread, weight);
            let (from_ns, until_ns) = (piece.from_ns, piece.from_ns + piece.ns);
            let first = from_ns / SLICE_NS;
            for slice in first..=(until_ns / SLICE_NS).min(first + MAX_SLICES as u64) {
                self.slices.insert(slice);
                // Fewer sums of who used disks are kept: those of the oldest have gone, too.
                if self.slices.len() > MAX_SLICES {
                    self.slices.pop_first();
                }
            }
            if longest.is_none_or(|(from, until)| piece.ns > until - from) {
                longest = Some((from_ns, until_ns));
            }
        }
        if let Some(stand) = longest
            && stand.1 - stand.0 >= STALL_NS
        {
            self.stands.push(stand);
            if self.stands.len() >= MAX_STANDS {
                self.fold();
            }
        }
    }

    /// Makes room: counts the stalls that are over. What ended in the last [`TOGETHER_NS`] may be of one that is not; of too many
    /// such waits the longest stay.
    fn fold(&mut self) {
        let stands = &mut self.stands;
        stands.sort_by_key(|(from, until)| (*until, *from));
        let last_ns = stands.last().map_or(0, |(_, until)| *until);
        let since_ns = last_ns.saturating_sub(TOGETHER_NS);
        let over = stands.partition_point(|(_, until)| *until < since_ns);
        // No stall is cut in two, unless waits end all the time.
        let is_apart = |at: &usize| stands[*at].1 - stands[*at - 1].1 > TOGETHER_NS;
        let mut cuts = (MAX_STANDS / 2..=over).rev();
        let cut = cuts.find(is_apart).unwrap_or(over);
        let going_on = stands.split_off(cut);
        self.over = both(self.over, stalls(stands));
        self.stands = going_on;
        if self.stands.len() > MAX_STANDS / 2 {
            self.stands
                .sort_by_key(|(from, until)| Reverse(until - from));
            self.left_out += (self.stands.len() - MAX_STANDS / 2) as u64;
            self.stands.truncate(MAX_STANDS / 2);
        }
    }

    /// From its end back: of I/O at the same time the last one is what was waited for. It is that of the thread that was
    /// blocked: a request with a key may have gone on with another one since.
    fn piece(
        &mut self,
        disks: &Disks,
        parts: &Parts<'_>,
        piece: &Piece,
        thread: ThreadId,
        weight: u64,
    ) {
        let (culprit, is_other) = match piece.outcome.culprit {
            Culprit::Request(other, ..) => (other, true),
            Culprit::Thread(other) => (other, other != thread),
            _ => (thread, false),
        };
        let wait = piece.wait.and_then(|wait| parts.waits.get(wait as usize));
        let whose = wait.map_or(culprit, |wait| wait.kept.thread);
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
    pub(super) fn report(&self, disks: &Disks, servers: &Servers) -> Option<DiskWaits> {
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
            let serves = servers.has(used.tgid, used.from_ns);
            is_here && !serves && self.slices.range(slices).next().is_some()
        };
        for used in disks.uses().filter(is_it) {
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
        let (stalls, longest_stall) = both(self.over, stalls(&self.stands));
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
pub(crate) fn stalls(stands: &[(u64, u64)]) -> Stalls {
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

/// Those of an earlier and of a later time.
fn both(earlier: Stalls, later: Stalls) -> Stalls {
    let longest = [later.1, earlier.1].into_iter().flatten();
    (earlier.0 + later.0, longest.max_by_key(|(_, ns)| *ns))
}

#[cfg(test)]
mod tests {
    use reqtrace_base::plain::Plain;
    use reqtrace_recording::{AddressSpace, Request, RequestOf, WakerIs};

    use super::*;
    use crate::blame::disk::tests::{JOURNAL, MS, SERVER, io};
    use crate::blame::tests::{Recorded, thread};
    use crate::blame::{By, Outcome, split};

    fn parts(culprit: Culprit, from: u64, ns: u64) -> Parts<'static> {
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
        Parts {
            pieces: vec![piece],
            ..Parts::default()
        }
    }

    fn waits(disks: &Disks, culprit: Culprit, from: u64, ns: u64) -> DiskWaits {
        let mut at = AtDisks::default();
        at.add(disks, &parts(culprit, from, ns), SERVER, 2);
        let mut servers = Servers::default();
        servers.serves(SERVER.tgid, 0);
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

    /// A request with a key waits for the disk on one thread, and ends on another one.
    #[test]
    fn io_is_that_of_the_thread_that_was_blocked() {
        let keyed = RequestOf {
            begin_ns: 90 * MS,
            request_type: 1,
        };
        let held = WakerIs::InRequest(keyed);
        let disk = Some(By::Interrupt(Cause::Disk));
        let mut recorded = Recorded::new();
        let ms = |times: [u64; 3]| times.map(|at| at * MS);
        recorded.interval_of(2, Some(keyed), ms([105, 119, 120]), disk);
        let timelines = &mut recorded.timelines;
        timelines.left(thread(2), keyed, 121 * MS);
        timelines.request(&Request {
            id: 1,
            request_type: 1,
            space: AddressSpace {
                tgid: 1,
                exec_generation: 0,
            },
            tid: 3,
            begin_ns: keyed.begin_ns,
            end_ns: 140 * MS,
            weight: 1,
            ..Request::default()
        });
        let waker = Some(By::Thread(thread(3), held));
        let began = 80 * MS;
        recorded.interval(1, Some(began), ms([100, 130, 130]), waker);
        recorded.request(1, began, 150 * MS);
        let mut disks = Disks::default();
        disks.take(&io(thread(2), [105, 106, 119]));
        // Of the thread on which it ended, for something else.
        disks.take(&io(thread(3), [104, 105, 118]));
        let waits = |tid: u32, of: RequestOf| {
            let parts = split(&recorded.timelines, thread(tid), of, 140 * MS);
            let mut at = AtDisks::default();
            at.add(&disks, &parts, thread(tid), 1);
            at.report(&disks, &Servers::default()).unwrap()
        };
        let own = waits(3, keyed);
        assert_eq!((own.waited_ns, own.own_ns), (14 * MS, 14 * MS), "{own:?}");
        assert_eq!((own.queued_ns, own.served_ns), (MS, 13 * MS));
        let plain = RequestOf {
            begin_ns: began,
            request_type: 0,
        };
        let held_up = waits(1, plain);
        assert_eq!(
            (held_up.waited_ns, held_up.others_ns),
            (14 * MS, 14 * MS),
            "{held_up:?}"
        );
        assert_eq!((held_up.queued_ns, held_up.served_ns), (MS, 13 * MS));
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

    #[test]
    fn stalls_are_counted_however_many_waits_there_were() {
        let mut disks = Disks::default();
        disks.take(&io(SERVER, [1, 2, 3]));
        let mut at = AtDisks::default();
        let mut wait = |from: u64, ns: u64| {
            let parts = parts(Culprit::OwnInterrupt, from, ns);
            at.add(&disks, &parts, SERVER, 1);
        };
        wait(1_000, 1_000);
        wait(1_001, 1_000);
        let alone = 3 * MAX_STANDS as u64;
        for number in 0..alone {
            wait(10_000 + 100 * number, 15);
        }
        for late in 0..3 {
            wait(10_000 + 100 * alone + late, 5_000);
        }
        let waits = at.report(&disks, &Servers::default()).unwrap();
        let stalls = (waits.stalls, waits.longest_stall);
        assert_eq!(stalls, (2, Some((3, 4_998 * MS))));
        assert_eq!(at.left_out, 0);
    }

    #[test]
    fn of_too_many_waits_that_end_together_the_longest_are_looked_at() {
        let mut disks = Disks::default();
        disks.take(&io(SERVER, [1, 2, 3]));
        let mut at = AtDisks::default();
        for number in 0..MAX_STANDS as u64 {
            let parts = parts(Culprit::OwnInterrupt, 1_000, 100 + number % 10);
            at.add(&disks, &parts, SERVER, 1);
        }
        let half = MAX_STANDS as u64 / 2;
        let waits = at.report(&disks, &Servers::default()).unwrap();
        let stalls = (waits.stalls, waits.longest_stall);
        assert_eq!(stalls, (1, Some((half, 104 * MS))));
        assert_eq!(at.left_out, half);
    }

    #[test]
    fn of_the_times_with_waits_the_last_ones_stay() {
        let disks = Disks::default();
        let mut at = AtDisks::default();
        for tenth in 0..=MAX_SLICES as u64 {
            let parts = parts(Culprit::OwnInterrupt, 1 + 100 * tenth, 1);
            at.add(&disks, &parts, SERVER, 1);
        }
        let ends = (at.slices.first(), at.slices.last());
        assert_eq!(ends, (Some(&1), Some(&(MAX_SLICES as u64))));
    }
}
