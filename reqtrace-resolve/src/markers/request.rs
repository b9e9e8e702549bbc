//! All markers of a request type: its specification in, probes with what is done and read at each out.

use super::Resolver;
use super::found::{Found, Use};
use crate::conditions::{self, Verdict};
use crate::opened::Opened;
use crate::readings::{Arguments, Place, reads};
use crate::returns::Reads;
use crate::{ProbeSite, ResolvedMarker, ResolvedRequest, Unread, labels, plans, symbols};
use reqtrace_base::error::{Error, Result};
use reqtrace_common::marker::ParkPlan;
use reqtrace_profile::{
    At, AttributeAt, AttributeSpec, LabelKind, LabelSpec, MarkerSpec, RequestSpec, ReturnProbe,
    Role,
};

/// The places of a request type. Markers at one place share its probes, which suit all of them.
#[derive(Default)]
struct Places {
    all: Vec<(Found, Use)>,
}

impl Places {
    /// The index of a place, which is added if it is not there.
    fn add(&mut self, found: Found, its_use: Use) -> usize {
        let is_same = |(known, known_use): &(Found, Use)| {
            let by_same = known.at == At::Entry || known_use.return_probe == its_use.return_probe;
            *known == found && by_same
        };
        if let Some(index) = self.all.iter().position(is_same) {
            let known = &mut self.all[index].1;
            known.reads = known.reads.max(its_use.reads);
            known.is_tied |= its_use.is_tied;
            return index;
        }
        self.all.push((found, its_use));
        self.all.len() - 1
    }
}

/// A marker, and which place it is at.
struct Step<'a> {
    role: Role,
    spec: Option<&'a MarkerSpec>,
    place: usize,
    /// What is read of a goroutine that goes on behind a panic.
    recovered: Option<ParkPlan>,
}

/// A way to read an attribute, and at which place.
struct Way<'a> {
    spec: &'a AttributeSpec,
    /// Which of all ways.
    way: usize,
    /// Which attribute of the request type.
    index: usize,
    place: usize,
    reads: Option<Reads>,
}

