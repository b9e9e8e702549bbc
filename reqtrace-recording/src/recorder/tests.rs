//! A recording of many files: its size, what it keeps, and a disk that fails.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use super::*;
use crate::event::{
    Address, AddressSpace, BlockSite, Name, Process, ProcessChange, Request, SYSCALLS, Slot, Stack,
    Window,
};
use crate::{Ending, Series};

const SECOND_NS: u64 = 1_000_000_000;

/// Files with their number for a name, on a disk that is full for some of them.
struct Numbered {
    folder: PathBuf,
    is_full: Arc<Mutex<bool>>,
}

impl Files for Numbered {
    fn begin(&mut self, header: &Header) -> io::Result<File> {
        // What is written to it fails as on a full disk.
        let full = Path::new("/dev/full");
        let path = self.folder.join(format!("{:05}.rec", header.part.number));
        match *self.is_full.lock().unwrap() {
            true => File::options().write(true).open(full),
            false => File::create_new(path),
        }
    }

    fn complete(&mut self, _: File) -> io::Result<Removed> {
        Ok(Removed { files: 1, bytes: 2 })
    }
}

fn header() -> Header {
    Header {
        host: "db1".to_owned(),
        start_ns: SECOND_NS,
        syscalls: SYSCALLS.to_owned(),
        ..Header::default()
    }
}

fn started(folder: &Path, roll: Roll) -> (Recorder, Arc<Mutex<bool>>) {
    let is_full = Arc::default();
    let files = Numbered {
        folder: folder.to_owned(),
        is_full: Arc::clone(&is_full),
    };
    let recorder = Recorder::start_rolling(Box::new(files), roll, &header(), || {}).unwrap();
    (recorder, is_full)
}

/// Waits until the thread has written, or could not write, what was sent to it.
fn until_written(recorder: &mut Recorder) {
    let (pass, passed) = sync_channel(1);
    recorder.send(Message::Pass(pass));
    passed.recv().unwrap();
}

fn each_second() -> Roll {
    Roll {
        every: Some(Duration::from_secs(1)),
        bytes: None,
    }
}

fn space(tgid: u32) -> AddressSpace {
    AddressSpace {
        tgid,
        exec_generation: 0,
    }
}

