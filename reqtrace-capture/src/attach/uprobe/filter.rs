//! Whether a `uprobe_multi` link for one process hits all threads of it: a child of our own in, the answer out.
//!
//! The filter let one thread pass at first (until 46ba0e49b642, Linux 6.10), and then whoever has the memory of
//! the process's first thread, which has none any more when it has left (until 900f362e2062, Linux 6.12). So
//! here the first thread of a child leaves, and another one hits the probe.

use std::ffi::{c_int, c_void};
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use std::{io, thread};

use aya_obj::generated::{bpf_attr, bpf_cmd, bpf_insn, bpf_map_type, bpf_prog_type};
use log::debug;
use rustix::pipe::pipe;

use super::super::image::AttachType;
use super::super::system::{bpf, bpf_fd};
use super::file_offset_of;
use super::{Place, multi};
use crate::kernel::processes::text_of;
use crate::kernel::{Feature, Hidden};

/// How long the child's first thread is waited for.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long to wait before it is looked at again.
const PAUSE: Duration = Duration::from_micros(100);
/// Of the child's second thread, bytes.
const STACK: usize = 64 << 10;

/// Whether it does: tried once, in some milliseconds. When it cannot be tried it does not.
#[must_use]
pub fn goes_by_process() -> bool {
    static TRIED: OnceLock<bool> = OnceLock::new();
    *TRIED.get_or_init(|| {
        if Hidden::read().is_ok_and(|hidden| hidden.has(Feature::ProcessFilter)) {
            return false;
        }
        let started = Instant::now();
        let tried = tried();
        debug!(
            "the filter of processes is tried in {:.1?}: {tried:?}",
            started.elapsed()
        );
        tried.is_ok_and(|hits| hits == 1)
    })
}

/// Probed in the child.
#[unsafe(naked)]
extern "C" fn probed() {
    core::arch::naked_asm!("nop", "nop", "nop", "nop", "ret")
}

/// Hits by the second thread of a child whose first thread has left.
fn tried() -> io::Result<u64> {
    let counter = Counter::new()?;
    let (object, file_offset) =
        file_offset_of(probed as extern "C" fn() as usize as u64).map_err(io::Error::other)?;
    let (reader, writer) = pipe()?;
    let mut stack = vec![0_u8; STACK];
    let child = Child::start(&reader, &mut stack)?;
    let place = Place {
        object: &object,
        file_offset,
        counter: None,
        on_return: false,
        process: Some(child.0),
        cookie: 0,
    };
    let link = multi::attach(counter.program.as_fd(), &[place])?;
    let go = || rustix::io::write(&writer, &[0]);
    go()?;
    child.wait_for_first_thread()?;
    go()?;
    child.wait()?;
    let hits = counter.hits()?;
    // Taking it out waits for the kernel, which nobody has to wait for here.
    thread::spawn(move || drop(link));
    Ok(hits)
}

/// A process with a second thread.
struct Child(u32);

