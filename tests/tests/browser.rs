//! A browser without a window: Chromium, driven by chromedriver.
//!
//! In: a file, scripts, moves of the mouse. Out: what scripts say, pictures, and what the browser complained of.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use fantoccini::actions::{InputSource, MOUSE_BUTTON_LEFT, MouseActions, PointerAction};
pub(crate) use fantoccini::key::Key;
use fantoccini::{Client, ClientBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use reqtrace_tests::process::{Child, Stream, until};
use reqtrace_tests::workspace;

/// How long starting, loading or one script may take.
const LIMIT: Duration = Duration::from_secs(60);
/// What chromedriver says when it listens, before its port.
const LISTENS: &str = "ChromeDriver was started successfully on port ";

/// A browser with one page.
#[derive(Debug)]
pub(crate) struct Browser {
    runtime: Runtime,
    client: Client,
    driver: Child,
    /// Its profile and its logs.
    _folder: TempDir,
}

/// How the page is to look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Look {
    /// The system prefers dark pages.
    pub(crate) dark: bool,
}

impl Browser {
    /// Starts a browser with a window of 1280 by 800.
    ///
    /// # Errors
    ///
    /// When Chromium or its driver is not installed, or does not start.
    pub(crate) fn start(look: Look) -> Result<Self> {
        let chromium = workspace::program("chromium")?;
        let folder = workspace::scratch()?;
        let mut command = Command::new(workspace::program("chromedriver")?);
        // Port 0: one that is free. What the page writes to its console is in the driver's output.
        command.args(["--port=0", "--enable-chrome-logs"]);
        let mut driver = Child::start(command, folder.path(), "chromedriver")?;
        driver.wait_for_line(Stream::Out, LISTENS, LIMIT)?;
        let printed = driver.output(Stream::Out);
        let port = printed
            .lines()
            .find_map(|line| line.strip_prefix(LISTENS))
            .map(|port| port.trim_end_matches('.'))
            .context("chromedriver printed no port")?
            .to_owned();
        let mut arguments = vec![
            "--headless=new".to_owned(),
            "--no-sandbox".to_owned(),
            "--disable-gpu".to_owned(),
            "--disable-quic".to_owned(),
            "--no-first-run".to_owned(),
            "--disable-background-networking".to_owned(),
            "--disable-component-update".to_owned(),
            "--disable-sync".to_owned(),
            "--hide-scrollbars".to_owned(),
            "--window-size=1280,800".to_owned(),
            format!(
                "--user-data-dir={}",
                folder.path().join("profile").display()
            ),
        ];
        if look.dark {
            arguments.push("--blink-settings=preferredColorScheme=0".to_owned());
        }
        let wanted = json!({
            "browserName": "chrome",
            "goog:chromeOptions": { "binary": chromium, "args": arguments },
        });
        let Value::Object(wanted) = wanted else {
            bail!("capabilities are no object");
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let client = runtime
            .block_on(
                ClientBuilder::new(HttpConnector::new())
                    .capabilities(wanted)
                    .connect(&format!("http://127.0.0.1:{port}")),
            )
            .with_context(|| driver.output(Stream::Err))?;
        runtime.block_on(client.set_window_size(1280, 800))?;
        Ok(Self {
            runtime,
            client,
            driver,
            _folder: folder,
        })
    }

    /// Opens a file, with what stands behind `#`, and waits until its page has drawn itself. Returns how long
    /// that took.
    ///
    /// # Errors
    ///
    /// When it does not within a minute.
    pub(crate) fn open(&self, file: &Path, hash: &str) -> Result<Duration> {
        let start = Instant::now();
        // Another hash alone loads nothing.
        self.runtime.block_on(self.client.goto("about:blank"))?;
        let url = format!("file://{}#{hash}", file.display());
        self.runtime.block_on(self.client.goto(&url))?;
        until(LIMIT, "the page to draw itself", || {
            let ready = self.script(
                "return document.documentElement.dataset.ready === 'yes'",
                &[],
            )?;
            Ok((ready == json!(true)).then_some(()))
        })
        .with_context(|| self.complaints().join("\n"))?;
        Ok(start.elapsed())
    }

    /// What a script returns.
    ///
    /// # Errors
    ///
    /// When it throws.
    pub(crate) fn script(&self, script: &str, arguments: &[Value]) -> Result<Value> {
        let done = self.client.execute(script, arguments.to_vec());
        self.runtime
            .block_on(done)
            .with_context(|| script.to_owned())
    }

    /// The same as a number.
    ///
    /// # Errors
    ///
    /// When it throws, or returns something else.
    pub(crate) fn number(&self, script: &str) -> Result<f64> {
        let value = self.script(script, &[])?;
        value.as_f64().with_context(|| format!("{script}: {value}"))
    }

    /// The same as text.
    ///
    /// # Errors
    ///
    /// When it throws, or returns something else.
    pub(crate) fn text(&self, script: &str) -> Result<String> {
        let value = self.script(script, &[])?;
        let text = value.as_str().map(str::to_owned);
        text.with_context(|| format!("{script}: {value}"))
    }

    /// Presses the button, moves, and lets it go; places are of the window.
    ///
    /// # Errors
    ///
    /// When a place is outside the window.
    pub(crate) fn drag(&self, from: (i64, i64), to: (i64, i64)) -> Result<()> {
        let go = |(x, y): (i64, i64)| PointerAction::MoveTo {
            duration: Some(Duration::from_millis(50)),
            x: x as f64,
            y: y as f64,
        };
        let mouse = MouseActions::new("mouse".to_owned())
            .then(go(from))
            .then(PointerAction::Down {
                button: MOUSE_BUTTON_LEFT,
            })
            .then(go(to))
            .then(PointerAction::Up {
                button: MOUSE_BUTTON_LEFT,
            });
        self.runtime.block_on(self.client.perform_actions(mouse))?;
        Ok(())
    }

    /// Clicks into the middle of the first element that fits, which is brought into view.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub(crate) fn click(&self, selector: &str) -> Result<()> {
        let place = self.script(
            "const node = document.querySelector(arguments[0]); if (!node) return null;
             node.scrollIntoView({block: 'center'}); const box = node.getBoundingClientRect();
             return [box.x + box.width / 2, box.y + box.height / 2];",
            &[json!(selector)],
        )?;
        let at = |which: usize| place[which].as_f64().map(|value| value as i64);
        let place = at(0).zip(at(1)).with_context(|| format!("no {selector}"))?;
        self.drag(place, place)
    }

