//! Recordings that nobody recorded: numbers, lists and texts as someone would choose who wants to stop whoever
//! opens the file. Every output of `reqtrace report` is written of each, within 512 MB and 10 s.

#![allow(clippy::unwrap_used, reason = "a failure of a test")]

use std::path::Path;
use std::process::{Command, Output};

use reqtrace_recording::{
    Address, AddressSpace, AwayInterval, BlockSite, BlockedIn, Comm, End, Event, File, Futex,
    Header, Holder, Interval, IntervalKind, LongBlock, Name, Open, Options, Process, ProcessChange,
    Request, RequestOf, SYSCALLS, Sample, Slot, Stack, StackSum, StackSumKey, SumOf, Thread,
    TypeTotals, Waker, WakerContext, WakerIs, Window, Writer, fuzz,
};

const PROFILE: &str = "[profile]\nname = \"forged\"\n[[request]]\nname = \"work\"\n\
    begin = { function = \"work\" }\nlabel = { arg = 0 }\n";
const START_NS: u64 = 1_000_000_000_000;
const SPACE: AddressSpace = AddressSpace {
    tgid: 100,
    exec_generation: 0,
};
/// Memory of a report, KiB, and what a program of this size and its threads map beside it.
const MEMORY: u64 = (512 << 10) + (128 << 10);
/// CPU time of a report, s. Without optimisation code is some ten times slower.
const SECONDS: u64 = if cfg!(debug_assertions) { 100 } else { 10 };

fn header() -> Header {
    Header {
        version: "0.1.0".to_owned(),
        start_ns: START_NS,
        monotonic_to_unix_ns: 1_700_000_000_000_000_000,
        profile: "forged".to_owned(),
        profile_text: PROFILE.to_owned(),
        options: Options {
            labels: true,
            ..Options::default()
        },
        blame: true,
        cpu_rate: 199,
        cpu_engine: "cpu-clock".to_owned(),
        architecture: "x86_64".to_owned(),
        syscalls: SYSCALLS.to_owned(),
        ..Header::default()
    }
}

