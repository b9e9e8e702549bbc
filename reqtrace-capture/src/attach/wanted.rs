//! What is to be loaded: options and plans in, a [`LoadPlan`] out, which says it to whoever loads.

use reqtrace_base::error::{Error, Result};
use reqtrace_binary::unwind::{MAX_INDEX, MAX_ROWS};
use reqtrace_common::filter::{KeepSlow, StackFilter};
use reqtrace_common::unwind::BLOCK;
use serde::{Deserialize, Serialize};

use super::Compiled;
use super::plans::PlanTables;
use super::probes::ProbePlan;
use super::programs::UPROBES;
use super::sizes::Sizes;

/// Plans of one kind that a table may have room for.
const MOST_PLANS: u32 = 1 << 20;

/// What to load.
#[derive(Clone, Copy, Debug)]
pub struct LoadOptions<'a> {
    /// Record kernel stacks.
    pub kernel_stacks: bool,
    /// Record user stacks.
    pub user_stacks: bool,
    /// Record the stacks of preemptions too, as far as the above say.
    pub preempted_stacks: bool,
    /// Which intervals go into the stacks.
    pub stack_filter: StackFilter,
    /// Which complete requests are sent.
    pub keep_slow: KeepSlow,
    /// Count the lengths of intervals in histograms.
    pub histogram: bool,
    /// Send intervals of threads in requests, and who ended them.
    pub blame: bool,
    /// With that: record all requests of threads that held up a recorded one, though requests are drawn.
    pub holders: bool,
    /// Record how long data had waited at sockets.
    pub before: bool,
    /// Record what takes the CPU from requests without a switch.
    pub interrupts: bool,
    /// Record who sent what parked requests go on with.
    pub origins: bool,
    /// The kernel says who sends on sockets.
    pub sends: bool,
    /// Load the program that takes samples.
    pub samples: bool,
    /// Count what walking user stacks takes.
    pub measure_walks: bool,
    /// Let the kernel programs send messages to the log.
    pub messages: bool,
    /// Requests of some type are known by a key.
    pub has_keys: bool,
    /// How labels and attributes are read, and what markers do under conditions and with keys; `None`: nothing.
    pub plans: Option<&'a PlanTables>,
    /// Probes that will be set: only their programs are loaded. `None`: all programs are.
    pub probes: Option<&'a [ProbePlan]>,
    /// Probes of programs that are not known yet may follow: all programs are loaded, and there is room for their plans.
    pub more_probes: bool,
    /// How many entries the tables have.
    pub sizes: Sizes,
}

#[cfg(test)]
impl LoadOptions<'_> {
    pub(crate) fn of_nothing() -> Self {
        Self {
            kernel_stacks: false,
            user_stacks: false,
            preempted_stacks: false,
            stack_filter: StackFilter::ALL,
            keep_slow: KeepSlow::ALL,
            histogram: false,
            blame: false,
            holders: false,
            before: false,
            interrupts: false,
            origins: false,
            sends: false,
            samples: false,
            measure_walks: false,
            messages: false,
            has_keys: false,
            plans: None,
            probes: Some(&[]),
            more_probes: false,
            sizes: Sizes::default(),
        }
    }
}

/// What is to be loaded, without what only this process knows. Whoever loads it takes nothing else on trust: where the kernel keeps
/// what, he looks up himself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LoadPlan {
    pub(super) kernel_stacks: bool,
    pub(super) user_stacks: bool,
    pub(super) preempted_stacks: bool,
    /// Of intervals whose stacks are recorded: from and to so many ns, and the state.
    pub(super) stack_filter: [u64; 3],
    /// Requests that are sent: from so many ns on, and one in so many of the others.
    pub(super) keep_slow: (u64, u32),
    pub(super) histogram: bool,
    pub(super) blame: bool,
    pub(super) holders: bool,
    pub(super) before: bool,
    pub(super) interrupts: bool,
    pub(super) origins: bool,
    pub(super) sends: bool,
    pub(super) samples: bool,
    pub(super) measure_walks: bool,
    pub(super) messages: bool,
    pub(super) has_keys: bool,
    /// Whether a label or another text is read.
    pub(super) reads_texts: bool,
    /// Room for plans of labels, of markers and of attributes.
    pub(super) rooms: [u32; 3],
    /// Of unwind tables, if stacks are walked by them.
    pub(super) unwind: Option<UnwindRoom>,
    /// Which of [`UPROBES`].
    pub(super) uprobes: Vec<String>,
    pub(super) sizes: Sizes,
}

