//! What requests did on their CPUs, as JSON.

use serde_json::{Value, json};

use reqtrace_analysis::report::{HotFunction, OnCpu, OnCpuType};

/// Adds it to the summary: how samples were taken, and what they say of each request type.
pub(super) fn add(summary: &mut Value, on_cpu: &OnCpu) {
    summary["trace"]["samples"] = json!({"engine": on_cpu.engine, "rate_hz": on_cpu.rate_hz});
    let requests = summary["requests"].as_array_mut().into_iter().flatten();
    for (request, of_type) in requests.zip(&on_cpu.types) {
        request["on_cpu"] = value(of_type);
    }
}

fn value(of_type: &OnCpuType) -> Value {
    json!({
        "samples": of_type.samples,
        "ns": of_type.ns,
        "hottest": of_type.hottest.iter().map(function).collect::<Vec<_>>(),
    })
}

fn function(hot: &HotFunction) -> Value {
    json!({
        "function": hot.name,
        "ns": hot.ns,
        "samples": hot.samples,
        "callers": hot.callers,
    })
}
