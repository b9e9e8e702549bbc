//! Edges of goroutines, and where functions of Go begin: an object in; the calls by which the runtime of Go changes the
//! state of a goroutine, and the instruction behind the check of a function's stack, out.
//!
//! One function changes that state, `runtime.casgstatus`, at each system call too. So its callers are probed where they
//! call it: old and new state are constants there, and the goroutine is the first argument.

use std::ops::Range;

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};

use reqtrace_base::error::{Error, Result};
use reqtrace_binary::elf::Object;
use reqtrace_common::marker::ParkPlan;
use reqtrace_profile::{Change, GOES_ON};

mod gogo;
mod park;
mod recovered;
mod started;

pub(super) use recovered::plan as recovered;
pub(super) use started::{called, functions as started_by, told_apart};

use super::emulated::writes;
use super::instructions::{condition_of, decoder, direct_target};
use super::returns::Site;
use super::symbols::body;

/// Minor versions of Go 1 whose edges are known.
const KNOWN: std::ops::RangeInclusive<u32> = 19..=27;

/// What changes the state of a goroutine.
const CHANGES: &str = "runtime.casgstatus";

/// The same where a goroutine stops for the collector of garbage.
const STOPS: &str = "runtime.casGToPreemptScan";

/// What keeps where a goroutine goes on before another one runs.
const KEEPS: &str = "runtime.mcall";

/// States of a goroutine (`runtime2.go`), unchanged in all versions.
mod state {
    pub(super) const RUNNABLE: u64 = 1;
    pub(super) const RUNNING: u64 = 2;
    pub(super) const SYSCALL: u64 = 3;
    pub(super) const WAITING: u64 = 4;
    pub(super) const DEAD: u64 = 6;
    pub(super) const PREEMPTED: u64 = 0x1009;
}

/// A transition, and who makes it.
struct Transition {
    /// One of these functions must make it, or its edge is not complete; empty: it may be missing.
    needs: &'static [&'static str],
    /// These functions make it; empty: whoever does.
    by: &'static [&'static str],
    through: &'static str,
    from: &'static [u64],
    to: u64,
}

const READY: Transition = Transition {
    needs: &["runtime.ready"],
    by: &[],
    through: CHANGES,
    from: &[state::WAITING],
    to: state::RUNNABLE,
};

/// All transitions that are an edge. A goroutine that waits for its own thread on the stack of the system, such as for
/// the collector, is not parked: nothing else runs there.
const fn transitions(change: Change) -> &'static [Transition] {
    match change {
        // Coroutines of `iter.Pull` begin there, too, in another state.
        Change::Spawn => &[Transition {
            needs: &["runtime.newproc1"],
            by: &["runtime.newproc1"],
            through: CHANGES,
            from: &[state::DEAD],
            to: state::RUNNABLE,
        }],
        Change::Ready => &[
            READY,
            Transition {
                needs: &["runtime.findRunnable", "runtime.findrunnable"],
                ..READY
            },
            Transition {
                needs: &["runtime.injectglist"],
                ..READY
            },
        ],
        Change::Switch | Change::Recover => &[],
        Change::Resume => &[Transition {
            needs: &["runtime.execute"],
            by: &["runtime.execute", "runtime.coroswitch_m"],
            through: CHANGES,
            from: &[state::RUNNABLE],
            to: state::RUNNING,
        }],
        Change::Park => &[Transition {
            needs: &["runtime.park_m"],
            by: &["runtime.park_m", "runtime.coroswitch_m"],
            through: CHANGES,
            from: &[state::RUNNING],
            to: state::WAITING,
        }],
        Change::Stop => &[Transition {
            needs: &["runtime.preemptPark"],
            by: &["runtime.preemptPark"],
            through: STOPS,
            from: &[state::RUNNING],
            to: state::PREEMPTED,
        }],
        Change::Leave => &[
            Transition {
                needs: &["runtime.goschedImpl"],
                by: &["runtime.goschedImpl", "runtime.goyield_m"],
                through: CHANGES,
                from: &[state::RUNNING],
                to: state::RUNNABLE,
            },
            Transition {
                needs: &["runtime.exitsyscall0", "runtime.exitsyscallNoP"],
                by: &["runtime.exitsyscall0", "runtime.exitsyscallNoP"],
                through: CHANGES,
                from: &[state::SYSCALL, state::RUNNING],
                to: state::RUNNABLE,
            },
        ],
        Change::Done => &[Transition {
            needs: &["runtime.goexit0", "runtime.gdestroy"],
            by: &["runtime.goexit0", "runtime.gdestroy"],
            through: CHANGES,
            from: &[state::RUNNING],
            to: state::DEAD,
        }],
    }
}