impl Child {
    fn start(reader: &OwnedFd, stack: &mut [u8]) -> io::Result<Self> {
        let fd = reader.as_raw_fd();
        // SAFETY: the child calls nothing but system calls until it ends.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => first_thread(fd, stack),
            child => Ok(Self(child.cast_unsigned())),
        }
    }

    /// Waits until nothing is left of the first thread.
    fn wait_for_first_thread(&self) -> io::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let stat = text_of(format!("/proc/{}/stat", self.0))?;
            // `PID (NAME) STATE …`: a zombie, of which other threads are alive.
            if stat
                .rsplit_once(')')
                .is_some_and(|(_, rest)| rest.starts_with(" Z"))
            {
                return Ok(());
            }
            thread::sleep(PAUSE);
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    /// Waits until it has ended.
    fn wait(&self) -> io::Result<()> {
        // SAFETY: plain numbers.
        let mut info = unsafe { zeroed() };
        let flags = libc::WEXITED | libc::WNOWAIT;
        // SAFETY: `info` is a valid place for the result.
        match unsafe { libc::waitid(libc::P_PID, self.0, &raw mut info, flags) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Child {
    /// Ends it, if it has not ended.
    fn drop(&mut self) {
        let mut status = 0;
        // SAFETY: it is a child that nobody has waited for; `status` is a valid place for the result.
        unsafe {
            libc::kill(self.0.cast_signed(), libc::SIGKILL);
            libc::waitpid(self.0.cast_signed(), &raw mut status, 0);
        }
    }
}

/// Starts the second thread when it is told to, and leaves.
fn first_thread(fd: c_int, stack: &mut [u8]) -> ! {
    const FLAGS: c_int = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD;
    wait_for_go(fd);
    let top = stack.as_mut_ptr_range().end;
    // SAFETY: the stack is this thread's alone, and as long as the process; both threads only make system calls.
    unsafe {
        let top = top.sub(top as usize % 16).cast();
        if libc::clone(second_thread, top, FLAGS, fd as *mut c_void) == -1 {
            libc::_exit(1);
        }
        libc::syscall(libc::SYS_exit, 0);
        libc::_exit(1)
    }
}

extern "C" fn second_thread(fd: *mut c_void) -> c_int {
    wait_for_go(fd as c_int);
    probed();
    // SAFETY: ends the process at once.
    unsafe { libc::_exit(0) }
}

fn wait_for_go(fd: c_int) {
    let mut byte = 0_u8;
    // SAFETY: there is room for a byte.
    if unsafe { libc::read(fd, (&raw mut byte).cast(), 1) } != 1 {
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(1) }
    }
}

/// A program that counts how often it runs.
struct Counter {
    map: OwnedFd,
    program: OwnedFd,
}

impl Counter {
    fn new() -> io::Result<Self> {
        // SAFETY: a union of plain numbers.
        let mut attr: bpf_attr = unsafe { zeroed() };
        // SAFETY: as above.
        let create = unsafe { &mut attr.__bindgen_anon_1 };
        create.map_type = bpf_map_type::BPF_MAP_TYPE_ARRAY as u32;
        (create.key_size, create.value_size, create.max_entries) = (4, 8, 1);
        let map = open(bpf_cmd::BPF_MAP_CREATE, &attr)?;
        let program = load(map.as_fd())?;
        Ok(Self { map, program })
    }

    fn hits(&self) -> io::Result<u64> {
        let (key, mut hits) = (0_u32, 0_u64);
        // SAFETY: a union of plain numbers.
        let mut attr: bpf_attr = unsafe { zeroed() };
        attr.__bindgen_anon_2.map_fd = self.map.as_raw_fd().cast_unsigned();
        attr.__bindgen_anon_2.key = (&raw const key) as u64;
        attr.__bindgen_anon_2.__bindgen_anon_1.value = (&raw mut hits) as u64;
        // SAFETY: key and value have the sizes of the map's.
        unsafe { bpf(bpf_cmd::BPF_MAP_LOOKUP_ELEM as i64, &raw mut attr)? };
        Ok(hits)
    }
}

/// Loads `lock *(u64 *)&map[0] += 1`.
fn load(map: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    /// `BPF_LD | BPF_DW | BPF_IMM`, with `BPF_PSEUDO_MAP_VALUE` in the source register.
    const LOAD_ADDRESS: u8 = 0x18;
    const OF_MAP_VALUE: u8 = 2;
    const MOVE: u8 = 0xb7;
    const ADD_LOCKED: u8 = 0xdb;
    const EXIT: u8 = 0x95;
    let instruction = |code, to, from, imm| {
        // SAFETY: plain numbers.
        let mut instruction: bpf_insn = unsafe { zeroed() };
        instruction.code = code;
        instruction.set_dst_reg(to);
        instruction.set_src_reg(from);
        instruction.imm = imm;
        instruction
    };
    let instructions = [
        instruction(LOAD_ADDRESS, 1, OF_MAP_VALUE, map.as_raw_fd()),
        instruction(0, 0, 0, 0),
        instruction(MOVE, 2, 0, 1),
        instruction(ADD_LOCKED, 1, 2, 0),
        instruction(MOVE, 0, 0, 0),
        instruction(EXIT, 0, 0, 0),
    ];
    let license = c"GPL";
    // SAFETY: a union of plain numbers.
    let mut attr: bpf_attr = unsafe { zeroed() };
    // SAFETY: as above.
    let load = unsafe { &mut attr.__bindgen_anon_3 };
    load.prog_type = bpf_prog_type::BPF_PROG_TYPE_KPROBE as u32;
    load.expected_attach_type = AttachType::UprobeMulti as u32;
    load.insns = instructions.as_ptr() as u64;
    load.insn_cnt = instructions.len() as u32;
    load.license = license.as_ptr() as u64;
    open(bpf_cmd::BPF_PROG_LOAD, &attr)
}

fn open(command: bpf_cmd, attr: &bpf_attr) -> io::Result<OwnedFd> {
    // SAFETY: what it points to lives until the call returns.
    unsafe {
        bpf_fd(
            command as i64,
            std::ptr::from_ref(attr),
            size_of::<bpf_attr>(),
        )
    }
}
