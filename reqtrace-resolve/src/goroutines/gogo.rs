//! Where the runtime of Go itself says what a goroutine goes on with: a program in; the calls of `runtime.gogo`, at which that is in
//! RAX, out.

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};

use reqtrace_base::error::Result;
use reqtrace_binary::elf::Object;
use reqtrace_profile::SCHED;

use super::{function, not_there};
use crate::emulated::writes;
use crate::instructions::decoder;
use crate::symbols::body;

const GOES: [&str; 2] = ["runtime.gogo.abi0", "runtime.gogo"];

/// What hands a goroutine's turn over to another one.
const SWITCHES: &str = "runtime.coroswitch_m";

/// What lets a goroutine go on behind a panic.
pub(super) const RECOVERS: &str = "runtime.recovery";

/// Where a goroutine hands its turn over to another one: nowhere in a program without coroutines.
///
/// # Errors
///
/// When it does so in another way.
pub(super) fn switches(object: &Object) -> Result<Vec<u64>> {
    if function(object, SWITCHES).is_none() {
        return Ok(Vec::new());
    }
    match goes_on(object, SWITCHES) {
        Some(call) => Ok(vec![call]),
        None => {
            let what = format!("{SWITCHES} that goes on with what a goroutine has at {SCHED:#x}");
            Err(not_there(object, &what))
        }
    }
}

/// Where a goroutine goes on behind a panic; `None`: not in a way that is known.
pub(super) fn recovers(object: &Object) -> Option<u64> {
    goes_on(object, RECOVERS)
}

/// The call by which this function goes on with a goroutine that it has, the first one.
fn goes_on(object: &Object, name: &str) -> Option<u64> {
    let code: Vec<Instruction> = decoder(object, body(object, function(object, name)?)).collect();
    let goes_on: Vec<u64> = GOES
        .iter()
        .filter_map(|name| function(object, name))
        .collect();
    let is_call = |one: &Instruction| {
        one.flow_control() == FlowControl::Call && goes_on.contains(&one.near_branch_target())
    };
    let call = code.iter().position(is_call)?;
    let mut before = code[..call].iter().rev();
    let last = before.find(|one| writes(one, Register::RAX))?;
    loads_sched(last).then(|| code[call].ip())
}

/// Whether an instruction leaves in RAX what a goroutine has for that.
fn loads_sched(load: &Instruction) -> bool {
    match load.mnemonic() {
        Mnemonic::Lea => Ok(SCHED) == i32::try_from(load.memory_displacement64()),
        Mnemonic::Add => {
            load.op1_kind() == OpKind::Immediate8to64 && load.immediate(1) == SCHED as u64
        }
        _ => false,
    }
}
