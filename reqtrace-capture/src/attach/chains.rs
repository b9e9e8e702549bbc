//! What is done at one place of one request type: the plans of all markers there in, one chain of plans
//! out, of which the kernel programs carry out the first whose conditions hold.

use reqtrace_common::label::{LabelPlan, label_kind};
use reqtrace_common::marker::{
    AttributePlan, Condition, MAX_MARKER_ALTERNATIVES, MAX_SITE_ATTRIBUTES, MarkerPlan,
    condition_kind, marker_flag, op,
};

use super::plans::{MarkerName, PlanTables};
use reqtrace_base::error::{Error, Result};
use reqtrace_profile::Role;

/// One plan of a marker, with what is read when it is carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// What it marks.
    pub(super) role: Role,
    /// Whose it is.
    pub(super) name: MarkerName,
    /// What is done. What refers to other plans is 0.
    pub(super) marker: MarkerPlan,
    /// Ways to read the label.
    pub(super) labels: Vec<LabelPlan>,
    /// Attributes that are read.
    pub(super) attributes: Vec<AttributePlan>,
}

impl Plan {
    /// Whether it is carried out whenever it is tried.
    pub(super) fn always_holds(&self) -> bool {
        holds_always(&self.marker.when)
    }
}

/// Whether no condition can fail.
pub(super) fn holds_always(when: &[Condition]) -> bool {
    when.iter()
        .all(|condition| condition.kind == condition_kind::NONE)
}

/// Whether an attribute is text, which is read with `--labels` only.
pub(super) fn is_text(plan: &AttributePlan) -> bool {
    plan.kind != label_kind::NUMBER
}

/// Puts the plans of all markers at one place of a request type with a key into the order in which they are
/// tried. `attributes` are read there whatever is done, for `reader`.
///
/// # Errors
///
/// Markers of which nothing tells which is meant, or too many.
pub(super) fn of_place(
    mut plans: Vec<Plan>,
    attributes: &[AttributePlan],
    reader: MarkerName,
) -> Result<Vec<Plan>> {
    plans.sort_by_key(|plan| rank(plan.role));
    plans.dedup_by(|plan, before| {
        Plan {
            name: before.name.clone(),
            ..plan.clone()
        } == *before
    });
    let mut plans = go_on(plans);
    // That puts begins behind all others.
    plans.sort_by_key(|plan| rank(plan.role));
    for (index, plan) in plans.iter().enumerate() {
        let mut before = plans[..index].iter();
        if let Some(other) = before.rfind(|other| other.marker.when == plan.marker.when) {
            return Err(ambiguous(other.role, plan.role));
        }
    }
    // Stable: in the order of their roles.
    plans.sort_by_key(Plan::always_holds);
    if !attributes.is_empty() && !plans.iter().any(Plan::always_holds) {
        plans.push(Plan {
            role: Role::Attribute,
            name: reader,
            marker: reads_only(),
            labels: Vec::new(),
            attributes: Vec::new(),
        });
    }
    for plan in &mut plans {
        add(&mut plan.attributes, attributes);
        if plan.attributes.len() > MAX_SITE_ATTRIBUTES {
            return Err(Error::usage(format!(
                "{} ways to read attributes, but at most {MAX_SITE_ATTRIBUTES} fit in one place",
                plan.attributes.len()
            ))
            .next("read some of them elsewhere; each text of a condition is a way"));
        }
    }
    if plans.len() > MAX_MARKER_ALTERNATIVES {
        return Err(Error::usage(format!(
            "{} markers, but at most {MAX_MARKER_ALTERNATIVES} fit in one place",
            plans.len()
        ))
        .next("each text of a condition is a marker; use fewer, or another function"));
    }
    Ok(plans)
}

/// The index of a chain in the tables.
///
/// # Errors
///
/// When a table is full.
pub(super) fn index_of(plans: &[Plan], tables: &mut PlanTables) -> Result<u16> {
    let mut chain = Vec::new();
    for plan in plans {
        let marker = MarkerPlan {
            attributes: tables.attributes(&plan.attributes)?,
            label: tables.label(&plan.labels)?.into(),
            ..plan.marker
        };
        chain.push((marker, plan.name.clone()));
    }
    tables.markers(&chain)
}

/// A plan that does nothing but read attributes.
pub(super) fn reads_only() -> MarkerPlan {
    MarkerPlan {
        op: op::NONE,
        flags: marker_flag::CURRENT,
        ..MarkerPlan::default()
    }
}

/// Adds ways to read attributes, each once.
pub(super) fn add(to: &mut Vec<AttributePlan>, more: &[AttributePlan]) {
    for one in more {
        if !to.contains(one) {
            to.push(*one);
        }
    }
}

/// Which of several markers at one place is tried first.
fn rank(role: Role) -> u8 {
    match role {
        Role::End | Role::Recover | Role::Done => 0,
        Role::Park | Role::Idle | Role::Note => 1,
        Role::Ready => 2,
        Role::Adopt => 3,
        Role::Resume => 4,
        Role::Begin => 5,
        // A unit that begins a request is no child.
        Role::Child => 6,
        Role::Attribute => 7,
    }
}

/// A begin and a resume of one key at one place: a request that waits goes on, any other begins. Where
/// both have conditions, and not the same, they stay apart.
fn go_on(plans: Vec<Plan>) -> Vec<Plan> {
    let (begins, mut others): (Vec<Plan>, Vec<Plan>) =
        plans.into_iter().partition(|plan| plan.role == Role::Begin);
    for begin in begins {
        let is_its_own = |plan: &Plan| {
            let current = |plan: &Plan| plan.marker.flags & marker_flag::CURRENT;
            plan.role == Role::Resume
                && plan.marker.key == begin.marker.key
                && current(plan) == current(&begin)
        };
        let either = |resume: &Plan, when| Plan {
            marker: MarkerPlan {
                when,
                flags: begin.marker.flags | marker_flag::OR_RESUME,
                place: resume.marker.place,
                ..begin.marker
            },
            ..begin.clone()
        };
        let own: Vec<Plan> = others
            .iter()
            .filter(|plan| is_its_own(plan))
            .cloned()
            .collect();
        let is_equal = |resume: &&Plan| resume.marker.when == begin.marker.when;
        if let Some(resume) = own.iter().find(is_equal) {
            others.retain(|plan| plan != resume);
            others.push(either(resume, begin.marker.when));
        } else if let Some(resume) = own.iter().find(|resume| resume.always_holds()) {
            // Elsewhere it is only a resume.
            others.push(either(resume, begin.marker.when));
        } else {
            if begin.always_holds() {
                // Elsewhere it is only a begin.
                others.retain(|plan| !own.contains(plan));
                others.extend(own.iter().map(|resume| either(resume, resume.marker.when)));
            }
            others.push(begin);
        }
    }
    others
}

fn ambiguous(first: Role, second: Role) -> Error {
    let (first, second) = (first.name(), second.name());
    Error::usage(format!(
        "`{first}` and `{second}` are at one place, and nothing tells which of them it is"
    ))
    .next("give one of them a `when`: of several whose conditions hold the order is end, park, ready, adopt, resume, begin")
}

#[cfg(test)]
mod tests;
