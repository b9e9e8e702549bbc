//! Which probes to set: resolved requests in; one flat list of probes with their kernel programs and cookies, each once, out.

use std::collections::{BTreeMap, BTreeSet};

use reqtrace_common::cookie::{Cookie, Frame, Reentry};
use reqtrace_common::marker::AttributePlan;

use super::chains::{self, Plan};
use super::identity::Identity;
use super::plans::{MarkerName, PlanTables};
use super::probes::ProbePlan;
use reqtrace_base::error::{Error, Result};
use reqtrace_profile::{At, ReturnProbe, Role};
use reqtrace_resolve::{ProbeSite, ResolvedMarker, ResolvedProfile, ResolvedRequest};

/// A file, an offset in it, and the condition of a jump there.
type Place = (Identity, u64, Option<u8>);

/// All probes of a profile that was resolved for one or more processes. Processes that share
/// a file share its probes.
///
/// How labels and attributes are read, and what markers do under conditions and with keys, is added to the tables.
///
/// # Errors
///
/// When there are more ways to read, or to do something, than the tables hold; when two markers of a
/// request type are at one place, and nothing tells which of them is meant.
pub fn plan_probes(
    profiles: &[ResolvedProfile],
    tables: &mut PlanTables,
) -> Result<Vec<ProbePlan>> {
    let mut seen = BTreeSet::new();
    let mut plans = Vec::new();
    for profile in profiles {
        for (number, request) in profile.numbered() {
            let mut planner = Planner {
                number,
                request,
                tables: &mut *tables,
            };
            let of_request = planner.plan();
            let within = |error: Error| error.within(format!("request `{}`", request.name));
            for mut plan in of_request.map_err(within)? {
                plan.service = profile.service;
                let file = Identity::of(&plan.object);
                if seen.insert((file, plan.file_offset, plan.program, plan.cookie)) {
                    plans.push(plan);
                }
            }
        }
    }
    Ok(plans)
}

/// Plans the probes of one request type.
struct Planner<'a> {
    /// The number of the request type in the trace.
    number: usize,
    request: &'a ResolvedRequest,
    tables: &'a mut PlanTables,
}

/// What markers have at one place.
struct Shared<'a> {
    site: &'a ProbeSite,
    marker: &'a ResolvedMarker,
    plans: Vec<Plan>,
    /// Read there whatever is done.
    attributes: Vec<AttributePlan>,
}

impl<'a> Planner<'a> {
    /// Ends first: a begin must never be seen without its end.
    fn plan(&mut self) -> Result<Vec<ProbePlan>> {
        if self.request.is_keyed {
            return self.keyed();
        }
        let request = self.request;
        let attributes = self.shared(|role| role == Role::Attribute);
        let mut plans = self.bound(Role::End, &request.end, &attributes)?;
        plans.extend(self.readers(&attributes)?);
        plans.extend(self.bound(Role::Begin, &request.begin, &attributes)?);
        Ok(plans)
    }

    /// All markers of requests with a key: one probe for each place.
    fn keyed(&mut self) -> Result<Vec<ProbePlan>> {
        let mut places: Vec<Shared<'_>> = self.shared(|_| true).into_values().collect();
        let has = |shared: &Shared<'_>, role| shared.plans.iter().any(|plan| plan.role == role);
        places.sort_by_key(|shared| (has(shared, Role::Begin), !has(shared, Role::End)));
        let mut plans = Vec::new();
        for shared in places {
            let reader = self.name(Role::Attribute, shared.marker);
            let chain = chains::of_place(shared.plans, &shared.attributes, reader)?;
            if chain.is_empty() {
                continue;
            }
            let index = self.index_of(&chain)?;
            plans.push(self.probe(shared.marker, shared.site, "marker", index));
        }
        Ok(plans)
    }

