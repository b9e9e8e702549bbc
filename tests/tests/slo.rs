//! The commands of docs/slo-questions.md, run on the recorded trace they speak of: what they print is
//! what the page shows.
//!
//! Needs sqlite3, and neither root nor BPF. `REQTRACE_BLESS=1` puts what they print into the page.

use std::fs;
use std::process::Command;

use reqtrace_tests::workspace;

/// One fenced block: its language, and where its text is in the page.
struct Fenced<'a> {
    language: &'a str,
    text: &'a str,
}

/// All fenced blocks, in order.
fn fenced(page: &str) -> Vec<Fenced<'_>> {
    let mut blocks = Vec::new();
    let mut rest = page;
    while let Some((_, after)) = rest.split_once("\n```") {
        let (language, after) = after.split_once('\n').unwrap();
        // An empty block has its end where its text would be.
        let end = if after.starts_with("```") {
            0
        } else {
            after.find("\n```").unwrap() + 1
        };
        blocks.push(Fenced {
            language,
            text: &after[..end],
        });
        rest = &after[end.saturating_sub(1)..];
        rest = rest.strip_prefix('\n').unwrap_or(rest);
        rest = rest.strip_prefix("```").unwrap();
    }
    blocks
}

#[test]
fn the_page_shows_what_its_commands_print() {
    workspace::program("sqlite3").unwrap();
    let root = workspace::root();
    let path = root.join("docs/slo-questions.md");
    let page = fs::read_to_string(&path).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let csv = root.join("tests/data/slo/requests.csv");
    fs::copy(csv, folder.path().join("requests.csv")).unwrap();

    let blocks = fenced(&page);
    let (mut commands, mut questions) = (0, 0);
    let mut new_page = page.clone();
    for (index, block) in blocks.iter().enumerate() {
        if block.language != "sh" {
            assert_eq!(block.language, "text");
            continue;
        }
        commands += 1;
        let output = Command::new("sh")
            .args(["-ec", block.text])
            .current_dir(folder.path())
            .output()
            .unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && errors.is_empty(),
            "{}{errors}",
            block.text
        );
        // sqlite3 pads its columns.
        let lines = printed.lines().map(|line| format!("{}\n", line.trim_end()));
        let printed: String = lines.collect();
        let shown = blocks.get(index + 1).filter(|next| next.language == "text");
        if let Some(shown) = shown {
            questions += 1;
            assert!(printed.lines().count() > 2, "no row: {}", block.text);
            let old = format!("{}```\n\n```text\n{}```", block.text, shown.text);
            let new = format!("{}```\n\n```text\n{printed}```", block.text);
            assert!(new_page.contains(&old), "{old}");
            new_page = new_page.replace(&old, &new);
        } else {
            assert_eq!(printed, "", "{}", block.text);
        }
    }
    assert_eq!((commands, questions), (6, 5));
    if std::env::var("REQTRACE_BLESS").is_ok_and(|value| value == "1") {
        fs::write(&path, new_page).unwrap();
    } else {
        assert!(
            new_page == page,
            "the page shows something else; REQTRACE_BLESS=1 takes this:\n{new_page}"
        );
    }
}
