use super::*;
use crate::evaluate::Given;
use crate::fixtures::Fixture;
use crate::symbols::name_at;

/// A runtime with tokio's layout and transitions, and nothing else of it. `INLINE` is what its functions are, `LEFT` how
/// much is taken from a state that is left, `SPAWNS` whether tasks are queued that were not woken.
const RUNTIME: &str = r#"
use std::sync::atomic::{AtomicUsize, Ordering::*};

type Function = unsafe fn(*const Header);

#[repr(C)]
pub struct Table { functions: [Function; 7], trailer: usize, scheduler: usize, id: usize }

#[repr(C)]
pub struct Header { state: AtomicUsize, next: usize, table: &'static Table, owner: u64, queue: *const Queue, id: u64 }

pub struct Queue { first: AtomicUsize }

fn update<T>(header: &Header, of: impl Fn(usize) -> (T, Option<usize>)) -> T {
    let mut now = header.state.load(Acquire);
    loop {
        let (made, next) = of(now);
        let Some(next) = next else { return made };
        match header.state.compare_exchange(now, next, AcqRel, Acquire) {
            Ok(_) => return made,
            Err(other) => now = other,
        }
    }
}

#[INLINE]
fn runs(header: &Header) -> u8 {
    update(header, |now| {
        assert!(now & 4 != 0);
        if now & 3 != 0 {
            assert!(now >= 64);
            (if now - 64 < 64 { 3 } else { 2 }, Some(now - 64))
        } else {
            ((now >> 5 & 1) as u8, Some((now | 1) & !4))
        }
    })
}

#[INLINE]
fn leaves(header: &Header) -> u8 {
    update(header, |now| {
        assert!(now & 1 != 0);
        if now & 32 != 0 {
            return (3, None);
        }
        let next = now & !1;
        if now & 4 != 0 {
            assert!(now <= isize::MAX as usize);
            (1, Some(next + 64))
        } else {
            assert!(next >= 64);
            (if next - 64 < 64 { 2 } else { 0 }, Some(next - LEFT))
        }
    })
}

#[INLINE]
fn is_done(header: &Header) {
    let before = header.state.fetch_xor(3, AcqRel);
    assert!(before & 1 != 0 && before & 2 == 0);
}

#[inline(never)]
fn now() -> usize {
    std::process::id() as usize
}

#[inline(never)]
fn put(queue: &Queue, task: *const Header) {
    if now() == 0 {
        return;
    }
    queue.first.store(task as usize, Release);
    eprintln!("queued");
}

unsafe fn schedule(task: *const Header) {
    put(unsafe { &*(*task).queue }, task);
}

unsafe fn schedule_never(_: *const Header) {
    unreachable!();
}

#[inline(never)]
fn waits(header: &Header) -> bool {
    now() > header.id as usize
}

unsafe fn poll<const WAITS: bool>(task: *const Header) {
    let header = unsafe { &*task };
    match runs(header) {
        0 => {
            if WAITS && waits(header) {
                match leaves(header) {
                    1 => put(unsafe { &*header.queue }, task),
                    3 => is_done(header),
                    _ => {}
                }
                return;
            }
            is_done(header);
        }
        1 => is_done(header),
        _ => {}
    }
}

unsafe fn other<const N: usize>(task: *const Header) {
    eprintln!("{} {}", N, unsafe { (*task).next });
}

static WAITING: Table = Table {
    functions: [poll::<true>, schedule, other::<2>, other::<3>, other::<4>, other::<5>, other::<6>],
    trailer: 64, scheduler: 32, id: 40,
};
static AT_ONCE: Table = Table {
    functions: [poll::<false>, schedule, other::<7>, other::<8>, other::<9>, other::<10>, other::<11>],
    trailer: 80, scheduler: 32, id: 40,
};
static BLOCKING: Table = Table {
    functions: [poll::<false>, schedule_never, other::<12>, other::<13>, other::<14>, other::<15>, other::<16>],
    trailer: 96, scheduler: 32, id: 40,
};
// As many functions, and offsets that do not grow.
static OTHER: Table = Table {
    functions: [poll::<true>, schedule, other::<2>, other::<3>, other::<4>, other::<5>, other::<6>],
    trailer: 32, scheduler: 40, id: 64,
};

fn main() {
    let queue = Queue { first: AtomicUsize::new(0) };
    for table in [&WAITING, &AT_ONCE, &BLOCKING, &OTHER] {
        let table = std::hint::black_box(table);
        let header = Header { state: AtomicUsize::new(204), next: 0, table, owner: 1, queue: &queue, id: 2 };
        if SPAWNS {
            put(&queue, &header);
        }
        unsafe { (header.table.functions[0])(&header) };
        eprintln!("{} {} {} {}", table.trailer, table.scheduler, table.id, header.owner);
    }
}
"#;

fn runtime(inline: &str, left: &str, spawns: bool, flags: &[&str]) -> Fixture {
    let source = RUNTIME.replace("INLINE", inline).replace("LEFT", left);
    let source = source.replace("SPAWNS", &spawns.to_string());
    Fixture::rust(&source, &[&["--edition=2024"], flags].concat())
}

/// Levels of optimisation, and what else changes the code.
const FLAGS: [&[&str]; 5] = [
    &["-Copt-level=3"],
    &["-Copt-level=2", "-Cpanic=abort"],
    &["-Copt-level=s"],
    &["-Copt-level=z"],
    &["-Copt-level=3", "-Cforce-frame-pointers=yes"],
];

#[test]
fn the_edges_of_a_stripped_program_are_found_however_it_was_compiled() {
    for inline in ["inline(always)", "inline(never)"] {
        for flags in FLAGS {
            let fixture = runtime(inline, "64", true, flags);
            let named = fixture.object();
            let all = Shapes::of(&named);
            let of_tasks: Vec<u64> = all.of_tasks().map(Table::schedule).collect();
            assert_eq!(
                (all.tables.len(), of_tasks.len()),
                (3, 2),
                "{inline} {flags:?}"
            );
            let of_jobs = all.of_jobs();
            let [of_jobs] = Vec::from_iter(&of_jobs)[..] else {
                panic!("{inline} {flags:?}: {of_jobs:?}");
            };
            assert!(name_at(&named, *of_jobs).contains("schedule_never"));
            let (function, given) = all.queues[&of_tasks[0]].common().unwrap();
            assert_eq!(given, Given::Second);
            assert!(
                name_at(&named, function).contains("put"),
                "{inline} {flags:?}"
            );
            // No name has helped.
            let object = fixture.stripped().object();
            assert_eq!(object.symbols(), []);
            let shapes = Shapes::of(&object);
            assert_eq!(shapes.transitions, all.transitions, "{inline} {flags:?}");
            for edge in [Edge::Resume, Edge::Leave, Edge::Done] {
                let here = shapes.transitions.iter().filter(|one| one.edge == edge);
                let addresses: BTreeSet<u64> = here.map(|one| one.address).collect();
                assert!(!addresses.is_empty(), "{inline} {flags:?} {edge:?}");
                // The task that never waits is never left.
                let misses = shapes.misses(&object, edge, &addresses);
                assert_eq!(misses, None, "{inline} {flags:?} {edge:?}");
                // Had it not been found, that would be known, unless a function of its own leaves tasks.
                let mut others = shapes.clone();
                others.transitions.retain(|one| one.edge != edge);
                let misses = others.misses(&object, edge, &BTreeSet::new());
                let is_known = edge != Edge::Leave || inline == "inline(always)";
                assert_eq!(misses.is_some(), is_known, "{inline} {flags:?} {edge:?}");
            }
        }
    }
}

#[test]
fn a_state_that_was_read_is_in_a_register_where_a_task_is_resumed() {
    for flags in FLAGS {
        let object = runtime("inline(never)", "64", true, flags)
            .stripped()
            .object();
        let shapes = Shapes::of(&object);
        let code = super::super::edge(&object, &shapes, Edge::Resume).unwrap();
        let [(site, Some(unit))] = code.sites(&object)[..] else {
            panic!("{flags:?}: {code:?}");
        };
        let [read] = code.reads[..] else {
            panic!("{flags:?}: {code:?}");
        };
        // What is small begins its loop right behind the read.
        let is_small = flags
            .iter()
            .any(|flag| ["-Copt-level=s", "-Copt-level=z"].contains(flag));
        assert_eq!(unit.state.is_none(), is_small, "{flags:?}");
        let Some(state) = unit.state else { continue };
        let behind = decoder(&object, read.address..site.address);
        let writes: Vec<_> = behind.skip(1).collect();
        let of = |code| super::super::transitions::code_of(code).unwrap();
        for register in [unit.register, state].map(of) {
            let changes = |code: &Instruction| crate::emulated::writes(code, register);
            assert!(!writes.iter().any(changes), "{flags:?}: {site:x?}");
        }
        assert_eq!((unit.register, state), (read.task, read.state));
    }
}

#[test]
fn the_tables_of_tasks_stand_for_what_polls_them_where_there_is_one_for_each() {
    let object = runtime("inline(always)", "64", true, &["-Copt-level=3"]).object();
    let shapes = Shapes::of(&object);
    let is_alone = |table: &&Table| {
        let mut polls = shapes.tables.iter().map(Table::poll);
        polls.by_ref().filter(|poll| *poll == table.poll()).count() == 1
    };
    let (alone, others): (Vec<&Table>, Vec<&Table>) = shapes.tables.iter().partition(is_alone);
    let ([alone], [other, _]) = (&alone[..], &others[..]) else {
        panic!("{:x?}", shapes.tables);
    };
    let waiting = alone.poll();
    assert_eq!(shapes.tables_of(&[waiting]), Some(vec![alone.address()]));
    let pointers = object.pointers_to_code();
    assert!(pointers.contains(&(alone.address(), waiting)));
    // The same function polls tasks and jobs, and a function that polls nothing has none.
    assert_eq!(shapes.tables_of(&[waiting, other.poll()]), None);
    assert_eq!(shapes.tables_of(&[waiting + 1]), None);
}

#[test]
fn what_changes_a_state_otherwise_is_no_transition() {
    for inline in ["inline(always)", "inline(never)"] {
        let object = runtime(inline, "128", true, &["-Copt-level=3"])
            .stripped()
            .object();
        let shapes = Shapes::of(&object);
        let edges: Vec<Edge> = shapes.transitions.iter().map(|one| one.edge).collect();
        assert!(
            edges.contains(&Edge::Resume) && edges.contains(&Edge::Done),
            "{edges:?}"
        );
        assert!(!edges.contains(&Edge::Leave), "{edges:?}");
    }
}

#[test]
fn a_queue_that_only_woken_tasks_go_through_is_not_that_of_spawns() {
    let object = runtime("inline(always)", "64", false, &["-Copt-level=3"])
        .stripped()
        .object();
    let shapes = Shapes::of(&object);
    let error = super::super::edge(&object, &shapes, Edge::Queue).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("no function puts tasks into a queue in program"),
        "{text}"
    );
    assert!(error.advice().unwrap().contains("lto = false"), "{error:?}");
}
