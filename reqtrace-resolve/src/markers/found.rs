//! Probes of a marker: its code in, the instructions to probe out.

use std::ops::Range;

use iced_x86::Register;

use super::Resolver;
use crate::opened::ObjectFile;
use crate::probeable::{Probing, probing};
use crate::returns::{self, Exits, Reads, Site};
use crate::usdt::UsdtSite;
use crate::{ProbeSite, ResolvedMarker, goroutines, symbols};
use reqtrace_base::error::{Error, Result};
use reqtrace_binary::elf::Object;
use reqtrace_common::marker::ParkPlan;
use reqtrace_profile::{At, ReturnProbe};

/// A marker's code, found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// The object it is in.
    pub(super) file: ObjectFile,
    /// Its name, as reports give it.
    pub(super) symbol: String,
    /// Its ranges of virtual addresses: one for each copy the compiler made.
    pub(super) bodies: Vec<Range<u64>>,
    /// Which end of it is meant.
    pub(super) at: At,
    /// Whether a function begins there.
    pub(super) is_function: bool,
    /// The places of a USDT probe.
    pub(super) usdt: Vec<UsdtSite>,
    /// The probe stays where the profile put it.
    pub(super) is_fixed: bool,
    /// Instructions beside them will do, where nothing is read.
    pub(super) is_movable: bool,
    /// The instructions to probe, where they are not the ends of `bodies`.
    pub(super) instructions: Vec<ProbeSite>,
}

/// What the probes of a marker are for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Use {
    /// How returns are probed.
    pub(super) return_probe: ReturnProbe,
    /// Hits are compared with the begin's frame.
    pub(super) is_tied: bool,
    /// What is read there; `None`: nothing.
    pub(super) reads: Option<Reads>,
}

impl Resolver<'_> {
    /// What is read where a goroutine goes on behind a panic, of a request that is one call of this function; `None`: something
    /// is not known, and reported.
    pub(super) fn recovered(
        &mut self,
        goes_on: &Found,
        function: &Found,
    ) -> Result<Option<ParkPlan>> {
        let object = self.open(&goes_on.file)?;
        let is_here = function.file == goes_on.file;
        let functions = if is_here { &function.bodies[..] } else { &[] };
        match goroutines::recovered(&object, functions) {
            Ok(plan) => Ok(Some(plan)),
            Err(unknown) => {
                self.warn(unknown);
                Ok(None)
            }
        }
    }

    /// The probes of what was found.
    pub(super) fn marker(&mut self, found: &Found, its_use: Use) -> Result<ResolvedMarker> {
        let is_built_in = self.is_built_in;
        let object = self.open(&found.file)?;
        let offset_of = |address: u64| {
            object.file_offset(address).ok_or_else(|| {
                Error::failed(format!(
                    "address 0x{address:x} of `{}` is outside the code of {}",
                    found.symbol, found.file.shown
                ))
            })
        };
        let mut sites = found.instructions.clone();
        if found.is_movable && its_use.reads.is_none() {
            for site in &mut sites {
                if let Some(address) = object.address_of(site.file_offset) {
                    // A begin and its end may be told by their stack pointers.
                    let beside = returns::beside(&object, address, &[Register::RSP]);
                    *site = probe_site(offset_of, beside)?;
                }
            }
        }
        let (mut warnings, mut notes) = (Vec::new(), Vec::new());
        let functions = if sites.is_empty() {
            found.bodies.as_slice()
        } else {
            &[]
        };
        for body in functions {
            if found.at == At::Entry && !found.is_fixed && found.is_function {
                let reads = its_use.reads.unwrap_or(Reads::Arguments);
                let of_go = object
                    .is_go()
                    .then(|| goroutines::begin(&object, body))
                    .flatten();
                let entry = of_go.unwrap_or_else(|| returns::entry(&object, body, reads));
                sites.push(probe_site(offset_of, entry)?);
                continue;
            }
            if found.at == At::Entry || its_use.return_probe == ReturnProbe::Uretprobe {
                sites.push(ProbeSite::at(offset_of(body.start)?));
                continue;
            }
            let (exits, ends) = ends(&object, body, its_use);
            if its_use.reads == Some(Reads::Result) && exits.has_tail_calls() {
                return Err(no_result(&object, &exits, &found.symbol));
            }
            // A function of Go does so when its stack has grown, and its begin is behind that.
            if exits.reenters && !object.is_go() {
                warnings.push(format!(
                    "`{}` jumps back to its own entry: each time counts as a request of its own",
                    found.symbol
                ));
            }
            if exits.has_tail_calls() {
                let tail_call = format!(
                    "`{}` can end in a tail call (of {}): that call's time is not in it",
                    found.symbol,
                    tail_callees(&object, &exits)
                );
                if is_built_in {
                    notes.push(tail_call);
                } else {
                    warnings.push(tail_call);
                }
            }
            // A stack that has grown: the function begins again.
            let is_end =
                |site: &Site| !(object.is_go() && goroutines::restarts(&object, body, site));
            for site in ends.into_iter().filter(is_end) {
                sites.push(probe_site(offset_of, site)?);
            }
        }
        // Clones can share a cold part.
        sites.sort_unstable();
        sites.dedup();
        if sites.is_empty() {
            return Err(Error::usage(format!(
                "found no instruction that leaves `{}` in {}: it never returns, or its code \
                 could not be decoded",
                found.symbol, found.file.shown
            ))
            .next("give the request another `end`, or set return-probe = \"uretprobe\""));
        }
        for site in &mut sites {
            refuse_unprobeable(&object, found, site.file_offset)?;
            site.instruction = object.instruction_at(site.file_offset);
        }
        let entry = found.bodies.first().map_or(0, |body| body.start);
        let entry_offset = offset_of(entry)?;
        for warning in warnings {
            self.warn(warning);
        }
        notes.retain(|note| !self.notes.contains(note));
        self.notes.extend(notes);
        Ok(ResolvedMarker {
            object: found.file.open.clone(),
            object_shown: found.file.shown.clone(),
            symbol: found.symbol.clone(),
            at: found.at,
            is_function: found.is_function,
            entry_offset,
            sites,
            hazards: object.hazards(),
        })
    }
}

