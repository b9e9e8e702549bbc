//! What happens in a fleet: a seed in; which machine is the outlier, which one's clock is ahead, when builds are deployed and
//! which of them is bad, out.

use std::time::Duration;

/// The service that has an outlier, and deploys.
pub(super) const SHOP: &str = "shop";
/// The others: each machine has one of them.
pub(super) const OTHERS: [&str; 4] = ["bakery", "jobs", "front", "rpc"];
/// How far one machine's clock is ahead.
const AHEAD: Duration = Duration::from_secs(90);
/// Machines take a new build in so many groups, one after the other.
pub(super) const GROUPS: usize = 4;

/// A fleet for some time.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// So many machines.
    pub(super) agents: usize,
    /// So much time, s.
    pub(super) seconds: u64,
    /// Its CPU time is short.
    pub(super) outlier: usize,
    /// Its clock is ahead.
    pub(super) ahead: usize,
    /// Build ids of the shop in the order of their deploys.
    pub(super) builds: [String; 3],
    /// The one of them that is slower: not the first.
    pub(super) bad: usize,
    /// Of what is drawn by number.
    pub(super) seed: u64,
}

/// Which recording a machine replays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// One of those of a service that is well.
    Well,
    /// That of the outlier.
    Short,
    /// That of the bad build.
    Bad,
}

impl Plan {
    /// Draws one.
    #[must_use]
    pub(super) fn draw(seed: u64, agents: usize, seconds: u64) -> Self {
        let of = |number| drawn(seed, number);
        let outlier = (of(0) % agents as u64) as usize;
        // Another machine.
        let ahead = (outlier + 1 + (of(1) % (agents as u64 - 1)) as usize) % agents;
        Self {
            agents,
            seconds,
            outlier,
            ahead,
            builds: [2, 4, 6].map(|at| format!("{:016x}{:016x}", of(at), of(at + 1))),
            bad: 1 + (of(8) % 2) as usize,
            seed,
        }
    }

    /// The name of a machine: as long as the others', so that none begins with another one.
    #[must_use]
    pub(super) fn host(&self, agent: usize) -> String {
        format!("web-{agent:04}")
    }

    /// What its kernel calls the boot.
    #[must_use]
    pub(super) fn boot(&self, agent: usize) -> String {
        format!("{:012x}", drawn(self.seed, 1_000 + agent as u64) >> 16)
    }

    /// How far its clock is ahead.
    #[must_use]
    pub(super) fn clock(&self, agent: usize) -> Duration {
        match agent == self.ahead {
            true => AHEAD,
            false => Duration::ZERO,
        }
    }

    /// Its services.
    #[must_use]
    pub(super) fn services(&self, agent: usize) -> [&'static str; 2] {
        [SHOP, OTHERS[agent % OTHERS.len()]]
    }

    /// Which build of the shop it runs at this second: deploys are at a third and at two thirds of the time, and a group of
    /// machines has each a tenth of that later than the one before.
    #[must_use]
    pub(super) fn build(&self, agent: usize, second: u64) -> usize {
        let third = self.seconds / 3;
        let late = (agent % GROUPS) as u64 * (third / 10);
        (second.saturating_sub(late) / third.max(1)).min(2) as usize
    }

    /// Which recording of the shop it replays then.
    #[must_use]
    pub(super) fn kind(&self, agent: usize, second: u64) -> Kind {
        match () {
            () if agent == self.outlier => Kind::Short,
            () if self.build(agent, second) == self.bad => Kind::Bad,
            () => Kind::Well,
        }
    }

    /// The build id of a service.
    #[must_use]
    pub(super) fn build_id(&self, agent: usize, service: &str, second: u64) -> String {
        match OTHERS.iter().position(|other| *other == service) {
            None => self.builds[self.build(agent, second)].clone(),
            Some(at) => format!("{:032x}", drawn(self.seed, 20 + at as u64)),
        }
    }

    /// Whether a file, by its number, is handed over once more under another name: one in ten.
    #[must_use]
    pub(super) fn comes_twice(&self, file: u64) -> bool {
        drawn(self.seed, 1_000_000 + file).is_multiple_of(10)
    }
}

/// The number of a seed (splitmix64).
fn drawn(seed: u64, number: u64) -> u64 {
    let step = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut z = seed.wrapping_add(step);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_seed_decides_all_and_others_decide_otherwise() {
        let plans: Vec<Plan> = (0..50).map(|seed| Plan::draw(seed, 20, 600)).collect();
        let same = Plan::draw(7, 20, 600);
        assert_eq!(format!("{same:?}"), format!("{:?}", plans[7]));
        let of = |which: fn(&Plan) -> usize| plans.iter().map(which).collect::<BTreeSet<_>>();
        assert!(of(|plan| plan.outlier).len() > 10);
        assert!(of(|plan| plan.ahead).len() > 10);
        assert_eq!(of(|plan| plan.bad), [1, 2].into());
        assert!(plans.iter().all(|plan| plan.outlier != plan.ahead));
        let twice = (0..1_000).filter(|file| same.comes_twice(*file)).count();
        assert!((60..140).contains(&twice), "{twice}");
    }

    #[test]
    fn builds_come_in_their_order_to_each_machine() {
        let plan = Plan::draw(1, 8, 600);
        for agent in 0..8 {
            let builds = (0..600).map(|second| plan.build(agent, second));
            let builds: Vec<usize> = builds.collect();
            assert!(builds.is_sorted());
            assert_eq!(builds.iter().collect::<BTreeSet<_>>().len(), 3);
            let wrong = (0..600).filter(|second| {
                let is_bad = plan.kind(agent, *second) == Kind::Bad;
                is_bad != (plan.build(agent, *second) == plan.bad && agent != plan.outlier)
            });
            assert_eq!(wrong.count(), 0);
        }
        assert_eq!(
            [0, 199, 200, 399, 400].map(|at| plan.build(0, at)),
            [0, 0, 1, 1, 2]
        );
        assert_eq!([219, 220].map(|at| plan.build(1, at)), [0, 1]);
        assert_ne!(plan.build_id(0, SHOP, 0), plan.build_id(0, SHOP, 300));
        assert_eq!(plan.build_id(0, "rpc", 0), plan.build_id(3, "rpc", 300));
    }
}
