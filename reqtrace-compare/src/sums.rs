//! Sums of the requests of one type in one block of time.

use reqtrace_analysis::cells::Histogram;

/// Latencies of blocks are distinguished to 0.8 %.
pub(crate) const BLOCK_BITS: u32 = 7;

/// Requests of one type that began in one block of time. Each counts as often as its weight says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Block {
    /// Σ of the weights.
    pub(crate) weight: u64,
    /// Σ of the latencies, ns.
    pub(crate) latency_ns: u64,
    /// How many were slower than the objective.
    pub(crate) slow: u64,
    /// Σ of each column, ns; what is missing is 0.
    pub(crate) columns: Vec<u64>,
    pub(crate) latencies: Histogram<BLOCK_BITS>,
}

impl Block {
    pub(crate) fn column(&mut self, column: usize, ns: u64) {
        if self.columns.len() <= column {
            self.columns.resize(column + 1, 0);
        }
        self.columns[column] += ns;
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.weight += other.weight;
        self.latency_ns += other.latency_ns;
        self.slow += other.slow;
        for (column, ns) in other.columns.iter().enumerate() {
            self.column(column, *ns);
        }
        self.latencies.merge(&other.latencies);
    }
}