/// The calls that are an edge: their addresses, sorted.
///
/// # Errors
///
/// When the program is not Go's, or of a version that is not known, or one of its ways is not found, with its name.
pub(super) fn edge(object: &Object, change: Change) -> Result<Vec<u64>> {
    is_known(object)?;
    match change {
        Change::Switch => return gogo::switches(object),
        Change::Recover => return Ok(gogo::recovers(object).into_iter().collect()),
        _ => {}
    }
    let mut all = Vec::new();
    for transition in transitions(change) {
        let callee = function(object, transition.through)
            .ok_or_else(|| not_there(object, transition.through))?;
        let mut is_complete = false;
        for (name, code) in callers(object, transition.by) {
            let calls = calls(object, &code, callee, transition);
            is_complete |= !calls.is_empty() && transition.needs.contains(&name);
            all.extend(calls);
        }
        if !is_complete {
            let what = format!(
                "{} with a call of {} from state {:?} to {}",
                transition.needs.join(" or "),
                transition.through,
                transition.from,
                transition.to
            );
            return Err(not_there(object, &what));
        }
    }
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

/// What is read of a goroutine that waits, and sentences on what is not known of it.
pub(super) fn park(object: &Object) -> (ParkPlan, Vec<String>) {
    park::plan(object)
}

/// Functions of the runtime: these, or all but those that call functions for a debugger.
fn callers<'o>(
    object: &'o Object,
    by: &'static [&'static str],
) -> impl Iterator<Item = (&'o str, Range<u64>)> {
    let symbols = object.symbols().iter();
    let named = symbols.map(|symbol| (object.name(symbol), symbol.address));
    let wanted = named.filter(|(name, _)| {
        let is_of_runtime = name.starts_with("runtime.") && !name.starts_with("runtime.debugCall");
        is_of_runtime && (by.is_empty() || by.contains(name))
    });
    wanted.map(|(name, address)| (name, body(object, address)))
}

/// Where a function makes a transition.
fn calls(object: &Object, code: &Range<u64>, callee: u64, transition: &Transition) -> Vec<u64> {
    let code: Vec<Instruction> = decoder(object, code.clone())
        .take_while(|instruction| !instruction.is_invalid())
        .collect();
    let is_call = |instruction: &Instruction| {
        instruction.flow_control() == FlowControl::Call
            && instruction.near_branch_target() == callee
    };
    let mut found = Vec::new();
    for (at, call) in code.iter().enumerate() {
        if !is_call(call) {
            continue;
        }
        let from = constant(&code[..at], Register::RBX);
        let to = constant(&code[..at], Register::RCX);
        // The new state is not always loaded right before the call; no two transitions of a function differ in it alone.
        let fits = from.is_some_and(|from| transition.from.contains(&from))
            && to.is_none_or(|to| to == transition.to);
        if fits {
            found.push(call.ip());
        }
    }
    found
}

/// Checks where the first thing is kept in a goroutine that leaves its thread: the address that it goes on at.
///
/// # Errors
///
/// When that is not where it is read.
pub(super) fn goes_on(object: &Object) -> Result<()> {
    if kept(object) == u64::try_from(GOES_ON).ok() {
        return Ok(());
    }
    let what = format!("{KEEPS} that keeps where a goroutine goes on at {GOES_ON:#x}");
    Err(not_there(object, &what))
}

fn kept(object: &Object) -> Option<u64> {
    let code = body(object, function(object, KEEPS)?);
    let stores = decoder(object, code).find(|instruction| {
        instruction.op0_kind() == OpKind::Memory && instruction.memory_base() == Register::R14
    });
    stores.map(|store| store.memory_displacement64())
}

