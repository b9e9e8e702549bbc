//! An event loop: many requests at a time on one thread, which turns to the one whose event has come.
//!
//! A request waits for an "upstream", a thread that answers through a pipe, and for timers, by turns. A
//! connection is used for one request after the other, the last one first.

use std::ffi::c_void;
use std::fs::File;
use std::hint::black_box;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use example_clock as clock;

use super::story::{Moment, Story};
use super::work;
use crate::Result;
use crate::waits::call::checked;
use crate::waits::poll::owned;

/// How many connections there are.
const CONNECTIONS: usize = 16;
/// How long the upstream takes for an answer.
const ANSWER: Duration = Duration::from_micros(50);
/// Events that are taken at a time.
const EVENTS: usize = 8;

/// A connection. Its address is the key of its requests, one after the other.
#[repr(C)]
struct Connection {
    number: u64,
    /// What its request has waited for so far.
    steps: u64,
    story: Story,
    answers: File,
    answer_to: File,
    timer: File,
}

/// An event, as the loop hands it on: a request's key is behind its first member.
#[repr(C)]
struct Event {
    connection: *const Connection,
}

struct Loop {
    epoll: OwnedFd,
    #[expect(
        clippy::vec_box,
        reason = "they stay where they are when the list grows"
    )]
    connections: Vec<Box<Connection>>,
    /// Those without a request, the last used last.
    free: Vec<usize>,
    /// Whose request this thread runs.
    current: Option<usize>,
    /// Requests that have begun.
    begun: u64,
    log: String,
}

/// Does so many requests.
pub(super) fn run(requests: u64) -> Result<String> {
    thread::scope(|scope| {
        let (ask, asked) = channel();
        let upstream = thread::Builder::new().name("t-upstream".into());
        let upstream = upstream.spawn_scoped(scope, move || answer_all(&asked))?;
        let event_loop = thread::Builder::new().name("t-loop".into());
        let event_loop =
            event_loop.spawn_scoped(scope, move || Loop::new()?.run(requests, &ask))?;
        let log = event_loop.join().map_err(|_| "the loop panicked")??;
        upstream.join().map_err(|_| "the upstream panicked")??;
        Ok(log)
    })
}

/// Answers each question after a while, into the descriptor that came with it.
fn answer_all(asked: &Receiver<File>) -> io::Result<()> {
    for mut answer_to in asked {
        thread::sleep(ANSWER);
        answer_to.write_all(&[1])?;
    }
    Ok(())
}

impl Loop {
    fn new() -> io::Result<Self> {
        // SAFETY: no pointers.
        let epoll = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        let connections = (0..CONNECTIONS).map(|_| Connection::new());
        let connections = connections.collect::<io::Result<Vec<_>>>()?;
        for (index, connection) in connections.iter().enumerate() {
            listen(&epoll, connection.answers.as_raw_fd(), index as u64 * 2)?;
            listen(&epoll, connection.timer.as_raw_fd(), index as u64 * 2 + 1)?;
        }
        Ok(Self {
            epoll,
            connections,
            free: (0..CONNECTIONS).collect(),
            current: None,
            begun: 0,
            log: String::new(),
        })
    }

    fn run(mut self, requests: u64, ask: &Sender<File>) -> Result<String> {
        loop {
            while self.begun < requests
                && let Some(index) = self.free.pop()
            {
                self.begin(index, ask)?;
            }
            if self.free.len() == CONNECTIONS {
                return Ok(self.log);
            }
            let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS];
            let before_ns = clock::now_ns();
            let (count, inside_ns) = loop_wait(self.epoll.as_raw_fd(), &mut events)?;
            self.turns_away(Moment::of([before_ns, inside_ns]));
            // A key that no request has.
            loop_look((&raw const self).cast());
            for event in &events[..count] {
                self.handle(event.u64, ask)?;
            }
        }
    }

    fn begin(&mut self, index: usize, ask: &Sender<File>) -> io::Result<()> {
        self.begun += 1;
        loop_begin(&mut self.connections[index], self.begun);
        let at = self.connections[index].story.moment();
        self.turns_away(at);
        self.connections[index].story.begins(at);
        self.current = Some(index);
        work(Duration::from_micros(5));
        self.connections[index].wait(ask)
    }

    fn handle(&mut self, event: u64, ask: &Sender<File>) -> io::Result<()> {
        let (index, is_timer) = ((event / 2) as usize, event % 2 == 1);
        let event = Event {
            connection: &raw const *self.connections[index],
        };
        let before_ns = clock::now_ns();
        let (place, inside_ns) = if is_timer {
            ("timer", loop_timer(&event))
        } else {
            ("upstream", loop_answer(&event))
        };
        let at = Moment::of([before_ns, inside_ns]);
        self.turns_away(at);
        self.connections[index].story.is_back(at, place);
        self.current = Some(index);
        // The request that this thread runs already.
        loop_look(event.connection.cast());
        let connection = &mut self.connections[index];
        connection.take(is_timer)?;
        work(Duration::from_micros(10 + connection.number % 4 * 10));
        if connection.steps < 1 + connection.number % 3 {
            return connection.wait(ask);
        }
        connection.story.about();
        loop_end(connection, &mut self.log);
        self.current = None;
        self.free.push(index);
        Ok(())
    }

    /// The request that this thread ran is left to wait.
    fn turns_away(&mut self, at: Moment) {
        if let Some(index) = self.current.take() {
            self.connections[index].story.leaves(at);
        }
    }
}