/// A recording of what `write` writes.
fn recording(write: impl FnOnce(&mut dyn FnMut(Event<'_>))) -> Vec<u8> {
    recording_of(&header(), write)
}

fn recording_of(header: &Header, write: impl FnOnce(&mut dyn FnMut(Event<'_>))) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), header).unwrap();
    writer
        .event(&Event::Process(&Process {
            space: SPACE,
            change: ProcessChange::Start,
            parent: 1,
            time_ns: START_NS,
            name: "victim".to_owned(),
        }))
        .unwrap();
    write(&mut |event| writer.event(&event).unwrap());
    writer
        .event(&Event::End(&End {
            stop_ns: START_NS + 1_000_000_000,
            ended_by: "duration".to_owned(),
            ..End::default()
        }))
        .unwrap();
    writer.flush().unwrap();
    writer.into_inner()
}

/// A recording whose blocks of events have these payloads of a version of the format.
fn blocks(version: u16, payloads: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    let mut blocks = fuzz::blocks(&recording(|_| {}));
    blocks.truncate(1);
    blocks.extend(payloads.into_iter().map(|payload| fuzz::Block {
        version,
        kind: fuzz::EVENTS,
        payload,
    }));
    fuzz::file(&blocks)
}

fn site(user_stack: u64) -> BlockSite {
    BlockSite {
        kernel_stack: 1,
        user_stack,
        syscall: 202,
        file: 5,
    }
}

fn request(id: u64) -> Request<'static> {
    Request {
        id,
        space: SPACE,
        tid: 101 + id as u32 % 8,
        comm: Comm::from("worker"),
        begin_ns: START_NS + id * 1000,
        end_ns: START_NS + id * 1000 + 500_000,
        weight: 1,
        ..Request::default()
    }
}

/// A request that was blocked in this stack.
fn blocked(id: u64, stack: u64, event: &mut dyn FnMut(Event<'_>)) {
    let slots = [Slot {
        site: site(stack),
        blocked_ns: 100_000,
    }];
    event(Event::Request(Request {
        blocks: 1,
        blocked_ns: 100_000,
        slots: &slots,
        ..request(id)
    }));
}

fn name(offset: u64, frames: Vec<String>) -> Name {
    Name {
        address: Address { object: 2, offset },
        is_return: false,
        frames,
    }
}

fn stack(id: u64, offsets: impl Iterator<Item = u64>) -> Stack {
    Stack {
        space: Some(SPACE),
        id,
        stop: 0,
        addresses: offsets
            .map(|offset| Address { object: 2, offset })
            .collect(),
    }
}

fn interval(tid: u32, sequence: u32, begin_ns: u64, times: [u64; 3], waker: u32) -> Interval {
    let of = RequestOf {
        begin_ns,
        request_type: 0,
    };
    let [out_ns, wake_ns, in_ns] = times;
    Interval {
        space: SPACE,
        tid,
        sequence,
        request: Some(of),
        site: site(10),
        out_ns,
        kind: IntervalKind::Blocked {
            wake_ns,
            waker: Waker {
                context: WakerContext::Task,
                is: WakerIs::InRequest(of),
                tid: waker,
                tgid: SPACE.tgid,
                stack: 1,
            },
        },
        in_ns,
        futex: 0x1000,
        holder: Holder::Thread(waker),
        woken_from: None,
    }
}

/// `reqtrace report` of these bytes, with limits; the folder of its outputs.
#[track_caller]
fn report(bytes: &[u8], options: &[&str], folder: &Path) -> Output {
    let file = folder.join("forged.rec");
    std::fs::write(&file, bytes).unwrap();
    let limits = format!("ulimit -v {MEMORY}; ulimit -t {SECONDS}; exec \"$@\"");
    let mut command = Command::new("sh");
    // The limit is one of addresses: arenas would reserve some that are never used.
    command.env("MALLOC_ARENA_MAX", "1");
    command.args([
        "-c",
        &limits,
        "sh",
        env!("CARGO_BIN_EXE_reqtrace"),
        "report",
    ]);
    command.arg(&file).args(options).current_dir(folder);
    command.output().unwrap()
}

/// Every output of these bytes is written.
#[track_caller]
fn stands(bytes: &[u8]) -> Vec<Output> {
    let all: [&[&str]; 4] = [
        &["--out", "all", "--json", "a.json", "-v"],
        &[
            "--pprof",
            "a.pb",
            "--perfetto",
            "a.perfetto",
            "--intervals",
            "a.csv",
            #[cfg(feature = "parquet")]
            "--parquet",
            #[cfg(feature = "parquet")]
            "a.parquet",
        ],
        &[
            "--stacks",
            "all",
            "--flamegraph",
            "a.svg",
            "--folded",
            "a.folded",
            "--slower-than",
            "1us",
        ],
        &[
            "--group-by",
            "fingerprint",
            "--html",
            "a.html",
            "--label",
            "*",
        ],
    ];
    let run = |options: &&[&str]| {
        let folder = tempfile::tempdir().unwrap();
        let output = report(bytes, options, folder.path());
        let stderr = String::from_utf8_lossy(&output.stderr);
        let shown: String = stderr.chars().take(2000).collect();
        assert_eq!(
            output.status.code(),
            Some(0),
            "{options:?} {:?}: {shown}",
            output.status
        );
        let written = written(folder.path());
        assert!(written < 256 << 20, "{options:?}: {written} bytes");
        assert!(
            output.stdout.len() < 1 << 20,
            "{options:?}: {}",
            output.stdout.len()
        );
        output
    };
    all.iter().map(run).collect()
}

/// Bytes of all files in a folder.
fn written(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap().flatten();
    entries
        .map(|entry| match entry.metadata().unwrap() {
            folder if folder.is_dir() => written(&entry.path()),
            file => file.len(),
        })
        .sum()
}

#[track_caller]
fn says(outputs: &[Output], text: &str) {
    for output in outputs {
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(stdout.contains(text), "{text} is not in {stdout}");
    }
}

#[test]
fn times_and_weights_at_the_edge_of_their_range() {
    let times = [
        0,
        1,
        START_NS - 1,
        START_NS,
        START_NS + 5,
        u64::MAX / 2,
        1 << 63,
        u64::MAX - 1,
        u64::MAX,
    ];
    let bytes = recording(|event| {
        let mut id = 0;
        for begin_ns in times {
            for end_ns in times {
                for ns in [0, 5, 1 << 59, u64::MAX / 2, u64::MAX] {
                    id += 1;
                    let of = RequestOf {
                        begin_ns,
                        request_type: 0,
                    };
                    let slots = [Slot {
                        site: site(10),
                        blocked_ns: ns,
                    }];
                    let longest = [LongBlock {
                        site: site(10),
                        start_ns: end_ns,
                        blocked_ns: ns,
                        run_queue_ns: ns,
                        waker_tid: 7,
                        waker_tgid: 7,
                    }];
                    let tid = 101 + id as u32 % 8;
                    event(Event::Interval(&interval(
                        tid,
                        id as u32,
                        begin_ns,
                        [begin_ns, end_ns, ns],
                        tid,
                    )));
                    event(Event::Away(&AwayInterval {
                        space: SPACE,
                        request: of,
                        from_tid: 1,
                        place: id as u32 % 20,
                        is_queued: id % 2 == 0,
                        since_ns: begin_ns,
                        until_ns: end_ns,
                        by_tid: 1,
                        by_request: Some(of),
                        is_ready: false,
                        ..AwayInterval::default()
                    }));
                    event(Event::Sample(&Sample {
                        space: SPACE,
                        tid: 101,
                        request: of,
                        weight: u32::MAX,
                        at_ns: end_ns,
                        user_stack: 10,
                        kernel_stack: 1,
                    }));
                    event(Event::Request(Request {
                        begin_ns,
                        end_ns,
                        run_queue_ns: ns,
                        preempted_ns: ns,
                        blocked_ns: ns,
                        unattributed_ns: ns,
                        blocks: u32::MAX,
                        preemptions: u32::MAX,
                        weight: if id % 3 == 0 { u32::MAX } else { 1 },
                        waited_before_ns: Some(ns),
                        slots: &slots,
                        longest: &longest,
                        ..request(id)
                    }));
                    event(Event::Tick(end_ns));
                    let totals = TypeTotals {
                        count: ns,
                        latency_ns: ns,
                        blocked_ns: ns,
                        max_ns: ns,
                        begins: ns,
                        parked_ns: ns,
                        queued_ns: ns,
                        unknown_keys: ns,
                        running_elsewhere: ns,
                        children: ns,
                        ..TypeTotals::ZERO
                    };
                    let sum = StackSum {
                        off_ns: ns,
                        run_queue_ns: ns,
                        count: ns,
                        longest_ns: ns,
                        bytes: ns,
                        longest_run_queue_ns: 0,
                    };
                    let key = StackSumKey {
                        user_stack: 10,
                        tgid: SPACE.tgid,
                        ..StackSumKey::default()
                    };
                    event(Event::Window(&Window {
                        until_ns: end_ns,
                        totals: vec![totals],
                        sums: vec![SumOf { key, sum }],
                        ..Window::default()
                    }));
                }
            }
        }
        event(Event::End(&End {
            stop_ns: u64::MAX,
            ..End::default()
        }));
    });
    says(&stands(&bytes), "impossible_events");
}

#[test]
fn a_stack_of_a_million_frames() {
    let bytes = recording(|event| {
        (0..50).for_each(|offset| event(Event::Name(&name(offset, vec![format!("f{offset}")]))));
        event(Event::Stack(&stack(
            10,
            (0..1_000_000).map(|offset| offset % 50),
        )));
        (0..100).for_each(|id| blocked(id, 10, event));
    });
    says(&stands(&bytes), "impossible_events");
}

#[test]
fn long_names_of_inlined_calls_in_deep_stacks() {
    stands(&recording(|event| {
        let frames = (0..500).map(|number| format!("{number}{}", "<".repeat(5_000)));
        event(Event::Name(&name(0, frames.collect())));
        for id in 0..3_000 {
            event(Event::Stack(&stack(
                10 + id,
                (0..400).map(|depth| if depth == 0 { id } else { 0 }),
            )));
            blocked(id, 10 + id, event);
        }
    }));
}

/// A length as it is written.
fn postcard_len(mut len: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while len >= 0x80 {
        bytes.push(len as u8 | 0x80);
        len >>= 7;
    }
    bytes.push(len as u8);
    bytes
}

#[test]
fn blocks_of_nothing_but_empty_labels_or_entries_or_rows() {
    const LENGTH: usize = 60 << 20;
    // No entries; id and end of the first request; no threads, sites and wakers; then labels.
    let mut labels = vec![0; 6];
    labels.extend([0xff, 0xff, 0xff, 0x1c]);
    labels.resize(LENGTH, 0);
    let mut entries = vec![0xff, 0xff, 0xff, 0x08];
    entries.extend([0_u8, 99, 0].repeat(LENGTH / 3));
    let mut small = labels.clone();
    small.truncate(8 << 20);
    small[6..10].copy_from_slice(&[0xf0, 0xff, 0xff, 0x03]);
    for payload in [labels, entries, small] {
        says(
            &stands(&blocks(1, vec![payload; 10])),
            "recording_damaged_b",
        );
    }
    // The same where fields have numbers: a list of labels, of entries, and of totals that are all zeros.
    let long = |number: u8, bytes: &[u8]| {
        let mut field = vec![number << 1 | 1];
        field.extend(postcard_len(bytes.len()));
        field.extend_from_slice(bytes);
        field
    };
    const LESS: usize = 15 << 20;
    let mut list = postcard_len(LESS - 8);
    list.resize(LESS, 0);
    let labels = long(4, &long(6, &list));
    let entries = long(3, &list);
    let window = long(2, &vec![0; LESS]);
    let mut fields = vec![1];
    fields.extend(postcard_len(window.len()));
    fields.extend(window);
    let totals = [
        long(1, &[1, 0]),
        vec![2 << 1 | 1, 2, 1, 14],
        long(3, &fields),
    ]
    .concat();
    for payload in [labels, entries, totals] {
        says(
            &stands(&blocks(2, vec![payload; 10])),
            "recording_damaged_b",
        );
    }
}

#[test]
fn rows_that_compress_to_nothing() {
    let bytes = recording(|event| (0..2_000_000).for_each(|id| event(Event::Request(request(id)))));
    says(&stands(&bytes), "recording_damaged_blocks");
}

#[test]
fn rows_at_one_time_and_backwards() {
    stands(&recording(|event| {
        for id in 0..200_000 {
            let end_ns = START_NS + 100_000_000 - id / 2 * 1000;
            event(Event::Request(Request {
                end_ns,
                begin_ns: end_ns - 1000,
                ..request(id)
            }));
        }
    }));
}

#[test]
fn labels_of_megabytes() {
    let label = vec![b'<'; 10 << 20];
    let bytes = recording(|event| {
        for id in 0..20 {
            event(Event::Request(Request {
                label: &label,
                ..request(id)
            }));
        }
    });
    says(&stands(&bytes), "recording_damaged_blocks");
    let long = vec![b'<'; 4 << 10];
    stands(&recording(|event| {
        for id in 0..20_000_u64 {
            let label = [&id.to_le_bytes()[..], &long[8..]].concat();
            event(Event::Request(Request {
                label: &label,
                ..request(id)
            }));
        }
    }));
}

#[test]
fn a_million_requests_that_are_open() {
    stands(&recording(|event| {
        event(Event::Stack(&stack(10, 0..500)));
        for id in 0..1_000_000 {
            event(Event::Open(&Open {
                request: request(id),
                label: b"open".to_vec(),
                blocked_in: Some(BlockedIn {
                    site: site(10),
                    since_ns: START_NS,
                }),
                ..Open::default()
            }));
        }
    }));
}

#[test]
fn many_names_stacks_files_threads_and_processes() {
    let long = "x".repeat(3_000);
    stands(&recording(|event| {
        for id in 0..60_000 {
            let tid = 1000 + id as u32;
            event(Event::Name(&name(id, vec![format!("{long}{id}")])));
            event(Event::Stack(&stack(10 + id, [id, id / 2].into_iter())));
            let path = format!("/{long}{id}");
            let (device, inode) = (1, id);
            event(Event::File(&File {
                file: tid,
                path,
                device,
                inode,
            }));
            let name = format!("{long}{id}");
            event(Event::Thread(&Thread {
                tgid: 100,
                tid,
                name: name.clone(),
            }));
            let space = SPACE;
            event(Event::Futex(&Futex {
                space,
                address: id,
                lies_in: name.clone(),
            }));
            event(Event::Process(&Process {
                space: AddressSpace {
                    tgid: tid,
                    exec_generation: 0,
                },
                change: ProcessChange::Fork,
                parent: 100,
                time_ns: START_NS,
                name,
            }));
            blocked(id, 10 + id, event);
        }
    }));
}

#[test]
fn threads_that_wait_for_each_other_in_a_circle() {
    const THREADS: u32 = 300;
    stands(&recording(|event| {
        for round in 0..100 {
            let begin_ns = START_NS + u64::from(round) * 1_000_000;
            for thread in 0..THREADS {
                let next = 1000 + (thread + 1) % THREADS;
                let times = [begin_ns + 10, begin_ns + 900_000, begin_ns + 900_001];
                event(Event::Interval(&interval(
                    1000 + thread,
                    round,
                    begin_ns,
                    times,
                    next,
                )));
            }
            for thread in 0..THREADS {
                let slots = [Slot {
                    site: site(10),
                    blocked_ns: 899_990,
                }];
                event(Event::Request(Request {
                    tid: 1000 + thread,
                    begin_ns,
                    end_ns: begin_ns + 950_000,
                    blocked_ns: 899_990,
                    blocks: 1,
                    slots: &slots,
                    ..request(u64::from(round * THREADS + thread))
                }));
            }
            event(Event::Tick(begin_ns + 990_000));
        }
    }));
}

/// Texts are text: to a spreadsheet, a terminal, and whoever reads a page.
#[test]
fn names_that_would_run_or_turn_a_line_round() {
    const HOSTILE: &str =
        "=cmd|' /C calc'!A0\u{202e}\u{200f}\nreqtrace: all is well\u{1b}]0;x\u{7}";
    let mut header = header();
    header.profile_text = PROFILE.replace("\"work\"\nbegin", "\"=1+1\"\nbegin");
    header.kernel = HOSTILE.to_owned();
    let bytes = recording_of(&header, |event| {
        event(Event::Name(&name(0, vec![HOSTILE.to_owned()])));
        event(Event::Stack(&stack(10, [0].into_iter())));
        let path = HOSTILE.to_owned();
        event(Event::File(&File {
            file: 5,
            path,
            device: 1,
            inode: 1,
        }));
        event(Event::Loss(&reqtrace_recording::Loss {
            name: HOSTILE.to_owned(),
            count: 1,
        }));
        for id in 0..10 {
            let begin_ns = START_NS + id * 1000;
            let times = [begin_ns + 10, begin_ns + 100_000, begin_ns + 100_010];
            let tid = 101 + id as u32 % 8;
            event(Event::Interval(&interval(
                tid,
                id as u32 / 8,
                begin_ns,
                times,
                7,
            )));
            blocked(id, 10, event);
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let options = [
        "--out",
        "all",
        "--intervals",
        "intervals.csv",
        "--group-by",
        "label",
        "-v",
    ];
    let output = report(&bytes, &options, folder.path());
    assert_eq!(output.status.code(), Some(0));
    let mut texts = vec![
        ("stdout".to_owned(), output.stdout),
        ("stderr".to_owned(), output.stderr),
    ];
    let all = std::fs::read_dir(folder.path().join("all"))
        .unwrap()
        .flatten();
    let files = all
        .map(|file| file.path())
        .chain([folder.path().join("intervals.csv")]);
    texts.extend(files.map(|path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, std::fs::read(&path).unwrap())
    }));
    assert_eq!(texts.len(), 2 + 8 + 1);
    for (name, text) in texts {
        let text = String::from_utf8(text).unwrap();
        let raw = ['\u{202e}', '\u{200f}', '\u{1b}', '\u{7}'];
        assert!(!text.contains(raw), "{name}");
        assert!(
            !text
                .lines()
                .any(|line| line.starts_with("reqtrace: all is well")),
            "{name}"
        );
        if name.ends_with(".csv") {
            let mut rows = csv::ReaderBuilder::new()
                .has_headers(false)
                .from_reader(text.as_bytes());
            let rows: Vec<csv::StringRecord> = rows.records().map(Result::unwrap).collect();
            assert!(rows.len() > 1, "{name}");
            for field in rows.iter().flatten() {
                let formula = field.starts_with(['=', '+', '-', '@']);
                assert!(!formula || field.parse::<i128>().is_ok(), "{name}: {field}");
            }
        }
    }
}
