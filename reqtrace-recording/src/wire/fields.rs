//! The numbers of all fields. A number is never given to another field; what is no longer written stands as a
//! comment.

use super::columns::{Columns, Thread, WokenBy};
use super::interval::WireInterval;
use super::numbers::numbered;
use super::open::WireOpen;
use super::{Events, Tick};
use crate::event::{
    Away, AwayInterval, BlockSite, ClockStep, Cost, CpuWait, DiskUse, End, File, Futex, Header,
    LateChildren, LengthHistogram, LengthsOf, LongBlock, Loss, Mapping, Marker, MarkerCount,
    MarkerCounts, Name, Object, Options, Origin, Park, Part, Process, ProgramCost, Runner, Sample,
    Sent, ShedSpan, Slot, Stack, StackSum, StackSumKey, SumOf, Thread as ThreadName, TypeTotals,
    UnmatchedWait, Unrecorded, Window,
};

numbered!(Header {
    1 version, 2 host, 3 kernel, 4 start_ns, 5 monotonic_to_unix_ns, 6 profile, 7 profile_text, 8 options one,
    9 markers each, 10 unmatched_waits each, 11 blame, 12 more_profile_texts bounded, 13 cpu_rate, 14 cpu_engine,
    15 before, 16 sockets bounded, 17 architecture, 18 syscalls, 19 lacks bounded, 20 part one,
    21 cpus, 22 cpu_model, 23 holders, 24 interrupts, 25 steal,
});
numbered!(Part { 1 number, 2 trace_start_ns, 3 head_until, 4 unwritten });
numbered!(Options {
    1 labels, 2 histogram, 3 no_user_stacks, 4 no_kernel_stacks, 5 stack_filter, 6 preempted_stacks,
    7 keep_slow_ns, 8 one_in,
});
numbered!(Marker { 1 request, 2 marker, 3 place, 4 object, 5 probes });
numbered!(UnmatchedWait { 1 wait, 2 functions bounded });

numbered!(Events { 1 after, 2 kind, 3 fields entries, 4 requests one });
numbered!(Process { 1 space, 2 change, 3 parent, 4 time_ns, 5 name });
numbered!(Object { 1 id, 2 path, 3 build_id });
numbered!(Mapping { 1 space, 2 start, 3 end, 4 offset, 5 object });
numbered!(File { 1 file, 2 path, 3 device, 4 inode });
numbered!(ThreadName { 1 tgid, 2 tid, 3 name });
numbered!(Name { 1 address, 2 is_return, 3 frames bounded });
numbered!(Stack { 1 space, 2 id, 3 stop, 4 addresses });
numbered!(Futex { 1 space, 2 address, 3 lies_in });
numbered!(Sample {
    1 space, 2 tid, 3 request, 4 weight, 5 at_ns, 6 user_stack, 7 kernel_stack,
});
numbered!(Tick { 1 now_ns });
numbered!(Sent { 1 second, 2 requests, 3 latency_ns });
numbered!(ClockStep { 1 at_ns, 2 to_unix_ns });
numbered!(Loss { 1 name, 2 count });
numbered!(End { 1 stop_ns, 2 ended_by, 3 late_children one });
numbered!(LateChildren { 1 count, 2 slowest_ns });

numbered!(WireInterval {
    1 space, 2 tid, 3 sequence, 4 request, 5 site one, 6 in_ns, 7 off_ns, 8 blocked, 9 futex, 10 holder,
    11 woken_from,
});
numbered!(AwayInterval {
    1 space, 2 request, 3 from_tid, 4 place, 5 is_queued, 6 since_ns, 7 until_ns, 8 by_tid, 9 by_request, 10 is_ready,
    11 woken_from, 12 by_helper_since_ns, 13 goes_on, 14 ran,
    15 ran_until_ns,
});
numbered!(Origin {
    1 space, 2 request, 3 until_ns, 4 arrived_ns, 5 sender, 6 sent_ns,
});

numbered!(CpuWait {
    1 space, 2 tid, 3 cpu, 4 from_ns, 5 until_ns, 6 limited_ns, 7 cgroup, 8 runners each,
});
numbered!(DiskUse {
    1 device, 2 disk, 3 tgid, 4 tid, 5 comm, 6 is_kernel, 7 is_sum, 8 from_ns, 9 issued_ns, 10 until_ns, 11 read_bytes,
    12 written_bytes, 13 count, 14 flushes,
});
numbered!(Unrecorded { 1 request_type, 2 tgid, 3 tid, 4 comm, 5 begin_ns, 6 end_ns });
numbered!(Runner { 1 tgid, 2 tid, 3 policy, 4 priority, 5 comm, 6 ns });

