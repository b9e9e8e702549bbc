//! The agent's keeper: a configuration and when to kill it in; what each agent has shown, how fast, and what it held, out. It
//! reads the metrics four times a second, and starts an agent that it has killed again, as systemd does.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail, ensure};
use reqtrace_tests::process::until;
use reqtrace_tests::scraped::{Agent, Scrape, sums};

use super::service::{KINDS, Kind};
use super::usage::Sample;

const EVERY: Duration = Duration::from_millis(250);
/// It is looked at in `/proc`.
const LOOK: Duration = Duration::from_secs(2);
const MINUTE: Duration = Duration::from_secs(60);
/// As `RestartSec` of the unit.
const PAUSE: Duration = Duration::from_secs(1);
/// A request that was answered has ended by then.
const ENDED: Duration = Duration::from_millis(300);
/// Windows are closed by then, also after the agent was killed and all services were attached to again.
const LIMIT: Duration = Duration::from_secs(90);
/// A service that was given up has no durations after this: a minute, and a scrape.
const WITHDRAWN: Duration = Duration::from_secs(65);

/// A file of rows is handed over when it is so old.
pub(super) const ROLL: Duration = Duration::from_secs(10);
/// What an agent that is killed has not handed over is younger: a file, a look at it each second, a batch.
pub(super) const MAY_BE_LOST: Duration = Duration::from_secs(13);
/// Scrapes in twice that time.
const PAST: usize = 104;
pub(super) const WINDOW_END: &str = "reqtrace_window_end_timestamp_seconds";

/// One agent, from its start to its end.
#[derive(Clone, Debug, Default)]
pub(super) struct Life {
    pub(super) begun_ns: u64,
    /// `None`: it lives.
    pub(super) killed_ns: Option<u64>,
    /// The last that was seen of it.
    pub(super) last: Scrape,
    /// What was seen before, the oldest first: as long as a killed one may lose rows.
    past: VecDeque<Scrape>,
}

impl Life {
    /// The newest that was seen of it, of a service, whose rows have all been handed over: its windows end before that.
    pub(super) fn handed_over(&self, kind: &Kind) -> Option<&Scrape> {
        let Some(killed_ns) = self.killed_ns else {
            return Some(&self.last);
        };
        let until = killed_ns as f64 / 1e9 - MAY_BE_LOST.as_secs_f64();
        let end = |scrape: &&Scrape| {
            let end = of(scrape, WINDOW_END, kind);
            end > 0.0 && end <= until
        };
        self.past.iter().rev().find(end)
    }
}

/// All that was seen.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) lives: Vec<Life>,
    pub(super) samples: Vec<Sample>,
    /// How long each scrape took.
    pub(super) took: Vec<Duration>,
    /// The highest rung of each service, and each change: (seconds, service, rung).
    pub(super) rungs: Vec<(f64, &'static str, f64)>,
    /// What must not be.
    pub(super) wrong: Vec<String>,
}

/// Counters of a service at a moment at which none of its requests was in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    pub(super) life: usize,
    pub(super) complete: u64,
    pub(super) incomplete: u64,
}

/// What others ask of the keeper.
#[derive(Debug)]
pub(super) struct Watch {
    seen: Mutex<Seen>,
    over: AtomicBool,
    is_spared: AtomicBool,
    begun: Instant,
}

/// How the agent is kept.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) folder: PathBuf,
    pub(super) text: String,
    /// It is killed at random, so often in the mean.
    pub(super) kill_every: Option<Duration>,
    /// Not before this has passed since the run began.
    pub(super) kill_after: Duration,
    pub(super) seed: u64,
    /// A line of the table each minute.
    pub(super) is_shown: bool,
}

pub(super) fn unix_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(now.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
}

/// The value of a metric of a service and, if it has one, type.
pub(super) fn of(scrape: &Scrape, name: &str, kind: &Kind) -> f64 {
    let service = kind.name;
    let with_type = format!("{name}{{service=\"{service}\",type=\"{}\"}}", kind.of_type);
    let without = || scrape.get(&format!("{name}{{service=\"{service}\"}}"));
    let value = scrape.get(&with_type).or_else(without);
    value.copied().unwrap_or(0.0)
}

impl Watch {
    pub(super) fn new(begun: Instant) -> Self {
        Self {
            seen: Mutex::default(),
            over: AtomicBool::new(false),
            is_spared: AtomicBool::new(false),
            begun,
        }
    }