impl Connection {
    fn new() -> io::Result<Box<Self>> {
        let mut ends = [0; 2];
        // SAFETY: room for two descriptors.
        checked(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
        // SAFETY: no pointers.
        let timer = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC) };
        Ok(Box::new(Self {
            number: 0,
            steps: 0,
            story: Story::default(),
            answers: owned(ends[0])?.into(),
            answer_to: owned(ends[1])?.into(),
            timer: owned(timer)?.into(),
        }))
    }

    /// Arranges for the next event of its request.
    fn wait(&mut self, ask: &Sender<File>) -> io::Result<()> {
        self.steps += 1;
        if (self.number + self.steps).is_multiple_of(2) {
            let answer_to = self.answer_to.try_clone()?;
            return ask.send(answer_to).map_err(io::Error::other);
        }
        let mut time: libc::itimerspec = libc::itimerspec {
            it_interval: libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
        };
        time.it_value.tv_nsec = 100_000 + (self.number % 5).cast_signed() * 50_000;
        let timer = self.timer.as_raw_fd();
        // SAFETY: the descriptor is open, and the time is only read.
        checked(unsafe { libc::timerfd_settime(timer, 0, &raw const time, std::ptr::null_mut()) })?;
        Ok(())
    }

    /// Takes what the event brought.
    fn take(&mut self, is_timer: bool) -> io::Result<()> {
        if is_timer {
            self.timer.read_exact(&mut [0; 8])
        } else {
            self.answers.read_exact(&mut [0])
        }
    }
}

/// `begin` at its return, whose result is the key.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn loop_begin(connection: &mut Connection, number: u64) -> *const Connection {
    connection.number = number;
    connection.steps = 0;
    connection.story = Story::default();
    connection.story.about();
    connection
}

/// `resume`: the key is the first member of the argument. Returns a reading of the clock.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn loop_answer(event: &Event) -> u64 {
    let inside_ns = clock::now_ns();
    black_box(event.connection);
    inside_ns
}

/// As [`loop_answer`].
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn loop_timer(event: &Event) -> u64 {
    let inside_ns = clock::now_ns();
    black_box(event.connection);
    black_box(inside_ns)
}

/// `resume` with `touch`: the argument may be the key of a request.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn loop_look(at: *const c_void) {
    black_box(at);
}

/// `end`: the key is the first argument.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn loop_end(connection: &mut Connection, log: &mut String) {
    let at = connection.story.moment();
    let number = connection.number;
    connection.story.write(log, "loop", number, at);
}

/// `idle`: whatever this thread runs waits from here on.
fn loop_wait(epoll: RawFd, events: &mut [libc::epoll_event; EVENTS]) -> io::Result<(usize, u64)> {
    let mut inside_ns = 0;
    let count = loop_idle(epoll, events, &mut inside_ns);
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    Ok((count, inside_ns))
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn loop_idle(
    epoll: RawFd,
    events: &mut [libc::epoll_event; EVENTS],
    inside_ns: &mut u64,
) -> i32 {
    *inside_ns = clock::now_ns();
    // SAFETY: there is room for so many events.
    unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), EVENTS as i32, -1) }
}

fn listen(epoll: &OwnedFd, fd: RawFd, data: u64) -> io::Result<()> {
    let mut interest = libc::epoll_event {
        events: libc::EPOLLIN.cast_unsigned(),
        u64: data,
    };
    let epoll = epoll.as_raw_fd();
    // SAFETY: both descriptors are open; `interest` is only read.
    checked(unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &raw mut interest) })?;
    Ok(())
}
