//! Measured pages of the manual: a text in, a page of `docs/measured/` with that text out.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use xtask::workspace;

/// After tables that a command has written.
const END: &str = "<!-- end of what is written -->";

/// Before them.
fn begin(what: &str) -> String {
    format!("<!-- written by `cargo xtask bench {what} --write` -->")
}

fn path(name: &str) -> PathBuf {
    workspace::root().join("docs/measured").join(name)
}

/// Writes a picture, which pages find in `../img/`.
pub(super) fn write_picture(name: &str, svg: &str) -> Result<()> {
    let path = workspace::root().join("docs/img").join(name);
    fs::write(&path, svg).with_context(|| path.display().to_string())
}

/// Writes a whole page.
pub(super) fn write(name: &str, text: &str) -> Result<()> {
    let path = path(name);
    fs::write(&path, text).with_context(|| path.display().to_string())
}

/// Replaces what stands between the marks of `what` in the README.
pub(super) fn write_into_readme(what: &str, text: &str) -> Result<()> {
    write_into(&readme(), what, text)
}

fn readme() -> PathBuf {
    workspace::root().join("README.md")
}

/// Replaces what stands between the marks of `what` in a page.
pub(super) fn write_between_marks(name: &str, what: &str, text: &str) -> Result<()> {
    write_into(&path(name), what, text)
}

fn write_into(path: &Path, what: &str, text: &str) -> Result<()> {
    let shown = || path.display().to_string();
    let page = fs::read_to_string(path).with_context(shown)?;
    let page = replaced(&page, &begin(what), text).with_context(shown)?;
    fs::write(path, page).with_context(shown)
}

fn replaced(page: &str, begin: &str, text: &str) -> Result<String> {
    let lost = |mark: &str| format!("the page has lost its mark {mark}");
    let (before, rest) = page.split_once(begin).with_context(|| lost(begin))?;
    let (_, after) = rest.split_once(END).with_context(|| lost(END))?;
    Ok(format!(
        "{before}{begin}\n\n{}\n\n{END}{after}",
        text.trim_end()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_replace_those_before() {
        let mark = begin("stacks");
        let page = format!("text\n{mark}\nold\n{END}\nmore\n");
        let once = replaced(&page, &mark, "new\n").unwrap();
        assert_eq!(once, format!("text\n{mark}\n\nnew\n\n{END}\nmore\n"));
        assert_eq!(replaced(&once, &mark, "new\n").unwrap(), once);
        let error = replaced("text", &mark, "new").unwrap_err().to_string();
        assert!(error.contains(&mark), "{error}");
    }

    #[test]
    fn every_page_that_is_written_between_marks_has_them() {
        for (name, what) in [
            ("stacks.md", "stacks"),
            ("do-command.md", "do-command"),
            ("servers.md", "servers"),
            ("page.md", "pages"),
        ] {
            let page = fs::read_to_string(path(name)).unwrap();
            replaced(&page, &begin(what), "new").unwrap();
        }
        let page = fs::read_to_string(readme()).unwrap();
        replaced(&page, &begin("tracers"), "new").unwrap();
    }
}
