//! Programs of a kernel object, loaded for an attach type that aya cannot set.
//!
//! In: the object's bytes and the maps that aya made of it. Out: loaded programs.
//!
//! aya 0.14 loads a uprobe program without an expected attach type, and a program for a
//! `uprobe_multi` link needs one. The object is read by aya's own crate for that; only the last
//! system call is made here.

use std::collections::HashMap;
use std::ffi::c_char;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};

use aya::Ebpf;
use aya::programs::ProgramError;
use aya_obj::generated::{bpf_attr, bpf_cmd, bpf_prog_type};
use aya_obj::{Function, Object, VerifierLog};
use log::debug;

use super::refused::{chain, explain_program};
use super::system::bpf_fd;
use reqtrace_base::error::{Error, Result};

/// Room for what the verifier says about a program that it refuses.
const LOG_BYTES: usize = 1 << 20;

/// What a program is loaded for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub(super) enum AttachType {
    /// A perf event: no attach type.
    Perf = 0,
    /// `BPF_TRACE_UPROBE_MULTI` of `enum bpf_attach_type` (6.6).
    UprobeMulti = 48,
}

/// An object whose programs refer to the maps of an [`Ebpf`]. Those maps must stay open as long
/// as programs are loaded from it.
pub(super) struct Image {
    object: Object,
    /// Type information: programs with functions to call back need it.
    btf: Option<OwnedFd>,
}

impl Image {
    /// Reads an object and ties it to the maps that were made of it.
    ///
    /// # Errors
    ///
    /// When the object does not fit the maps: both are built into this program.
    pub(super) fn of(bytes: &[u8], ebpf: &Ebpf) -> Result<Self> {
        let mut object = Object::parse(bytes).map_err(|error| broken(&error))?;
        let btf = match aya::features().btf() {
            Some(features) => {
                let btf = object.fixup_and_sanitize_btf(features);
                let btf = btf.map_err(|error| broken(&error))?;
                btf.and_then(|btf| {
                    load_btf(&btf.to_bytes())
                        .map_err(|error| debug!("the kernel takes no BTF of ours: {error}"))
                        .ok()
                })
            }
            None => None,
        };
        let files: HashMap<&str, RawFd> = ebpf
            .maps()
            .filter_map(|(name, map)| Some((name, super::maps::file_of(map)?.as_raw_fd())))
            .collect();
        let maps = std::mem::take(&mut object.maps);
        // A map that is left out would silently be another one in the programs.
        let tied = maps.iter().map(|(name, map)| {
            let file = files.get(name.as_str());
            let missing =
                || Error::failed(format!("the kernel object's map `{name}` was not made"));
            Ok((name.as_str(), *file.ok_or_else(missing)?, map))
        });
        let tied = tied.collect::<Result<Vec<_>>>()?;
        let sections = object.functions.keys().map(|(section, _)| *section);
        let sections = sections.collect();
        object
            .relocate_maps(tied.into_iter(), &sections)
            .map_err(|error| broken(&error))?;
        object
            .relocate_calls(&sections)
            .map_err(|error| broken(&error))?;
        Ok(Self { object, btf })
    }

    /// Loads a uprobe program.
    ///
    /// # Errors
    ///
    /// [`reqtrace_base::error::Kind::Unsupported`] when the kernel refuses it.
    pub(super) fn load(&self, name: &str, attach: AttachType) -> Result<OwnedFd> {
        let function = self
            .object
            .programs
            .get(name)
            .and_then(|program| self.object.functions.get(&program.function_key()))
            .ok_or_else(|| Error::failed(format!("the kernel object has no program `{name}`")))?;
        self.load_function(name, function, attach, &mut [])
            .or_else(|_| {
                let mut log = vec![0; LOG_BYTES];
                let loaded = self.load_function(name, function, attach, &mut log);
                loaded.map_err(|io_error| {
                    let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
                    let text = String::from_utf8_lossy(&log[..end]).into_owned();
                    explain_program(
                        name,
                        ProgramError::LoadError {
                            io_error,
                            verifier_log: VerifierLog::new(text),
                        },
                    )
                })
            })
    }

    fn load_function(
        &self,
        name: &str,
        function: &Function,
        attach: AttachType,
        log: &mut [u8],
    ) -> io::Result<OwnedFd> {
        let functions = function.func_info.func_info_bytes();
        let lines = function.line_info.line_info_bytes();
        // SAFETY: a union of plain numbers.
        let mut attr: bpf_attr = unsafe { zeroed() };
        // SAFETY: as above.
        let load = unsafe { &mut attr.__bindgen_anon_3 };
        for (to, from) in load.prog_name.iter_mut().zip(short(name)) {
            *to = from.cast_signed() as c_char;
        }
        load.prog_type = bpf_prog_type::BPF_PROG_TYPE_KPROBE as u32;
        load.expected_attach_type = attach as u32;
        load.insns = function.instructions.as_ptr() as u64;
        load.insn_cnt = function.instructions.len() as u32;
        load.license = self.object.license.as_ptr() as u64;
        if let Some(btf) = &self.btf {
            load.prog_btf_fd = btf.as_raw_fd().cast_unsigned();
            load.func_info = functions.as_ptr() as u64;
            load.func_info_cnt = function.func_info.len() as u32;
            load.func_info_rec_size = function.func_info_rec_size as u32;
            load.line_info = lines.as_ptr() as u64;
            load.line_info_cnt = function.line_info.len() as u32;
            load.line_info_rec_size = function.line_info_rec_size as u32;
        }
        if !log.is_empty() {
            load.log_level = 1;
            load.log_buf = log.as_mut_ptr() as u64;
            load.log_size = log.len() as u32;
        }
        // SAFETY: all that it points to lives until the call returns.
        unsafe {
            bpf_fd(
                bpf_cmd::BPF_PROG_LOAD as i64,
                &raw const attr,
                size_of::<bpf_attr>(),
            )
        }
    }
}

/// As much of a name as the kernel keeps: 15 bytes and a 0.
fn short(name: &str) -> impl Iterator<Item = u8> {
    name.bytes().take(15)
}

fn load_btf(bytes: &[u8]) -> io::Result<OwnedFd> {
    // SAFETY: a union of plain numbers.
    let mut attr: bpf_attr = unsafe { zeroed() };
    // SAFETY: as above.
    let load = unsafe { &mut attr.__bindgen_anon_7 };
    load.btf = bytes.as_ptr() as u64;
    load.btf_size = bytes.len() as u32;
    // SAFETY: the bytes live until the call returns.
    unsafe {
        bpf_fd(
            bpf_cmd::BPF_BTF_LOAD as i64,
            &raw const attr,
            size_of::<bpf_attr>(),
        )
    }
}

fn broken(error: &dyn std::error::Error) -> Error {
    Error::failed("the kernel object that is built into this program cannot be read")
        .because(chain(error))
        .next("build again: cargo clean && cargo build --release")
}
