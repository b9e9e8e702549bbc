//! What disks did while requests waited for them: waits of a request type in, lines out.

use reqtrace_analysis::report::blame::{DiskUser, DiskWaits, TypeBlame};
use reqtrace_base::figures::{cut, duration, number, share, size};
use reqtrace_base::names::clean;

use super::super::page::Page;
use crate::words::NAME;

pub(super) fn draw(page: &mut Page, blame: &TypeBlame) {
    let Some(waits) = &blame.disk else { return };
    page.line("");
    for (title, text) in lines(waits, &blame.request) {
        page.wrapped(&title, &text);
    }
}

/// What a line is about, and what it has.
pub(crate) fn lines(waits: &DiskWaits, request: &str) -> Vec<(String, String)> {
    let disks: Vec<_> = waits.disks.iter().map(|disk| clean(disk)).collect();
    let disks = match disks.as_slice() {
        [] => String::new(),
        disks => format!(" ({})", disks.join(", ")),
    };
    let title = format!("Disk of `{}`{disks}: ", cut(request, NAME));
    let mut lines = vec![(title, whose(waits))];
    if !waits.users.is_empty() {
        let users: Vec<_> = waits.users.iter().map(user).collect();
        lines.push(("  meanwhile it was used by ".to_owned(), users.join("; ")));
    }
    if let Some((requests, ns)) = waits.longest_stall {
        let longest = format!(
            "{} times; in the longest {} requests stood for the same {}",
            number(waits.stalls),
            number(requests),
            duration(ns)
        );
        lines.push(("  it stalled ".to_owned(), longest));
    }
    lines
}

/// Whose I/O it was, and where.
fn whose(waits: &DiskWaits) -> String {
    let all = waits.waited_ns;
    let parts = [
        (waits.own_ns, "own I/O"),
        (waits.journal_ns, "journal, on behalf of it"),
        (waits.others_ns, "I/O of others"),
        (waits.not_bound_ns(), "device, not bound"),
    ];
    let mut parts: Vec<_> = parts
        .iter()
        .filter(|(ns, _)| *ns > 0)
        .map(|(ns, name)| format!("{} {name}", share(*ns, all)))
        .collect();
    if waits.count > 0 {
        parts.push(format!(
            "each of {} I/Os {} queued and {} served",
            number(waits.count),
            duration(waits.queued_ns / waits.count),
            duration(waits.served_ns / waits.count)
        ));
    }
    format!("of {} waited {}", duration(all), parts.join(", "))
}

/// `"dd" (pid 991): 1.2 GB written, 33 flushes`.
fn user(user: &DiskUser) -> String {
    let name = match (user.pid, user.is_kernel) {
        (0, _) => "somebody not known".to_owned(),
        (_, true) => format!("\"{}\" (kernel, for others)", clean(&user.comm)),
        (pid, false) => format!("\"{}\" (pid {pid})", clean(&user.comm)),
    };
    let parts = [
        (user.read_bytes, format!("{} read", size(user.read_bytes))),
        (
            user.written_bytes,
            format!("{} written", size(user.written_bytes)),
        ),
        (user.flushes, format!("{} flushes", number(user.flushes))),
    ];
    let did: Vec<_> = parts
        .into_iter()
        .filter(|(value, _)| *value > 0)
        .map(|(_, text)| text)
        .collect();
    format!("{name}: {}", did.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqtrace_base::plain::Plain;

    #[test]
    fn whose_io_it_was_who_else_was_there_and_stalls() {
        let dd = DiskUser {
            pid: 991,
            comm: Plain::of("dd"),
            disk: Plain::of("vda"),
            written_bytes: 3 << 20,
            flushes: 2,
            count: 40,
            ..DiskUser::default()
        };
        let waits = DiskWaits {
            waited_ns: 1_000_000_000,
            own_ns: 600_000_000,
            journal_ns: 300_000_000,
            queued_ns: 100_000_000,
            served_ns: 800_000_000,
            count: 100,
            disks: vec![Plain::of("vda")],
            users: vec![dd],
            stalls: 10,
            longest_stall: Some((4, 926_000_000)),
            ..DiskWaits::default()
        };
        let blame = TypeBlame {
            request: "command".to_owned(),
            disk: Some(waits),
            ..TypeBlame::default()
        };
        let mut page = Page::new(120);
        draw(&mut page, &blame);
        let text = page.text.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in [
            "Disk of `command` (vda): of 1.00 s waited 60.0 % own I/O, 30.0 % journal, on behalf of it, 10.0 % device, not bound, each of \
             100 I/Os 1.00 ms queued and 8.00 ms served",
            "meanwhile it was used by \"dd\" (pid 991): 3.00 MiB written, 2 flushes",
            "it stalled 10 times; in the longest 4 requests stood for the same 926 ms",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        let mut page = Page::new(120);
        draw(&mut page, &TypeBlame::default());
        assert_eq!(page.text, "");
    }
}
