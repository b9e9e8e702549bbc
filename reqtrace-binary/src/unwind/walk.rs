//! A walk in user space that does what the kernel programs do, to prove the tables without them.
//!
//! In: the registers and memory of a stopped program of the corpus. Out: its chain of functions,
//! held against what the program says.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use goblin::elf::Elf;
use reqtrace_common::unwind::{
    BLOCK_SHIFT, CHUNK_SHIFT, Cfa, Mapping, Rbp, Row, Rule, SEARCH_STEPS, Stop,
};

use super::object::Object;
use super::registry::{ProcessTables, Registry};
use crate::maps::{self, Mapped};

// The tests' crate cannot be a dependency of what it tests.
#[path = "../../../tests/src/corpus.rs"]
#[expect(unreachable_pub, reason = "it is public where it lives")]
mod corpus;

/// Where the kernel stores registers in a signal frame, seen from the trampoline.
const SIGNAL_RBP: u64 = 120;
const SIGNAL_RSP: u64 = 160;
const SIGNAL_RIP: u64 = 168;
const MAX_DEPTH: usize = 256;

#[derive(Clone, Copy, Debug)]
struct Registers {
    pc: u64,
    sp: u64,
    bp: u64,
}

/// The two arrays of the kernel programs, and one process.
struct Kernel {
    rows: Vec<Row>,
    index: Vec<u32>,
    mappings: Vec<Mapping>,
    memory: File,
}

impl Kernel {
    fn new(pid: u32, tables: &ProcessTables) -> Self {
        let mut kernel = Self {
            rows: Vec::new(),
            index: Vec::new(),
            mappings: tables.mappings.entries[..tables.mappings.len as usize].to_vec(),
            memory: File::open(format!("/proc/{pid}/mem")).unwrap(),
        };
        for upload in &tables.uploads {
            for (number, block) in upload.row_blocks() {
                put(&mut kernel.rows, number, &block);
            }
            for (number, block) in upload.index_blocks() {
                put(&mut kernel.index, number, &block);
            }
        }
        kernel
    }

    fn read(&self, address: u64) -> Result<u64, Stop> {
        let mut word = [0; 8];
        self.memory
            .read_exact_at(&mut word, address)
            .map_err(|_| Stop::NotResident)?;
        Ok(u64::from_le_bytes(word))
    }

    fn rule(&self, address: u64) -> Result<Rule, Stop> {
        let mapping = self
            .mappings
            .iter()
            .find(|mapping| mapping.start <= address && address < mapping.end)
            .ok_or(Stop::NoMapping)?;
        if mapping.chunks == 0 {
            return Err(Stop::NoTable);
        }
        let offset = address.wrapping_sub(mapping.bias);
        let chunk = offset >> CHUNK_SHIFT;
        if chunk >= u64::from(mapping.chunks) {
            return Err(Stop::NoRow);
        }
        let entry = mapping.index_start as usize + chunk as usize;
        let (mut low, last) = (self.index[entry], self.index[entry + 1]);
        let mut size = last - low + 1;
        for _ in 0..SEARCH_STEPS {
            let half = size / 2;
            if u64::from(self.rows[(low + half) as usize].pc) <= offset {
                low += half;
            }
            size -= half;
        }
        assert_eq!(size, 1, "more rows in a chunk than a search tells apart");
        Ok(Rule::unpack(self.rows[low as usize].rule))
    }

    /// Addresses to look names up by, innermost first, and why it stopped.
    fn walk(&self, mut at: Registers) -> (Vec<u64>, Stop) {
        let mut frames = Vec::new();
        let mut exact = true;
        while frames.len() < MAX_DEPTH {
            let address = at.pc - u64::from(!exact);
            frames.push(address);
            match self.caller(at, address) {
                Ok((caller, interrupted)) => (at, exact) = (caller, interrupted),
                Err(stop) => return (frames, stop),
            }
        }
        (frames, Stop::TooDeep)
    }