impl Resolver<'_> {
    pub(super) fn request(&mut self, request: &RequestSpec) -> Result<ResolvedRequest> {
        let named = |marker: &'static str| {
            let name = request.name.clone();
            move |error: Error| error.within(format!("request `{name}`, {marker}"))
        };
        let begin_found = self.find(&request.begin).map_err(named("begin"))?;
        let end_found = match &request.end {
            Some(end) => self.find(end).map_err(named("end"))?,
            None => self.return_of(&begin_found).map_err(named("end"))?,
        };
        let same_frame = !request.is_keyed
            && begin_found.at == At::Entry
            && end_found.at == At::Return
            && begin_found.file == end_found.file
            && begin_found.bodies == end_found.bodies;
        let mut places = Places::default();
        let begin = Step {
            role: Role::Begin,
            spec: Some(&request.begin),
            place: places.add(
                begin_found,
                Use {
                    return_probe: request.return_probe,
                    is_tied: false,
                    reads: at_begin(request),
                },
            ),
            recovered: None,
        };
        let end = Step {
            role: Role::End,
            spec: request.end.as_ref(),
            place: places.add(
                end_found,
                Use {
                    return_probe: request.return_probe,
                    is_tied: same_frame,
                    reads: at_end(request),
                },
            ),
            recovered: None,
        };
        let mut more = Vec::new();
        for spec in request.more_markers() {
            if spec.role == Role::Attribute {
                continue;
            }
            let found = self.find(spec).map_err(named(spec.role.name()))?;
            let recovered = match spec.role {
                Role::Recover => self.recovered(&found, &places.all[begin.place].0)?,
                _ => None,
            };
            if spec.role == Role::Recover && recovered.is_none() {
                continue;
            }
            // A program without coroutines never switches to one.
            if found.is_fixed && found.instructions.is_empty() {
                continue;
            }
            let place = places.add(found, use_of(reads(plans::values_of_marker(spec))));
            more.push(Step {
                role: spec.role,
                spec: Some(spec),
                place,
                recovered,
            });
        }
        let mut unread = Vec::new();
        let mut ways =
            self.attributes(request, (begin.place, end.place), &mut places, &mut unread)?;

        // `None`: only an attribute wanted it, and the program does not have it.
        let mut markers: Vec<Option<ResolvedMarker>> = Vec::new();
        for (index, (found, of_markers)) in places.all.iter().enumerate() {
            let with = |ways: &[Way<'_>]| {
                let of_place = ways.iter().filter(|way| way.place == index);
                let reads = of_place.map(|way| way.reads).max().flatten();
                Use {
                    reads: of_markers.reads.max(reads),
                    ..*of_markers
                }
            };
            let mut steps = [&begin, &end].into_iter().chain(&more);
            let step = steps.find(|step| step.place == index);
            let marker = match (self.marker(found, with(&ways)), step) {
                (Ok(marker), _) => Some(marker),
                (Err(error), None) => {
                    let of_place = ways.iter().filter(|way| way.place == index);
                    unread.extend(all_missing(of_place, error)?);
                    None
                }
                (Err(error), Some(step)) => {
                    // It may be a marker without the attributes that read what its function returns.
                    let is_lost =
                        |way: &Way<'_>| way.place == index && way.reads == Some(Reads::Result);
                    let (lost, kept): (Vec<_>, Vec<_>) = ways.into_iter().partition(is_lost);
                    ways = kept;
                    let marker = self.marker(found, with(&ways));
                    let marker = marker.map_err(named(step.role.name()))?;
                    unread.extend(all_missing(lost.iter(), error)?);
                    Some(marker)
                }
            };
            markers.push(marker);
        }
        let resolved = |resolver: &mut Self, step: &Step<'_>| -> Result<ResolvedMarker> {
            let (found, its_use) = &places.all[step.place];
            let missing = || Error::failed("a marker has no place");
            let mut marker = markers[step.place].clone().ok_or_else(missing)?;
            let object = resolver.open(&found.file)?;
            for site in &mut marker.sites {
                let place = place(found, its_use, site, &object);
                site.marks = plans::of_marker(step.role, step.spec, &place)
                    .map_err(named(step.role.name()))?;
                if let Some(recovered) = step.recovered {
                    site.marks.iter_mut().for_each(|mark| mark.park = recovered);
                }
            }
            Ok(marker)
        };
        let mut begin_marker = resolved(self, &begin)?;
        let mut end_marker = resolved(self, &end)?;
        let mut more_markers = Vec::new();
        for step in &more {
            more_markers.push((step.role, resolved(self, step)?));
        }
        for way in &ways {
            let (found, its_use) = &places.all[way.place];
            let object = self.open(&found.file)?;
            let Some(mut own) = markers[way.place].clone() else {
                continue;
            };
            let sites = match &way.spec.read {
                AttributeAt::Begin => &mut begin_marker.sites,
                AttributeAt::End => &mut end_marker.sites,
                AttributeAt::Marker(_) => &mut own.sites,
            };
            let read = |site: &ProbeSite| {
                plans::of_attribute(way.spec, way.index, &place(found, its_use, site, &object))
            };
            match sites.iter().map(read).collect::<Result<Vec<_>>>() {
                Ok(all) => {
                    for (site, plans) in sites.iter_mut().zip(all) {
                        site.attributes.extend(plans);
                    }
                    if matches!(way.spec.read, AttributeAt::Marker(_)) {
                        more_markers.push((Role::Attribute, own));
                    }
                }
                Err(error) => unread.push(missing(way.spec, way.way, error)?),
            }
        }
        note_other_ways(request, &mut unread);
        let (found, its_use) = &places.all[begin.place];
        let unlabelled = self
            .label(request, (found, its_use), &mut begin_marker)
            .map_err(named("label"))?;
        Ok(ResolvedRequest {
            unlabelled,
            name: request.name.clone(),
            begin: begin_marker,
            end: end_marker,
            same_frame,
            reentry: request.reentry,
            return_probe: request.return_probe,
            is_keyed: request.is_keyed,
            more: more_markers,
            unread,
        })
    }

    /// The places of all ways to read attributes; those that the program does not have are put aside.
    fn attributes<'a>(
        &mut self,
        request: &'a RequestSpec,
        (begin, end): (usize, usize),
        places: &mut Places,
        unread: &mut Vec<Unread>,
    ) -> Result<Vec<Way<'a>>> {
        let names = request.attribute_names();
        let mut ways = Vec::new();
        for (way, spec) in request.attributes.iter().enumerate() {
            let judged = conditions::judge(&spec.only_if, self.target)?;
            if judged.verdict != Verdict::Holds {
                unread.push(missing(spec, way, Error::usage(judged.why))?);
                continue;
            }
            if spec.kind == LabelKind::Unit
                && let Err(error) = self.units_are_readable()
            {
                unread.push(missing(spec, way, error)?);
                continue;
            }
            let place = match &spec.read {
                AttributeAt::Begin => begin,
                AttributeAt::End => end,
                AttributeAt::Marker(marker) => match self.find(marker) {
                    Ok(found) => places.add(found, use_of(None)),
                    Err(error) => {
                        unread.push(missing(spec, way, error)?);
                        continue;
                    }
                },
            };
            let index = names.iter().position(|name| *name == spec.name);
            ways.push(Way {
                spec,
                way,
                index: index.unwrap_or_default(),
                place,
                reads: reads(plans::values_of_attribute(spec)),
            });
        }
        Ok(ways)
    }

    /// Gives the sites of a begin their labels; returns why there are none.
    fn label(
        &mut self,
        request: &RequestSpec,
        (found, its_use): (&Found, &Use),
        begin: &mut ResolvedMarker,
    ) -> Result<Option<String>> {
        let object = self.open(&found.file)?;
        let mut specs: Vec<&LabelSpec> = Vec::new();
        for label in &request.labels {
            let fits = match &label.function {
                None => true,
                Some(pattern) if request.begin.is_all => symbols::find_all(&object, pattern)?
                    .is_some_and(|function| function.bodies == found.bodies),
                Some(pattern) => symbols::find(&object, pattern)?
                    .is_some_and(|function| function.bodies == found.bodies),
            };
            if fits {
                specs.push(label);
            }
        }
        if specs.is_empty() {
            let missing = !request.labels.is_empty();
            return Ok(missing.then(|| {
                format!(
                    "request `{}`: no label of the profile is for `{}`",
                    request.name, found.symbol
                )
            }));
        }
        for site in &mut begin.sites {
            site.labels = labels::plans(&specs, &place(found, its_use, site, &object))?;
        }
        Ok(None)
    }
}

