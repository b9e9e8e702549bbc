//! The slowest requests of a type: all in, those above a line that rises out. So the slowest of all are exact, to the
//! request, however many there are.

/// One of them; its times are in [`Slowest::bytes`].
#[derive(Clone, Copy, Debug)]
struct Kept {
    latency_ns: u64,
    weight: u32,
    block: u32,
    at: usize,
}

/// Requests that are kept, and what of them has gone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slowest {
    rows: Vec<Kept>,
    /// Columns and times, as numbers of variable length; of each row from [`Kept::at`] on until a column 0.
    bytes: Vec<u8>,
}

/// A request that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) latency_ns: u64,
    pub(crate) weight: u64,
    pub(crate) block: usize,
    /// Columns and ns.
    pub(crate) times: Vec<(usize, u64)>,
}

impl Slowest {
    /// Adds a request.
    pub(crate) fn add(
        &mut self,
        latency_ns: u64,
        weight: u32,
        block: usize,
        times: &[(usize, u64)],
    ) {
        self.rows.push(Kept {
            latency_ns,
            weight,
            block: u32::try_from(block).unwrap_or(u32::MAX),
            at: self.bytes.len(),
        });
        for (column, ns) in times {
            put(&mut self.bytes, *column as u64 + 1);
            put(&mut self.bytes, *ns);
        }
        self.bytes.push(0);
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        self.rows.len() * size_of::<Kept>() + self.bytes.len()
    }

    /// Leaves the faster half out.
    pub(crate) fn halve(&mut self) {
        self.sort();
        self.rows.truncate(self.rows.len() / 2);
        let mut bytes = Vec::new();
        for row in &mut self.rows {
            let from = row.at;
            row.at = bytes.len();
            let mut end = from;
            while take(&self.bytes, &mut end) != 0 {
                take(&self.bytes, &mut end);
            }
            bytes.extend_from_slice(&self.bytes[from..end]);
        }
        self.bytes = bytes;
        self.rows.shrink_to_fit();
    }

    /// The slowest first; of equals those of the block before, then as they came.
    pub(crate) fn sort(&mut self) {
        self.rows
            .sort_by_key(|row| (std::cmp::Reverse(row.latency_ns), row.block));
    }

    /// Moves all to other blocks.
    pub(crate) fn move_blocks(&mut self, to: impl Fn(usize) -> usize) {
        for row in &mut self.rows {
            row.block = u32::try_from(to(row.block as usize)).unwrap_or(u32::MAX);
        }
    }

    /// Σ of the weights of those that are kept.
    pub(crate) fn weight(&self) -> u64 {
        self.rows.iter().map(|row| u64::from(row.weight)).sum()
    }

    /// All, in their order.
    pub(crate) fn rows(&self) -> impl Iterator<Item = Row> + '_ {
        self.rows.iter().map(|row| {
            let (mut at, mut times) = (row.at, Vec::new());
            loop {
                let column = take(&self.bytes, &mut at);
                if column == 0 {
                    break;
                }
                times.push((column as usize - 1, take(&self.bytes, &mut at)));
            }
            Row {
                latency_ns: row.latency_ns,
                weight: row.weight.into(),
                block: row.block as usize,
                times,
            }
        })
    }
}

/// Seven bits a byte, the lowest first; the highest bit says that there is another one.
fn put(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn take(bytes: &[u8], at: &mut usize) -> u64 {
    let (mut value, mut shift) = (0, 0);
    while let Some(byte) = bytes.get(*at) {
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 || shift > 63 {
            break;
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_slowest_stay_as_they_were(
            rows in prop::collection::vec(
                (0_u64..1_000, 1_u32..5, prop::collection::vec((0_usize..300, any::<u64>()), 0..5)),
                1..60,
            ),
            halvings in 0_usize..4,
        ) {
            let mut slowest = Slowest::default();
            let mut oracle = Vec::new();
            for (at, (latency_ns, weight, times)) in rows.iter().enumerate() {
                slowest.add(*latency_ns, *weight, at, times);
                oracle.push(Row { latency_ns: *latency_ns, weight: u64::from(*weight), block: at, times: times.clone() });
            }
            oracle.sort_by_key(|row| (std::cmp::Reverse(row.latency_ns), row.block));
            for _ in 0..halvings {
                slowest.halve();
                oracle.truncate(oracle.len() / 2);
            }
            slowest.sort();
            prop_assert_eq!(slowest.rows().collect::<Vec<_>>(), oracle);
        }
    }
}
