//! A machine of the fleet: its part in the plan and the recordings in; its agent, fed second by second, out.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use reqtrace_agent::Rows;
use reqtrace_agent::simulated::{Agent, Session, Traced};

use super::plan::{Kind, Plan, SHOP};
use super::recorded::{At, Recorded, SECOND_NS};

/// A request of these services that takes longer is slow.
pub(super) const SLOW: Duration = Duration::from_millis(20);
/// How often the figures of an agent move on: the configuration's default.
const WINDOW: Duration = Duration::from_secs(10);
/// A replay that is faster than the writer of rows waits for it at so many bytes; an agent would drop rows at 32 MB.
const MOST_WAITING: usize = 4 << 20;
/// The bad build's median over that of shops that are well, in the recordings.
const BAD: f64 = 2.0;
/// The outlier's p99 over that of others.
const OUTLIER: f64 = 2.5;

/// A machine.
pub(super) struct Machine<'a> {
    /// Its agent.
    pub(super) agent: Agent,
    plan: &'a Plan,
    index: usize,
    host: String,
    begin_unix_ns: u64,
    recordings: &'a Recordings,
    sessions: Vec<(&'static str, Session)>,
    /// Complete requests that it was given, by service.
    pub(super) requests: BTreeMap<&'static str, u64>,
}

/// All recordings.
#[derive(Debug)]
pub(super) struct Recordings {
    all: Vec<Recorded>,
    /// Seconds that each has.
    pub(super) seconds: u64,
    /// Above all ids.
    ids: u64,
}

impl Recordings {
    /// These; each is replayed for as long as the shortest of them.
    #[must_use]
    pub(super) fn new(all: Vec<Recorded>) -> Self {
        let seconds = all.iter().map(|one| one.seconds.len() as u64);
        Self {
            seconds: seconds.min().unwrap_or(1),
            ids: all.iter().map(|one| one.ids).max().unwrap_or(1),
            all,
        }
    }

    /// All of them.
    #[must_use]
    pub(super) fn all(&self) -> &[Recorded] {
        &self.all
    }

    /// Checks that what is wrong can be seen: the bad build's median is twice that of a shop that is well, and the outlier's p99
    /// two and a half times that of any other. The machine that records has other things to do, too.
    ///
    /// # Errors
    ///
    /// With what is not clear.
    pub(super) fn are_clear(&self) -> Result<()> {
        let highest = |kinds: &[Kind], share: f64| {
            let shops = self.all.iter().filter(|one| one.wanted.service == SHOP);
            let those = shops.filter(|one| kinds.contains(&one.wanted.kind));
            let highest = those.map(|one| one.quantile(share)).max();
            highest.unwrap_or(0) as f64
        };
        for (what, kind, others, share, least) in [
            ("bad build", Kind::Bad, &[Kind::Well][..], 0.5, BAD),
            (
                "outlier",
                Kind::Short,
                &[Kind::Well, Kind::Bad],
                0.99,
                OUTLIER,
            ),
        ] {
            let [own, others] = [highest(&[kind], share), highest(others, share)];
            ensure!(
                own >= least * others,
                "the {what} has {own} ns at {share}, and others up to {others} ns: less than {least} times as much"
            );
        }
        Ok(())
    }

    fn of(&self, service: &str, kind: Kind, number: usize) -> Result<&Recorded> {
        let fits = |one: &&Recorded| one.wanted.service == service && one.wanted.kind == kind;
        let those: Vec<&Recorded> = self.all.iter().filter(fits).collect();
        let one = those.get(number % those.len().max(1));
        one.copied()
            .with_context(|| format!("there is no recording of {service}, {kind:?}"))
    }
}

impl<'a> Machine<'a> {
    /// Starts its agent; its clock shows `begin_unix_ns` when the plan begins, or more.
    ///
    /// # Errors
    ///
    /// What is wrong with the folders of rows.
    pub(super) fn start(
        plan: &'a Plan,
        index: usize,
        begin_unix_ns: u64,
        recordings: &'a Recordings,
        rows: Option<&Rows>,
    ) -> Result<Self> {
        let host = plan.host(index);
        let services = plan.services(index);
        let slos = services.map(|name| (name.to_owned(), Some(SLOW)));
        let agent = Agent::start(&host, &plan.boot(index), &slos.into(), rows)?;
        let mut sessions = Vec::new();
        for service in services {
            let of = recordings.of(service, Kind::Well, 0)?;
            let session = agent.session(&Traced {
                service,
                profile: &of.profile,
                kernel: &of.kernel,
                profiles: &of.profiles,
                has_causes: true,
                window: WINDOW,
                begin_unix_ns,
            })?;
            sessions.push((service, session));
        }
        let ahead_ns = u64::try_from(plan.clock(index).as_nanos())?;
        Ok(Self {
            agent,
            plan,
            index,
            host,
            begin_unix_ns: begin_unix_ns + ahead_ns,
            recordings,
            sessions,
            requests: BTreeMap::new(),
        })
    }

    /// One second of the plan: recordings follow each other, each machine begins with another one.
    ///
    /// # Errors
    ///
    /// When there is no recording of its service.
    pub(super) fn second(&mut self, second: u64) -> Result<()> {
        let each = self.recordings.seconds;
        let (turn, number) = (second / each, second % each);
        let begins = turn * each;
        for (service, session) in &mut self.sessions {
            let kind = match *service {
                SHOP => self.plan.kind(self.index, begins),
                _ => Kind::Well,
            };
            let of = self
                .recordings
                .of(service, kind, self.index + turn as usize)?;
            let at = At {
                host: &self.host,
                build_id: &self.plan.build_id(self.index, service, begins),
                begin_unix_ns: self.begin_unix_ns + begins * SECOND_NS,
                since_start_ns: begins * SECOND_NS,
                ids: turn * self.recordings.ids,
                pids: 1_000 * self.index as u32,
            };
            let played = &of.seconds[number as usize];
            played.play(number, &at, session)?;
            *self.requests.entry(service).or_default() += played.requests();
            session.close(self.begin_unix_ns + (second + 1) * SECOND_NS);
        }
        while self.agent.waiting_bytes() > MOST_WAITING {
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Ends its sessions, and gives the page of its metrics when all rows are handed over, and how many requests it was given.
    ///
    /// # Errors
    ///
    /// None that an agent knows.
    pub(super) fn end(self, seconds: u64) -> Result<(String, BTreeMap<&'static str, u64>)> {
        for (_, session) in self.sessions {
            session.end(self.begin_unix_ns + seconds * SECOND_NS);
        }
        let page = self.agent.end()?;
        Ok((page, self.requests))
    }
}
