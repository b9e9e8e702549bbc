use super::*;

fn this() -> AddressSpace {
    AddressSpace {
        tgid: std::process::id(),
        exec_generation: 0,
    }
}

#[inline(never)]
fn a_function_of_ours() -> u64 {
    std::hint::black_box(7)
}

#[test]
fn a_function_of_this_process_has_its_name() {
    let mut symbols = UserSymbols::new();
    assert!(symbols.remember(this()));
    let address = a_function_of_ours as *const () as u64;
    let frames = symbols.frames(this(), &[address]);
    // What an optimised build has inlined at its first instruction is before it.
    let has_it = |frames: &[Frame]| {
        let mut names = frames.iter().map(|frame| &frame.name);
        names.any(|name| name.contains("a_function_of_ours"))
    };
    assert!(has_it(&frames), "{frames:?}");
    // As a return address it is the end of what is before it.
    let before = symbols.frames(this(), &[address, address]);
    assert!(!has_it(&before[frames.len()..]), "{before:?}");
}

#[test]
fn what_is_nowhere_has_no_name() {
    let mut symbols = UserSymbols::new();
    let nobody = AddressSpace {
        tgid: u32::MAX,
        exec_generation: 0,
    };
    assert!(!symbols.remember(nobody));
    assert_eq!(&*symbols.frames(nobody, &[0x1234])[0].name, "[unknown]");
    symbols.remember(this());
    for address in [0, 0x10, u64::MAX] {
        assert_eq!(&*symbols.frames(this(), &[address])[0].name, "[unknown]");
    }
}

#[test]
fn the_vdso_has_offsets() {
    let mut symbols = UserSymbols::new();
    symbols.remember(this());
    let mapped = maps::executable(std::process::id()).unwrap();
    let vdso = mapped.iter().find(|mapping| mapping.name == "[vdso]");
    if let Some(vdso) = vdso {
        let frames = symbols.frames(this(), &[vdso.start + 0x10]);
        assert_eq!(&*frames[0].name, "[vdso+0x10]");
    }
}

/// V8 and the JVM do so; each writes a line to its perf map.
#[test]
fn code_in_memory_that_is_used_again_has_its_own_name() {
    use std::io::Write as _;
    let memory = memmap2::MmapOptions::new().len(4096).map_anon().unwrap();
    let memory = memory.make_exec().unwrap();
    let start = memory.as_ptr() as u64;
    let path = format!("/tmp/perf-{}.map", std::process::id());
    let write = |name: &str| {
        let map = std::fs::File::options()
            .create(true)
            .append(true)
            .open(&path);
        writeln!(map.unwrap(), "{start:x} 1000 {name}").unwrap();
    };
    let mut symbols = UserSymbols::new();
    write("first");
    symbols.remember(this());
    let first = symbols.frame(this(), start, false);
    write("second");
    let second = symbols.frame(this(), start, false);
    std::fs::remove_file(&path).unwrap();
    assert_eq!((&*first[0].name, &*second[0].name), ("first", "second"));
}

#[test]
fn a_process_that_left_keeps_its_names() {
    let mut child = std::process::Command::new("sleep")
        .arg("30")
        .spawn()
        .unwrap();
    let space = AddressSpace {
        tgid: child.id(),
        exec_generation: 1,
    };
    // The child may not have called exec yet; then it still has our mappings.
    std::thread::sleep(Duration::from_millis(50));
    let mut symbols = UserSymbols::new();
    let known = symbols.remember(space);
    let mapped = maps::executable(child.id()).unwrap();
    let libc = mapped
        .iter()
        .find(|mapping| mapping.path().contains("libc"));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(known);
    if let Some(libc) = libc {
        let frames = symbols.frames(space, &[libc.start + 1]);
        assert_ne!(&*frames[0].name, "[unknown]");
    }
}

/// Names of this program and of the C library, in room that is not enough for both.
#[test]
fn names_of_files_that_nobody_needs_go_first() {
    let own = a_function_of_ours as *const () as u64;
    let library = libc::malloc as *const () as u64;
    let mut symbols = UserSymbols::new();
    symbols.idle = Duration::ZERO;
    let is_named = |symbols: &mut UserSymbols, address: u64| {
        let frames = symbols.frames(this(), &[address]);
        !frames[0].name.starts_with('[')
    };
    assert!(symbols.remember(this()));
    assert!(is_named(&mut symbols, own) && is_named(&mut symbols, library));
    let both = symbols.room.most() - symbols.room.left();

    let mut symbols = UserSymbols::new().within(both - 1);
    symbols.idle = Duration::ZERO;
    symbols.remember(this());
    for further in 0..3 {
        // Each address is another one: those that are known are not looked up.
        assert!(is_named(&mut symbols, own + further));
        assert!(is_named(&mut symbols, library + further));
    }
    let named = |symbols: &UserSymbols| {
        let modules = symbols.modules.values();
        modules.filter(|module| module.is_named()).count()
    };
    assert_eq!((named(&symbols), symbols.room.cut()), (1, 0));

    // Those in use stay; what finds no room is counted once, and has no name.
    let mut symbols = UserSymbols::new().within(both - 1);
    symbols.remember(this());
    assert!(is_named(&mut symbols, own));
    for further in 0..3 {
        symbols.frames(this(), &[library + further]);
        assert!(is_named(&mut symbols, own + further));
    }
    assert_eq!(symbols.left_out().symbols, 1);
    assert!(symbols.room.left() < symbols.room.most());
    // They are given back with their process.
    symbols.forget(&BTreeSet::from([std::process::id()]));
    assert_eq!(symbols.room.left(), symbols.room.most());
}

/// Containers of one image: files of the same contents, each with an inode of its own.
#[test]
fn copies_of_a_file_take_room_once() {
    use std::os::unix::fs::PermissionsExt as _;
    let library = maps::executable(std::process::id()).unwrap();
    let library = library.iter().find(|mapping| {
        let path = mapping.path();
        path.contains("libc.so") || path.contains("libc-")
    });
    let library = library.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut mapped = Vec::new();
    for name in ["one", "two", "three"] {
        let path = folder.path().join(name);
        std::fs::copy(&*library.path(), &path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let file = std::fs::File::open(&path).unwrap();
        // SAFETY: nobody changes the file.
        mapped.push(unsafe { memmap2::MmapOptions::new().map_exec(&file).unwrap() });
    }
    let malloc = library.offset + (libc::malloc as *const () as u64 - library.start);
    let mut symbols = UserSymbols::new();
    symbols.remember(this());
    let taken: Vec<u64> = mapped
        .iter()
        .map(|mapped| {
            let address = mapped.as_ptr() as u64 + malloc;
            let frames = symbols.frames(this(), &[address]);
            assert!(frames[0].name.contains("malloc"), "{frames:?}");
            symbols.room.most() - symbols.room.left()
        })
        .collect();
    let first = taken[0];
    assert!(
        first > 0 && taken.iter().all(|taken| *taken == first),
        "{taken:?}"
    );
}
