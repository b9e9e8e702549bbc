//! Rows that cannot be compared, and the errors that tell why.

use std::fs;

use crate::made::{A, Made, recording};
use crate::{both, refused, report};

#[test]
fn rows_that_are_not_all_there_are_refused() {
    let folder = both();
    let folder = folder.path();
    for (more, why) in [
        (["--slower-than", "1ms"], "only requests of 1"),
        (["--max-rows", "500"], "rows were left out"),
        (["--max-bytes", "250K"], "rows were left out"),
    ] {
        report("b", &more, folder);
        let printed = refused(&["diff", "a.parquet", "b.parquet"], folder);
        assert!(
            printed.contains("b.parquet") && printed.contains(why),
            "{printed}"
        );
        let printed = refused(&["diff", "a", "b"], folder);
        assert!(printed.contains("b/requests.csv has "), "{printed}");
    }
    // Cut off.
    let rows = fs::read(folder.join("a/requests.csv")).unwrap();
    fs::write(folder.join("a/requests.csv"), &rows[..rows.len() / 2]).unwrap();
    refused(&["diff", "a", "a.rec"], folder);
    fs::write(folder.join("a/requests.csv"), &rows).unwrap();
    // One without the other.
    let printed = refused(&["diff", "a/requests.csv", "a.rec"], folder);
    assert!(printed.contains("rows only"), "{printed}");
    fs::rename(folder.join("a/summary.json"), folder.join("summary")).unwrap();
    let printed = refused(&["diff", "a", "a.rec"], folder);
    assert!(printed.contains("there is no a/summary.json"), "{printed}");
    for text in ["{}", "no JSON"] {
        fs::write(folder.join("a/summary.json"), text).unwrap();
        refused(&["diff", "a", "a.rec"], folder);
    }
    fs::rename(folder.join("summary"), folder.join("a/summary.json")).unwrap();
    fs::copy(folder.join("a/requests.csv"), folder.join("a/more.csv")).unwrap();
    let printed = refused(&["diff", "a", "a.rec"], folder);
    assert!(printed.contains("several files of rows"), "{printed}");
    fs::remove_file(folder.join("a/more.csv")).unwrap();
    fs::remove_file(folder.join("a/requests.csv")).unwrap();
    let printed = refused(&["diff", "a", "a.rec"], folder);
    assert!(printed.contains("a summary, and no rows"), "{printed}");
    // A file without its footer, and one of a later version: `what_is_no_whole_file_is_refused`.
    let parquet = fs::read(folder.join("a.parquet")).unwrap();
    fs::write(folder.join("cut"), &parquet[..parquet.len() - 9]).unwrap();
    let printed = refused(&["diff", "cut", "a.parquet"], folder);
    assert!(
        printed.contains("cut is no whole Parquet file"),
        "{printed}"
    );
}

#[test]
fn two_outputs_in_one_file_are_refused() {
    let folder = both();
    let folder = folder.path();
    let printed = refused(
        &["diff", "a.rec", "b.rec", "--json", "x", "--html", "x"],
        folder,
    );
    assert!(printed.contains("would both go to x"), "{printed}");
    assert!(!folder.join("x").exists());
}

#[test]
fn what_rows_do_not_have_cannot_be_selected() {
    let folder = both();
    let folder = folder.path();
    fs::write(folder.join("a.rec"), recording(Made { labels: false, ..A })).unwrap();
    report("a", &[], folder);
    for (select, why) in [
        ("label=x*", "no labels"),
        ("colour=red", "no attribute of that name"),
        ("type=pay", "no row is of a request type `pay`"),
    ] {
        for a in ["a.parquet", "a"] {
            let printed = refused(
                &["diff", a, "b.parquet", "--select", &format!("a:{select}")],
                folder,
            );
            assert!(printed.contains(why), "{a}: {printed}");
        }
    }
    let printed = refused(
        &["diff", "b.parquet", "b.rec", "--select", "a:label=["],
        folder,
    );
    assert!(printed.contains("is no glob"), "{printed}");
    for a in ["a.parquet", "a.rec"] {
        let printed = refused(&["diff", a, "b.rec", "--group-by", "label"], folder);
        assert!(printed.contains(a), "{printed}");
        assert!(printed.contains("no labels to group by"), "{printed}");
    }
    // requests.csv does not say which attribute stands for one.
    let printed = refused(&["diff", "a", "b.rec", "--group-by", "label"], folder);
    assert!(printed.contains("no labels to group by"), "{printed}");
    assert!(printed.contains("--group-by path"), "{printed}");
    let printed = refused(
        &["diff", "a.parquet", "b.parquet", "--group-by", "colour"],
        folder,
    );
    assert!(printed.contains("colour"), "{printed}");
    let printed = refused(
        &["diff", "a.parquet", "b.parquet", "--select", "time=90s.."],
        folder,
    );
    assert!(printed.contains("nothing is at the times"), "{printed}");
}