    fn caller(&self, at: Registers, address: u64) -> Result<(Registers, bool), Stop> {
        let rule = self.rule(address)?;
        let offset = u64::from(rule.cfa_words) * 8;
        let cfa = match rule.cfa {
            Cfa::Rsp => at.sp + offset,
            Cfa::Rbp => at.bp + offset,
            Cfa::Plt => at.sp + if at.pc & 15 >= 11 { 16 } else { 8 },
            Cfa::AtRbp => self.read(at.bp - offset)?,
            Cfa::FramePointer => return Err(Stop::NoTable),
            Cfa::Outermost => return Err(Stop::Complete),
            Cfa::None => return Err(Stop::NoRow),
            Cfa::Unsupported => return Err(Stop::Unsupported),
            Cfa::Signal => {
                let caller = Registers {
                    pc: self.read(at.sp + SIGNAL_RIP)?,
                    sp: self.read(at.sp + SIGNAL_RSP)?,
                    bp: self.read(at.sp + SIGNAL_RBP)?,
                };
                return Ok((caller, true));
            }
        };
        if cfa <= at.sp {
            return Err(Stop::NotAscending);
        }
        let bp = match rule.rbp {
            Rbp::Same => at.bp,
            Rbp::BelowCfa(words) => self.read(cfa - u64::from(words) * 8)?,
            Rbp::AtRbp => self.read(at.bp)?,
        };
        let pc = self.read(cfa - 8)?;
        Ok((Registers { pc, sp: cfa, bp }, false))
    }
}

fn put<T: Copy + Default>(array: &mut Vec<T>, number: u32, block: &[T]) {
    let start = (number as usize) << BLOCK_SHIFT;
    array.resize(array.len().max(start + block.len()), T::default());
    array[start..start + block.len()].copy_from_slice(block);
}

/// Names by symbol tables; an address outside of every symbol's size has none.
struct Names(Vec<(Mapped, Object, Vec<u8>)>);

impl Names {
    fn new(pid: u32) -> Self {
        let lines = maps::executable(pid).unwrap();
        let read = |line: Mapped| {
            let bytes = fs::read(&line.name).ok()?;
            let object = Object::read(bytes.as_slice()).ok()?;
            Some((line, object, bytes))
        };
        Self(lines.into_iter().filter_map(read).collect())
    }

    fn of(&self, address: u64) -> String {
        self.0
            .iter()
            .find(|(line, ..)| line.start <= address && address < line.end)
            .and_then(|(line, object, bytes)| {
                let linked = Object::address_of(&object.segments, line.offset)?;
                let linked = linked + (address - line.start);
                let elf = Elf::parse(bytes).ok()?;
                let tables = [(&elf.syms, &elf.strtab), (&elf.dynsyms, &elf.dynstrtab)];
                tables.into_iter().find_map(|(symbols, names)| {
                    let symbol = symbols.iter().find(|symbol| {
                        symbol.is_function()
                            && linked
                                .checked_sub(symbol.st_value)
                                .is_some_and(|inside| inside < symbol.st_size)
                    })?;
                    names.get_at(symbol.st_name).map(str::to_owned)
                })
            })
            .unwrap_or_default()
    }
}

/// A program of the corpus in its first request, and the thread of it that blocks; killed when
/// dropped.
struct Running(Child, u32);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        if self.1 != self.0.id() {
            // SAFETY: waits for a thread of the child and writes nothing. A thread that is traced
            // has to be waited for before its process is.
            unsafe { libc::waitpid(self.1 as libc::pid_t, std::ptr::null_mut(), libc::__WALL) };
        }
        let _ = self.0.wait();
    }
}

