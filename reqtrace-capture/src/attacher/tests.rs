//! Both ends, the tracing process hostile: what none asks in; refusals, and nothing that is not of a traced process, out.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};

use proptest::prelude::*;
use reqtrace_base::error::Result;
use reqtrace_binary::maps::{self, Mapped};
use reqtrace_binary::procfs::{self, Entry};

use super::message::{self, Answer, Place, Request};
use super::{Owner, serve};
use crate::attach::{CountPlan, CpuEngine, LoadOptions, LoadPlan};

/// Lets these processes be looked at.
struct Allows(BTreeSet<u32>);

impl Owner for Allows {
    fn watches(&self, program: &Path) -> bool {
        program == Path::new("/bin/cat")
    }

    fn allows(&self, pid: u32) -> io::Result<u64> {
        match self.0.contains(&pid) {
            true => Ok(1),
            false => Err(io::Error::other("no rule is about it")),
        }
    }

    fn answer(&self, question: &[u8]) -> io::Result<Vec<u8>> {
        Ok(question.to_vec())
    }
}

/// A process that is traced, and one that is not.
struct Two {
    traced: Child,
    other: Child,
}

impl Two {
    fn start() -> Self {
        // Each has begun once it answers.
        let start = || {
            let mut child = Command::new("cat");
            let child = child.stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = child.spawn().unwrap();
            child.stdin.as_mut().unwrap().write_all(b"+").unwrap();
            child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
            child
        };
        Self {
            traced: start(),
            other: start(),
        }
    }

    fn attacher(&self) -> (UnixStream, JoinHandle<Result<()>>) {
        let (its, own) = UnixStream::pair().unwrap();
        let allows = Allows([self.traced.id()].into());
        (its, thread::spawn(move || serve(&own, allows)))
    }
}

