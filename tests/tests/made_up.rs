//! Recordings that nobody traced: events in, a file out. What is in them is known, and is the same each time.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use reqtrace_common::record::FILE_NONE;
use reqtrace_recording::{
    Address, AddressSpace, BlockSite, Comm, End, Event, Header, Holder, Interval, IntervalKind,
    KERNEL, Name, Object, Options, Process, ProcessChange, Request, RequestOf, SYSCALLS, Slot,
    Stack, Waker, WakerContext, Writer,
};

/// When they start, by the machine's clock.
pub(crate) const START_NS: u64 = 1_000_000_000;
/// The process.
pub(crate) const SPACE: AddressSpace = AddressSpace {
    tgid: 100,
    exec_generation: 0,
};

/// A number that looks like chance, and is the same each time.
pub(crate) fn chance(seed: u64) -> u64 {
    let mut word = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word ^= word >> 29;
    word = word.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word ^ (word >> 32)
}

/// A recording with blame, labels and samples, of one process.
pub(crate) struct MadeUp(Writer<BufWriter<File>>);

impl MadeUp {
    /// Its request types have these names.
    pub(crate) fn create(file: &Path, types: &[&str]) -> Self {
        let out = BufWriter::new(File::create(file).unwrap());
        let mut recording = Self(Writer::new(out, &header(types)).unwrap());
        recording.tell(&Event::Process(&Process {
            space: SPACE,
            change: ProcessChange::Start,
            parent: 0,
            time_ns: 0,
            name: "server".to_owned(),
        }));
        recording.tell(&Event::Object(&Object {
            id: 2,
            path: "/usr/bin/server".to_owned(),
            build_id: Vec::new(),
        }));
        recording
    }

    pub(crate) fn tell(&mut self, event: &Event<'_>) {
        self.0.event(event).unwrap();
    }

    /// A stack with these frames, innermost first; of the kernel without a process.
    pub(crate) fn stack(&mut self, space: Option<AddressSpace>, id: u64, names: Vec<String>) {
        let object = if space.is_none() { KERNEL } else { 2 };
        let mut addresses = Vec::new();
        for (at, name) in (0..).zip(names) {
            let address = Address {
                object,
                offset: id * 64 + at,
            };
            self.tell(&Event::Name(&Name {
                address,
                is_return: at > 0,
                frames: vec![name],
            }));
            addresses.push(address);
        }
        self.tell(&Event::Stack(&Stack {
            space,
            id,
            stop: 0,
            addresses,
        }));
    }

    /// The trace stopped so long after its start.
    pub(crate) fn end(mut self, after_ns: u64) {
        self.tell(&Event::End(&End {
            stop_ns: START_NS + after_ns,
            ended_by: "duration".to_owned(),
            ..End::default()
        }));
        self.0.flush().unwrap();
    }
}

