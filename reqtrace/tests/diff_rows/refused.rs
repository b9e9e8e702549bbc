//! Rows that cannot be compared, and what is said of them.

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
        let said = refused(&["diff", "a.parquet", "b.parquet"], folder);
        assert!(said.contains("b.parquet") && said.contains(why), "{said}");
        let said = refused(&["diff", "a", "b"], folder);
        assert!(said.contains("b/requests.csv has "), "{said}");
    }
    // Cut off.
    let rows = fs::read(folder.join("a/requests.csv")).unwrap();
    fs::write(folder.join("a/requests.csv"), &rows[..rows.len() / 2]).unwrap();
    refused(&["diff", "a", "a.rec"], folder);
    fs::write(folder.join("a/requests.csv"), &rows).unwrap();
    // One without the other.
    let said = refused(&["diff", "a/requests.csv", "a.rec"], folder);
    assert!(said.contains("rows only"), "{said}");
    fs::rename(folder.join("a/summary.json"), folder.join("summary")).unwrap();
    let said = refused(&["diff", "a", "a.rec"], folder);
    assert!(said.contains("there is no a/summary.json"), "{said}");
    for text in ["{}", "no JSON"] {
        fs::write(folder.join("a/summary.json"), text).unwrap();
        refused(&["diff", "a", "a.rec"], folder);
    }
    fs::rename(folder.join("summary"), folder.join("a/summary.json")).unwrap();
    fs::copy(folder.join("a/requests.csv"), folder.join("a/more.csv")).unwrap();
    let said = refused(&["diff", "a", "a.rec"], folder);
    assert!(said.contains("several files of rows"), "{said}");
    fs::remove_file(folder.join("a/more.csv")).unwrap();
    fs::remove_file(folder.join("a/requests.csv")).unwrap();
    let said = refused(&["diff", "a", "a.rec"], folder);
    assert!(said.contains("a summary, and no rows"), "{said}");
    // A file without its footer, and one of a later version: `what_is_no_whole_file_is_refused`.
    let parquet = fs::read(folder.join("a.parquet")).unwrap();
    fs::write(folder.join("cut"), &parquet[..parquet.len() - 9]).unwrap();
    let said = refused(&["diff", "cut", "a.parquet"], folder);
    assert!(said.contains("cut is no whole Parquet file"), "{said}");
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
            let said = refused(
                &["diff", a, "b.parquet", "--select", &format!("a:{select}")],
                folder,
            );
            assert!(said.contains(why), "{a}: {said}");
        }
    }
    let said = refused(
        &["diff", "b.parquet", "b.rec", "--select", "a:label=["],
        folder,
    );
    assert!(said.contains("is no glob"), "{said}");
    let said = refused(
        &["diff", "a.parquet", "b.parquet", "--group-by", "label"],
        folder,
    );
    assert!(said.contains("no labels to group by"), "{said}");
    let said = refused(
        &["diff", "a.parquet", "b.parquet", "--group-by", "colour"],
        folder,
    );
    assert!(said.contains("colour"), "{said}");
    let said = refused(
        &["diff", "a.parquet", "b.parquet", "--select", "time=90s.."],
        folder,
    );
    assert!(said.contains("nothing is at the times"), "{said}");
}
