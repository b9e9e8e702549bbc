//! End sites: the probes that stand for a return are hit exactly as often as the return.
//!
//! The sites of every function of five programs are judged by a second control-flow analysis, which
//! shares nothing with the one that chose them: it reads what objdump prints. Needs objdump and the
//! servers; the last test needs root and sysbench.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use reqtrace_binary::elf::Object;
use reqtrace_binary::lazy::LazyFile;
use reqtrace_capture::attach::count::{Counter, Place, Whose};
use reqtrace_resolve::{returns, symbols};
use reqtrace_tests::mariadb::MariaDb;
use reqtrace_tests::sysbench::Sysbench;

/// One line of a disassembly.
struct Line {
    name: String,
    operands: String,
    next: u64,
}

/// A disassembly.
struct Listing {
    lines: BTreeMap<u64, Line>,
    /// Calls of `__stack_chk_fail`, by the name that objdump gives it.
    failing: BTreeSet<u64>,
}

impl Listing {
    fn of(program: &Path) -> Self {
        let output = Command::new("objdump")
            .args(["-d", "--no-show-raw-insn"])
            .arg(program)
            .output()
            .unwrap();
        assert!(output.status.success());
        let text = String::from_utf8_lossy(&output.stdout);
        let mut lines: Vec<(u64, String, String)> = Vec::new();
        let mut failing = BTreeSet::new();
        for line in text.lines() {
            let Some((address, code)) = line.split_once(":\t") else {
                continue;
            };
            let Ok(address) = u64::from_str_radix(address.trim(), 16) else {
                continue;
            };
            let fails = ["<__stack_chk_fail@", "<__stack_chk_fail>"];
            if code.starts_with("call") && fails.iter().any(|name| code.contains(name)) {
                failing.insert(address);
            }
            let words = || code.split_whitespace();
            let prefixes = [
                "bnd", "notrack", "repz", "lock", "rep", "repnz", "cs", "data16",
            ];
            let name = words().find(|word| !prefixes.contains(word));
            let operands = words().skip_while(|word| Some(*word) != name).skip(1);
            lines.push((
                address,
                name.unwrap_or_default().to_owned(),
                operands.take(1).collect(),
            ));
        }
        let nexts: Vec<u64> = lines.iter().skip(1).map(|line| line.0).collect();
        let with_next = lines.into_iter().zip(nexts.into_iter().chain([0]));
        let line = |((address, name, operands), next)| {
            let line = Line {
                name,
                operands,
                next,
            };
            (address, line)
        };
        Self {
            lines: with_next.map(line).collect(),
            failing,
        }
    }
}

impl Line {
    fn is_jump(&self) -> bool {
        self.name.starts_with('j')
    }

    fn is_unconditional(&self) -> bool {
        self.name.starts_with("jmp")
    }

    fn is_padding(&self) -> bool {
        self.name.starts_with("nop") || self.name == "int3" || self.operands == "%ax,%ax"
    }

    fn target(&self) -> Option<u64> {
        u64::from_str_radix(&self.operands, 16).ok()
    }

    fn ends(&self) -> bool {
        self.is_unconditional()
            || self.name.starts_with("ret")
            || self.name == "ud2"
            || self.name == "hlt"
    }
}

/// Condition codes by the names that objdump gives the jumps.
fn code_of(name: &str) -> Option<u8> {
    let names = [
        "jo", "jno", "jb", "jae", "je", "jne", "jbe", "ja", "js", "jns", "jp", "jnp", "jl", "jge",
        "jle", "jg",
    ];
    names
        .iter()
        .position(|known| *known == name)
        .map(|at| at as u8)
}

/// What is probed in one function.
struct Chosen {
    /// Address, and the condition that counts.
    sites: BTreeMap<u64, Vec<Option<u8>>>,
    /// Instructions that leave it.
    leaving: BTreeSet<u64>,
}

