//! Sizes and offsets that both sides rely on, checked when either side is compiled.
//!
//! Entries of an array begin 56 bytes into a line of the cache (Linux 6.18), unless it can be mapped: then they lie in pages of 4 KiB,
//! which costs more look-ups of pages than lines are saved. So what has to be in one line begins with its second word.

use core::mem::{offset_of, size_of};

use crate::before::{LastRead, Unread};
use crate::call::{CallRecord, MAX_DEPTH, NOTED_ARGUMENTS, RunningCalls};
use crate::config::{Control, Filled, Process};
use crate::cost::ProgramTime;
use crate::cpu::{CpuWaitRecord, MAX_RUNNERS, MAX_RUNS, Run, RunnerRecord, Runs};
use crate::disk::{DiskRecord, OpenIo};
use crate::filter::{LengthHistogram, POWERS};
use crate::keyed::{KeyEntry, KeyId, KeyedState, MAX_KEY_PARTS};
use crate::label::{LabelPlan, MAX_EQUALS, Reading};
use crate::limits::{
    CALL_RING_BYTES, MAX_FRAMES, MAX_LABEL, MAX_LONGEST, MAX_PATH, MAX_SLOTS, MAX_WATCHED,
    RING_BYTES,
};
use crate::marker::{
    AttributePlan, BriefPlan, Condition, MAX_CONDITION_TEXT, MAX_CONDITIONS, MAX_PLACES,
    MAX_REASONS, MAX_TEXT, MAX_WAITS, MORE_PLACES, MarkerPlan, ParkPlan, WaitCode,
};
use crate::origin::{Origin, Sender, Sent, Socket, Way};
use crate::passed::Passed;
use crate::record::{
    AwayRecord, BlockSite, ExtraRecord, FileRecord, HelperRecord, IntervalRecord, LongBlock,
    MAX_PARKS, OriginRecord, ProcessRecord, RequestRecord, SampleRecord, Slot, TextHead,
    TextRecord, WakerRecord,
};
use crate::sums::{StackSum, StackSumKey, StoredStack, TypeTotals, WalkTotals};
use crate::thread::{RequestState, ThreadState, Units};
use crate::unwind::{MAX_MAPPINGS, Mapping, Mappings, Row};