/// One second of a server that makes a process for each second, with a stack of its own, and one that stays.
fn second(recorder: &mut Recorder, second: u64, id: &mut u64) {
    let now_ns = (1 + second) * SECOND_NS;
    let process = |tgid: u32, change| Process {
        space: space(tgid),
        change,
        parent: 0,
        time_ns: now_ns,
        name: format!("worker {tgid}"),
    };
    let (young, old) = (1000 + second as u32, 999 + second as u32);
    if second == 0 {
        recorder.event(&Event::Process(&process(7, ProcessChange::Start)));
    } else {
        recorder.event(&Event::Process(&process(old, ProcessChange::Exit)));
    }
    recorder.event(&Event::Process(&process(young, ProcessChange::Fork)));
    // A server that comes to new stacks all the time sends all again now and then.
    if second.is_multiple_of(50) {
        recorder.event(&Event::StacksAnew);
    }
    for (of, stack) in [(young, second), (7, second), (7, second / 50)] {
        let address = Address {
            object: 2,
            offset: stack,
        };
        recorder.event(&Event::Name(&Name {
            address,
            is_return: false,
            frames: vec![format!("function_{stack}")],
        }));
        recorder.event(&Event::Stack(&Stack {
            space: Some(space(of)),
            id: stack + 1,
            stop: 0,
            addresses: vec![address],
        }));
        *id += 1;
        recorder.event(&Event::Request(Request {
            id: *id,
            space: space(of),
            tid: of,
            begin_ns: now_ns,
            end_ns: now_ns + 1000,
            slots: &[Slot {
                site: BlockSite {
                    user_stack: stack + 1,
                    ..BlockSite::PREEMPTED
                },
                blocked_ns: 500,
            }],
            weight: 1,
            ..Request::default()
        }));
    }
    recorder.event(&Event::Window(&Window {
        until_ns: now_ns + SECOND_NS / 2,
        ..Window::default()
    }));
    recorder.event(&Event::Tick(now_ns + SECOND_NS / 2));
    let _ = recorder.flush();
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

fn ids(files: &[PathBuf]) -> (Vec<u64>, Ending) {
    let mut ids = Vec::new();
    let series = Series::open(files.iter().cloned()).unwrap();
    let ending = series.read(|event| {
        if let Event::Request(request) = event {
            ids.push(request.id);
        }
        Ok::<_, ()>(())
    });
    (ids, ending.unwrap().unwrap())
}

#[test]
fn a_thousand_files_later_nothing_has_grown() {
    let folder = tempfile::tempdir().unwrap();
    let (mut recorder, _) = started(folder.path(), each_second());
    let (mut id, mut kept) = (0, Vec::new());
    for number in 0..2_100 {
        second(&mut recorder, number, &mut id);
        kept.push(recorder.rolling.as_ref().unwrap().kept());
    }
    assert!(recorder.removed().files >= 900);
    let recorded = recorder.finish();
    assert!(recorded.failure.is_none());
    let files = files(folder.path());
    assert!(files.len() > 1_000, "{}", files.len());
    let most = |of: &[usize]| of.iter().copied().max().unwrap();
    assert!(most(&kept[..200]) < 400, "{}", most(&kept[..200]));
    assert!(most(&kept[200..]) <= most(&kept[..200]));
    let sizes: Vec<usize> = files
        .iter()
        .map(|file| file.metadata().unwrap().len() as usize)
        .collect();
    assert!(most(&sizes[900..]) <= most(&sizes[..100]) * 11 / 10);
    assert_eq!(sizes.iter().sum::<usize>() as u64, recorded.bytes);

    let (read, ending) = ids(&files);
    assert_eq!(read, (1..=id).collect::<Vec<_>>());
    assert!(ending.is_whole() || !ending.ended);
    assert!(!ending.goes_before);
}

/// What a file refers to is in it, also where only a file before has had news of it.
#[test]
fn each_file_has_the_names_that_it_needs() {
    let folder = tempfile::tempdir().unwrap();
    let (mut recorder, _) = started(folder.path(), each_second());
    let mut id = 0;
    for number in 0..120 {
        second(&mut recorder, number, &mut id);
    }
    // It was sent long ago, and is not sent again.
    recorder.event(&Event::Request(Request {
        id: id + 1,
        space: space(7),
        slots: &[Slot {
            site: BlockSite {
                user_stack: 3,
                ..BlockSite::PREEMPTED
            },
            blocked_ns: 1,
        }],
        ..Request::default()
    }));
    assert!(recorder.finish().failure.is_none());
    for file in files(folder.path()) {
        let (mut stacks, mut processes) = (Vec::new(), Vec::new());
        let series = Series::open([file.clone()]).unwrap();
        let read = series.read(|event| {
            match event {
                Event::Stack(stack) => stacks.push((stack.space, stack.id)),
                Event::Process(process) => processes.push(process.space),
                Event::Request(request) => {
                    let user_stack = request.slots[0].site.user_stack;
                    let key = (Some(request.space), user_stack);
                    assert!(stacks.contains(&key), "{}: {key:?}", file.display());
                    assert!(processes.contains(&request.space), "{}", file.display());
                }
                _ => {}
            }
            Ok::<_, ()>(())
        });
        read.unwrap().unwrap();
    }
}

#[test]
fn a_file_has_about_the_size_that_was_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let roll = Roll {
        every: None,
        bytes: Some(20_000),
    };
    let (mut recorder, _) = started(folder.path(), roll);
    let mut id = 0;
    for number in 0..2_000 {
        second(&mut recorder, number, &mut id);
        if number.is_multiple_of(16) {
            until_written(&mut recorder);
        }
    }
    assert!(recorder.finish().failure.is_none());
    let files = files(folder.path());
    assert!(files.len() >= 4, "{}", files.len());
    for file in &files[..files.len() - 1] {
        assert!(file.metadata().unwrap().len() >= 20_000);
    }
    assert_eq!(ids(&files).0.len() as u64, id);
}

#[test]
fn a_full_disk_costs_what_came_meanwhile_and_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let (mut recorder, is_full) = started(folder.path(), each_second());
    let mut id = 0;
    let mut failures = 0;
    for number in 0..60 {
        if number == 20 || number == 30 {
            *is_full.lock().unwrap() = number == 20;
        }
        second(&mut recorder, number, &mut id);
        until_written(&mut recorder);
        failures += u64::from(recorder.flush().is_some());
        assert!(!recorder.is_over());
    }
    assert!(failures > 0);
    let recorded = recorder.finish();
    let failure = recorded.failure.unwrap().to_string();
    assert!(failure.contains("blocks could not be written"), "{failure}");
    let (read, ending) = ids(&files(folder.path()));
    assert!(ending.unwritten_blocks > 0 && !ending.is_whole());
    let missing: Vec<u64> = (1..=id).filter(|id| !read.contains(id)).collect();
    // Each second has three; it was full for ten, and a file is tried when the one before is due.
    assert!((30..=45).contains(&missing.len()), "{}", missing.len());
    assert!(missing.windows(2).all(|pair| pair[1] == pair[0] + 1));
}
