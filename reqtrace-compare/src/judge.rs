//! Which rows are more than noise: all estimates of one kind in, marked out; rows that are noise go.

use crate::chance::clear;
use crate::model::{Estimate, Rows};

/// Marks estimates that are looked at together.
pub(crate) fn mark<'a>(estimates: impl Iterator<Item = &'a mut Estimate>) {
    let known: Vec<&mut Estimate> = estimates.filter(|estimate| estimate.p.is_some()).collect();
    let probabilities: Vec<f64> = known.iter().filter_map(|estimate| estimate.p).collect();
    for (estimate, is_clear) in known.into_iter().zip(clear(&probabilities)) {
        estimate.is_clear = Some(is_clear);
    }
}

/// Leaves noise out, and of the rest what is small when there is much.
pub(crate) fn rows<T>(
    what: &str,
    rows: Vec<T>,
    most: usize,
    keeps_noise: bool,
    of: impl Fn(&T) -> &Estimate,
) -> Rows<T> {
    let all = rows.len();
    let mut rows = rows;
    rows.retain(|row| keeps_noise || of(row).is_clear != Some(false));
    let noise = (all - rows.len()) as u64;
    rows.sort_by(|one, two| of(two).change.abs().total_cmp(&of(one).change.abs()));
    let small = rows.len().saturating_sub(most) as u64;
    rows.truncate(most);
    Rows {
        what: what.to_owned(),
        rows,
        noise,
        small,
    }
}
