//! The ledger: where the time of a request went, or of many.

use super::Places;

/// The ledger of one request, or of many added up. All in nanoseconds;
/// `on_cpu + run_queue + preempted + Σ classes + unattributed + Σ parked + Σ queued = latency`.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Ledger {
    /// From begin to end.
    pub latency_ns: u64,
    /// On a CPU.
    pub on_cpu_ns: u64,
    /// Runnable after a wakeup.
    pub run_queue_ns: u64,
    /// Switched out while runnable.
    pub preempted_ns: u64,
    /// Blocked whose stack was lost or found no slot.
    pub unattributed_ns: u64,
    /// Blocked per wait class, in the order of [`super::Report::classes`].
    pub classes: Vec<u64>,
    /// No thread ran it, and it waited for an event: by place, in the order of [`Places::parked`].
    pub parked: Vec<u64>,
    /// No thread ran it, and it waited for a thread: by place, in the order of [`Places::queued`].
    pub queued: Vec<u64>,
}

impl Ledger {
    /// An empty one of so many classes, and of these places.
    #[must_use]
    pub fn of(classes: usize, places: &Places) -> Self {
        Self {
            classes: vec![0; classes],
            parked: vec![0; places.parked.len()],
            queued: vec![0; places.queued.len()],
            ..Self::default()
        }
    }

    /// Makes all times of its lists 0. An empty list is left out: glibc sets no bytes at its dangling address by a masked
    /// store, which takes some 50 ns on a CPU with AVX-512.
    pub(crate) fn clear_lists(&mut self) {
        let lists = [&mut self.classes, &mut self.parked, &mut self.queued];
        for list in lists.into_iter().filter(|list| !list.is_empty()) {
            list.fill(0);
        }
    }

    /// Makes it what another one is; its lists keep their memory.
    pub(crate) fn copy(&mut self, other: &Self) {
        let Self {
            latency_ns,
            on_cpu_ns,
            run_queue_ns,
            preempted_ns,
            unattributed_ns,
            classes,
            parked,
            queued,
        } = other;
        self.latency_ns = *latency_ns;
        self.on_cpu_ns = *on_cpu_ns;
        self.run_queue_ns = *run_queue_ns;
        self.preempted_ns = *preempted_ns;
        self.unattributed_ns = *unattributed_ns;
        self.classes.clone_from(classes);
        self.parked.clone_from(parked);
        self.queued.clone_from(queued);
    }

    /// Adds another one, of the same classes and places. Those of an empty ledger are those of the other.
    pub fn add(&mut self, other: &Self) {
        self.add_times(other, 1);
    }

    /// The same, so many times: for a request that stands for others.
    pub fn add_times(&mut self, other: &Self, weight: u64) {
        self.latency_ns += other.latency_ns * weight;
        self.on_cpu_ns += other.on_cpu_ns * weight;
        self.run_queue_ns += other.run_queue_ns * weight;
        self.preempted_ns += other.preempted_ns * weight;
        self.unattributed_ns += other.unattributed_ns * weight;
        add_each(&mut self.classes, &other.classes, weight);
        add_each(&mut self.parked, &other.parked, weight);
        add_each(&mut self.queued, &other.queued, weight);
    }

    /// All parts of which the latency is made, behind the latency: fixed ones, classes, places.
    pub(crate) fn parts(&self) -> impl Iterator<Item = u64> {
        let fixed = [
            self.latency_ns,
            self.on_cpu_ns,
            self.run_queue_ns,
            self.preempted_ns,
            self.unattributed_ns,
        ];
        let places = self.parked.iter().chain(&self.queued);
        fixed
            .into_iter()
            .chain(self.classes.iter().chain(places).copied())
    }

    /// Σ of the class columns.
    #[must_use]
    pub fn blocked_ns(&self) -> u64 {
        self.classes.iter().sum()
    }

    /// Σ of the places where it waited for an event.
    #[must_use]
    pub fn parked_ns(&self) -> u64 {
        self.parked.iter().sum()
    }

    /// Σ of the places where it waited for a thread.
    #[must_use]
    pub fn queued_ns(&self) -> u64 {
        self.queued.iter().sum()
    }

    /// What root causes are known of: blocked, with lost stacks too, and parked.
    #[must_use]
    pub fn held_up_ns(&self) -> u64 {
        self.blocked_ns() + self.unattributed_ns + self.parked_ns()
    }
}

impl Places {
    /// All places in words, and their times in a ledger.
    pub fn times(&self, ledger: &Ledger) -> impl Iterator<Item = (String, u64)> {
        let parked = ledger.parked.iter().enumerate();
        let parked = parked.map(|(place, ns)| (self.parked_words(place), *ns));
        let queued = ledger.queued.iter().enumerate();
        parked.chain(queued.map(|(place, ns)| (self.queued_words(place), *ns)))
    }
}

fn add_each(sums: &mut Vec<u64>, more: &[u64], weight: u64) {
    if sums.len() < more.len() {
        sums.resize(more.len(), 0);
    }
    for (sum, ns) in sums.iter_mut().zip(more) {
        *sum += ns * weight;
    }
}
