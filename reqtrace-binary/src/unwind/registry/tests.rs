//! Places of tables, and who shares them.

use std::sync::Mutex;

use reqtrace_common::unwind::{BLOCK, BLOCK_SHIFT, MAX_MAPPINGS};

use super::*;

fn own() -> u32 {
    std::process::id()
}

#[test]
fn a_process_gets_tables_once() {
    let mut registry = Registry::new();
    let first = registry.mappings(own()).unwrap();
    assert!(first.uploads.len() >= 3, "{:?}", first.uploads.len());
    let again = registry.mappings(own()).unwrap();
    assert!(again.uploads.is_empty());
    let entries =
        |tables: &ProcessTables| tables.mappings.entries[..tables.mappings.len as usize].to_vec();
    assert_eq!(entries(&first), entries(&again));
    let entries = entries(&first);
    assert!(entries.windows(2).all(|pair| pair[0].end <= pair[1].start));
    let here = a_process_gets_tables_once as *const () as u64;
    let mapping = entries
        .iter()
        .find(|mapping| mapping.start <= here && here < mapping.end)
        .unwrap();
    let upload = first
        .uploads
        .iter()
        .find(|upload| upload.index_start == mapping.index_start)
        .unwrap();
    let rule = upload.table.lookup(here - mapping.bias + upload.table.base);
    assert_eq!(
        (rule.cfa, rule.cfa_words),
        (reqtrace_common::unwind::Cfa::Rsp, 1)
    );
    let stats = registry.stats();
    assert_eq!(stats.objects, first.uploads.len() as u64);
    assert!(stats.shared >= stats.objects);
}

#[test]
fn places_are_whole_blocks_and_do_not_overlap() {
    let mut registry = Registry::new();
    let tables = registry.mappings(own()).unwrap();
    let (mut rows, mut index) = (0, 0);
    for upload in &tables.uploads {
        assert_eq!((upload.rows_start, upload.index_start), (rows, index));
        let blocks: Vec<_> = upload.row_blocks().collect();
        assert_eq!(blocks.len(), upload.table.rows.len().div_ceil(BLOCK));
        rows = (blocks.last().unwrap().0 + 1) << BLOCK_SHIFT;
        let blocks: Vec<_> = upload.index_blocks().collect();
        assert_eq!(blocks[0].1[0], upload.rows_start);
        index = (blocks.last().unwrap().0 + 1) << BLOCK_SHIFT;
    }
}

#[test]
fn progress_ends_with_all_done() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&seen);
    let mut registry =
        Registry::new().with_progress(move |progress| sink.lock().unwrap().push(progress));
    let tables = registry.mappings(own()).unwrap();
    let seen = seen.lock().unwrap();
    assert!(seen.len() >= tables.uploads.len());
    let last = seen.last().unwrap();
    assert_eq!((last.done, last.done_bytes), (last.objects, last.bytes));
}

#[test]
fn the_largest_with_tables_are_kept() {
    let entries = (0..2 * MAX_MAPPINGS as u64)
        .map(|number| Mapping {
            start: number * 0x10_0000,
            end: number * 0x10_0000 + 0x1000 * (1 + number % 7),
            chunks: (number % 3 == 0).into(),
            ..Mapping::default()
        })
        .collect();
    let mut without = Vec::new();
    let mappings = fit(entries, &mut without);
    assert_eq!(mappings.len as usize, MAX_MAPPINGS);
    assert_eq!(without.len(), MAX_MAPPINGS);
    let with = mappings.entries.iter().filter(|one| one.chunks > 0).count();
    assert_eq!(with, (2 * MAX_MAPPINGS).div_ceil(3));
    assert!(mappings.entries.is_sorted_by_key(|one| one.start));
}

#[test]
fn neighbours_of_one_object_are_one_mapping() {
    let mapping = |start: u64, end: u64, bias| Mapping {
        start,
        end,
        bias,
        ..Mapping::default()
    };
    let mappings = fit(
        vec![
            mapping(3, 4, 1),
            mapping(1, 2, 1),
            mapping(2, 3, 1),
            mapping(4, 5, 2),
        ],
        &mut Vec::new(),
    );
    assert_eq!(mappings.entries[..2], [mapping(1, 4, 1), mapping(4, 5, 2)]);
    assert_eq!(mappings.len, 2);
}

#[test]
fn a_full_array_is_a_cause_and_no_error() {
    let mut registry = Registry::new();
    registry.limit(0, 0);
    let tables = registry.mappings(own()).unwrap();
    assert!(tables.uploads.is_empty());
    assert!(
        tables
            .without
            .iter()
            .any(|one| one.cause == NoTable::NoRoom)
    );
    assert!(tables.mappings.entries.iter().all(|one| one.chunks == 0));
}

