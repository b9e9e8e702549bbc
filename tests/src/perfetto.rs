//! What Perfetto's own schema reads in a file of `--perfetto`.
//!
//! In: the file. Out: threads, slices and arrows, put together by the rules of Perfetto: a slice ends what
//! began last on its track, and an arrow goes from the earlier event with its number to the later one.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::workspace;

/// A trace.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Names of threads by process and thread.
    pub threads: BTreeMap<(u64, u64), String>,
    /// Names of processes.
    pub processes: BTreeMap<u64, String>,
    /// Slices, and moments, which take no time, by their begin.
    pub slices: Vec<Slice>,
    /// Arrows: indices of the slices at both ends.
    pub arrows: Vec<(usize, usize)>,
}

/// A slice of a thread's track.
#[derive(Clone, Debug, Default)]
pub struct Slice {
    /// Process and thread.
    pub thread: (u64, u64),
    /// How many slices it lies in.
    pub depth: usize,
    /// `request`, `blocked`, `run queue`, `preempted` or `wakeup`.
    pub category: String,
    /// What it is called.
    pub name: String,
    /// Nanoseconds since the Unix epoch.
    pub begin_ns: u64,
    /// Its length, ns.
    pub ns: u64,
    /// Its notes: numbers and texts as texts, groups by `group.name`.
    pub notes: BTreeMap<String, String>,
}

impl Slice {
    /// A number of its notes.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        self.notes.get(name)?.parse().ok()
    }
}

/// Reads a trace.
///
/// # Errors
///
/// When the schema does not have what is in it, or slices do not nest.
pub fn read(file: &Path) -> Result<Trace> {
    let python = workspace::perfetto().join("bin/python");
    ensure!(
        python.exists(),
        "{} is missing; run: cargo xtask setup --for test",
        python.display()
    );
    let script = workspace::root().join("tests/fixtures/perfetto/decode.py");
    let output = Command::new(python)
        .arg(script)
        .arg(file)
        .output()
        .context("python could not be started")?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout)?;
    let packets: Result<Vec<Value>, _> = text.lines().map(serde_json::from_str).collect();
    put_together(&packets?)
}

fn put_together(packets: &[Value]) -> Result<Trace> {
    let mut trace = Trace::default();
    let mut tracks = BTreeMap::new();
    let mut events = Vec::new();
    let first = packets.first().context("an empty trace")?;
    let clock = &first["clock_snapshot"]["primary_trace_clock"];
    ensure!(clock == "BUILTIN_CLOCK_REALTIME", "{first}");
    for packet in packets {
        ensure!(packet["trusted_packet_sequence_id"] == 1, "{packet}");
        let descriptor = &packet["track_descriptor"];
        let thread = &descriptor["thread"];
        if thread.is_object() {
            let ids = (number(&thread["pid"])?, number(&thread["tid"])?);
            tracks.insert(number(&descriptor["uuid"])?, ids);
            let name = thread["thread_name"].as_str().unwrap_or_default();
            trace.threads.insert(ids, name.to_owned());
        }
        let process = &descriptor["process"];
        if process.is_object() {
            let name = process["process_name"].as_str().unwrap_or_default();
            trace
                .processes
                .insert(number(&process["pid"])?, name.to_owned());
        }
        if packet["track_event"].is_object() {
            ensure!(packet["timestamp_clock_id"] == 1, "{packet}");
            events.push((number(&packet["timestamp"])?, &packet["track_event"]));
        }
    }
    // As Perfetto sorts them: events of one time stay in the order of the file.
    events.sort_by_key(|(at, _)| *at);
    let mut open: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    let mut from: BTreeMap<u64, usize> = BTreeMap::new();
    for (at, event) in events {
        let track = number(&event["track_uuid"])?;
        let thread = *tracks
            .get(&track)
            .context("a track that was not described")?;
        let stack = open.entry(track).or_default();
        if event["type"] == "TYPE_SLICE_END" {
            let ended = stack.pop().context("an end without a begin")?;
            let slice: &mut Slice = &mut trace.slices[ended];
            slice.ns = at - slice.begin_ns;
            continue;
        }
        let index = trace.slices.len();
        let mut notes = BTreeMap::new();
        note(&mut notes, "", &event["debug_annotations"]);
        trace.slices.push(Slice {
            thread,
            depth: stack.len(),
            category: event["categories"][0]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            name: event["name"].as_str().unwrap_or_default().to_owned(),
            begin_ns: at,
            ns: 0,
            notes,
        });
        if event["type"] == "TYPE_SLICE_BEGIN" {
            stack.push(index);
        }
        for id in event["flow_ids"].as_array().into_iter().flatten() {
            ensure!(
                from.insert(number(id)?, index).is_none(),
                "flow {id} begins twice"
            );
        }
        for id in event["terminating_flow_ids"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let begun = from.remove(&number(id)?);
            trace
                .arrows
                .push((begun.context("a flow without a begin")?, index));
        }
    }
    ensure!(from.is_empty(), "flows without an end: {from:?}");
    ensure!(open.values().all(Vec::is_empty), "slices without an end");
    Ok(trace)
}

fn note(notes: &mut BTreeMap<String, String>, group: &str, printed: &Value) {
    for one in printed.as_array().into_iter().flatten() {
        let name = format!("{group}{}", one["name"].as_str().unwrap_or_default());
        let text = one["uint_value"].as_str().or(one["string_value"].as_str());
        if let Some(text) = text {
            notes.insert(name.clone(), text.to_owned());
        }
        note(notes, &format!("{name}."), &one["dict_entries"]);
    }
}

/// JSON has 64-bit numbers as texts.
fn number(value: &Value) -> Result<u64> {
    let text = value.as_str().map(str::parse);
    let number = text.and_then(Result::ok).or(value.as_u64());
    number.with_context(|| format!("{value} is no number"))
}