impl Running {
    /// Starts it and waits until one of its threads blocks.
    fn start(path: &Path) -> Self {
        let child = Command::new(path)
            .args(["1", "20000"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut running = Self(child, 0);
        running.1 = running.0.id();
        let mut line = String::new();
        BufReader::new(running.0.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let mut input = running.0.stdin.take().unwrap();
        input.write_all(b"go\n").unwrap();
        // Kept open: its end would be no news to the program.
        running.0.stdin = Some(input);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(20) {
            for task in fs::read_dir(format!("/proc/{}/task", running.0.id())).unwrap() {
                let task = task.unwrap();
                let tid = task.file_name().to_string_lossy().parse().unwrap();
                if syscall(tid).is_some_and(|(number, first, _)| blocks(number, first)) {
                    running.1 = tid;
                    return running;
                }
            }
            thread::sleep(Duration::from_millis(1));
        }
        panic!("{} does not block", path.display());
    }
}

/// Whether a system call is one that the corpus blocks in; reading its commands is not.
fn blocks(number: i64, first: u64) -> bool {
    match number {
        libc::SYS_nanosleep | libc::SYS_clock_nanosleep => true,
        libc::SYS_clone | libc::SYS_clone3 => true,
        libc::SYS_read => first != 0,
        _ => false,
    }
}

/// The system call a thread waits in: number, first argument, stack pointer and program counter.
fn syscall(tid: u32) -> Option<(i64, u64, Registers)> {
    let text = fs::read_to_string(format!("/proc/{tid}/syscall")).ok()?;
    let fields: Vec<&str> = text.split_whitespace().collect();
    let [number, first, .., sp, pc] = fields[..] else {
        return None;
    };
    let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    let at = Registers {
        pc: hex(pc)?,
        sp: hex(sp)?,
        bp: 0,
    };
    Some((number.parse().ok()?, hex(first)?, at))
}

/// Stops a thread for good and reads its registers.
fn registers(tid: u32) -> Registers {
    let tid = tid as libc::pid_t;
    // SAFETY: ptrace of a child of this process; the pointer is to a structure of the right type,
    // and all others are null.
    unsafe {
        let null = std::ptr::null_mut::<libc::c_void>();
        assert_eq!(libc::ptrace(libc::PTRACE_SEIZE, tid, null, null), 0);
        assert_eq!(libc::ptrace(libc::PTRACE_INTERRUPT, tid, null, null), 0);
        let mut status = 0;
        assert_eq!(libc::waitpid(tid, &raw mut status, libc::__WALL), tid);
        assert!(libc::WIFSTOPPED(status));
        let mut found: libc::user_regs_struct = std::mem::zeroed();
        let place = (&raw mut found).cast::<libc::c_void>();
        assert_eq!(libc::ptrace(libc::PTRACE_GETREGS, tid, null, place), 0);
        Registers {
            pc: found.rip,
            sp: found.rsp,
            bp: found.rbp,
        }
    }
}

#[test]
fn every_program_of_the_corpus_unwinds_to_the_chain_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let mut registry = Registry::new();
    let mut uploads = Vec::new();
    for built in corpus::build_all(folder.path()).unwrap() {
        let running = Running::start(&built.path);
        let (pid, tid) = (running.0.id(), running.1);
        let mut tables = registry.mappings(pid).unwrap();
        // All tables so far: the mappings point to those of earlier programs, too.
        uploads.append(&mut tables.uploads);
        tables.uploads.clone_from(&uploads);
        let kernel = Kernel::new(pid, &tables);
        let (_, _, waiting) = syscall(tid).unwrap();
        // A thread that waits for its vfork child cannot be stopped; no frame there needs rbp.
        let at = if built.program.name == "spawn" {
            waiting
        } else {
            registers(tid)
        };
        let (frames, stop) = kernel.walk(at);
        let names = Names::new(pid);
        let names: Vec<String> = frames.iter().map(|&frame| names.of(frame)).collect();
        built.check(&names).unwrap();
        assert_eq!(stop, Stop::Complete, "{}: {names:?}", built.program.name);
    }
    assert!(registry.stats().shared > 0);
}