/// A site, as a place where values are read.
fn place<'a>(found: &'a Found, its_use: &Use, site: &ProbeSite, object: &'a Opened) -> Place<'a> {
    let mut of_usdt = found.usdt.iter();
    let usdt = of_usdt.rfind(|place| place.file_offset == site.file_offset);
    let is_behind = found.at == At::Return && its_use.return_probe == ReturnProbe::Uretprobe;
    Place {
        symbol: &found.symbol,
        arguments: match usdt {
            Some(usdt) => Arguments::Usdt(usdt),
            None if found.is_function && object.is_go() => Arguments::Go,
            None if found.is_function => Arguments::Function,
            None => Arguments::None,
        },
        unit: site.unit,
        object,
        address: (!is_behind)
            .then(|| object.address_of(site.file_offset))
            .flatten(),
    }
}

/// Of what is not a begin or an end.
fn use_of(reads: Option<Reads>) -> Use {
    Use {
        return_probe: ReturnProbe::Sites,
        is_tied: false,
        reads,
    }
}

/// What is read where a request begins, but for attributes.
fn at_begin(request: &RequestSpec) -> Option<Reads> {
    reads(labels::values(&request.labels).chain(plans::values_of_marker(&request.begin)))
}

/// What is read where it ends, but for attributes.
fn at_end(request: &RequestSpec) -> Option<Reads> {
    reads(request.end.iter().flat_map(plans::values_of_marker))
}

/// Tells attributes that are read in another way from those that are not read at all.
fn note_other_ways(request: &RequestSpec, unread: &mut [Unread]) {
    let missing: Vec<String> = unread.iter().map(|one| one.attribute.clone()).collect();
    for one in unread {
        let given = request.attributes.iter();
        let given = given.filter(|spec| spec.name == one.attribute).count();
        let missing = missing.iter().filter(|name| **name == one.attribute);
        one.is_read = missing.count() < given;
    }
}

/// Ways of one place that the program does not have.
fn all_missing<'a>(
    mut ways: impl Iterator<Item = &'a Way<'a>>,
    error: Error,
) -> Result<Vec<Unread>> {
    let Some(first) = ways.next() else {
        return Err(error);
    };
    let first = missing(first.spec, first.way, error)?;
    let others = ways.map(|way| Unread {
        attribute: way.spec.name.clone(),
        way: way.way,
        is_text: way.spec.is_text(),
        ..first.clone()
    });
    let mut all: Vec<Unread> = others.collect();
    all.push(first);
    Ok(all)
}

/// A way that the program does not have is no error: there may be others, made for other versions.
fn missing(spec: &AttributeSpec, way: usize, error: Error) -> Result<Unread> {
    if error.kind() != reqtrace_base::error::Kind::Usage {
        return Err(error);
    }
    Ok(Unread {
        attribute: spec.name.clone(),
        way,
        is_text: spec.is_text(),
        is_read: false,
        why: match error.advice() {
            Some(advice) => format!("{error} ({advice})"),
            None => error.to_string(),
        },
    })
}

#[cfg(test)]
mod tests;
