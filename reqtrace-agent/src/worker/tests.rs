//! Both ends of the sockets, the worker's hostile: what no worker sends in; no more than an end with a reason out.

use std::io::{Cursor, ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use reqtrace_base::error::{Error, Kind};
use reqtrace_capture::socket::{Refusal, frame, handed};

use super::message::{MOST_OF_WORKER, MOST_TO_WORKER, OfTheWorker, Start, ToTheWorker};
use super::records;
use super::start::answers;
use crate::metrics::{Format, Metrics, OfWorker, Process};
use crate::records::Message;
use crate::rights::process;
use crate::rows::Row;

/// What the tracing process makes of these bytes: why it ends, and the bytes that it answers.
fn hostile(bytes: &[u8]) -> (String, Vec<u8>) {
    let (mut its, mut own) = UnixStream::pair().unwrap();
    own.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
    let metrics = Metrics::default();
    thread::scope(|scope| {
        let answering = scope.spawn(|| {
            let to = Mutex::new(own.try_clone().unwrap());
            let why = answers(&mut own, &to, |of, format| {
                metrics.bytes_with(of, vec![process("it")], format).ok()
            });
            own.shutdown(Shutdown::Both).unwrap();
            why
        });
        // It may be left alone before all is written.
        let _ = its.write_all(bytes);
        let _ = its.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = its.read_to_end(&mut answer);
        (answering.join().unwrap(), answer)
    })
}

fn figures() -> Box<OfWorker> {
    let metrics = Metrics::default();
    metrics.turned_away();
    metrics.spans(|of| of.sent = u64::MAX);
    let process = Process {
        name: "worker".to_owned(),
        user: 990,
        capabilities: vec!["CAP_\"X\"".to_owned()],
        no_new_privileges: true,
        resident_bytes: u64::MAX,
    };
    Box::new(metrics.of_worker(process))
}

fn framed(message: &OfTheWorker) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::send(&mut bytes, message).unwrap();
    bytes
}

fn asks(number: u64) -> Vec<u8> {
    let figures = figures();
    framed(&OfTheWorker::Asks {
        format: Format::Text,
        number,
        figures,
    })
}

