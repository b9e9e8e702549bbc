//! Classify: a block's stacks, system call and file in, its wait class out.
//!
//! Blocks in probes come first; then a profile's named waits, in file order; then the built-in table decides from the
//! kernel's functions; where the kernel hides their names, the system call decides.

pub mod class;
pub mod columns;
pub mod named;
pub mod syscalls;
pub mod table;

use reqtrace_recording::BlockSite;

use crate::error::Result;
use crate::profile::Profiles;
use crate::symbolize::Frame;
use class::WaitClass;
use named::NamedWait;

/// What is known of a block, names included.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    /// Kernel frames, innermost first; empty when none were recorded.
    pub kernel: &'a [Frame],
    /// User frames, innermost first.
    pub user: &'a [Frame],
    /// The file behind the descriptor of the system call, where it is known.
    pub file: Option<&'a str>,
    /// System call, −1 outside any.
    pub syscall: i32,
}

/// Decides wait classes.
#[derive(Debug)]
pub struct Classifier {
    services: Vec<Vec<(usize, NamedWait)>>,
    /// The service of each request type.
    service_of: Vec<usize>,
    names: Vec<String>,
    named: usize,
}

impl Classifier {
    /// Makes the matchers of the profiles' named waits, which hold for the request types of their own
    /// profile.
    ///
    /// Waits of one name share a column.
    ///
    /// # Errors
    ///
    /// [`crate::error::Kind::Usage`] for a malformed glob, an unknown system call, or two names
    /// that would be one column of the CSV.
    pub fn new(profiles: &Profiles) -> Result<Self> {
        let specs = || profiles.all().iter().flat_map(|profile| &profile.waits);
        let is_built_in = |name: &str| WaitClass::ALL.iter().any(|class| class.name() == name);
        let mut names: Vec<String> = Vec::new();
        for spec in specs() {
            if !is_built_in(&spec.name) && !names.contains(&spec.name) {
                names.push(spec.name.clone());
            }
        }
        let named = names.len();
        names.extend(WaitClass::ALL.iter().map(|class| class.name().to_owned()));
        columns::check(&names, profiles)?;
        let mut services = Vec::new();
        let mut service_of = Vec::new();
        for (service, profile) in profiles.all().iter().enumerate() {
            let waits = profile.waits.iter().map(|spec| {
                let index = names.iter().position(|name| *name == spec.name);
                Ok((index.unwrap_or_default(), NamedWait::new(spec)?))
            });
            services.push(waits.collect::<Result<_>>()?);
            service_of.extend(profile.requests.iter().map(|_| service));
        }
        Ok(Self {
            services,
            service_of,
            names,
            named,
        })
    }

    /// Names of all classes: the profiles' in file order, then the built-in ones.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// How many of [`Classifier::names`] are the profiles'.
    #[must_use]
    pub fn named(&self) -> usize {
        self.named
    }

    /// Whether a named wait asks for user functions, so that user frames are needed.
    #[must_use]
    pub fn needs_user(&self) -> bool {
        let mut waits = self.services.iter().flatten();
        waits.any(|(_, wait)| wait.needs_user())
    }

    /// The service of a request type: an index into the profiles.
    #[must_use]
    pub fn service(&self, request_type: u32) -> Option<usize> {
        self.service_of.get(request_type as usize).copied()
    }

    /// The class of a block of a service: an index into [`Classifier::names`]. No named wait is of no
    /// service.
    #[must_use]
    pub fn class(&self, service: Option<usize>, block: &Block<'_>) -> usize {
        let waits = service.and_then(|service| self.services.get(service));
        let mut waits = waits.into_iter().flatten();
        let named = match table::is_imposed(block.kernel) {
            true => None,
            false => waits.find(|(_, wait)| wait.matches(block)),
        };
        named.map_or_else(
            || self.named + table::class(block) as usize,
            |(index, _)| *index,
        )
    }
}

/// Whether the place of a block was lost: then its time is unattributed.
#[must_use]
pub fn is_lost(site: &BlockSite) -> bool {
    site.kernel_stack == reqtrace_common::record::STACK_LOST
}

#[cfg(test)]
pub(crate) use tests::of_waits;

#[cfg(test)]
mod tests;
