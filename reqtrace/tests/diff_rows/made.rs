//! Recordings of 40 s, made by hand.

use reqtrace_recording::{
    Address, AddressSpace, Attribute, Away, BlockSite, Comm, End, Event, Header, Incomplete,
    KERNEL, Name, Open, Options, Process, ProcessChange, Request, SYSCALLS, Slot, Stack, Value,
    Writer,
};

const PROFILE: &str = r#"
[profile]
name = "web"

[[request]]
name = "order"
begin = { function = "order" }
label = { arg = 0 }

[[request]]
name = "http"
key = { arg = 0 }
begin = { function = "create_request" }
resume = { function = "on_event" }
park = { function = "send", at = "return", as = "client" }
ready = { function = "pool_push", as = "pool queue" }
end = { function = "free_request" }

[[request.attribute]]
name = "path"
arg = 0
deref = [16]
"#;

pub(crate) const SECOND: u64 = 1_000_000_000;
const SECONDS: u64 = 40;
const SPACE: AddressSpace = AddressSpace {
    tgid: 100,
    exec_generation: 0,
};

/// What one recording is like.
#[derive(Clone, Copy)]
pub(crate) struct Made {
    pub(crate) seed: u64,
    /// Nanoseconds that each block takes longer.
    pub(crate) slower_ns: u64,
    pub(crate) start_ns: u64,
    pub(crate) host: &'static str,
    pub(crate) labels: bool,
}

pub(crate) const A: Made = Made {
    seed: 7,
    slower_ns: 0,
    start_ns: 1_000 * SECOND,
    host: "web1",
    labels: true,
};
pub(crate) const B: Made = Made {
    seed: 99,
    slower_ns: 150_000,
    start_ns: 2_000 * SECOND,
    ..A
};

/// A recording of 40 s; requests of two types, some of them incomplete.
pub(crate) fn recording(made: Made) -> Vec<u8> {
    let header = Header {
        version: "0.1.0".to_owned(),
        host: made.host.to_owned(),
        kernel: "6.12.0".to_owned(),
        start_ns: made.start_ns,
        monotonic_to_unix_ns: 1_700_000_000_000_000_000,
        profile: "web".to_owned(),
        profile_text: PROFILE.to_owned(),
        options: Options {
            labels: made.labels,
            ..Options::default()
        },
        blame: true,
        architecture: "x86_64".to_owned(),
        syscalls: SYSCALLS.to_owned(),
        cpus: 2,
        cpu_model: "a model".to_owned(),
        holders: true,
        ..Header::default()
    };
    let mut writer = Writer::new(Vec::new(), &header).unwrap();
    let mut event = |event: Event<'_>| writer.event(&event).unwrap();
    event(Event::Process(&Process {
        space: SPACE,
        change: ProcessChange::Start,
        parent: 1,
        time_ns: made.start_ns,
        name: "webd".to_owned(),
    }));
    let address = Address {
        object: KERNEL,
        offset: 16,
    };
    event(Event::Name(&Name {
        address,
        is_return: false,
        frames: vec!["futex_wait".to_owned()],
    }));
    event(Event::Stack(&Stack {
        space: None,
        id: 1,
        stop: 0,
        addresses: vec![address],
    }));
    let mut state = made.seed;
    let mut below = |most: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % most
    };
    let mut id = 0;
    for tick in 0..SECONDS * 10 {
        let at_ns = made.start_ns + tick * SECOND / 10;
        event(Event::Tick(at_ns));
        for _ in 0..8 + below(5) {
            id += 1;
            let begin_ns = at_ns + below(50_000_000);
            let slots = [Slot {
                site: BlockSite {
                    kernel_stack: 1,
                    user_stack: 0,
                    syscall: 202,
                    file: 0,
                },
                blocked_ns: 200_000 + below(2_000_000) + made.slower_ns,
            }];
            let is_keyed = below(3) == 0;
            let away = [
                Away {
                    place: 0,
                    count: 1,
                    ns: 1 + below(900_000),
                },
                Away {
                    place: 1,
                    count: 1,
                    ns: below(90_000),
                },
            ];
            let away = if is_keyed { &away[..] } else { &[] };
            let text = match is_keyed {
                true => format!("/page/{}", below(40)),
                false => format!("={}UPDATE t{} SET a = 7", below(9), below(4)),
            };
            let attributes = [Attribute {
                index: 0,
                value: Value::Text {
                    bytes: text.as_bytes(),
                    is_cut: false,
                },
            }];
            let run_queue_ns = below(100_000);
            let on_cpu_ns = 50_000 + below(300_000);
            let away_ns: u64 = away.iter().map(|away| away.ns).sum();
            event(Event::Request(Request {
                id,
                request_type: u32::from(is_keyed),
                space: SPACE,
                tid: 101 + id as u32 % 8,
                comm: Comm::from("worker"),
                incomplete: (below(200) == 0).then_some(Incomplete::NoEnd),
                label: match is_keyed || !made.labels {
                    true => b"",
                    false => text.as_bytes(),
                },
                begin_ns,
                end_ns: begin_ns + slots[0].blocked_ns + run_queue_ns + on_cpu_ns + away_ns,
                run_queue_ns,
                blocked_ns: slots[0].blocked_ns,
                blocks: 1,
                weight: 1,
                slots: &slots,
                away,
                attributes: match is_keyed && made.labels {
                    true => &attributes,
                    false => &[],
                },
                ..Request::default()
            }));
        }
    }
    let stop_ns = made.start_ns + SECONDS * SECOND;
    event(Event::Open(&Open {
        request: Request {
            id: id + 1,
            space: SPACE,
            tid: 300,
            incomplete: Some(Incomplete::RunningAtStop),
            begin_ns: stop_ns - SECOND,
            end_ns: stop_ns,
            weight: 1,
            ..Request::default()
        },
        ..Open::default()
    }));
    event(Event::End(&End {
        stop_ns,
        ended_by: "duration".to_owned(),
        ..End::default()
    }));
    writer.flush().unwrap();
    writer.into_inner()
}