/// Goes every way through a function and holds that each way passes exactly one site before it
/// leaves, with no call behind the site. Returns what is wrong.
fn judge(listing: &Listing, object: &Object, body: Range<u64>, chosen: &Chosen) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut seen: BTreeMap<u64, bool> = BTreeMap::new();
    let mut work = vec![(body.start, false)];
    let mut from = body.start;
    loop {
        while let Some((at, passed)) = work.pop() {
            if let Some(known) = seen.get(&at) {
                if *known != passed {
                    wrong.push(format!("{at:x} is reached with and without a site"));
                }
                continue;
            }
            // A jump to another function is followed only if it is one that leaves.
            let Some(line) = listing.lines.get(&at) else {
                continue;
            };
            seen.insert(at, passed);
            let mut on = passed;
            let mut taken = passed;
            if let Some(conditions) = chosen.sites.get(&at) {
                if passed {
                    wrong.push(format!("{at:x} is a second site on the way"));
                }
                match code_of(&line.name) {
                    Some(code) => {
                        taken = conditions.iter().any(|it| it.is_none_or(|it| it == code));
                        on = conditions
                            .iter()
                            .any(|it| it.is_none_or(|it| it == code ^ 1));
                    }
                    None => (on, taken) = (true, true),
                }
            }
            if chosen.leaving.contains(&at) {
                let leaves = if line.is_jump() { taken } else { on };
                if !leaves {
                    wrong.push(format!("{at:x} leaves without a site"));
                }
                if !line.is_jump() || line.is_unconditional() {
                    continue;
                }
                work.push((line.next, on));
                continue;
            }
            if line.name.starts_with("call") {
                if passed && !ends_program(listing, at) {
                    wrong.push(format!("{at:x} calls behind a site"));
                }
                if ends_program(listing, at) {
                    continue;
                }
            }
            if let Some(target) = line.target().filter(|_| line.is_jump()) {
                // Where the guard was overwritten nothing counts any more.
                if !ends_program(listing, target) {
                    work.push((target, taken));
                }
            }
            if passed && line.is_jump() && !chosen.sites.contains_key(&at) {
                wrong.push(format!("{at:x} jumps behind a site"));
            }
            if !line.ends() {
                work.push((line.next, on));
            }
        }
        // What nothing leads to is entered from elsewhere: by a table, or by an exception.
        let lost = listing
            .lines
            .range(from..body.end)
            // Padding is not entered at all.
            .find(|(address, line)| !seen.contains_key(address) && !line.is_padding());
        match lost {
            Some((address, _)) => {
                from = *address;
                work.push((from, false));
            }
            None => break,
        }
    }
    for target in table_targets(listing, object, &body) {
        if seen.get(&target) == Some(&true) {
            wrong.push(format!("a table leads to {target:x}, behind a site"));
        }
    }
    wrong
}

/// Whether an instruction is a call of `__stack_chk_fail`, by the name that objdump gives it.
fn ends_program(listing: &Listing, address: u64) -> bool {
    listing.failing.contains(&address)
}

/// Everything that could be an entry of a switch table: 32-bit distances from any address that the
/// function takes, up to the next address that it takes.
fn table_targets(listing: &Listing, object: &Object, body: &Range<u64>) -> Vec<u64> {
    let tables: BTreeSet<u64> = listing
        .lines
        .range(body.clone())
        .filter(|(_, line)| line.name == "lea")
        .filter_map(|(_, line)| taken_address(line))
        .collect();
    let mut targets = Vec::new();
    for &table in &tables {
        let next = tables.range(table + 1..).next();
        let entries = next.map_or(usize::MAX, |next| (next - table).div_ceil(4) as usize);
        for bytes in object.data(table).chunks_exact(4).take(entries) {
            let entry = i32::from_le_bytes(bytes.try_into().unwrap());
            let target = table.wrapping_add_signed(i64::from(entry));
            if !body.contains(&target) || !listing.lines.contains_key(&target) {
                break;
            }
            targets.push(target);
        }
    }
    targets
}

/// The address that a `lea` takes, if it is one of the program.
fn taken_address(line: &Line) -> Option<u64> {
    let (distance, _) = line.operands.split_once("(%rip)")?;
    let distance = match distance.strip_prefix("-0x") {
        Some(digits) => i64::from_str_radix(digits, 16).map(|it| -it),
        None => i64::from_str_radix(distance.trim_start_matches("0x"), 16),
    };
    Some(line.next.wrapping_add_signed(distance.ok()?))
}

