//! `summary.json`, read again, as far as comparisons want it: the file's bytes in, what is known of the trace and its items out.

use std::collections::BTreeMap;
use std::path::Path;

use reqtrace_analysis::report::blame::{Cause, CulpritKind, CulpritName};
use reqtrace_base::error::{Error, Result};
use reqtrace_base::plain::Plain;
use reqtrace_compare::ItemKind;
use serde_json::Value;

use super::SCHEMA_VERSION;
use crate::rows::Meta;

/// A summary.
pub struct Summary {
    value: Value,
}

impl Summary {
    /// Reads it.
    ///
    /// # Errors
    ///
    /// Usage errors: a file that cannot be read, is no summary, or is of a newer version.
    pub fn open(path: &Path) -> Result<Self> {
        let name = path.display();
        let text = std::fs::read(path)
            .map_err(|error| Error::usage(format!("{name} cannot be read")).because(error))?;
        let value: Value = serde_json::from_slice(&text).map_err(|error| {
            Error::usage(format!("{name} is no summary"))
                .because(error)
                .next("write it again: reqtrace report RECORDING --out FOLDER")
        })?;
        let version = value["schema_version"].as_u64();
        if version != Some(SCHEMA_VERSION.into()) || !value["trace"].is_object() {
            let version = version.map_or("none".to_owned(), |version| version.to_string());
            return Err(Error::usage(format!(
                "{name} has version {version} of the form; this reqtrace reads version {SCHEMA_VERSION}"
            ))
            .next("use the reqtrace that has written it, or write it again"));
        }
        Ok(Self { value })
    }

    /// What it says of the trace. What it does not say is empty.
    #[must_use]
    pub fn meta(&self) -> Meta {
        let trace = &self.value["trace"];
        let text = |key: &str| trace[key].as_str().unwrap_or_default().to_owned();
        let number = |key: &str| trace[key].as_u64().unwrap_or(0);
        let requests = || list(&self.value["requests"]);
        let is_keyed = requests().any(|of| of["ledger"]["parked_ns"].is_u64());
        let places = |key: &str| {
            let of_types = requests().filter_map(|of| of["ledger"][key].as_object());
            let mut names: Vec<String> = of_types.flatten().map(|(name, _)| name.clone()).collect();
            names.sort_unstable();
            names.dedup();
            names.extend(is_keyed.then(String::new));
            names
        };
        let yes = |is: bool| if is { "yes" } else { "no" }.to_owned();
        let losses = list(&self.value["losses"]);
        let losses =
            losses.filter_map(|loss| Some((text_of(&loss["name"])?, loss["count"].as_u64()?)));
        let alike = [
            ("profile", text("profile")),
            ("kernel", text("kernel")),
            ("reqtrace", text("reqtrace")),
            ("stacks only of blocks", text("stack_filter")),
            (
                "stacks of preemptions",
                yes(trace["preempted_stacks"] == true),
            ),
            ("--blame", yes(self.value["blame"].is_array())),
            ("--keep-slow, ns", number("keep_slow_ns").to_string()),
        ];
        let names = |key: &str, of: fn(&Value) -> &Value| {
            let all = list(&self.value[key]);
            all.filter_map(|one| text_of(of(one))).collect()
        };
        Meta {
            reqtrace: text("reqtrace"),
            profile: text("profile"),
            kernel: text("kernel"),
            start_unix_ns: number("start_unix_ns"),
            duration_ns: number("duration_ns"),
            ended_by: text("ended_by"),
            classes: names("classes", |class| &class["name"]),
            parked: places("parked_in_ns"),
            queued: places("queued_in_ns"),
            attributes: names("attributes", |name| name),
            which: text_of(&self.value["filter"]["which"]).unwrap_or_default(),
            losses: losses.collect(),
            alike: alike.map(|(name, value)| (name.to_owned(), value)).into(),
            ..Meta::default()
        }
    }

    /// Complete requests of each type that have a row, if none was left out.
    #[must_use]
    pub fn rows(&self) -> BTreeMap<String, u64> {
        let types = list(&self.value["requests"]);
        let rows = types.filter_map(|of| Some((text_of(&of["name"])?, of["rows"].as_u64()?)));
        rows.collect()
    }

    /// Complete requests of each type, with samples those that they stand for.
    #[must_use]
    pub fn requests(&self) -> Vec<(String, u64)> {
        let types = list(&self.value["requests"]);
        let counts = types.filter_map(|of| Some((text_of(&of["name"])?, of["count"].as_u64()?)));
        counts.collect()
    }

    /// Culprits, locks and files as comparisons name them: kind, request type, name, ns.
    #[must_use]
    pub fn items(&self) -> Vec<(ItemKind, String, String, u64)> {
        let mut items = Vec::new();
        for of in list(&self.value["requests"]) {
            let files = list(&of["files"]);
            let files = files.filter_map(|file| {
                let path = text_of(&file["path"]).filter(|path| !path.is_empty())?;
                Some((
                    ItemKind::File,
                    text_of(&of["name"])?,
                    path,
                    file["blocked_ns"].as_u64()?,
                ))
            });
            items.extend(files);
        }
        for of in list(&self.value["blame"]) {
            let request = text_of(&of["request"]).unwrap_or_default();
            let holders = list(&of["held_up_by"]).filter_map(|holder| {
                let name = format!("{}: {}", culprit(holder)?.words(), cause(holder)?.words());
                Some((
                    ItemKind::Culprit,
                    request.clone(),
                    name,
                    holder["ns"].as_u64()?,
                ))
            });
            items.extend(holders);
            let locks = list(&of["locks"]).filter_map(|lock| {
                let object = text_of(&lock["object"]).filter(|object| !object.is_empty())?;
                Some((
                    ItemKind::Lock,
                    request.clone(),
                    object,
                    lock["ns"].as_u64()?,
                ))
            });
            items.extend(locks);
        }
        items
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text_of(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn culprit(holder: &Value) -> Option<CulpritName> {
    let name = holder["culprit_kind"].as_str()?;
    let kind = CulpritKind::ALL
        .into_iter()
        .find(|kind| kind.name() == name)?;
    let plain = |key: &str| Plain::of(holder[key].as_str().unwrap_or_default());
    Some(CulpritName {
        kind,
        request: text_of(&holder["culprit_request"])?,
        label: plain("culprit_label"),
        comm: plain("culprit_comm"),
    })
}

fn cause(holder: &Value) -> Option<Cause> {
    let name = holder["root_cause"].as_str()?;
    Cause::ALL.into_iter().find(|cause| cause.name() == name)
}