/// No kernel sets a probe on some instructions.
fn refuse_unprobeable(object: &Object, found: &Found, offset: u64) -> Result<()> {
    let address = object.address_of(offset).unwrap_or_default();
    let Probing::Refused(kind) = probing(object.code(address)) else {
        return Ok(());
    };
    let name = returns::instruction_at(object, address).map_or_else(String::new, |it| it.0);
    Err(Error::usage(format!(
        "`{}` cannot be marked at its instruction `{name}`, at offset 0x{offset:x} of {}: the kernel \
         sets no probe on {kind}",
        found.symbol, found.file.shown
    ))
    .next("mark a function that calls it, or one that it calls"))
}

/// Where a function is left, and what to probe there.
fn ends(object: &Object, body: &Range<u64>, its_use: Use) -> (Exits, Vec<Site>) {
    match its_use.reads {
        None | Some(Reads::Arguments) => returns::end_sites(object, body, its_use.is_tied),
        Some(Reads::Result) => returns::result_sites(object, body, its_use.is_tied),
        Some(Reads::Anything) => {
            // Registers are read as they are when the function has been left.
            let exits = returns::exits(object, body, its_use.is_tied);
            let itself = |(address, condition): &_| Site::itself(*address, *condition);
            let sites = exits.sites.iter().map(itself).collect();
            (exits, sites)
        }
    }
}

fn tail_callees(object: &Object, exits: &Exits) -> String {
    let targets = exits.tail_calls.iter();
    let mut callees: Vec<String> = targets
        .map(|target| symbols::name_at(object, *target))
        .collect();
    if exits.indirect_tail_call {
        callees.push("a function pointer".to_owned());
    }
    callees.join(", ")
}

fn no_result(object: &Object, exits: &Exits, symbol: &str) -> Error {
    Error::usage(format!(
        "`{symbol}` can end in a tail call (of {}), where it is not known yet what it returns",
        tail_callees(object, exits)
    ))
    .next(
        "add called-by with the function that calls it, which has the result, or name a function \
         that returns by itself",
    )
}

fn probe_site(offset_of: impl Fn(u64) -> Result<u64>, site: Site) -> Result<ProbeSite> {
    Ok(ProbeSite {
        condition: site.condition,
        slot: site.slot,
        distance: site.distance,
        ..ProbeSite::at(offset_of(site.address)?)
    })
}