    /// What markers of some roles have, by place.
    fn shared(&self, is_wanted: impl Fn(Role) -> bool) -> BTreeMap<Place, Shared<'a>> {
        let mut places: BTreeMap<Place, Shared<'a>> = BTreeMap::new();
        let request = self.request;
        for (role, marker) in request.markers().filter(|(role, _)| is_wanted(*role)) {
            let file = Identity::of(&marker.object);
            for site in &marker.sites {
                let place = (file.clone(), site.file_offset, site.condition);
                let shared = places.entry(place).or_insert_with(|| Shared {
                    site,
                    marker,
                    plans: Vec::new(),
                    attributes: Vec::new(),
                });
                let attributes = self.wanted(&site.attributes);
                if role == Role::Attribute {
                    chains::add(&mut shared.attributes, &attributes);
                } else {
                    let name = self.name(role, marker);
                    shared.plans.extend(plans(role, &name, site, &attributes));
                }
            }
        }
        places.retain(|_, shared| !(shared.plans.is_empty() && shared.attributes.is_empty()));
        places
    }

    /// Begin or end of requests without a key. One that has neither conditions nor attributes needs no plan.
    fn bound(
        &mut self,
        role: Role,
        marker: &ResolvedMarker,
        elsewhere: &BTreeMap<Place, Shared<'_>>,
    ) -> Result<Vec<ProbePlan>> {
        let file = Identity::of(&marker.object);
        let mut probes = Vec::new();
        for site in &marker.sites {
            let mut attributes = self.wanted(&site.attributes);
            let place = (file.clone(), site.file_offset, site.condition);
            if let Some(shared) = elsewhere.get(&place) {
                chains::add(&mut attributes, &shared.attributes);
            }
            let name = self.name(role, marker);
            let of_site = plans(role, &name, site, &attributes);
            let is_plain = attributes.is_empty() && of_site.iter().all(Plan::always_holds);
            if is_plain {
                self.tables.plain(name.clone());
            }
            let index = match is_plain {
                true => self.tables.label(&site.labels)?,
                false => self.index_of(&chains::of_place(of_site, &[], name)?)?,
            };
            let program = self.program(role, marker, is_plain);
            probes.push(self.probe(marker, site, program, index));
        }
        Ok(probes)
    }

    /// Probes that only read attributes. A begin or an end at the same place reads them too, but not if it is
    /// not done, and not in calls inside of a request, which may have a later value.
    fn readers(&mut self, places: &BTreeMap<Place, Shared<'_>>) -> Result<Vec<ProbePlan>> {
        let request = self.request;
        let mut probes = Vec::new();
        for ((file, offset, _), shared) in places {
            let is_bound = [&request.begin, &request.end].into_iter().any(|marker| {
                let mut sites = marker.sites.iter();
                let always = |site: &ProbeSite| {
                    let mut marks = site.marks.iter();
                    marks.all(|plan| chains::holds_always(&plan.when))
                };
                Identity::of(&marker.object) == *file
                    && sites.any(|site| site.file_offset == *offset && always(site))
            });
            let may_change = shared.attributes.iter().any(|plan| plan.keep_last != 0);
            if is_bound && !may_change {
                continue;
            }
            let reader = self.name(Role::Attribute, shared.marker);
            let chain = chains::of_place(Vec::new(), &shared.attributes, reader)?;
            let index = self.index_of(&chain)?;
            probes.push(self.probe(shared.marker, shared.site, "marker", index));
        }
        Ok(probes)
    }

    /// Those that are read: texts only if they are wanted.
    fn wanted(&self, attributes: &[AttributePlan]) -> Vec<AttributePlan> {
        let all = attributes.iter().copied();
        all.filter(|plan| self.tables.reads_texts() || !chains::is_text(plan))
            .collect()
    }

    fn name(&self, role: Role, marker: &ResolvedMarker) -> MarkerName {
        MarkerName::of(self.number, role, marker)
    }

    fn index_of(&mut self, chain: &[Plan]) -> Result<u16> {
        chains::index_of(chain, self.tables)
    }

    fn program(&self, role: Role, marker: &ResolvedMarker, is_plain: bool) -> &'static str {
        let by_uretprobe =
            marker.at == At::Return && self.request.return_probe == ReturnProbe::Uretprobe;
        match (role == Role::Begin, by_uretprobe, is_plain) {
            (true, false, true) => "request_begin",
            (false, false, true) => "request_end",
            (true, true, true) => "request_begin_ret",
            (false, true, true) => "request_end_ret",
            (true, false, false) => "marked_begin",
            (false, false, false) => "marked_end",
            (true, true, false) => "marked_begin_ret",
            (false, true, false) => "marked_end_ret",
        }
    }

    fn probe(
        &self,
        marker: &ResolvedMarker,
        site: &ProbeSite,
        program: &'static str,
        index: u16,
    ) -> ProbePlan {
        let request = self.request;
        let is_bound = program != "marker";
        let popped = request.return_probe == ReturnProbe::Uretprobe;
        let frame = match (request.same_frame && is_bound, popped) {
            (false, _) => Frame::Unrelated,
            (true, false) => Frame::Same,
            (true, true) => Frame::Popped,
        };
        let cookie = Cookie {
            request_type: self.number as u8,
            reentry: if is_bound {
                request.reentry
            } else {
                Reentry::default()
            },
            frame,
            condition: site.condition,
            slot: site.slot,
            label: index,
            in_request: !is_bound && self.tables.are_of_requests(index),
        };
        ProbePlan {
            object: marker.object.clone(),
            file_offset: site.file_offset,
            semaphore: site.semaphore,
            instruction: site.instruction,
            program,
            cookie: cookie.encode(),
            shown: format!("`{}` (request `{}`)", marker.symbol, request.name),
            service: 0,
        }
    }
}

/// What a marker does at a site, in one way or another.
fn plans(
    role: Role,
    name: &MarkerName,
    site: &ProbeSite,
    attributes: &[AttributePlan],
) -> Vec<Plan> {
    let marks = site.marks.iter().map(|marker| Plan {
        role,
        name: name.clone(),
        marker: *marker,
        labels: match role {
            Role::Begin => site.labels.clone(),
            _ => Vec::new(),
        },
        attributes: attributes.to_vec(),
    });
    marks.collect()
}

#[cfg(test)]
mod tests;
