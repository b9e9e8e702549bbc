//! Files that are not text in, text to compare with golden files out. Nothing here knows what their fields mean.

use std::fmt::Write as _;
use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::{GzDecoder, ZlibDecoder};
use serde_json::Value;

/// The data of `report.html`.
pub(crate) fn page(html: &[u8]) -> String {
    let text = std::str::from_utf8(html).unwrap();
    let (_, behind) = text
        .split_once("<script id=\"data\" type=\"text/plain\">")
        .unwrap();
    let (data, _) = behind.split_once("</script>").unwrap();
    let mut json = String::new();
    let packed = STANDARD.decode(data).unwrap();
    ZlibDecoder::new(packed.as_slice())
        .read_to_string(&mut json)
        .unwrap();
    let data: Value = serde_json::from_str(&json).unwrap();
    let mut text = String::new();
    for (key, value) in data.as_object().unwrap() {
        match value {
            // One line for each of what there are many.
            Value::Array(elements) => {
                let _ = writeln!(text, "{key}");
                for element in elements {
                    let _ = writeln!(text, "  {element}");
                }
            }
            value => {
                let _ = writeln!(text, "{key} {value}");
            }
        }
    }
    text
}

/// A gzipped message of protocol buffers.
pub(crate) fn gzipped(bytes: &[u8]) -> String {
    let mut message = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut message).unwrap();
    self::message(&message)
}

/// A message of protocol buffers, one line a field: its number, and its value. Messages in it are set in.
pub(crate) fn message(bytes: &[u8]) -> String {
    fields(bytes, 0).unwrap()
}

fn fields(mut bytes: &[u8], depth: usize) -> Option<String> {
    let mut text = String::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        let number = tag >> 3;
        if number == 0 {
            return None;
        }
        let _ = write!(text, "{:depth$}{number}:", "");
        let value = match tag & 7 {
            0 => format!(" {}\n", varint(&mut bytes)?),
            1 => format!(
                " {}\n",
                u64::from_le_bytes(*bytes.split_off(..8)?.first_chunk()?)
            ),
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).ok()?;
                inside(bytes.split_off(..length)?, depth + 1)
            }
            5 => format!(
                " {}\n",
                u32::from_le_bytes(*bytes.split_off(..4)?.first_chunk()?)
            ),
            _ => return None,
        };
        text += &value;
    }
    Some(text)
}

/// Bytes that are a text, a message, or numbers.
fn inside(bytes: &[u8], depth: usize) -> String {
    let is_text = |text: &&str| !text.chars().any(char::is_control);
    if let Some(text) = std::str::from_utf8(bytes).ok().filter(is_text) {
        return format!(" {text:?}\n");
    }
    match fields(bytes, depth) {
        Some(fields) => format!("\n{fields}"),
        None => format!(" {bytes:?}\n"),
    }
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.split_off_first()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}
