//! The agent of a machine that is not there: requests and windows of a trace in, as its analysis gives them; the metrics and
//! the files of rows and roll-ups that an agent makes of them, by its own code, out.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use reqtrace_analysis::report::{RequestRow, WindowRow};
use reqtrace_base::error::{Error, Result};
use reqtrace_output::rollups::Rollup;
use reqtrace_profile::Profiles;

use crate::config::Rows;
use crate::ids::Machine;
use crate::listen::{self, Page as _};
use crate::metrics::{Metrics, Target};
use crate::moment::Moment;
use crate::records::{Way, Writer};
use crate::rows::{Queue, Row};
use crate::sink::{Outputs, Served, Sink};

/// An agent with nothing to trace.
#[derive(Debug)]
pub struct Agent {
    metrics: Arc<Metrics>,
    rows: Option<(Queue, Writer<Row>)>,
    rollups: Option<(Way<Rollup>, Writer<Rollup>)>,
    /// Services that it has sessions of.
    services: Vec<String>,
}

/// What a session is about.
#[derive(Clone, Copy, Debug)]
pub struct Traced<'a> {
    /// The name of its service.
    pub service: &'a str,
    /// The name of its profile.
    pub profile: &'a str,
    /// `uname -r`.
    pub kernel: &'a str,
    /// Its request types, wait classes and attributes.
    pub profiles: &'a Profiles,
    /// Whether root causes are found.
    pub has_causes: bool,
    /// How often its figures move on: whole seconds.
    pub window: Duration,
    /// When it begins, ns since the Unix epoch.
    pub begin_unix_ns: u64,
}

impl Agent {
    /// Starts one on a machine of this name, since a boot of this id (12 digits): both are in the names of its files. Of each
    /// service it has the latency above which requests are slow.
    ///
    /// # Errors
    ///
    /// What is wrong with the folders of rows.
    pub fn start(
        host: &str,
        boot: &str,
        services: &BTreeMap<String, Option<Duration>>,
        rows: Option<&Rows>,
    ) -> Result<Self> {
        let metrics = Arc::new(Metrics::default());
        metrics.want(services);
        let machine = Arc::new(Machine {
            host: host.to_owned(),
            boot: boot.to_owned(),
        });
        let rollups = rows.and_then(Rows::of_rollups).map(|of| {
            let (way, from) = Way::new(&metrics);
            Ok((way, Writer::start(&of, &machine, &metrics, from)?))
        });
        let rows = rows.map(|rows| {
            let (queue, from) = Queue::new(rows, &machine, false, &metrics);
            Ok((queue, Writer::start(rows, &machine, &metrics, from)?))
        });
        let agent = Self {
            metrics,
            rows: rows.transpose()?,
            rollups: rollups.transpose()?,
            services: services.keys().cloned().collect(),
        };
        agent.look();
        Ok(agent)
    }

    /// Looks at its processes, as an agent does each second: one of each service is there, and traced.
    pub fn look(&self) {
        let traced = self.services.iter().map(|name| (name.as_str(), 1));
        let count = self.services.len() as u64;
        let targets = BTreeMap::from([(Target::Traced, count)]);
        self.metrics.targets(&traced.collect(), targets);
    }

    /// Serves its metrics, until the program ends.
    ///
    /// # Errors
    ///
    /// When the address cannot be listened at.
    pub fn serve(&self, at: SocketAddr) -> Result<SocketAddr> {
        listen::start(at, self.metrics.clone())
    }

    /// The page of its metrics.
    ///
    /// # Errors
    ///
    /// Never: text takes everything.
    pub fn page(&self) -> Result<String> {
        let cannot = |error| Error::failed("the metrics cannot be written").because(error);
        self.metrics.text().map_err(cannot)
    }

    /// Bytes of rows that the writer has not taken yet: above 32 MB of them more are dropped, and counted.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        let rows = self.rows.as_ref();
        rows.map_or(0, |(queue, _)| queue.waiting_bytes())
    }

    /// Begins a session.
    ///
    /// # Errors
    ///
    /// When a wait of the profiles is malformed.
    pub fn session(&self, traced: &Traced<'_>) -> Result<Session> {
        let outputs = Outputs {
            metrics: Arc::clone(&self.metrics),
            rows: self.rows.as_ref().map(|(queue, _)| queue.clone()),
            rollups: self.rollups.as_ref().map(|(way, _)| way.clone()),
            spans: None,
            stacks: None,
        };
        let served = Served {
            service: traced.service,
            profile: traced.profile,
            kernel: traced.kernel,
            profiles: traced.profiles,
            has_causes: traced.has_causes,
            texts: false,
            window: traced.window,
            begin: moment(traced.begin_unix_ns),
            most_groups: None,
        };
        Sink::new(&served, &outputs).map(Session)
    }

    /// Hands over all rows and roll-ups that have come, and gives the page of its metrics. Sessions are to be ended before.
    ///
    /// # Errors
    ///
    /// As [`Agent::page`].
    pub fn end(mut self) -> Result<String> {
        if let Some((queue, writer)) = self.rows.take() {
            queue.stop();
            writer.wait();
        }
        if let Some((way, writer)) = self.rollups.take() {
            way.stop();
            writer.wait();
        }
        self.page()
    }
}

/// A time of a machine whose clock is never set.
fn moment(unix_ns: u64) -> Moment {
    Moment {
        monotonic_ns: unix_ns,
        unix_ns,
    }
}

/// A session that is fed.
pub struct Session(Sink);

