//! An agent under test: a configuration in; a running `reqtrace agent`, and what a reader of its metrics has, out.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::process::{Child, Stream, until};
use crate::reqtrace::command;

/// How long anything may take.
const LIMIT: Duration = Duration::from_secs(60);
const STARTED: &str = "reqtrace agent: ";

/// A running agent.
#[derive(Debug)]
pub struct Agent {
    process: Child,
    file: PathBuf,
    address: String,
}

/// Values by the name of the metric with its labels.
pub type Scrape = BTreeMap<String, f64>;

/// Configurations listen at a free port and refuse nothing that is dear beside other tests.
#[must_use]
pub fn configuration(rules: &str) -> String {
    format!(
        "[agent]\nwindow = \"1s\"\nmax-cost = \"100%\"\n[metrics]\nlisten = \"127.0.0.1:0\"\n{rules}"
    )
}

/// This section of a configuration, `rows` or `profiles`, with this folder. It takes next to the last of a file system's
/// room: a machine that runs tests may have less than the twentieth that an agent leaves free.
#[must_use]
pub fn files_in(section: &str, dir: &Path) -> String {
    format!(
        "[{section}]\ndir = \"{}\"\nkeep-free = \"0.1%\"\n",
        dir.display()
    )
}

impl Agent {
    /// Starts one with these rules, and its files in this folder.
    ///
    /// # Errors
    ///
    /// When it does not start.
    pub fn start(folder: &Path, rules: &str) -> Result<Self> {
        Self::start_with(folder, &configuration(rules))
    }

    /// The same with a whole configuration.
    ///
    /// # Errors
    ///
    /// When it does not start.
    pub fn start_with(folder: &Path, text: &str) -> Result<Self> {
        Self::start_as("agent", folder, text)
    }

    /// The same; its files have this name.
    ///
    /// # Errors
    ///
    /// When it does not start.
    pub fn start_as(name: &str, folder: &Path, text: &str) -> Result<Self> {
        let file = folder.join(format!("{name}.toml"));
        std::fs::write(&file, text)?;
        let config = file.display().to_string();
        let command = command(["agent", "-v", "--config", &config])?;
        let mut process = Child::start(command, folder, name)?;
        let line = process.wait_for_line(Stream::Err, STARTED, LIMIT)?;
        let (_, address) = line.split_once("http://").context(line.clone())?;
        let (address, _) = address.split_once('/').context(line.clone())?;
        let address = address.to_owned();
        Ok(Self {
            process,
            file,
            address,
        })
    }

    /// Its process number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// What it has printed.
    #[must_use]
    pub fn printed(&self) -> String {
        self.process.output(Stream::Err)
    }

    /// Sends bytes to its listener, and gives the answer.
    ///
    /// # Errors
    ///
    /// When it does not listen.
    pub fn ask(&self, bytes: &[u8]) -> Result<String> {
        ask(&self.address, bytes)
    }

    /// Where its metrics are: an address with a port.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The text of its metrics.
    ///
    /// # Errors
    ///
    /// When they are not served whole.
    pub fn exposition(&self) -> Result<String> {
        exposition_at(&self.address)
    }

    /// Reads its metrics.
    ///
    /// # Errors
    ///
    /// When they are not served whole.
    pub fn scrape(&self) -> Result<Scrape> {
        metrics_at(&self.address)
    }

    /// Waits until a metric has this value, and gives the scrape.
    ///
    /// # Errors
    ///
    /// When it does not get it in a minute.
    pub fn wait_for(&self, name: &str, value: f64) -> Result<Scrape> {
        until(LIMIT, &format!("{name} = {value}"), || {
            let scrape = self.scrape()?;
            Ok((scrape.get(name) == Some(&value)).then_some(scrape))
        })
        .with_context(|| format!("{:#?}\n{}", self.scrape(), self.printed()))
    }

    /// Writes another configuration, and tells it to read it.
    ///
    /// # Errors
    ///
    /// When it cannot be written or told.
    pub fn reload(&mut self, text: &str) -> Result<()> {
        std::fs::write(&self.file, text)?;
        self.process.signal(libc::SIGHUP)
    }

    /// Kills it: it can do nothing any more.
    ///
    /// # Errors
    ///
    /// When it does not end.
    pub fn kill(mut self) -> Result<()> {
        self.process.signal(libc::SIGKILL)?;
        self.process.wait(LIMIT).map(|_| ())
    }

    /// Ends it, and gives its exit code and what it has printed.
    ///
    /// # Errors
    ///
    /// When it does not end.
    pub fn end(mut self) -> Result<(Option<i32>, String)> {
        let status = self.process.stop()?;
        Ok((status.code(), self.printed()))
    }
}

fn ask(address: &str, bytes: &[u8]) -> Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(LIMIT))?;
    // It may be closed before all is written.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Reads the metrics at an address.
///
/// # Errors
///
/// When they are not served whole.
pub fn metrics_at(address: &str) -> Result<Scrape> {
    metrics_of(&exposition_at(address)?)
}

/// Reads a page of metrics.
///
/// # Errors
///
/// When a line of it has no value.
pub fn metrics_of(page: &str) -> Result<Scrape> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let line = line.split_once(" # ").map_or(line, |(line, _)| line);
            let (name, value) = line.rsplit_once(' ').context(line.to_owned())?;
            Ok((name.to_owned(), value.parse()?))
        })
        .collect()
}

/// The text of the metrics that are served there.
fn exposition_at(address: &str) -> Result<String> {
    let answer = ask(address, b"GET /metrics HTTP/1.1\r\nhost: agent\r\n\r\n")?;
    ensure!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    ensure!(answer.ends_with("# EOF\n"), "{answer}");
    let (_, body) = answer.split_once("\r\n\r\n").context("no body")?;
    Ok(body.to_owned())
}

/// Σ of the parts of a request type, and of its durations, s.
#[must_use]
pub fn sums(scrape: &Scrape, service: &str, of_type: &str) -> [f64; 2] {
    let labels = format!("service=\"{service}\",type=\"{of_type}\"");
    let of = |name: &str| -> f64 {
        let all = scrape.iter();
        let all = all.filter(|(metric, _)| metric.starts_with(name) && metric.contains(&labels));
        all.map(|(_, value)| value).sum()
    };
    [
        of("reqtrace_request_part_seconds_total"),
        of("reqtrace_request_duration_seconds_sum"),
    ]
}