const _: () = {
    assert!(size_of::<BlockSite>() == 24);
    assert!(size_of::<Slot>() == 32);
    assert!(size_of::<LongBlock>() == 56);
    assert!(offset_of!(RequestRecord, begin_ns) == 24);
    assert!(offset_of!(RequestRecord, comm) == 104);
    assert!(offset_of!(RequestRecord, longest) == 120);
    assert!(offset_of!(RequestRecord, slots) == 120 + 56 * MAX_LONGEST);
    assert!(offset_of!(RequestRecord, label) == 120 + 56 * MAX_LONGEST + 32 * MAX_SLOTS);
    assert!(size_of::<RequestRecord>() == 120 + 56 * MAX_LONGEST + 32 * MAX_SLOTS + MAX_LABEL);
    assert!(size_of::<WakerRecord>() == 40);
    assert!(size_of::<IntervalRecord>() == 144);
    assert!(size_of::<HelperRecord>() == 32);
    assert!(size_of::<Run>() == 40);
    assert!(size_of::<Runs>() == 16 + 40 * MAX_RUNS && MAX_RUNS.is_power_of_two());
    assert!(size_of::<RunnerRecord>() == 48);
    assert!(size_of::<CpuWaitRecord>() == 48 + 48 * MAX_RUNNERS && MAX_RUNNERS.is_power_of_two());
    assert!(size_of::<OpenIo>() == 80);
    assert!(size_of::<DiskRecord>() == 112);
    assert!(size_of::<SampleRecord>() == 56);
    assert!(size_of::<ProcessRecord>() == 48);
    assert!(size_of::<FileRecord>() == 40 + MAX_PATH);
    assert!(size_of::<StackSumKey>() == 40);
    assert!(size_of::<crate::sums::SentSums>() == 16);
    assert!(size_of::<StackSum>() == 48);
    assert!(size_of::<LengthHistogram>() == 8 * POWERS);
    assert!(size_of::<StoredStack>() == 16 + 8 * MAX_FRAMES);
    assert!(size_of::<TypeTotals>().is_multiple_of(8));
    assert!(size_of::<WalkTotals>().is_multiple_of(8));
    assert!(size_of::<Control>() == 48);
    assert!(size_of::<Filled>() == 16);
    assert!(size_of::<ProgramTime>() == 64);
    assert!(size_of::<Process>() == 32);
    // Two in a cache line, and none in two.
    assert!(size_of::<Passed>() == 32);
    assert!(size_of::<Units>() == 64);
    assert!(size_of::<ThreadState>() == 368);
    assert!(size_of::<ExtraRecord>() == 264 + 12 * MORE_PLACES + 8 + 24 * MAX_PARKS);
    assert!(size_of::<TextHead>() == 32);
    assert!(size_of::<TextRecord>() == 32 + MAX_TEXT);
    assert!(size_of::<AwayRecord>() == 120);
    assert!(size_of::<Unread>() == 16);
    assert!(size_of::<LastRead>() == 24);
    assert!(size_of::<Sender>() == 56);
    assert!(size_of::<Origin>() == 40 + size_of::<Sender>());
    assert!(size_of::<Sent>() == 8 + size_of::<Sender>());
    assert!(size_of::<Socket>() == 120 + 2 * size_of::<Sender>());
    assert!(size_of::<Way>() == 32);
    assert!(size_of::<OriginRecord>() == 48 + size_of::<Sender>());
    assert!(size_of::<KeyId>() == 8 + 8 * MAX_KEY_PARTS);
    assert!(size_of::<KeyEntry>() == 64);
    assert!(size_of::<KeyedState>() == 248 + size_of::<Origin>() + size_of::<ExtraRecord>());
    assert!(size_of::<RequestState>() == 32 + size_of::<RequestRecord>() + size_of::<KeyedState>());
    assert!(size_of::<Condition>() == size_of::<Reading>() + 48 + MAX_CONDITION_TEXT + 2);
    assert!(
        size_of::<MarkerPlan>()
            == MAX_CONDITIONS * size_of::<Condition>()
                + 2 * MAX_KEY_PARTS * size_of::<Reading>()
                + 32
                + size_of::<ParkPlan>()
    );
    // Two lines of a CPU's cache, in the second the second condition.
    assert!(size_of::<BriefPlan>() == 128 && offset_of!(BriefPlan, second) == 72);
    assert!(size_of::<ParkPlan>() == 48 + MAX_REASONS + MAX_WAITS * size_of::<WaitCode>());
    assert!(MAX_PLACES + 2 < 15, "a place fits into a word of a key");
    assert!(
        size_of::<AttributePlan>()
            == MAX_CONDITIONS * size_of::<Condition>() + 2 * size_of::<Reading>() + 24
    );
    assert!(size_of::<Row>() == 8);
    assert!(size_of::<Mapping>() == 32);
    assert!(size_of::<Mappings>() == 8 + 32 * MAX_MAPPINGS);
    assert!(size_of::<Reading>() == 8 + 4 * 5 + 7 + 5);
    assert!(size_of::<LabelPlan>() == 3 * size_of::<Reading>() + 8 * MAX_EQUALS + 16);
    assert!(RING_BYTES.is_power_of_two());
    assert!(size_of::<CallRecord>() == 16 + 8 * NOTED_ARGUMENTS);
    assert!(size_of::<RunningCalls>() == 8 + 16 * MAX_DEPTH);
    assert!(MAX_DEPTH.is_power_of_two());
    assert!(CALL_RING_BYTES.is_power_of_two());
    assert!(MAX_WATCHED.is_power_of_two());
};

#[cfg(feature = "user")]
mod pod {
    use super::CallRecord;
    use super::{AttributePlan, BriefPlan, KeyEntry, KeyId, MarkerPlan, RequestState};
    use super::{Control, FileRecord, Filled, LabelPlan, LengthHistogram, Mappings, Process};
    use super::{
        ProcessRecord, ProgramTime, RequestRecord, Row, StackSum, StackSumKey, StoredStack,
    };
    use super::{TypeTotals, WalkTotals};
    use crate::sums::SentSums;
    use crate::thread::{Thread, Units};

    // SAFETY: all are `repr(C)`, made of integers and arrays of them, without padding (the sizes
    // above are the sums of their fields), so any bytes are a valid value.
    mod impls {
        use super::*;
        macro_rules! pod {
            ($($name:ty),*) => { $(
                // SAFETY: see above.
                unsafe impl aya::Pod for $name {}
            )* };
        }
        pod!(
            Control,
            FileRecord,
            Filled,
            LabelPlan,
            Process,
            ProcessRecord,
            ProgramTime,
            RequestRecord
        );
        pod!(
            AttributePlan,
            BriefPlan,
            KeyEntry,
            KeyId,
            MarkerPlan,
            RequestState
        );
        pod!(CallRecord);
        pod!(Mappings, Row);
        pod!(
            LengthHistogram,
            StackSum,
            StackSumKey,
            SentSums,
            StoredStack,
            Thread,
            TypeTotals,
            Units,
            WalkTotals
        );
    }
}