impl Session {
    /// Takes a request, as of [`reqtrace_analysis::report::Exporter::request`].
    ///
    /// # Errors
    ///
    /// None that an agent knows: what cannot be kept is counted.
    pub fn request(&mut self, row: &RequestRow<'_>) -> Result<()> {
        let mut exporters = self.0.exporters().iter_mut();
        exporters.try_for_each(|exporter| exporter.request(row))
    }

    /// Takes a second of a request type, whose requests have come.
    ///
    /// # Errors
    ///
    /// As [`Session::request`].
    pub fn window(&mut self, row: &WindowRow<'_>) -> Result<()> {
        let mut exporters = self.0.exporters().iter_mut();
        exporters.try_for_each(|exporter| exporter.window(row))
    }

    /// Nothing that ended before this time comes any more, ns since the Unix epoch: figures move on.
    pub fn close(&self, until_unix_ns: u64) {
        self.0.look();
        self.0.close(moment(until_unix_ns));
    }

    /// Ends it; its file of rows is handed over.
    pub fn end(self, until_unix_ns: u64) {
        self.0.close_all(moment(until_unix_ns));
        self.0.end();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use reqtrace_analysis::classify::columns::Columns;
    use reqtrace_analysis::report::{Ledger, Origin, Places};
    use reqtrace_base::plain::Plain;
    use reqtrace_output::parquet::ParquetFile;
    use reqtrace_output::rows::Texts;

    use super::*;
    use crate::config::Share;

    fn profiles() -> Profiles {
        let text = include_str!("../../examples/shop/shop.toml");
        Profiles::parse([text], "shop.toml").unwrap()
    }

    fn agent(host: &str, rows: Option<&Rows>) -> Agent {
        let slo = Some(Duration::from_millis(5));
        Agent::start(
            host,
            "0123456789ab",
            &[("shop".to_owned(), slo)].into(),
            rows,
        )
        .unwrap()
    }

    fn session(agent: &Agent, profiles: &Profiles) -> Session {
        let traced = Traced {
            service: "shop",
            profile: "shop",
            kernel: "6.18",
            profiles,
            has_causes: true,
            window: Duration::from_secs(1),
            begin_unix_ns: 0,
        };
        agent.session(&traced).unwrap()
    }

    #[test]
    fn it_has_the_page_of_an_agent_that_traces() {
        let (agent, profiles) = (agent("web-1", None), profiles());
        session(&agent, &profiles).end(3_000_000_000);
        let page = agent.page().unwrap();
        for line in [
            "reqtrace_traced{service=\"shop\"} 1.0",
            "reqtrace_targets{state=\"traced\"} 1.0",
            "reqtrace_slo_seconds{service=\"shop\"} 0.005",
            "reqtrace_window_end_timestamp_seconds{service=\"shop\"} 3.0",
            "reqtrace_request_part_seconds_total{service=\"shop\",type=\"order\",part=\"journal\"} 0.0",
            "reqtrace_request_duration_seconds_count{service=\"shop\",type=\"order\"} 0",
        ] {
            assert!(page.lines().any(|one| one == line), "{line}\n{page}");
        }
        assert_eq!(agent.waiting_bytes(), 0);
        assert!(agent.end().unwrap().ends_with("# EOF\n"));
    }

    /// Agents of two machines that hand over into one folder.
    #[test]
    fn each_machine_has_its_name_in_its_files_and_rows() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("rows");
        let profiles = profiles();
        let columns = Columns::of(&profiles).unwrap();
        for host in ["web-1", "web-2"] {
            let rows = Rows {
                spool: folder.path().join(host),
                dir: dir.clone(),
                keep_slow: None,
                one_in: 1,
                every: Duration::from_secs(300),
                bytes: 1 << 20,
                max: 4 << 20,
                keep_free: Share::of_percent(0.001),
                rollups: None,
            };
            let agent = agent(host, Some(&rows));
            let mut session = session(&agent, &profiles);
            let mut ledger = Ledger::of(columns.classes.len(), &Places::default());
            (ledger.latency_ns, ledger.on_cpu_ns) = (6_000_000, 6_000_000);
            let row = RequestRow {
                id: 7,
                origin: Origin {
                    build_id: Some("ab"),
                    ..Origin::default()
                },
                start_unix_ns: 3_600_000_000_000,
                since_start_ns: 0,
                request: "order",
                pid: 1,
                tid: 2,
                comm: &Plain::of("shop"),
                label: &Plain::of("a text that nobody asked for"),
                attributes: &[],
                ledger: &ledger,
                blocks: 0,
                preemptions: 0,
                incomplete: None,
                weight: 1,
                slow: None,
                waited_before_ns: None,
                lost: None,
                is_keyed: false,
                causes: None,
                blames: &[],
                kept: None,
            };
            session.request(&row).unwrap();
            session.end(3_601_000_000_000);
            let page = agent.end().unwrap();
            assert!(
                page.contains("\nreqtrace_rows_written_total 1.0\n"),
                "{page}"
            );
            let place = dir.join("date=1970-01-01/hour=01/service=shop");
            let name = format!("rows-{host}-0123456789ab-00000001.parquet");
            assert_eq!(machine_and_label(&place.join(name)), [host, ""]);
        }
        let files = fs::read_dir(dir.join("date=1970-01-01/hour=01/service=shop"));
        assert_eq!(files.unwrap().count(), 2);
    }

    /// The machine of a file, and the label of its one row.
    fn machine_and_label(path: &Path) -> [String; 2] {
        let file = ParquetFile::open(path).unwrap();
        let (host, mut label) = (file.meta().host.clone(), None);
        let texts = Texts {
            label: true,
            ..Texts::default()
        };
        file.read(&texts, |row| {
            label = Some(row.label.to_owned());
            Ok(())
        })
        .unwrap();
        [host, label.unwrap()]
    }
}
