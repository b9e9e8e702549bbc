//! `[otlp]`: its TOML in; where spans of slow requests are sent, and how many, out.

use std::fmt::Write as _;
use std::net::IpAddr;

use reqtrace_base::error::Result;
use serde::{Deserialize, Serialize};
use ureq::http::Uri;

use super::text;
use super::toml_at::Table;

const ENDPOINT: &str = "\"http://127.0.0.1:4318\"";
/// Spans a second.
const RATES: std::ops::RangeInclusive<u32> = 1..=10_000;

/// Spans of slow requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Otlp {
    /// A collector that speaks OTLP/HTTP, without `/v1/traces` and without a slash at its end.
    pub endpoint: String,
    /// Spans a second.
    pub max_rate: u32,
}

pub(super) fn read(mut table: Table<'_>) -> Result<Otlp> {
    let endpoint = table.need("endpoint", ENDPOINT)?;
    let endpoint = endpoint.parsed(ENDPOINT, address)?;
    let max_rate = table.take("max-rate");
    let max_rate = max_rate.map(|value| value.number(RATES, "100"));
    table.end()?;
    Ok(Otlp {
        endpoint,
        max_rate: max_rate.transpose()?.unwrap_or(100),
    })
}

/// What a collector prints of itself, or its whole address, is taken too.
fn address(text: &str) -> Result<String, String> {
    base(text, "/v1/traces")
}

/// The address of a program that speaks HTTP, without a slash at its end, and without the path that is added to it.
pub(super) fn base(text: &str, path: &str) -> Result<String, String> {
    let uri: Uri = text
        .parse()
        .map_err(|error| format!("this is no address: {error}"))?;
    let scheme = uri.scheme_str().unwrap_or_default();
    if scheme.eq_ignore_ascii_case("https") {
        return Err("the agent speaks no TLS: send to a collector on this machine".to_owned());
    }
    if !scheme.eq_ignore_ascii_case("http") || uri.host().is_none_or(str::is_empty) {
        return Err("this is no address that begins with http://".to_owned());
    }
    let has_user = uri.authority().is_some_and(|of| of.as_str().contains('@'));
    if has_user || uri.query().is_some() {
        return Err("it has a user or a query, which is not sent".to_owned());
    }
    if !uri.host().is_some_and(is_own) {
        return Err(
            "this is another machine, to which the agent would send in clear: send to a collector on this machine, by localhost or \
             a loopback address"
                .to_owned(),
        );
    }
    let whole = text.trim_end_matches('/');
    Ok(whole.strip_suffix(path).unwrap_or(whole).to_owned())
}

/// Whether a host is this machine, whoever answers for names.
fn is_own(host: &str) -> bool {
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let address: Option<IpAddr> = bare.unwrap_or(host).parse().ok();
    host.eq_ignore_ascii_case("localhost")
        || address.is_some_and(|address| address.to_canonical().is_loopback())
}

impl Otlp {
    /// The section, with everything that it leaves out.
    pub(super) fn effective(&self) -> String {
        let mut out = String::new();
        let _ = write!(
            out,
            "\n[otlp]\nendpoint = {}\nmax-rate = {}\n",
            text(&self.endpoint),
            self.max_rate
        );
        out
    }

    /// What is done, in a line.
    pub(crate) fn words(&self) -> String {
        format!(
            "otlp (experimental): up to {} spans of slow requests a second, to {}/v1/traces",
            self.max_rate, self.endpoint
        )
    }
}
