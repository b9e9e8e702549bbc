//! Packets of a trace: tracks, slices, moments and arrows in; [`TracePacket`]s out.

use super::wire::{
    Clock, ClockSnapshot, Data, DebugAnnotation, EventType, ProcessDescriptor, REALTIME,
    SEQ_INCREMENTAL_STATE_CLEARED, ThreadDescriptor, TracePacket, TrackDescriptor, TrackEvent,
    Value,
};

/// All packets are of one sequence.
const SEQUENCE: u32 = 1;
/// Added to a PID, it is the number of that process's track. Threads have no such number: theirs is below.
const PROCESS: u64 = 1 << 63;

/// Added to the id of a request with a key, it is the number of its track.
const REQUEST: u64 = 1 << 62;

/// A track: a process, a thread, or a request that changes threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Track(u64);

impl Track {
    pub(super) fn process(pid: u32) -> Self {
        Self(PROCESS | u64::from(pid))
    }

    pub(super) fn request(id: u64) -> Self {
        Self(REQUEST | id)
    }

    pub(super) fn thread(pid: u32, tid: u32) -> Self {
        Self((u64::from(pid) << 32) | u64::from(tid))
    }
}

/// An arrow, from one event to a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrow {
    From(u64),
    To(u64),
}

/// What an event is called, and what is shown of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Shown {
    pub(super) category: &'static str,
    pub(super) name: String,
    pub(super) notes: Vec<DebugAnnotation>,
    pub(super) arrow: Option<Arrow>,
}

/// The first packet: times are nanoseconds of the wall clock, which `now_ns` is one of.
pub(super) fn clock(now_ns: u64) -> TracePacket {
    TracePacket {
        sequence_flags: Some(SEQ_INCREMENTAL_STATE_CLEARED),
        ..packet(Data::ClockSnapshot(ClockSnapshot {
            clocks: vec![Clock {
                clock_id: Some(REALTIME),
                timestamp: Some(now_ns),
            }],
            primary_trace_clock: Some(REALTIME),
        }))
    }
}

/// A process has a track.
pub(super) fn process(pid: u32, name: &str) -> TracePacket {
    packet(Data::TrackDescriptor(TrackDescriptor {
        uuid: Some(Track::process(pid).0),
        process: Some(ProcessDescriptor {
            pid: i32::try_from(pid).ok(),
            process_name: Some(name.to_owned()),
        }),
        ..TrackDescriptor::default()
    }))
}

/// A request has a track, among those of its process. Viewers put those of one name together.
pub(super) fn request(pid: u32, id: u64, name: &str) -> TracePacket {
    packet(Data::TrackDescriptor(TrackDescriptor {
        uuid: Some(Track::request(id).0),
        name: Some(name.to_owned()),
        parent_uuid: Some(Track::process(pid).0),
        ..TrackDescriptor::default()
    }))
}

/// A thread has a track.
pub(super) fn thread(pid: u32, tid: u32, name: &str) -> TracePacket {
    packet(Data::TrackDescriptor(TrackDescriptor {
        uuid: Some(Track::thread(pid, tid).0),
        thread: Some(ThreadDescriptor {
            pid: i32::try_from(pid).ok(),
            tid: Some(tid.into()),
            thread_name: (!name.is_empty()).then(|| name.to_owned()),
        }),
        ..TrackDescriptor::default()
    }))
}

/// A slice, which lies in those of its track that began before and end later.
pub(super) fn slice(track: Track, begin_ns: u64, ns: u64, shown: Shown) -> [TracePacket; 2] {
    let [from, to] = arrow(shown.arrow);
    [
        event(
            begin_ns,
            TrackEvent {
                categories: vec![shown.category.to_owned()],
                name: Some(shown.name),
                r#type: Some(EventType::SliceBegin.into()),
                track_uuid: Some(track.0),
                flow_ids: from,
                terminating_flow_ids: to,
                debug_annotations: shown.notes,
            },
        ),
        event(
            begin_ns.saturating_add(ns),
            TrackEvent {
                r#type: Some(EventType::SliceEnd.into()),
                track_uuid: Some(track.0),
                ..TrackEvent::default()
            },
        ),
    ]
}

/// Something that takes no time.
pub(super) fn moment(track: Track, at_ns: u64, shown: Shown) -> TracePacket {
    let [from, to] = arrow(shown.arrow);
    event(
        at_ns,
        TrackEvent {
            categories: vec![shown.category.to_owned()],
            name: Some(shown.name),
            r#type: Some(EventType::Instant.into()),
            track_uuid: Some(track.0),
            flow_ids: from,
            terminating_flow_ids: to,
            debug_annotations: shown.notes,
        },
    )
}

/// A number of an event.
pub(super) fn number(name: &str, value: u64) -> DebugAnnotation {
    DebugAnnotation {
        name: Some(name.to_owned()),
        value: Some(Value::Uint(value)),
        dict_entries: Vec::new(),
    }
}

/// A text of an event.
pub(super) fn text(name: &str, value: &str) -> DebugAnnotation {
    DebugAnnotation {
        name: Some(name.to_owned()),
        value: Some(Value::String(value.to_owned())),
        dict_entries: Vec::new(),
    }
}

/// Several things of an event, under one name.
pub(super) fn group(name: &str, entries: Vec<DebugAnnotation>) -> DebugAnnotation {
    DebugAnnotation {
        name: Some(name.to_owned()),
        value: None,
        dict_entries: entries,
    }
}

fn arrow(arrow: Option<Arrow>) -> [Vec<u64>; 2] {
    match arrow {
        Some(Arrow::From(id)) => [vec![id], Vec::new()],
        Some(Arrow::To(id)) => [Vec::new(), vec![id]],
        None => [Vec::new(), Vec::new()],
    }
}

fn event(at_ns: u64, event: TrackEvent) -> TracePacket {
    TracePacket {
        timestamp: Some(at_ns),
        timestamp_clock_id: Some(REALTIME),
        ..packet(Data::TrackEvent(event))
    }
}

fn packet(data: Data) -> TracePacket {
    TracePacket {
        trusted_packet_sequence_id: Some(SEQUENCE),
        data: Some(data),
        ..TracePacket::default()
    }
}