    /// Types keys into what has the focus.
    ///
    /// # Errors
    ///
    /// When nothing has it.
    pub(crate) fn keys(&self, keys: &str) -> Result<()> {
        let active = self.runtime.block_on(self.client.active_element())?;
        self.runtime.block_on(active.send_keys(keys))?;
        Ok(())
    }

    /// The key Escape.
    #[must_use]
    pub(crate) fn escape() -> String {
        char::from(Key::Escape).to_string()
    }

    /// Gives the window another size.
    ///
    /// # Errors
    ///
    /// When the browser refuses it.
    pub(crate) fn resize(&self, width: u32, height: u32) -> Result<()> {
        self.runtime
            .block_on(self.client.set_window_size(width, height))?;
        Ok(())
    }

    /// Writes a picture of the window.
    ///
    /// # Errors
    ///
    /// When it cannot be taken or written.
    pub(crate) fn picture(&self, file: &Path) -> Result<()> {
        let png = self.runtime.block_on(self.client.screenshot())?;
        ensure!(png.starts_with(b"\x89PNG"), "the screenshot is no PNG");
        std::fs::write(file, png).with_context(|| file.display().to_string())
    }

    /// What the page wrote to its console: errors of scripts, and what its policy has refused.
    #[must_use]
    pub(crate) fn complaints(&self) -> Vec<String> {
        let printed = self.driver.output(Stream::Err) + &self.driver.output(Stream::Out);
        let lines = printed.lines().filter(|line| line.contains(":CONSOLE"));
        lines.map(ToOwned::to_owned).collect()
    }

    /// Ends it.
    ///
    /// # Errors
    ///
    /// When it does not end.
    pub(crate) fn close(mut self) -> Result<()> {
        self.runtime.block_on(self.client.close())?;
        self.driver.stop()?;
        Ok(())
    }
}