fn programs() -> Vec<PathBuf> {
    let find = |paths: &[&str]| {
        let found = paths.iter().map(PathBuf::from).find(|path| path.exists());
        found.unwrap_or_else(|| panic!("none of {paths:?} is installed"))
    };
    vec![
        find(&["/usr/sbin/mariadbd"]),
        find(&[
            "/usr/lib/postgresql/15/bin/postgres",
            "/opt/reqtrace-tests/usr/lib/postgresql/15/bin/postgres",
        ]),
        find(&[
            "/usr/bin/redis-server",
            "/opt/reqtrace-tests/usr/bin/redis-server",
        ]),
        find(&["/usr/sbin/nginx", "/opt/reqtrace-tests/usr/sbin/nginx"]),
        find(&["/lib/x86_64-linux-gnu/libc.so.6"]),
    ]
}

#[test]
fn a_second_analysis_agrees_on_every_function() {
    for program in programs() {
        let object = Object::open(&program, "program").unwrap();
        let listing = Listing::of(&program);
        let mut bodies = BTreeSet::new();
        let (mut functions, mut moved) = (0, 0);
        let mut disagreed = Vec::new();
        for symbol in object.symbols() {
            if symbol.size == 0 || !bodies.insert(symbol.address) {
                continue;
            }
            let body = symbols::body(&object, symbol.address);
            let (exits, sites) = returns::end_sites(&object, &body, false);
            if sites.iter().all(|site| site.distance == 0) {
                continue;
            }
            let mut chosen = Chosen {
                sites: BTreeMap::new(),
                leaving: exits.sites.iter().map(|exit| exit.0).collect(),
            };
            for site in &sites {
                chosen
                    .sites
                    .entry(site.address)
                    .or_default()
                    .push(site.condition);
            }
            functions += 1;
            moved += sites.iter().filter(|site| site.distance > 0).count();
            let wrong = judge(&listing, &object, body.clone(), &chosen);
            if !wrong.is_empty() {
                let name = object.name(symbol);
                disagreed.push(format!("{name}: {wrong:?}; {sites:x?}"));
            }
        }
        println!(
            "{}: {moved} sites in {functions} functions",
            program.display()
        );
        assert!(moved > 100, "{moved}");
        assert!(
            disagreed.is_empty(),
            "{}: {} functions: {}",
            program.display(),
            disagreed.len(),
            disagreed[..disagreed.len().min(20)].join("\n")
        );
    }
}

#[test]
fn a_site_is_hit_as_often_as_the_return_under_sysbench() {
    let server = MariaDb::open().unwrap();
    let sysbench = Sysbench::prepare(&server, 2, 1000).unwrap();
    server.wait_until_alone().unwrap();
    let program = PathBuf::from(format!("/proc/{}/exe", server.pid()));
    let object = Object::open(&program, "mariadbd").unwrap();
    let mut places = Vec::new();
    for name in ["dispatch_command", "do_command", "mysql_execute_command"] {
        let function = symbols::find(&object, name).unwrap().unwrap();
        let (exits, sites) = returns::end_sites(&object, &function.bodies[0], false);
        let place = |address| Place {
            object: LazyFile::at(&program),
            file_offset: object.file_offset(address).unwrap(),
            semaphore: None,
            on_return: false,
        };
        // Jumps that lead to a return stand elsewhere: several for one, and none by distance.
        for site in sites.iter().filter(|site| site.distance > 0) {
            let exit = site.address + site.distance;
            let is_before = exits.sites.iter().any(|(leaves, _)| *leaves == exit);
            if is_before && site.condition.is_none() {
                places.push((place(site.address), place(exit)));
            }
        }
    }
    assert!(!places.is_empty(), "{places:?}");
    let flat: Vec<Place> = places
        .iter()
        .flat_map(|(a, b)| [a.clone(), b.clone()])
        .collect();
    let pid = server.pid();
    let mut counter = Counter::attach(&flat, Whose::Processes(&[pid])).unwrap();
    sysbench.run(4, 300).unwrap();
    server.wait_until_alone().unwrap();
    let hits = counter.hits().unwrap();
    counter.detach();
    println!("{hits:?}");
    assert!(hits.iter().sum::<u64>() > 1000, "{hits:?}");
    for pair in hits.chunks_exact(2) {
        assert_eq!(pair[0], pair[1], "{hits:?}");
    }
    server.close().unwrap();
}