    pub(super) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn into_seen(self) -> Seen {
        self.seen
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// It is killed no more.
    pub(super) fn spare(&self) {
        self.is_spared.store(true, Ordering::Relaxed);
    }

    /// The keeper ends the agent, and itself.
    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// The newest scrape.
    pub(super) fn last(&self) -> Scrape {
        let seen = self.seen();
        seen.lives
            .last()
            .map(|life| life.last.clone())
            .unwrap_or_default()
    }

    /// Waits until all that has ended is counted. No request of the service is in flight.
    pub(super) fn mark(&self, kind: &Kind) -> Result<Mark> {
        thread::sleep(ENDED);
        let now = unix_ns() as f64 / 1e9;
        until(
            LIMIT,
            &format!("a window of {} to close", kind.name),
            || {
                ensure!(!self.is_over(), "there is no agent");
                let seen = self.seen();
                let Some(life) = seen.lives.last().filter(|life| life.killed_ns.is_none()) else {
                    return Ok(None);
                };
                let value = |name: &str| of(&life.last, name, kind);
                let is_closed = value(WINDOW_END) > now;
                Ok(is_closed.then(|| Mark {
                    life: seen.lives.len() - 1,
                    complete: value("reqtrace_request_duration_seconds_count") as u64,
                    incomplete: value("reqtrace_incomplete_requests_total") as u64,
                }))
            },
        )
    }

    /// Keeps an agent until it is told to end. Gives what the last one has written to its log.
    pub(super) fn keep(&self, kept: &Kept) -> Result<String> {
        let mut random = kept.seed;
        let result = self.keep_all(kept, &mut random);
        // Who waits for it is not held up.
        self.end();
        result
    }

    /// Whether there is no keeper any more.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn keep_all(&self, kept: &Kept, random: &mut u64) -> Result<String> {
        loop {
            let number = self.seen().lives.len();
            let agent = Agent::start_as(&format!("agent-{number}"), &kept.folder, &kept.text)?;
            self.seen().lives.push(Life {
                begun_ns: unix_ns(),
                ..Life::default()
            });
            let kill_at = kept.kill_every.map(|mean| {
                let from = Instant::now().max(self.begun + kept.kill_after);
                from + mean.mul_f64(0.5 + draw(random))
            });
            if self.follow(&agent, number, kill_at, kept.is_shown)? {
                let (code, printed) = agent.end()?;
                if code != Some(0) {
                    bail!("the agent ended with {code:?}: {printed}");
                }
                return Ok(printed);
            }
            if self.is_over() {
                bail!("the agent was not followed to its end: {}", agent.printed());
            }
            agent.kill()?;
            if let Some(life) = self.seen().lives.last_mut() {
                life.killed_ns = Some(unix_ns());
            }
            thread::sleep(PAUSE);
        }
    }

    /// Whether it was followed to its end, and is not to be killed.
    fn follow(
        &self,
        agent: &Agent,
        number: usize,
        kill_at: Option<Instant>,
        is_shown: bool,
    ) -> Result<bool> {
        let (mut looked, mut shown) = (
            Instant::now(),
            self.begun.elapsed().as_secs() / MINUTE.as_secs(),
        );
        let mut given_up: [Option<Instant>; KINDS.len()] = [None; KINDS.len()];
        loop {
            let next = Instant::now() + EVERY;
            let scrape = agent.scrape().with_context(|| agent.printed());
            let took = (Instant::now() + EVERY).saturating_duration_since(next);
            let scrape = scrape?;
            self.took_in(&scrape, took, &mut given_up);
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                let sample = Sample::of(agent.pid(), number, self.begun.elapsed().as_secs_f64())?;
                self.seen().samples.push(sample);
            }
            let minute = self.begun.elapsed().as_secs() / MINUTE.as_secs();
            if is_shown && minute > shown {
                shown = minute;
                eprintln!("{}", self.minute(minute));
            }
            if self.over.load(Ordering::Relaxed) {
                return Ok(true);
            }
            if kill_at.is_some_and(|at| at <= Instant::now())
                && !self.is_spared.load(Ordering::Relaxed)
            {
                return Ok(false);
            }
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }

