//! Whether a text is well-formed XML, as far as a flame graph needs it.
//!
//! In: the text. Out: the number of elements, or what is wrong. Elements must nest and be closed,
//! attributes be quoted, and no `<` or bare `&` stand in text. Names and encodings are not looked at.

use anyhow::{Context, Result, bail, ensure};

/// Checks the text and counts its elements.
///
/// # Errors
///
/// With the first fault.
pub fn check(text: &str) -> Result<usize> {
    let mut rest = text;
    let mut open: Vec<&str> = Vec::new();
    let mut elements = 0;
    while let Some(at) = rest.find('<') {
        references(&rest[..at])?;
        ensure!(
            !open.is_empty() || rest[..at].trim().is_empty(),
            "text outside of the root"
        );
        rest = &rest[at..];
        if let Some(end) = skipped(rest)? {
            rest = &rest[end..];
            continue;
        }
        let end = tag_end(rest)?;
        let tag = &rest[1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            let last = open.pop().context("closed more than was opened")?;
            ensure!(last == name.trim_end(), "<{last}> closed by </{name}>");
            continue;
        }
        ensure!(elements == 0 || !open.is_empty(), "two roots");
        elements += 1;
        let (name, closed) = element(tag)?;
        if !closed {
            open.push(name);
        }
    }
    references(rest)?;
    ensure!(open.is_empty(), "not closed: {open:?}");
    ensure!(elements > 0, "no element");
    Ok(elements)
}

/// Length of a comment, declaration, processing instruction or CDATA section that begins here.
fn skipped(text: &str) -> Result<Option<usize>> {
    for (start, end) in [
        ("<!--", "-->"),
        ("<![CDATA[", "]]>"),
        ("<?", "?>"),
        ("<!", ">"),
    ] {
        if let Some(inner) = text.strip_prefix(start) {
            let at = inner.find(end).with_context(|| format!("{start} open"))?;
            return Ok(Some(start.len() + at + end.len()));
        }
    }
    Ok(None)
}

/// Where the tag that begins here ends, quotes respected.
fn tag_end(text: &str) -> Result<usize> {
    let mut quote = None;
    for (at, c) in text.char_indices().skip(1) {
        match (quote, c) {
            (None, '>') => return Ok(at),
            (None, '"' | '\'') => quote = Some(c),
            (Some(q), c) if q == c => quote = None,
            (_, '<') => bail!("< inside of a tag: {:?}", &text[..=at]),
            _ => {}
        }
    }
    bail!("a tag does not end")
}

/// Name of an element, and whether it closes itself.
fn element(tag: &str) -> Result<(&str, bool)> {
    let closed = tag.ends_with('/');
    let tag = tag.strip_suffix('/').unwrap_or(tag);
    let (name, mut rest) = match tag.split_once(char::is_whitespace) {
        Some((name, rest)) => (name, rest.trim_start()),
        None => (tag, ""),
    };
    let letter = |c: char| c.is_alphabetic() || c == '_';
    ensure!(name.starts_with(letter), "no name: <{tag}>");
    while !rest.is_empty() {
        let (key, value) = rest.split_once('=').context("attribute without value")?;
        ensure!(key.trim_end().starts_with(letter), "attribute {key:?}");
        let value = value.trim_start();
        let quote = value.chars().next().context("attribute without value")?;
        ensure!(quote == '"' || quote == '\'', "{key} has no quotes");
        let (value, after) = value[1..].split_once(quote).context("open quote")?;
        references(value)?;
        rest = after.trim_start();
    }
    Ok((name, closed))
}

/// Each `&` must begin a reference.
fn references(text: &str) -> Result<()> {
    for after in text.split('&').skip(1) {
        let name = after.split_once(';').context("bare &")?.0;
        let named = ["lt", "gt", "amp", "quot", "apos"].contains(&name);
        let numbered = name.strip_prefix('#').is_some_and(|number| {
            let hex = number.strip_prefix('x');
            hex.map_or_else(|| number.parse().ok(), |h| u32::from_str_radix(h, 16).ok())
                .is_some()
        });
        ensure!(named || numbered, "unknown reference &{name};");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn well_formed_texts_pass() {
        let svg = "<?xml version=\"1.0\"?><!DOCTYPE svg>\n<svg a='1' b=\"x > y\"><!-- <no> -->\
            <g><title>a &lt; b &#38; c</title><rect x=\"1\"/></g><![CDATA[ if (a < b) ]]></svg>\n";
        assert_eq!(check(svg).unwrap(), 4);
    }

    #[test]
    fn faults_are_found() {
        for bad in [
            "",
            "text",
            "<a>",
            "<a></b>",
            "</a>",
            "<a/><b/>",
            "<a>&</a>",
            "<a>&nbsp;</a>",
            "<a b=1/>",
            "<a b/>",
            "<a b=\"<\"/>",
            "<a>std::vector<int></a>",
            "<a",
            "<a/>tail&",
            "<!-- <a/>",
        ] {
            assert!(check(bad).is_err(), "{bad:?}");
        }
    }
}
