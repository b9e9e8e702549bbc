//! Recordings that nobody traced: events in, a file out. What is in them is known, and is the same each time.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use reqtrace_recording::{
    Address, AddressSpace, End, Event, Header, KERNEL, Name, Object, Options, Process,
    ProcessChange, SYSCALLS, Stack, Writer,
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