    fn took_in(
        &self,
        scrape: &Scrape,
        took: Duration,
        given_up: &mut [Option<Instant>; KINDS.len()],
    ) {
        let at = self.begun.elapsed().as_secs_f64();
        let mut seen = self.seen();
        seen.took.push(took);
        for (kind, since) in KINDS.iter().zip(given_up) {
            let rung = of(scrape, "reqtrace_ladder", kind);
            let before = seen
                .rungs
                .iter()
                .rev()
                .find(|(_, name, _)| *name == kind.name);
            if before.map_or(0.0, |(.., rung)| *rung) != rung {
                seen.rungs.push((at, kind.name, rung));
            }
            let [parts, durations] = sums(scrape, kind.name, kind.of_type);
            if (parts - durations).abs() > 1e-6 * durations {
                seen.wrong.push(format!(
                    "{}: parts {parts} s, durations {durations} s",
                    kind.name
                ));
            }
            *since = match rung >= 10.0 {
                true => since.or(Some(Instant::now())),
                false => None,
            };
            if since.is_some_and(|since| since.elapsed() > WITHDRAWN) {
                let name = format!(
                    "reqtrace_request_duration_seconds_count{{service=\"{}\"",
                    kind.name
                );
                let is_shown = scrape.keys().any(|key| key.starts_with(&name));
                let traced = of(scrape, "reqtrace_traced", kind);
                if is_shown || traced > 0.0 {
                    seen.wrong
                        .push(format!("{}: given up, and shown as traced", kind.name));
                }
            }
        }
        if let Some(life) = seen.lives.last_mut() {
            let before = std::mem::replace(&mut life.last, scrape.clone());
            life.past.push_back(before);
            if life.past.len() > PAST {
                life.past.pop_front();
            }
        }
    }

    fn minute(&self, minute: u64) -> String {
        let seen = self.seen();
        let scrape = seen.lives.last().map(|life| &life.last);
        let of_services = KINDS.map(|kind| {
            let value = |name| scrape.map_or(0.0, |scrape| of(scrape, name, &kind));
            let count = value("reqtrace_request_duration_seconds_count");
            format!("{} {count} (rung {})", kind.name, value("reqtrace_ladder"))
        });
        let sample = seen.samples.last().copied().unwrap_or_default();
        let rows = scrape.and_then(|scrape| scrape.get("reqtrace_rows_written_total"));
        format!(
            "minute {minute}: agent {}; {}; memory {} + {} MB (resident {}), descriptors {}, probes {}; rows {}; scrape p99 {:.1} ms; wrong {}",
            seen.lives.len(),
            of_services.join(", "),
            sample.own >> 20,
            sample.tables >> 20,
            sample.resident >> 20,
            sample.descriptors,
            sample.probes,
            rows.unwrap_or(&0.0),
            quantile(&seen.took, 0.99).as_secs_f64() * 1e3,
            seen.wrong.len(),
        )
    }
}

/// A quantile of durations.
pub(super) fn quantile(of: &[Duration], share: f64) -> Duration {
    let mut all = of.to_vec();
    all.sort_unstable();
    let at = (all.len() as f64 * share).ceil() as usize;
    all.get(at.saturating_sub(1)).copied().unwrap_or_default()
}

/// A number from 0 to 1 (xorshift).
fn draw(state: &mut u64) -> f64 {
    *state = (*state).max(1);
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 11) as f64 / (1_u64 << 53) as f64
}

/// The configuration of an agent of these services.
pub(super) fn configuration(rules: &[String], agent: &str, rows: &str, dir: &Path) -> String {
    format!(
        "[agent]\n{agent}\n[metrics]\nlisten = \"127.0.0.1:0\"\n[rows]\ndir = \"{}\"\n{rows}\n{}",
        dir.display(),
        rules.concat()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_one_of_the_values() {
        let all: Vec<Duration> = (1..=200).map(Duration::from_millis).collect();
        assert_eq!(quantile(&all, 0.99), Duration::from_millis(198));
        assert_eq!(quantile(&all[..1], 0.99), Duration::from_millis(1));
        assert_eq!(quantile(&[], 0.99), Duration::ZERO);
    }

    #[test]
    fn draws_fill_their_range() {
        let mut state = 7;
        let all: Vec<f64> = (0..1_000).map(|_| draw(&mut state)).collect();
        assert!(all.iter().all(|value| (0.0..1.0).contains(value)));
        let mean = all.iter().sum::<f64>() / 1_000.0;
        assert!((0.45..0.55).contains(&mean), "{mean}");
    }
}
