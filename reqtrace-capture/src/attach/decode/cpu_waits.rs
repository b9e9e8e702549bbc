//! Waits for a CPU: records of blame in, events out.

use std::mem::{offset_of, size_of};

use reqtrace_common::cpu::{CpuWaitRecord, MAX_RUNNERS, RunnerRecord};
use reqtrace_recording::{AddressSpace, Comm, CpuWait, Runner};

use super::{Fields, Malformed};

/// Decodes a wait for a CPU; its cgroup is not known yet.
///
/// # Errors
///
/// [`Malformed`] when the bytes are not one of this version.
pub(crate) fn cpu_wait(bytes: &[u8]) -> Result<CpuWait, Malformed> {
    macro_rules! at {
        ($field:ident) => {
            offset_of!(CpuWaitRecord, $field)
        };
    }
    let fields = Fields(bytes);
    let used = fields.count(at!(used), MAX_RUNNERS)?;
    let runners =
        (0..used).map(|index| runner(&fields, at!(runners) + index * size_of::<RunnerRecord>()));
    let wait = CpuWait {
        space: AddressSpace {
            tgid: fields.u32(at!(tgid))?,
            exec_generation: 0,
        },
        tid: fields.u32(at!(tid))?,
        cpu: fields.u32(at!(cpu))?,
        from_ns: fields.u64(at!(from_ns))?,
        until_ns: fields.u64(at!(until_ns))?,
        limited_ns: fields.u64(at!(limited_ns))?,
        cgroup: String::new(),
        runners: runners.collect::<Result<_, _>>()?,
    };
    let times = wait.runners.iter().map(|runner| runner.ns);
    let known_ns = times.chain([wait.limited_ns]).try_fold(0, u64::checked_add);
    let all_ns = wait.until_ns.checked_sub(wait.from_ns);
    match (known_ns, all_ns) {
        (Some(known_ns), Some(all_ns)) if known_ns <= all_ns => Ok(wait),
        _ => Err(Malformed::Interval),
    }
}

fn runner(fields: &Fields<'_>, at: usize) -> Result<Runner, Malformed> {
    Ok(Runner {
        tgid: fields.u32(at + offset_of!(RunnerRecord, tgid))?,
        tid: fields.u32(at + offset_of!(RunnerRecord, tid))?,
        policy: fields.u32(at + offset_of!(RunnerRecord, policy))?,
        priority: fields.u32(at + offset_of!(RunnerRecord, priority))?,
        comm: Comm(fields.array(at + offset_of!(RunnerRecord, comm))?),
        ns: fields.u64(at + offset_of!(RunnerRecord, ns))?,
    })
}