impl Drop for Two {
    fn drop(&mut self) {
        for child in [&mut self.traced, &mut self.other] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn ask(socket: &UnixStream, request: &Request, files: &[&File]) -> (Answer, Vec<File>) {
    let files: Vec<_> = files.iter().map(|file| file.as_fd()).collect();
    message::send(socket, request, &files).unwrap();
    let (answer, files) = message::receive(socket).unwrap().unwrap();
    (answer, files.into_iter().map(File::from).collect())
}

fn refusal(answer: Answer) -> String {
    match answer {
        Answer::Denied(denied) => io::Error::from(denied).to_string(),
        Answer::Refused(refusal) => refusal.into_error().to_string(),
        other => panic!("{other:?}"),
    }
}

/// Of the object in the tests.
const OBJECT: u64 = 7;

fn counting() -> Request {
    Request::Count {
        object: OBJECT,
        plan: CountPlan::everybody(),
    }
}

fn place(process: Option<u32>) -> Place {
    Place {
        file: 0,
        file_offset: 0x2000,
        counter: None,
        on_return: false,
        process,
        cookie: 0,
    }
}

fn set(object: u64, places: &[Place]) -> Request {
    Request::Set {
        object,
        links: 1,
        program: "count_hit".to_owned(),
        places: places.to_vec(),
    }
}

#[test]
fn nothing_is_opened_of_a_process_that_no_rule_is_about() {
    let two = Two::start();
    let (socket, serving) = two.attacher();
    let open = |pid, entry| ask(&socket, &Request::Open { pid, entry }, &[]);
    for entry in [
        Entry::Executable,
        Entry::Maps,
        Entry::Memory,
        Entry::Root,
        Entry::PerfMap,
        Entry::Mapping(0x1000, 0x2000),
    ] {
        for pid in [two.other.id(), 1, 0, u32::MAX] {
            let (answer, files) = open(pid, entry);
            assert_eq!(refusal(answer), "no rule is about it", "{entry:?} of {pid}");
            assert!(files.is_empty());
        }
    }
    let (answer, mut files) = open(two.traced.id(), Entry::Maps);
    assert!(matches!(answer, Answer::Opened));
    let mut text = String::new();
    files[0].read_to_string(&mut text).unwrap();
    assert!(text.contains("/cat"), "{text}");
    let (answer, _) = open(two.traced.id(), Entry::Mapping(0x1000, 0x2000));
    refusal(answer);
    // Rules go by what a process runs: that is known of all.
    let pid = two.other.id();
    let (answer, _) = ask(&socket, &Request::Executable { pid }, &[]);
    assert!(matches!(answer, Answer::Runs(path, _) if path.ends_with("cat")));
    let program = |path: &str| ask(&socket, &Request::Program(path.into()), &[]).0;
    assert!(matches!(program("/bin/cat"), Answer::Inode(..)));
    assert_eq!(
        refusal(program("/etc/shadow")),
        "no rule is about that program"
    );
    let (answer, _) = ask(&socket, &Request::Ask(vec![7, 8]), &[]);
    assert!(matches!(answer, Answer::Answered(same) if same == [7, 8]));
    drop(socket);
    serving.join().unwrap().unwrap();
}

#[test]
fn probes_are_set_only_in_files_of_traced_processes() {
    let two = Two::start();
    let (socket, serving) = two.attacher();
    let (answer, _) = ask(&socket, &counting(), &[]);
    assert!(matches!(answer, Answer::Loaded(_)), "{answer:?}");
    let object = OBJECT;
    refusal(ask(&socket, &counting(), &[]).0);
    // Its own view of a file: the attacher has not handed it over.
    let own = File::open("/bin/bash").unwrap();
    let (answer, _) = ask(&socket, &set(object, &[place(None)]), &[&own]);
    let why = refusal(answer);
    assert!(
        why.ends_with("bash is no program of a process that is traced: no probe is set in it"),
        "{why}"
    );
    let pid = two.traced.id();
    let open = Request::Open {
        pid,
        entry: Entry::Executable,
    };
    let (_, files) = ask(&socket, &open, &[]);
    let cat = &files[0];
    let with_counter = Place {
        counter: Some(0x3000),
        ..place(None)
    };
    // A process that is none of them, a file that does not come, an object that is none.
    let other = two.other.id();
    for (request, files, expected) in [
        (
            set(object, &[place(Some(other))]),
            &[cat][..],
            "no rule is about it",
        ),
        (set(object, &[place(None)]), &[], "a file is missing"),
        (
            set(object, &[with_counter]),
            &[cat],
            "no semaphore of a USDT probe is there",
        ),
        (
            set(object + 7, &[place(None)]),
            &[cat],
            "nothing of that number is loaded",
        ),
        (
            Request::Attach {
                object: 0,
                links: 2,
            },
            &[],
            "nothing of that number is loaded",
        ),
    ] {
        assert_eq!(refusal(ask(&socket, &request, files).0), expected);
    }
    // What the kernel does not probe is refused place by place.
    let entry = entry_of(cat);
    let places = [
        Place {
            file_offset: entry,
            ..place(None)
        },
        Place {
            file_offset: u64::MAX / 2,
            ..place(None)
        },
    ];
    let Answer::Attached(refused) = ask(&socket, &set(object, &places), &[cat]).0 else {
        panic!("no probe was set");
    };
    let links = 1;
    assert_eq!(
        refused.iter().map(|(index, _)| *index).collect::<Vec<_>>(),
        [1]
    );
    let (answer, _) = ask(&socket, &Request::Detach { links }, &[]);
    assert!(matches!(answer, Answer::Done));
    // A library is probed for a traced process, and not for all that have it.
    let library = library_of(pid);
    let open = Request::Open {
        pid,
        entry: Entry::Mapping(library.start, library.end),
    };
    let (_, files) = ask(&socket, &open, &[]);
    let at = |process| Place {
        file_offset: library.offset,
        ..place(process)
    };
    let (answer, _) = ask(&socket, &set(object, &[at(None)]), &[&files[0]]);
    let why = refusal(answer);
    assert!(why.contains("is no program of a process"), "{why}");
    let (answer, _) = ask(&socket, &set(object, &[at(Some(pid))]), &[&files[0]]);
    assert!(matches!(answer, Answer::Attached(_)), "{answer:?}");
    // What is attached of it goes with an object.
    let (answer, _) = ask(&socket, &Request::Unload { object }, &[]);
    assert!(matches!(answer, Answer::Done));
    let again = set(object, &[place(None)]);
    assert_eq!(
        refusal(ask(&socket, &again, &[cat]).0),
        "nothing of that number is loaded"
    );
    drop(socket);
    serving.join().unwrap().unwrap();
}

/// The C library of a process.
fn library_of(pid: u32) -> Mapped {
    let mut all = maps::executable(pid).unwrap().into_iter();
    all.find(|mapped| mapped.path().contains("libc.so"))
        .unwrap()
}

/// The offset of the first instruction.
fn entry_of(file: &File) -> u64 {
    let bytes = std::fs::read(procfs::descriptor(file)).unwrap();
    let elf = goblin::elf::Elf::parse(&bytes).unwrap();
    let mut segments = elf.program_headers.iter();
    let code = segments.find(|segment| segment.vm_range().contains(&(elf.entry as usize)));
    let code = code.unwrap();
    elf.entry - code.p_vaddr + code.p_offset
}

#[test]
fn the_tables_that_are_handed_over_are_those_of_the_programs() {
    let two = Two::start();
    let (socket, serving) = two.attacher();
    let options = LoadOptions::of_nothing();
    let plan = LoadPlan::of(options, &crate::attach::PlanTables::new(false), None);
    let object = OBJECT;
    for rooms in [[u32::MAX, 1, 1], [1, 0, 1]] {
        let plan = Box::new(plan.clone().with_rooms(rooms));
        let why = refusal(ask(&socket, &Request::Load { object, plan }, &[]).0);
        assert!(why.contains("are possible"), "{why}");
    }
    let plan = Box::new(plan);
    let (answer, files) = ask(&socket, &Request::Load { object, plan }, &[]);
    let Answer::Loaded(loaded) = answer else {
        panic!("{}", refusal(answer));
    };
    // And those of the grace period.
    assert_eq!(files.len(), loaded.names.len() + 2);
    assert!(loaded.names.iter().any(|name| name == "THREADS"));
    let sample = Request::Sample {
        object,
        links: 1,
        engine: CpuEngine::CpuClock,
        rate_hz: 99,
    };
    // It was not asked for.
    refusal(ask(&socket, &sample, &[]).0);
    let attach = |links| ask(&socket, &Request::Attach { object, links }, &[]).0;
    let links = 2;
    assert!(matches!(attach(links), Answer::Attached(_)));
    assert_eq!(refusal(attach(3)), "it is attached already");
    let (answer, _) = ask(&socket, &Request::Costs { object }, &[]);
    assert!(
        matches!(answer, Answer::Costs(costs) if costs.iter().any(|cost| cost.name == "sched_switch"))
    );
    assert!(matches!(
        ask(&socket, &Request::Detach { links }, &[]).0,
        Answer::Done
    ));
    drop(socket);
    serving.join().unwrap().unwrap();
}

#[test]
fn other_sockets_answer_until_they_are_closed() {
    let two = Two::start();
    let (socket, serving) = two.attacher();
    let mut sockets = Vec::new();
    let refused = loop {
        let (answer, files) = ask(&socket, &Request::Connect, &[]);
        match files.into_iter().next() {
            Some(file) => sockets.push(UnixStream::from(std::os::fd::OwnedFd::from(file))),
            None => break refusal(answer),
        }
        assert!(sockets.len() < 1000);
    };
    assert_eq!(refused, "too many sockets at a time");
    for other in [&sockets[0], sockets.last().unwrap()] {
        let (answer, _) = ask(other, &Request::Ask(vec![1]), &[]);
        assert!(matches!(answer, Answer::Answered(_)));
    }
    // A thread of another process does not come first.
    let tid = two.other.id();
    let (answer, _) = ask(&socket, &Request::ComeFirst { tid, first: true }, &[]);
    assert_eq!(refusal(answer), "it is no thread of the tracing process");
    drop(socket);
    serving.join().unwrap().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Whatever comes, the attacher answers or ends with a reason.
    #[test]
    fn what_is_no_question_ends_it(bytes in proptest::collection::vec(any::<u8>(), 0..64), is_framed: bool) {
        let (its, own) = UnixStream::pair().unwrap();
        let serving = thread::spawn(move || serve(&own, Allows(BTreeSet::new())));
        let mut to = &its;
        if is_framed {
            to.write_all(&(bytes.len() as u32).to_le_bytes()).unwrap();
        }
        to.write_all(&bytes).unwrap();
        its.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answers = Vec::new();
        let _ = to.read_to_end(&mut answers);
        if let Err(error) = serving.join().unwrap() {
            prop_assert_eq!(error.to_string(), "the tracing process has sent no question");
        }
    }
}
