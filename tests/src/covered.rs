//! What a client waited for, and what a trace has of it: the rest by name.
//!
//! In: what a client measured of its answers, when its one thread slept, and the rows of these answers. Out: parts that
//! the client's time consists of.

use std::fmt;
use std::ops::RangeInclusive;

use anyhow::{Result, ensure};

/// How much of what clients wait for has a name. What they measure themselves may overlap with what was traced.
const NAMED: RangeInclusive<f64> = 0.9..=1.02;

/// How much is latency, or wait at the socket, of what is neither the client's own nor the connection's: of a client that
/// has one request at a time, and of one that has several.
const LEAST_ALONE: f64 = 0.95;
const LEAST_OF_MANY: f64 = 0.9;

/// The same of all. The rest is the client, which waits for the same CPUs.
const LEAST: f64 = 0.5;

/// One answer, by `CLOCK_MONOTONIC`, ns.
#[derive(Clone, Copy, Debug, Default)]
pub struct Answer {
    /// Before the client connected, if it did, and sent the request.
    pub before: u64,
    /// When it was connected.
    pub connected: u64,
    /// When the handler began.
    pub begun: u64,
    /// Since when it waited for somebody.
    pub waits: u64,
    /// When what it waited for had come.
    pub came: u64,
    /// When it ended.
    pub ended: u64,
    /// When the client had the answer.
    pub after: u64,
}

/// What was traced of an answer, by the same clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traced {
    /// When the request began.
    pub begin: u64,
    /// When it ended.
    pub end: u64,
    /// How long its data waited at the socket before; `None` where nobody knows.
    pub waited_before: Option<u64>,
}

/// Sums of what clients waited for, ns.
#[derive(Clone, Copy, Debug, Default)]
pub struct Covered {
    /// All of it.
    pub waited: u64,
    /// Latency of the requests.
    pub latency: u64,
    /// Wait at the socket before they began.
    pub before: u64,
    /// The client connected.
    pub connecting: u64,
    /// The client was busy, or waited for a CPU, before its request had come to the server's socket and behind its end.
    pub client: u64,
    /// Neither: the client slept, and there was no request.
    pub rest: u64,
    /// Answers of whose wait at the socket nothing is known.
    pub unknown: u64,
}

impl Covered {
    /// The parts of these answers. `asleep` is in the order of time.
    #[must_use]
    pub fn of(answers: &[Answer], traced: &[Traced], asleep: &[[u64; 2]]) -> Self {
        let mut all = Self::default();
        for (answer, request) in answers.iter().zip(traced) {
            let came = request.begin - request.waited_before.unwrap_or(0).min(request.begin);
            let came = came.max(answer.before);
            let connected = answer.connected.min(came);
            let gaps = [[connected, came], [request.end, answer.after]];
            for [from, until] in gaps.into_iter().filter(|[from, until]| from < until) {
                let slept = slept(asleep, from, until);
                all.client += until - from - slept;
                all.rest += slept;
            }
            all.connecting += connected - answer.before;
            all.waited += answer.after - answer.before;
            all.latency += request.end - request.begin;
            all.before += request.waited_before.unwrap_or(0);
            all.unknown += u64::from(request.waited_before.is_none());
        }
        all
    }

    /// Checks that most of what clients waited for was traced, and what was not has a name.
    ///
    /// # Errors
    ///
    /// When it was not.
    pub fn check(&self, is_alone: bool) -> Result<()> {
        let least = match is_alone {
            true => LEAST_ALONE,
            false => LEAST_OF_MANY,
        };
        ensure!(
            NAMED.contains(&self.named()) && self.of_server() >= least && self.traced() >= LEAST,
            "{self}: {self:?}"
        );
        Ok(())
    }

    /// How much of what clients waited for is latency or wait at the socket: 1 is all.
    fn traced(&self) -> f64 {
        self.share(self.latency + self.before)
    }

    /// The same with what has a name besides.
    fn named(&self) -> f64 {
        self.share(self.latency + self.before + self.connecting + self.client)
    }

    /// How much of what clients waited for the server is latency or wait at the socket.
    fn of_server(&self) -> f64 {
        let server = self.waited - self.connecting - self.client;
        (self.latency + self.before) as f64 / server as f64
    }

    fn share(&self, part: u64) -> f64 {
        part as f64 / self.waited as f64
    }
}

impl fmt::Display for Covered {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{:.3} covered", self.traced())?;
        for (part, what) in [
            (self.before, "before"),
            (self.client, "client's own"),
            (self.connecting, "connection"),
            (self.rest, "rest"),
        ] {
            write!(to, ", {:.3} {what}", self.share(part))?;
        }
        write!(to, ", {} not known before", self.unknown)
    }
}

/// How long of this time the thread slept.
fn slept(asleep: &[[u64; 2]], from: u64, until: u64) -> u64 {
    let first = asleep.partition_point(|[_, end]| *end <= from);
    let spans = asleep[first..]
        .iter()
        .take_while(|[begin, _]| *begin < until);
    let slept = spans.map(|[begin, end]| until.min(*end) - from.max(*begin));
    slept.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: Answer = Answer {
        before: 1000,
        connected: 1010,
        begun: 1060,
        waits: 1070,
        came: 1080,
        ended: 1090,
        after: 1200,
    };

    fn covered(begin: u64, end: u64, waited_before: Option<u64>) -> Covered {
        let traced = Traced {
            begin,
            end,
            waited_before,
        };
        Covered::of(
            &[ANSWER],
            &[traced],
            &[[0, 900], [1020, 1130], [1150, 1300]],
        )
    }

    #[test]
    fn each_part_is_what_its_clocks_say() {
        let one = covered(1050, 1100, Some(25));
        assert_eq!((one.waited, one.latency, one.before), (200, 50, 25));
        // Connected at 1010, asleep from 1020, on the way until 1025; then until 1130, awake for 20, and asleep again.
        assert_eq!((one.connecting, one.client, one.rest), (10, 30, 85));
        assert_eq!(one.unknown, 0);
        let parts = one.latency + one.before + one.connecting + one.client + one.rest;
        assert_eq!(parts, one.waited);
        assert!(one.named() < 0.6 && one.traced() < 0.4, "{one}");
        assert!(one.of_server() < 0.5, "{one}");
    }

    #[test]
    fn a_wait_that_began_before_the_client_did_is_too_much() {
        let one = covered(1050, 1100, Some(250));
        assert_eq!((one.connecting, one.client, one.rest), (0, 20, 80));
        assert!(one.named() > 1.5, "{one}");
        // The task of a request may end behind its answer.
        let one = covered(1050, 1300, None);
        assert_eq!((one.latency, one.rest, one.unknown), (250, 30, 1));
    }

    #[test]
    fn a_tenth_without_a_name_is_too_much() {
        let one = |latency, client, rest| Covered {
            waited: 1000,
            latency,
            client,
            rest,
            ..Covered::default()
        };
        one(910, 0, 90).check(false).unwrap();
        one(800, 160, 40).check(true).unwrap();
        assert!(one(890, 0, 110).check(false).is_err());
        assert!(one(910, 0, 90).check(true).is_err());
        // A client that takes long hides nothing of the server.
        assert!(one(700, 220, 80).check(false).is_err());
        assert!(one(1030, 0, 0).check(true).is_err());
    }
}