#[cfg(test)]
impl LoadPlan {
    pub(crate) fn with_rooms(self, rooms: [u32; 3]) -> Self {
        Self { rooms, ..self }
    }
}

/// What is to be loaded to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CountPlan {
    /// Hits by every process count.
    pub(super) everybody: bool,
    /// Arguments and results are noted besides.
    pub(super) notes: bool,
}

#[cfg(test)]
impl CountPlan {
    pub(crate) fn everybody() -> Self {
        Self {
            everybody: true,
            notes: false,
        }
    }
}

/// Room for unwind tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UnwindRoom {
    /// In blocks.
    pub(super) rows: u32,
    /// In blocks.
    pub(super) index: u32,
    /// Code without rows is walked through by frame pointers.
    pub(super) by_frame_pointers: bool,
}

impl LoadPlan {
    /// What these options ask for; `plans` have settled.
    pub(crate) fn of(
        options: LoadOptions<'_>,
        plans: &PlanTables,
        tables: Option<&Compiled>,
    ) -> Self {
        let wanted = |name: &&str| match options.probes {
            Some(plans) if !options.more_probes => plans.iter().any(|plan| plan.program == *name),
            _ => true,
        };
        let uprobes = UPROBES.into_iter().filter(wanted).map(str::to_owned);
        let (filter, keep) = (options.stack_filter, options.keep_slow);
        Self {
            kernel_stacks: options.kernel_stacks,
            user_stacks: options.user_stacks,
            preempted_stacks: options.preempted_stacks,
            stack_filter: [filter.min_ns, filter.max_ns, filter.state],
            keep_slow: (keep.slow_ns, keep.one_in),
            histogram: options.histogram,
            blame: options.blame,
            holders: options.holders,
            before: options.before,
            interrupts: options.interrupts,
            origins: options.origins,
            sends: options.sends,
            samples: options.samples,
            measure_walks: options.measure_walks,
            messages: options.messages,
            has_keys: options.has_keys,
            reads_texts: plans.reads_texts(),
            rooms: plans.rooms(),
            unwind: tables.map(|tables| UnwindRoom {
                rows: tables.row_blocks(),
                index: tables.index_blocks(),
                by_frame_pointers: tables.frame_pointers(),
            }),
            uprobes: uprobes.collect(),
            sizes: options.sizes,
        }
    }

    /// Refuses what no session asks for: the plan may come from a process that was taken over.
    ///
    /// # Errors
    ///
    /// When a table would be larger than any is.
    pub(super) fn check(&self) -> Result<()> {
        let most = Sizes::most();
        let sizes = [
            (self.sizes.threads, most.threads),
            (self.sizes.processes, most.processes),
            (self.sizes.stacks, most.stacks),
            (self.sizes.sums, most.sums),
        ];
        let unwind = self.unwind.map_or([(1, 1); 2], |room| {
            [
                (room.rows, MAX_ROWS / BLOCK as u32),
                (room.index, MAX_INDEX / BLOCK as u32),
            ]
        });
        let rooms = self.rooms.map(|room| (room, MOST_PLANS));
        let all = sizes.into_iter().chain(unwind).chain(rooms);
        for (size, most) in all {
            if !(1..=most).contains(&size) {
                return Err(Error::failed(format!(
                    "a table of {size} entries, where 1 to {most} are possible"
                )));
            }
        }
        Ok(())
    }

    /// Whether the programs for sockets are loaded.
    pub(super) fn wants_sockets(&self) -> bool {
        self.before || self.origins
    }
}