fn in_use(tables: &ProcessTables) -> HashSet<u32> {
    let entries = &tables.mappings.entries[..tables.mappings.len as usize];
    let with = entries.iter().filter(|mapping| mapping.chunks > 0);
    with.map(|mapping| mapping.index_start).collect()
}

/// Whose files come and go for ever uses no more room than those that are there at once.
#[test]
fn tables_that_nobody_has_mapped_make_room_for_others() {
    let mapped = maps::executable(own()).unwrap();
    let files = |map: &&Mapped| is_user_code(map) && map.inode != 0;
    let size = |map: &&Mapped| map.end - map.start;
    let largest = mapped.iter().filter(files).max_by_key(size).unwrap();
    let smallest = mapped.iter().filter(files).min_by_key(size).unwrap();
    let mut registry = Registry::new();
    let first = registry.mappings(own()).unwrap();
    let (rows, index) = (registry.rows.taken(), registry.index.taken());
    registry.limit(rows, index);
    // What is mapped keeps its place, and so does all else while nobody wants it.
    registry.release(&in_use(&first));
    let one = registry.tables(own(), std::slice::from_ref(largest));
    assert!(one.uploads.is_empty());
    registry.release(&in_use(&one));
    assert_eq!(registry.rows.taken(), rows);
    assert!(registry.mappings(own()).unwrap().uploads.is_empty());

    // The largest is not mapped any more, and another process has another file of its size.
    let two = registry.tables(own(), std::slice::from_ref(smallest));
    let others = registry.objects.len();
    let table = one_like(&registry, &one);
    registry.wanted = Some(table);
    assert!(registry.is_full());
    registry.release(&in_use(&two));
    assert!(!registry.is_full());
    assert!(registry.rows.fits(table[0]) && registry.index.fits(table[1]));
    // No more went than had to.
    let gone = others - registry.objects.len();
    assert!(gone > 0 && registry.rows.taken() < rows);
    let again = registry.mappings(own()).unwrap();
    assert_eq!(again.uploads.len(), gone);
    assert_eq!(
        (registry.rows.taken(), registry.index.taken()),
        (rows, index)
    );

    // Those that were mapped last go last: of all but the smallest the largest, by now.
    registry.release(&in_use(&one));
    registry.wanted = Some([1, 1]);
    registry.limit(registry.rows.taken(), registry.index.taken());
    registry.release(&HashSet::new());
    let still = registry.tables(own(), std::slice::from_ref(largest));
    assert!(still.uploads.is_empty() && registry.rows.taken() < rows);

    // One that is larger than all room takes nobody's.
    let taken = registry.rows.taken();
    registry.wanted = Some([rows as usize * 2, 1]);
    registry.release(&HashSet::new());
    assert_eq!(registry.rows.taken(), taken);
    assert_eq!(registry.left_out(), 0);
}

/// Rows and index entries of the first mapping of a process.
fn one_like(registry: &Registry, process: &ProcessTables) -> [usize; 2] {
    let start = process.mappings.entries[0].index_start;
    let mut places = registry
        .objects
        .values()
        .filter_map(|kept| match kept.known {
            Known::Placed(place, _) => Some(place),
            Known::Without(_) => None,
        });
    let place = places.find(|place| place.index_start == start).unwrap();
    [place.rows, place.index()]
}

#[test]
fn what_finds_no_memory_is_counted_once_and_finds_it_later() {
    let mut whole = Registry::new();
    let all = whole.mappings(own()).unwrap().uploads.len();
    let bytes = whole.stats().table_bytes;
    let mut registry = Registry::new().within(bytes / 2);
    for _ in 0..2 {
        let some = registry.mappings(own()).unwrap();
        assert!(registry.is_full() && some.uploads.len() < all);
        registry.release(&in_use(&some));
    }
    let left_out = registry.left_out();
    assert!(left_out > 0 && registry.rows.taken() as u64 * 8 <= bytes / 2);
    registry.limit(MAX_ROWS, MAX_INDEX);
    let others = registry.mappings(own()).unwrap();
    assert!(others.uploads.len() as u64 >= left_out && !registry.is_full());
}

/// `REQTRACE_PID=123 cargo test --release -- --ignored --nocapture a_process_of_your_choice`
#[test]
#[ignore = "for any process, by hand; prints what it costs"]
fn a_process_of_your_choice() {
    let pid = std::env::var("REQTRACE_PID").map_or(own(), |pid| pid.parse().unwrap());
    let mut registry = Registry::new();
    let tables = registry.mappings(pid).unwrap();
    println!("{} mappings, {:#?}", tables.mappings.len, registry.stats());
    println!("without: {:#?}", tables.without);
    let begun = Instant::now();
    registry.mappings(pid).unwrap();
    println!("again: {:?}", begun.elapsed());
}