numbered!(BlockSite { 1 user_stack, 2 kernel_stack, 3 syscall, 4 file });
numbered!(Slot { 1 site one, 2 blocked_ns });
numbered!(LongBlock {
    1 site one, 2 start_ns, 3 blocked_ns, 4 run_queue_ns, 5 waker_tid, 6 waker_tgid,
});
numbered!(Away { 1 place, 2 count, 3 ns });
numbered!(Park { 1 stack, 2 place, 3 count, 4 ns });
numbered!(WireOpen {
    1 id, 2 request_type, 3 space, 4 tid, 5 reason, 6 comm, 7 label, 8 begin_ns, 9 end_ns, 10 run_queue_ns,
    11 preempted_ns, 12 unattributed_ns, 13 blocks, 14 preemptions, 15 max_depth, 16 slots each, 17 longest each,
    18 blocked_in, 19 more_weight, 20 away each, 21 away_in, 22 moves, 23 numbers, 24 texts bounded, 25 waited_before,
    26 parks each, 27 interrupts_ns, 28 softirqs_ns, 29 steal_ns,
});

numbered!(Window {
    1 until_ns, 2 totals each, 3 sums each, 4 histograms each, 5 longest_apart, 6 markers each,
});
numbered!(TypeTotals {
    1 count, 2 latency_ns, 3 run_queue_ns, 4 preempted_ns, 5 blocked_ns, 6 unattributed_ns, 7 max_ns, 8 begins,
    9 ends, 10 incomplete, 11 nested, 12 other_type, 13 ends_without_begin, 14 unsampled, 15 beyond,
    16 histogram counts, 17 parked_ns, 18 queued_ns, 19 unknown_keys, 20 running_elsewhere,
    21 children, 22 withheld,
});
numbered!(SumOf { 1 key one, 2 sum one });
numbered!(LengthsOf { 1 key one, 2 lengths one });
numbered!(LengthHistogram { 1 counts counts });
numbered!(StackSumKey {
    1 user_stack, 2 kernel_stack, 3 tgid, 4 exec_generation, 5 request_type, 6 off_kind, 7 syscall, 8 file,
});
numbered!(StackSum {
    1 off_ns, 2 run_queue_ns, 3 count, 4 longest_ns, 5 bytes, 6 longest_run_queue_ns,
});
numbered!(MarkerCount {
    1 request, 2 marker, 3 place, 4 object, 5 probes, 6 counts one,
});
numbered!(MarkerCounts {
    1 hits, 2 condition_false, 3 unknown_keys, 4 elsewhere, 5 other_type, 6 parked_already, 7 resumed, 8 not_ready,
});
numbered!(Cost {
    1 programs each, 2 walks, 3 overhead, 4 shed each, 5 untraced, 6 cold_percent,
});
numbered!(ProgramCost { 1 name, 2 runs, 3 run_ns, 4 recursion_misses });
numbered!(ShedSpan { 1 what, 2 from_ns, 3 to_ns });

numbered!(Columns {
    1 first_id, 2 base_ns, 3 threads each, 4 sites each, 5 wakers each, 6 labels bounded, 7 thread, 8 request_type,
    9 reason, 10 end, 11 latency, 12 run_queue, 13 preempted, 14 unattributed, 15 more_blocks, 16 preemptions,
    17 max_depth, 18 slots, 19 longest, 20 label, 21 slot_site, 22 slot_blocked, 23 long_slot, 24 long_site,
    25 long_start, 26 long_blocked, 27 long_run_queue, 28 long_waker, 29 more_weight, 30 aways, 31 away_place,
    32 away_count, 33 away_ns, 34 moves, 35 attributes, 36 attribute, 37 attribute_value, 38 texts bounded,
    39 waited_before, 40 parks, 41 park_stack, 42 park_place, 43 park_count, 44 park_ns, 45 interrupts, 46 softirqs,
    47 steal,
});
numbered!(Thread { 1 space, 2 tid, 3 comm });
numbered!(WokenBy { 1 tid, 2 tgid });
