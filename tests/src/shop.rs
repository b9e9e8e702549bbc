//! The example shop: started, loaded, stopped.
//!
//! In: nothing but a folder of its own. Out: its process, its log of clock brackets, and its
//! customers' count.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::process::{Child, Stream};
use crate::workspace;

/// How long anything of the shop may take.
const LIMIT: Duration = Duration::from_secs(120);

/// A running shop.
#[derive(Debug)]
pub struct Shop {
    process: Child,
    address: String,
    folder: TempDir,
}

/// Path of the shop's profile.
#[must_use]
pub fn profile() -> PathBuf {
    workspace::root().join("examples/shop/shop.toml")
}

impl Shop {
    /// Starts a shop on a free port of the loopback.
    ///
    /// # Errors
    ///
    /// When it does not build or start.
    pub fn open() -> Result<Self> {
        Self::start(&workspace::shop()?, workspace::scratch()?, None, &[])
    }

    /// The same with its journal in a folder where other shops were before it.
    ///
    /// # Errors
    ///
    /// When it does not build or start.
    pub fn open_at(data: &Path) -> Result<Self> {
        Self::start(&workspace::shop()?, workspace::scratch()?, Some(data), &[])
    }

    /// The same with a step that takes longer: `stock`, `payment`, `journal` or `courier`.
    ///
    /// # Errors
    ///
    /// When it does not build or start.
    pub fn open_slower(step: &str) -> Result<Self> {
        Self::start(
            &workspace::shop()?,
            workspace::scratch()?,
            None,
            &["--slower", step],
        )
    }

    /// The same from a copy of the program with another name, which is its process's too.
    ///
    /// # Errors
    ///
    /// When it does not build or start.
    pub fn open_as(name: &str) -> Result<Self> {
        let folder = workspace::scratch()?;
        let copy = folder.path().join(name);
        workspace::copy_program(&workspace::shop()?, &copy)?;
        Self::start(&copy, folder, None, &[])
    }

    /// The same from this program, a copy of it.
    ///
    /// # Errors
    ///
    /// When it does not start.
    pub fn open_from(program: &Path) -> Result<Self> {
        Self::start(program, workspace::scratch()?, None, &[])
    }

    fn start(program: &Path, folder: TempDir, data: Option<&Path>, more: &[&str]) -> Result<Self> {
        let own = folder.path().join("data");
        let mut command = Command::new(program);
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(data.unwrap_or(&own))
            .arg("--log")
            .arg(folder.path().join("log"))
            .args(more);
        let mut process = Child::start(command, folder.path(), "shop")?;
        let line = process.wait_for_line(Stream::Out, "listening on ", LIMIT)?;
        let address = line
            .strip_prefix("listening on ")
            .context("the shop says no address")?
            .to_owned();
        Ok(Self {
            process,
            address,
            folder,
        })
    }

    /// Its process number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Starts customers that place `requests` orders in all.
    ///
    /// # Errors
    ///
    /// When they cannot be started.
    pub fn start_load(&self, connections: u32, requests: u64) -> Result<Load> {
        let mut command = Command::new(workspace::shop()?);
        command.args(["load", "--connect", &self.address]);
        command.args(["--connections", &connections.to_string()]);
        command.args(["--requests", &requests.to_string()]);
        let process = Child::start(command, self.folder.path(), "load")?;
        Ok(Load { process })
    }

    /// Starts customers that place orders for so many seconds, each with a pause of `pause_ms` after each.
    ///
    /// # Errors
    ///
    /// When they cannot be started.
    pub fn start_load_for(&self, connections: u32, seconds: u32, pause_ms: u32) -> Result<Load> {
        let mut command = Command::new(workspace::shop()?);
        command.args(["load", "--connect", &self.address]);
        command.args(["--connections", &connections.to_string()]);
        command.args([
            "--seconds",
            &seconds.to_string(),
            "--pause",
            &pause_ms.to_string(),
        ]);
        let process = Child::start(command, self.folder.path(), "load")?;
        Ok(Load { process })
    }

    /// Places `requests` orders over `connections` connections, and gives the number of those
    /// that were answered, as the customers counted.
    ///
    /// # Errors
    ///
    /// When a customer fails.
    pub fn load(&self, connections: u32, requests: u64) -> Result<u64> {
        self.start_load(connections, requests)?.finish()
    }

    /// Orders that have reached the journal so far.
    #[must_use]
    pub fn orders(&self) -> usize {
        let journal = std::fs::read(self.folder.path().join("data/journal"));
        let journal = journal.unwrap_or_default();
        journal.iter().filter(|byte| **byte == b'\n').count()
    }

    /// Closes the shop and gives its log: one line a request, see its README.
    ///
    /// # Errors
    ///
    /// When it does not end well.
    pub fn close(mut self) -> Result<String> {
        let status = self.process.stop()?;
        let errors = self.process.output(Stream::Err);
        if !status.success() || !errors.is_empty() {
            bail!("the shop did not end well: {status}\n{errors}");
        }
        Ok(std::fs::read_to_string(self.folder.path().join("log"))?)
    }
}

/// Customers at work.
#[derive(Debug)]
pub struct Load {
    process: Child,
}

impl Load {
    /// Waits until all orders are answered, and gives their number.
    ///
    /// # Errors
    ///
    /// When a customer fails.
    pub fn finish(mut self) -> Result<u64> {
        let status = self.process.wait(LIMIT)?;
        let output = self.process.output(Stream::Out);
        if !status.success() {
            bail!("{status}: {}", self.process.output(Stream::Err));
        }
        let count = output.lines().find_map(|l| l.strip_suffix(" requests"));
        let count = count.with_context(|| format!("no count in {output:?}"))?;
        Ok(count.parse()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shop_logs_every_order_with_clocks_in_order() {
        let shop = Shop::open().unwrap();
        let count = shop.load(3, 60).unwrap();
        let log = shop.close().unwrap();
        assert_eq!(count, 60);
        assert_eq!(log.lines().count(), 60);
        for line in log.lines() {
            let fields: Vec<u64> = line.split(' ').map(|f| f.parse().unwrap()).collect();
            assert_eq!(fields.len(), 6, "{line}");
            assert!(fields[2..].is_sorted(), "{line}");
        }
    }
}
