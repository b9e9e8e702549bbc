//! USDT probes: the `.note.stapsdt` of an object in, its probes with all their places, semaphores
//! and arguments out.
//!
//! The format is that of `SystemTap`'s `sys/sdt.h`. A note that makes no sense is counted and left
//! out; nothing of the file is trusted.

mod argument;
mod notes;

use super::starts::{self, Begins};
use reqtrace_base::error::Error;
use reqtrace_base::text::nearest;
use reqtrace_binary::elf::Object;

pub use argument::{ArgumentValue, UsdtArgument};
use notes::{Note, next_note, probe};

/// `nop` of one byte.
const NOP: u8 = 0x90;

/// Names that an error suggests.
const MAX_NEAREST: usize = 3;

/// All probes of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsdtProbes {
    /// By provider and name.
    pub probes: Vec<UsdtProbe>,
    /// Notes that could not be read: cut off, without their strings, or of a place that is not in
    /// the object's code or not the beginning of an instruction.
    pub malformed: usize,
}

/// One probe of a program: `provider:name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsdtProbe {
    /// Who defines it, such as `postgresql`.
    pub provider: String,
    /// Its name, such as `query__start`.
    pub name: String,
    /// Everywhere that the compiler has put it, by address. At least one.
    pub sites: Vec<UsdtSite>,
}

/// One place of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsdtSite {
    /// Virtual address as linked.
    pub address: u64,
    /// Offset in the file, bytes.
    pub file_offset: u64,
    /// Offset in the file of the 16-bit counter that the program looks at before it evaluates the
    /// arguments and comes to this place. `None`: it always comes here.
    pub semaphore: Option<u64>,
    /// Its arguments, in order.
    pub arguments: Vec<UsdtArgument>,
}

impl UsdtProbe {
    /// `provider:name`, as a profile writes it.
    #[must_use]
    pub fn full_name(&self) -> String {
        format!("{}:{}", self.provider, self.name)
    }
}

/// The USDT probes of an object; none if it has no notes.
#[must_use]
pub fn usdt_probes(object: &Object) -> UsdtProbes {
    let mut found = UsdtProbes::default();
    for section in object.usdt_notes() {
        let mut rest = section;
        while !rest.is_empty() {
            let Some((note, after)) = next_note(rest) else {
                // Without its sizes the next one cannot be found.
                found.malformed += 1;
                break;
            };
            rest = after;
            match note {
                Note::Other => {}
                Note::Probe(description) => match probe(object, description) {
                    Some((provider, name, site)) if is_instruction(object, site.address) => {
                        found.add(provider, name, site);
                    }
                    _ => found.malformed += 1,
                },
            }
        }
    }
    for probe in &mut found.probes {
        probe.sites.sort_by_key(|site| site.address);
        probe.sites.dedup();
    }
    found
        .probes
        .sort_by(|a, b| (&a.provider, &a.name).cmp(&(&b.provider, &b.name)));
    found
}

/// Whether an instruction begins at a place; where nothing tells the start of its function, whether it
/// is the `nop` that compilers put there.
fn is_instruction(object: &Object, address: u64) -> bool {
    match starts::begins(object, address) {
        Begins::Proven => true,
        Begins::Unknown => object.code(address).first() == Some(&NOP),
        Begins::Inside(..) | Begins::Doubtful(_) => false,
    }
}

impl UsdtProbes {
    /// The probe `provider:name`.
    #[must_use]
    pub fn find(&self, provider: &str, name: &str) -> Option<&UsdtProbe> {
        self.probes
            .iter()
            .find(|probe| probe.provider == provider && probe.name == name)
    }

    /// Why a probe cannot be found in this object. `elsewhere`: other objects that have it.
    pub(super) fn missing(
        &self,
        shown: &str,
        provider: &str,
        name: &str,
        elsewhere: &[String],
        is_named: bool,
    ) -> Error {
        let wanted = format!("{provider}:{name}");
        if self.probes.is_empty() && self.malformed > 0 {
            return Error::failed(format!(
                "all {} USDT notes of {shown} are malformed, so `{wanted}` cannot be found",
                self.malformed
            ))
            .next("use a function or an offset as marker");
        }
        let error = Error::usage(format!("no USDT probe `{wanted}` in {shown}"));
        if let Some(object) = elsewhere.first() {
            return error.next(format!(
                "it is in {}: set object = \"{object}\"",
                elsewhere.join(", ")
            ));
        }
        if self.probes.is_empty() {
            let elsewhere = if is_named {
                "another object"
            } else {
                "a library (set `object`)"
            };
            return error.next(format!(
                "the file has no USDT probes at all: it was built without them, or they are in \
                 {elsewhere}"
            ));
        }
        let names: Vec<String> = self.probes.iter().map(UsdtProbe::full_name).collect();
        let near = nearest(&wanted, names.iter().map(String::as_str), MAX_NEAREST);
        error.next(format!(
            "it has {} others{}",
            names.len(),
            match near.as_slice() {
                [] => String::new(),
                near => format!(", such as {}", near.join(", ")),
            }
        ))
    }

    fn add(&mut self, provider: &str, name: &str, site: UsdtSite) {
        let known = self
            .probes
            .iter_mut()
            .find(|probe| probe.provider == provider && probe.name == name);
        match known {
            Some(probe) => probe.sites.push(site),
            None => self.probes.push(UsdtProbe {
                provider: provider.to_owned(),
                name: name.to_owned(),
                sites: vec![site],
            }),
        }
    }
}

#[cfg(test)]
mod tests;
