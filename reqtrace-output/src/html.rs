//! `report.html`: a report with its page in, one file that needs no network out.
//!
//! The file is `page/page.html` with three things put in: the style sheet, the modules of `page/` as one
//! script, and the data as compressed JSON in base64, in which no name can end the element that it is in.
//! The page allows this script and this style sheet only, by their hashes, and no request to any host.

mod data;
mod script;

use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use base64::write::EncoderWriter;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use reqtrace_analysis::report::Report;
use reqtrace_analysis::report::page::Page;

const TEMPLATE: &str = include_str!("html/page/page.html");
const STYLE: &str = include_str!("html/page/style.css");

/// Places in the template.
const POLICY_PLACE: &str = "{{policy}}";
const STYLE_PLACE: &str = "{{style}}";
const DATA_PLACE: &str = "{{data}}";
const SCRIPT_PLACE: &str = "{{script}}";

/// Writes `report.html`.
pub(crate) fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let nothing = Page::default();
    let page = report.page.as_deref().unwrap_or(&nothing);
    let script = script::joined(script::MODULES);
    write_page(&script, &data::of(report, page), out)
}

/// Writes the page of a comparison.
pub(crate) fn write_diff(data: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    write_page(&script::joined(script::MODULES_OF_DIFF), data, out)
}

fn write_page(script: &str, data: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    let policy = format!(
        "default-src 'none'; base-uri 'none'; form-action 'none'; script-src '{}'; style-src '{}'",
        hash(script),
        hash(STYLE)
    );
    let mut rest = TEMPLATE;
    for (place, text) in [
        (POLICY_PLACE, Some(policy.as_str())),
        (STYLE_PLACE, Some(STYLE)),
        (DATA_PLACE, None),
        (SCRIPT_PLACE, Some(script)),
    ] {
        let (before, after) = rest.split_once(place).unwrap_or((rest, ""));
        out.write_all(before.as_bytes())?;
        match text {
            Some(text) => out.write_all(text.as_bytes())?,
            None => write_data(out, data)?,
        }
        rest = after;
    }
    out.write_all(rest.as_bytes())?;
    out.flush()
}

/// Compressed JSON in base64.
fn write_data(out: &mut dyn Write, data: &impl Serialize) -> io::Result<()> {
    let mut text = EncoderWriter::new(out, &STANDARD);
    let mut packed = ZlibEncoder::new(&mut text, Compression::default());
    serde_json::to_writer(io::BufWriter::with_capacity(1 << 16, &mut packed), data)?;
    packed.finish()?;
    text.finish().map(|_| ())
}

/// What a content security policy calls a text.
fn hash(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(text)))
}

#[cfg(test)]
mod tests;
