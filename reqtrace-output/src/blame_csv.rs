//! `blame.csv`: a report in; who waited for whom, and why, one line each out.

use std::io::{self, Write};

use reqtrace_analysis::report::Report;
use reqtrace_analysis::report::blame::{Blame, BlameRow};
use reqtrace_base::plain::csv_field;

/// The columns.
pub const COLUMNS: [&str; 13] = [
    "victim_request",
    "victim_label",
    "wait_class",
    "culprit_kind",
    "culprit_request",
    "culprit_label",
    "culprit_comm",
    "root_cause",
    "depth",
    "ns",
    "requests",
    "culprit_pid",
    "culprit_tid",
];

/// Writes `blame.csv`.
pub(crate) fn write(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let nobody = Blame::default();
    rows(&report.blame.as_ref().unwrap_or(&nobody).rows, out)
}

fn rows(rows: &[BlameRow], out: &mut dyn Write) -> io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(COLUMNS)?;
    for row in rows {
        let culprit = &row.culprit;
        let numbers = [u64::from(row.depth), row.ns, row.requests];
        let [depth, ns, requests] = numbers.map(|number| number.to_string());
        let [pid, tid] = match row.thread {
            Some((pid, tid)) => [pid, tid].map(|number| number.to_string()),
            None => [const { String::new() }; 2],
        };
        let fields: [&str; COLUMNS.len()] = [
            &row.victim_request,
            &row.victim_label,
            &row.wait_class,
            culprit.kind.name(),
            &culprit.request,
            &culprit.label,
            &culprit.comm,
            row.cause.name(),
            &depth,
            &ns,
            &requests,
            &pid,
            &tid,
        ];
        csv.write_record(fields.map(csv_field).iter().map(|field| field.as_bytes()))?;
    }
    csv.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqtrace_analysis::report::blame::{Cause, CulpritKind, CulpritName};
    use reqtrace_base::plain::Plain;

    #[test]
    fn names_that_others_chose_stay_in_their_field() {
        let rows = [BlameRow {
            victim_request: "command".to_owned(),
            victim_label: Plain::of("SELECT \"a\", ?"),
            wait_class: "row lock".to_owned(),
            culprit: CulpritName {
                kind: CulpritKind::Thread,
                request: String::new(),
                label: Plain::default(),
                comm: Plain::of("=cmd()"),
            },
            thread: Some((7, 8)),
            cause: Cause::BetweenRequests,
            depth: 1,
            ns: 42,
            requests: 2,
        }];
        let mut out = Vec::new();
        super::rows(&rows, &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "victim_request,victim_label,wait_class,culprit_kind,culprit_request,culprit_label,\
             culprit_comm,root_cause,depth,ns,requests,culprit_pid,culprit_tid\n\
             command,\"SELECT \"\"a\"\", ?\",row lock,thread,,,'=cmd(),between_requests,1,42,2,7,8\n"
        );
    }
}
