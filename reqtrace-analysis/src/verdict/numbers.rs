//! Every number that a verdict must reach, and shares as numbers.

/// The 99th percentile is so many medians at least, and so is a slow request.
pub(super) const SLOW: u64 = 5;
pub(super) const FEWEST_SLOW: usize = 20;
pub(super) const FEWEST_EPISODES: usize = 3;
/// Of the excess over typical requests.
pub(super) const CAUSE: f64 = 0.6;
/// The same in the bootstrap's lower end, and of a request that counts for it.
pub(super) const CAUSE_LEAST: f64 = 0.5;
/// Of the cause.
pub(super) const CULPRIT: f64 = 0.6;
/// Of the excess, and of the requests.
pub(super) const NOT_KNOWN: f64 = 0.2;
/// Of what slow requests waited the root cause is known of so much.
pub(super) const COVERAGE: f64 = 0.8;
/// Of all the time of a type, so that its tail is no healthy one, see [`super::patterns::Refuted::ByItsWeight`].
pub(super) const WEIGHT: f64 = 0.25;
/// Of the tenths of a second have slow requests, so that it is the load, see [`super::patterns::Refuted::AllTheTime`].
pub(super) const BUSY: f64 = 0.6;
/// Turns of others, see [`super::patterns::Refuted::ByShortTurns`]: a slice is 3 to 4 ms where the timer ticks 250 times a second.
pub(super) const TURNS_NS: u64 = 10_000_000;
/// Typical requests are those between these percentiles.
pub(super) const TYPICAL: (u64, u64) = (40, 60);
/// Of the excess, which another cause may explain; and for this part of an episode after it slow requests are its aftermath.
pub(super) const REST: f64 = 0.1;
pub(super) const AFTERMATH: u64 = 2;

/// A share in per mille.
pub(crate) fn mille(share: f64) -> u16 {
    (share.clamp(0.0, 1.0) * 1_000.0).round() as u16
}