#[test]
fn a_question_is_answered_with_what_both_processes_know() {
    let (why, answer) = hostile(&[asks(1), asks(2)].concat());
    assert_eq!(why, "has closed its socket");
    let mut from = Cursor::new(answer);
    for expected in [1, 2] {
        let answer = frame::receive(&mut from, MOST_TO_WORKER).unwrap().unwrap();
        let ToTheWorker::Metrics { number, bytes } = answer else {
            panic!("{answer:?}");
        };
        let text = String::from_utf8(bytes.unwrap()).unwrap();
        assert_eq!(number, expected);
        for line in [
            "reqtrace_connections_turned_away_total 1.0",
            "# EOF",
            "reqtrace_agent_process{process=\"worker\",user_id=\"990\",capabilities=\"CAP_\\\"X\\\"\",no_new_privileges=\"yes\"} 1.0",
            "reqtrace_agent_process{process=\"it\"",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}

/// There is no message that names a path, a process or a descriptor; what is none has no answer.
#[test]
fn a_worker_that_asks_for_anything_else_is_left_alone() {
    let request = |text: &[u8]| {
        let mut bytes = Vec::new();
        frame::send_bytes(&mut bytes, text).unwrap();
        bytes
    };
    for bytes in [
        request(b"/etc/shadow"),
        request(b"open /proc/1/mem"),
        request(&[3, 1, 0, 0, 0]),
        framed(&OfTheWorker::Ready),
        framed(&OfTheWorker::Refused(Refusal::of(&Error::failed("it")))),
        u32::MAX.to_le_bytes().to_vec(),
        [asks(1), b"GET /metrics HTTP/1.1\r\n\r\n".to_vec()].concat(),
        asks(1)[..20].to_vec(),
    ] {
        let (why, answer) = hostile(&bytes);
        let is_refused =
            why.starts_with("has sent what is no question") || why == "has begun twice";
        assert!(is_refused, "{bytes:?}: {why}");
        let answered = usize::from(bytes.starts_with(&asks(1)));
        let mut from = Cursor::new(answer);
        let answers = std::iter::from_fn(|| {
            frame::receive::<ToTheWorker>(&mut from, MOST_TO_WORKER).unwrap()
        });
        assert_eq!(answers.count(), answered, "{bytes:?}");
    }
}

/// Descriptors that the worker hands to the tracing process are not taken.
#[test]
fn descriptors_of_the_worker_are_not_taken() {
    let (its, mut own) = UnixStream::pair().unwrap();
    let (open, mut kept) = UnixStream::pair().unwrap();
    handed::send(&its, &[open.as_fd()]).unwrap();
    drop((open, its));
    let to = Mutex::new(own.try_clone().unwrap());
    let why = answers(&mut own, &to, |_, _| None);
    assert!(why.starts_with("has sent what is no question"), "{why}");
    kept.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    assert_eq!(kept.read(&mut [0]).unwrap(), 0, "nobody has the other end");
}

#[test]
fn a_worker_that_works_says_so_and_one_that_is_silent_hangs() {
    let (mut own, mut its) = UnixStream::pair().unwrap();
    own.set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    let to = Mutex::new(own.try_clone().unwrap());
    let works = thread::spawn(move || {
        for _ in 0..6 {
            frame::send(&mut its, &OfTheWorker::Alive).unwrap();
            thread::sleep(Duration::from_millis(100));
        }
        its
    });
    let since = Instant::now();
    let why = answers(&mut own, &to, |_, _| None);
    assert!(why.starts_with("has answered nothing"), "{why}");
    assert!(since.elapsed() > Duration::from_millis(700));
    works.join().unwrap();
}

#[test]
fn descriptors_are_the_same_files_in_the_other_process() {
    let (its, own) = UnixStream::pair().unwrap();
    let (handed_over, mut kept) = UnixStream::pair().unwrap();
    handed::send(&own, &[handed_over.as_fd(), own.as_fd()]).unwrap();
    let files = handed::receive(&its).unwrap();
    assert_eq!(files.len(), 2);
    for file in &files {
        let flags = rustix::io::fcntl_getfd(file).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    }
    let mut first = UnixStream::from(files.into_iter().next().unwrap());
    first.write_all(b"x").unwrap();
    let mut byte = [0];
    kept.read_exact(&mut byte).unwrap();
    assert_eq!(&byte, b"x");
    (&own).write_all(b"no files").unwrap();
    assert_eq!(
        handed::receive(&its).unwrap_err().kind(),
        ErrorKind::InvalidData
    );
}

#[test]
fn an_error_of_the_workers_is_the_same_in_the_other_process() {
    let error = Error::usage("[rows]: /x cannot be made")
        .because("Permission denied")
        .next("give a folder");
    let error = Refusal::of(&error)
        .noting("the worker has the rights of nobody")
        .into_error();
    assert_eq!(error.kind(), Kind::Usage);
    assert_eq!(error.to_string(), "[rows]: /x cannot be made");
    assert_eq!(error.advice(), Some("give a folder"));
    let source = std::error::Error::source(&error).unwrap();
    let source = source.to_string();
    assert!(source.starts_with("Permission denied") && source.contains("nobody"));
}

/// The length that somebody states takes no memory, and what is cut off is no message.
#[test]
fn frames_are_whole_or_none() {
    let mut bytes = Vec::new();
    frame::send(&mut bytes, &ToTheWorker::End).unwrap();
    let receive = |bytes: &[u8]| frame::receive::<ToTheWorker>(&mut Cursor::new(bytes), 100);
    assert_eq!(receive(&bytes).unwrap(), Some(ToTheWorker::End));
    assert_eq!(receive(b"").unwrap(), None);
    for cut in 1..bytes.len() {
        let error = receive(&bytes[..cut]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{cut}");
    }
    let error = receive(&[101, 0, 0, 0]).unwrap_err();
    assert!(error.to_string().contains("101 bytes"), "{error}");
    let error = receive(&[2, 0, 0, 0, 1, 0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData, "a byte too many");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Whatever a worker sends, the tracing process ends with a reason.
    #[test]
    fn any_bytes_of_a_worker_end_with_a_reason(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        is_behind_a_question: bool,
    ) {
        let before = if is_behind_a_question { asks(7) } else { Vec::new() };
        let (why, _) = hostile(&[before, bytes].concat());
        prop_assert!(why.starts_with("has "), "{}", why);
    }

    /// The same with a length that fits, so that the bytes are decoded.
    #[test]
    fn any_message_of_a_worker_is_decoded_or_refused(
        mut bytes in proptest::collection::vec(any::<u8>(), 1..300),
        variant in 0..4_u8,
    ) {
        bytes[0] = variant;
        let mut framed = Vec::new();
        frame::send_bytes(&mut framed, &bytes).unwrap();
        let mut from = Cursor::new(&framed);
        let _ = frame::receive::<OfTheWorker>(&mut from, MOST_OF_WORKER);
        let mut from = Cursor::new(&framed);
        let _ = frame::receive::<ToTheWorker>(&mut from, MOST_TO_WORKER);
        let mut from = Cursor::new(&framed);
        let _ = frame::receive::<Start>(&mut from, MOST_TO_WORKER);
    }

    /// A question with a byte that is not what it was.
    #[test]
    fn a_changed_question_is_answered_or_refused(at in 0..200_usize, to: u8) {
        let mut bytes = asks(1);
        let at = at % bytes.len();
        bytes[at] = to;
        let (why, _) = hostile(&bytes);
        prop_assert!(why.starts_with("has "), "{}", why);
    }

    /// Whatever comes over the socket of rows, the writer is stopped at its end.
    #[test]
    fn any_bytes_on_the_socket_of_rows_end_with_a_stop(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let (mut its, own) = UnixStream::pair().unwrap();
        let (to, from) = sync_channel(records::MOST_TAKEN);
        let reader = thread::spawn(move || records::receive::<Row>(own, &to));
        let _ = its.write_all(&bytes);
        drop(its);
        let last = from.iter().last();
        prop_assert!(matches!(last, Some(Message::Stop)));
        reader.join().unwrap();
    }
}

/// A worker that does not take rows holds up nobody but their queue, and one that is gone neither.
#[test]
fn rows_for_a_worker_that_is_gone_end_their_thread() {
    let (its, own) = UnixStream::pair().unwrap();
    drop(its);
    let (to, from) = channel();
    let of = crate::records::Of {
        service: "shop".to_owned(),
        profile: "shop".to_owned(),
        kernel: "6.18".to_owned(),
        columns: reqtrace_analysis::classify::columns::Columns::default(),
        has_causes: false,
        texts: false,
        most_groups: None,
    };
    let batch = crate::records::Batch {
        of: Arc::new(of),
        records: Vec::<Row>::new(),
        slow_ns: None,
        room: crate::records::Room::default(),
    };
    to.send(Message::Records(batch)).unwrap();
    let sender = thread::spawn(move || records::send(&from, own));
    sender.join().unwrap();
    assert!(to.send(Message::Stop).is_err(), "nobody takes them");
}