/// The constant that is in a register behind these instructions; `None` where it is not known.
fn constant(code: &[Instruction], register: Register) -> Option<u64> {
    for instruction in code.iter().rev() {
        if instruction.flow_control() != FlowControl::Next {
            // A jump over the call leaves registers as they are, and any other call does not.
            if instruction.flow_control() == FlowControl::ConditionalBranch {
                continue;
            }
            return None;
        }
        if !writes(instruction, register) {
            continue;
        }
        let clears = instruction.mnemonic() == Mnemonic::Xor
            && instruction.op1_kind() == OpKind::Register
            && instruction.op0_register() == instruction.op1_register();
        if clears {
            return Some(0);
        }
        let is_immediate = matches!(
            instruction.op1_kind(),
            OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64
        );
        let loads = instruction.mnemonic() == Mnemonic::Mov && is_immediate;
        return loads.then(|| instruction.immediate(1));
    }
    None
}

/// Instructions of a prologue before its last jump, and of what that jumps to.
const PROLOGUE: usize = 10;
const GROWS: usize = 64;

/// Where the entry of a function of Go is probed: the jump that is taken when its stack must grow first, or the goroutine
/// has lost its turn. It begins again then, so it has begun when that jump is not taken. `None`: it has no such
/// jump, and its first instruction is its begin.
pub(super) fn begin(object: &Object, body: &Range<u64>) -> Option<Site> {
    let mut last = None;
    for instruction in decoder(object, body.clone()).take(PROLOGUE) {
        match instruction.flow_control() {
            FlowControl::Next => {}
            FlowControl::ConditionalBranch => {
                let target = instruction.near_branch_target();
                if !grows(object, body, target) {
                    break;
                }
                last = Some(instruction);
            }
            _ => break,
        }
    }
    let jump = last?;
    Some(Site {
        distance: jump.ip() - body.start,
        // The opposite of a condition differs in its last bit.
        ..Site::itself(jump.ip(), Some(condition_of(&jump)? ^ 1))
    })
}

/// Whether what stands there calls something and goes back to the entry, and does nothing else.
fn grows(object: &Object, body: &Range<u64>, address: u64) -> bool {
    if !body.contains(&address) {
        return false;
    }
    let mut has_called = false;
    for instruction in decoder(object, address..body.end).take(GROWS) {
        match instruction.flow_control() {
            FlowControl::Next => {}
            FlowControl::Call if !has_called => has_called = true,
            FlowControl::UnconditionalBranch => {
                return has_called && instruction.near_branch_target() == body.start;
            }
            _ => return false,
        }
    }
    false
}

/// Whether what leaves a function of Go there begins it again, as its stack has grown.
pub(super) fn restarts(object: &Object, body: &Range<u64>, site: &Site) -> bool {
    let address = site.address;
    let instruction = decoder(object, address..body.end).next();
    instruction.is_some_and(|jump| direct_target(&jump) == Some(body.start))
}

fn function(object: &Object, name: &str) -> Option<u64> {
    let mut symbols = object.symbols().iter();
    let symbol = symbols.find(|symbol| object.name(symbol) == name)?;
    Some(symbol.address)
}

/// Whether it is a program of Go, and of a version that is known.
fn is_known(object: &Object) -> Result<()> {
    let shown = object.shown();
    if !object.is_go() {
        return Err(Error::usage(format!(
            "[runtime] kind = \"go\": {shown} is no program of Go"
        ))
        .next("leave [runtime] out, or name the process whose program was built by Go"));
    }
    let Some(version) = object.go_version() else {
        return Err(Error::usage(format!(
            "[runtime] kind = \"go\": {shown} does not say which version of Go has built it"
        ))
        .next("its section .go.buildinfo is missing: use the program as Go has linked it"));
    };
    let minor = version
        .strip_prefix("go1.")
        .map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next())
        .and_then(|minor| minor?.parse::<u32>().ok());
    if minor.is_some_and(|minor| KNOWN.contains(&minor)) {
        return Ok(());
    }
    Err(Error::usage(format!(
        "[runtime] kind = \"go\": {shown} was built by {version}, and where a runtime changes the state of a goroutine is \
         known of Go 1.{} to 1.{}",
        KNOWN.start(),
        KNOWN.end()
    ))
    .next("build it with one of these versions"))
}

fn not_there(object: &Object, what: &str) -> Error {
    let shown = object.shown();
    let version = object.go_version().unwrap_or_default();
    let error = Error::usage(format!(
        "[runtime] kind = \"go\": no function {what} in {shown}, built by {version}"
    ));
    if object.symbols().is_empty() {
        return error.next("The file has no function symbols at all: build it without -ldflags=-s");
    }
    error.next("this runtime of Go is unlike those that are known: please report its version")
}

#[cfg(test)]
mod tests;
