//! Requests of one type by group: texts of requests in, sums of each group and block out.

use rustc_hash::FxHashMap;

/// Groups that are distinguished; later ones are `~other`.
const MOST: usize = 20_000;
/// The group of those.
pub(crate) const OTHER: &str = "~other";

/// A group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    pub(crate) weight: u64,
    pub(crate) latency_ns: u64,
    /// Σ of each column, ns.
    pub(crate) columns: Vec<u64>,
    /// Block, weight and latency, in order.
    pub(crate) blocks: Vec<(u32, u64, u64)>,
}

/// All groups of a type.
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    numbers: FxHashMap<String, usize>,
    pub(crate) all: Vec<Group>,
}

impl Groups {
    /// Adds a request.
    pub(crate) fn add(
        &mut self,
        group: &str,
        block: usize,
        weight: u64,
        latency_ns: u64,
        times: &[(usize, u64)],
    ) {
        let number = match self.numbers.get(group) {
            Some(number) => *number,
            None => {
                let name = if self.all.len() < MOST { group } else { OTHER };
                *self.numbers.entry(name.to_owned()).or_insert_with(|| {
                    self.all.push(Group::default());
                    self.all.len() - 1
                })
            }
        };
        let group = &mut self.all[number];
        let (block, sum_ns) = (block as u32, latency_ns * weight);
        group.weight += weight;
        group.latency_ns += sum_ns;
        for (column, ns) in times {
            if group.columns.len() <= *column {
                group.columns.resize(*column + 1, 0);
            }
            group.columns[*column] += ns * weight;
        }
        match group.blocks.last_mut() {
            Some(last) if last.0 == block => {
                last.1 += weight;
                last.2 += sum_ns;
            }
            _ => group.blocks.push((block, weight, sum_ns)),
        }
    }

    /// Moves all to other blocks.
    pub(crate) fn move_blocks(&mut self, to: impl Fn(usize) -> usize) {
        for group in &mut self.all {
            for block in &mut group.blocks {
                block.0 = to(block.0 as usize) as u32;
            }
            group.blocks.dedup_by(|next, sum| {
                let is_same = next.0 == sum.0;
                if is_same {
                    sum.1 += next.1;
                    sum.2 += next.2;
                }
                is_same
            });
        }
    }

    /// A group by its name.
    pub(crate) fn get(&self, name: &str) -> Option<&Group> {
        self.numbers.get(name).map(|number| &self.all[*number])
    }

    /// All names.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.numbers.keys().map(String::as_str)
    }
}
