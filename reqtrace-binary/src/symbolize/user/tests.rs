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
