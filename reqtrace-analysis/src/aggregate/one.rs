//! One request: its record in; its names, its ledger and its longest blocks out, for who looks on while
//! requests end.

use reqtrace_base::plain::Plain;
use reqtrace_recording::{Incomplete, Request};

use super::Aggregator;
use super::places::Spots;
use super::sites::Sites;
use super::tail::slow_block;
use crate::fingerprint::statement;
use crate::label::{label_text, marked};
use crate::report::slow::SlowBlock;
use crate::report::{Grouping, Ledger, Places};

impl Aggregator {
    /// Name of its request type; empty when the profile has no such type.
    #[must_use]
    pub fn request_name(&self, request: &Request<'_>) -> &str {
        let state = self.types.get(request.request_type as usize);
        state.map_or("", |state| &state.name)
    }

    /// Its label as text, on one line; empty when none was recorded.
    #[must_use]
    pub fn label(&self, request: &Request<'_>) -> Plain {
        label_text(&marked(request.label))
    }

    /// What requests are added up by: its label without its numbers and strings, or the label or an attribute
    /// where the options say so. Empty when none was recorded.
    #[must_use]
    pub fn statement(&self, request: &Request<'_>) -> Plain {
        let group = self.attributes.group(request);
        let own = marked(request.label);
        let label = group.as_deref().unwrap_or(&own);
        statement(label, self.options.group_by.as_ref().map(Grouping::of_text))
    }

    /// Names of all wait classes, in the order of every ledger.
    #[must_use]
    pub fn classes(&self) -> Vec<String> {
        self.sites.borrow().classifier.names().to_vec()
    }

    /// Where requests are while no thread runs them, in the order of every ledger.
    #[must_use]
    pub fn places(&self) -> &Places {
        &self.spots.names
    }

    /// Where its time went.
    #[must_use]
    pub fn ledger(&self, request: &Request<'_>) -> Ledger {
        self.with_sites(|sites| {
            let mut ledger = self.ledger.clone();
            fill(&mut ledger, request, sites, &self.spots);
            ledger
        })
    }

    /// Its longest blocks with their stacks, the longest first.
    #[must_use]
    pub fn longest_blocks(&self, request: &Request<'_>) -> Vec<SlowBlock> {
        self.with_sites(|sites| {
            let blocks = request.longest.iter();
            blocks
                .map(|block| slow_block(request, block, sites, &self.trace))
                .collect()
        })
    }

    /// Who looks on changes no count of the report.
    pub(super) fn with_sites<T>(&self, look: impl FnOnce(&mut Sites) -> T) -> T {
        let sites = &mut *self.sites.borrow_mut();
        let unknown_before = sites.unknown_stacks;
        let seen = look(sites);
        sites.unknown_stacks = unknown_before;
        seen
    }
}

/// The ledger of a request: slots whose stack is not known are unattributed.
pub(super) fn fill(ledger: &mut Ledger, request: &Request<'_>, sites: &mut Sites, spots: &Spots) {
    ledger.clear_lists();
    ledger.latency_ns = request.latency_ns();
    if request.incomplete == Some(Incomplete::RunningAtStart) {
        // Nothing is known of it but that it ended.
        (ledger.on_cpu_ns, ledger.run_queue_ns, ledger.preempted_ns) = (0, 0, 0);
        ledger.unattributed_ns = ledger.latency_ns;
        return;
    }
    ledger.on_cpu_ns = request.on_cpu_ns();
    ledger.run_queue_ns = request.run_queue_ns;
    ledger.preempted_ns = request.preempted_ns;
    ledger.unattributed_ns = request.unattributed_ns;
    spots.fill(ledger, request);
    for slot in request.slots {
        match sites.class(Some(request.request_type), request.space, &slot.site) {
            Some(class) => ledger.classes[class] += slot.blocked_ns,
            None => ledger.unattributed_ns += slot.blocked_ns,
        }
    }
}