fn header(types: &[&str]) -> Header {
    let requests = types.iter().map(|name| {
        format!("[[request]]\nname = \"{name}\"\nbegin = {{ function = \"{name}\" }}\n")
    });
    let profile = "[profile]\nname = \"synthetic\"\n".to_owned();
    Header {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        host: "host".to_owned(),
        kernel: "6.12.0".to_owned(),
        start_ns: START_NS,
        monotonic_to_unix_ns: 1_700_000_000_000_000_000,
        profile: "synthetic".to_owned(),
        profile_text: profile + &requests.collect::<String>(),
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

/// Requests of all types in a second.
const RATE: u64 = 100;
pub(crate) const TYPES: [&str; 2] = ["command", "batch"];
/// Stacks in which requests wait for the network and for a disk, and those of the interrupts that end it.
const NETWORK: u64 = 10;
const DISK: u64 = 20;

const SECOND_NS: u64 = 1_000_000_000;

/// A service that reads from the network, then writes to a disk. Each second has its mood, and some of that of the second before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Service {
    pub(crate) seconds: u64,
    pub(crate) seed: u64,
    /// From this second on the network takes so many times as long.
    pub(crate) slower: (u64, f64),
}

impl Service {
    /// About normally distributed.
    fn normal(self, which: u64, number: u64) -> f64 {
        let seed = (self.seed << 48) ^ (which << 40) ^ (number << 4);
        let part = |at| (chance(seed + at) >> 11) as f64 / (1_u64 << 53) as f64;
        (0..12).map(part).sum::<f64>() - 6.0
    }

    pub(crate) fn record(self, file: &Path) {
        let mut recording = MadeUp::create(file, &TYPES);
        for (id, user, kernel, interrupt) in [
            (NETWORK, "server::read()", "tcp_recvmsg", "net_rx_action"),
            (
                DISK,
                "server::write()",
                "blkdev_issue_flush",
                "blk_mq_end_request",
            ),
        ] {
            let names = |names: [&str; 3]| names.map(str::to_owned).to_vec();
            recording.stack(Some(SPACE), id, names([user, "server::run()", "main"]));
            recording.stack(None, id + 1, names(["schedule", kernel, "do_syscall_64"]));
            recording.stack(
                None,
                id + 2,
                names(["try_to_wake_up", interrupt, "common_interrupt"]),
            );
        }
        let mut moods = [0.0; 2];
        for second in 0..self.seconds {
            for (which, mood) in (0..).zip(&mut moods) {
                *mood = 0.3 * *mood + 0.1 * self.normal(which, second);
            }
            for at in 0..RATE {
                self.request(&mut recording, second * RATE + at, moods);
            }
        }
        recording.end(self.seconds * SECOND_NS);
    }

    fn request(self, recording: &mut MadeUp, number: u64, moods: [f64; 2]) {
        let second = number / RATE;
        let is_batch = number.is_multiple_of(5);
        let ns = |mean_ns: f64, which: u64, spread: f64, mood: f64| {
            (mean_ns * (mood + spread * self.normal(which, number)).exp()) as u64
        };
        let slower = if second >= self.slower.0 {
            self.slower.1
        } else {
            1.0
        };
        let on_cpu_ns = ns(200e3, 2, 0.2, 0.0);
        let network_ns = ns(600e3 * slower, 3, 0.4, moods[0]);
        let disk_ns = ns(if is_batch { 900e3 } else { 300e3 }, 4, 0.4, moods[1]);
        let begin_ns = START_NS + number * SECOND_NS / RATE;
        let of = RequestOf {
            begin_ns,
            request_type: u32::from(is_batch),
        };
        let tid = 200 + (number % 16) as u32;
        let site = |id| BlockSite {
            kernel_stack: id + 1,
            user_stack: id,
            syscall: 202,
            file: FILE_NONE,
        };
        let mut at_ns = begin_ns + on_cpu_ns / 3;
        let mut slots = Vec::new();
        for (sequence, id, blocked_ns) in [(0, NETWORK, network_ns), (1, DISK, disk_ns)] {
            let wake_ns = at_ns + blocked_ns;
            recording.tell(&Event::Interval(&Interval {
                space: SPACE,
                tid,
                sequence: (number / 16) as u32 * 2 + sequence,
                request: Some(of),
                site: site(id),
                out_ns: at_ns,
                kind: IntervalKind::Blocked {
                    wake_ns,
                    waker: Waker {
                        context: WakerContext::Unclear,
                        stack: id + 2,
                        ..Waker::UNKNOWN
                    },
                },
                in_ns: wake_ns,
                futex: 0,
                holder: Holder::NoFutex,
                woken_from: None,
            }));
            slots.push(Slot {
                site: site(id),
                blocked_ns,
            });
            at_ns = wake_ns + on_cpu_ns / 3;
        }
        let table = ["users", "orders", "items"][(chance(number) % 3) as usize];
        recording.tell(&Event::Request(Request {
            id: number + 1,
            space: SPACE,
            tid,
            request_type: of.request_type,
            comm: Comm::from("worker"),
            label: format!("SELECT c FROM {table} WHERE id = {number}").as_bytes(),
            begin_ns,
            end_ns: begin_ns + on_cpu_ns + network_ns + disk_ns,
            blocked_ns: network_ns + disk_ns,
            blocks: 2,
            max_depth: 1,
            weight: 1,
            slots: &slots,
            ..Request::default()
        }));
    }
}
