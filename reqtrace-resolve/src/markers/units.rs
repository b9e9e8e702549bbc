//! Units of the program's runtime: edges and request types in; where the edges are, and what the units are called, out.

use reqtrace_base::error::Result;
use reqtrace_profile::{At, Change, Edge, LabelKind, RequestSpec};

use super::Resolver;
use super::found::Found;
use crate::opened::ObjectFile;
use crate::resolved::{ProbeSite, UnitNames};
use crate::{goroutines, runtime};

impl Resolver<'_> {
    /// What the units of the program are called, if an attribute of these requests says so.
    pub(super) fn unit_names(&mut self, requests: &[RequestSpec]) -> Result<Option<UnitNames>> {
        let mut attributes = requests.iter().flat_map(|request| &request.attributes);
        if !attributes.any(|attribute| attribute.kind == LabelKind::Unit) {
            return Ok(None);
        }
        let file = self.target.object(None)?.clone();
        let object = self.open(&file)?;
        let is_go = object.is_go();
        let names = match is_go {
            true => goroutines::called(&object),
            false => runtime::types(&object, object.shapes()),
        };
        let names = names
            .into_iter()
            .filter_map(|(address, name)| Some((object.file_offset(address)?, name)));
        let key = file.open.key().ok();
        Ok(key.map(|key| UnitNames {
            file: key,
            by_offset: names.collect(),
            others_are_symbols: is_go,
        }))
    }

    /// Whether what a unit is can be read where it is spawned. Of a task it is there wherever tasks are.
    ///
    /// # Errors
    ///
    /// When a goroutine has its function elsewhere.
    pub(super) fn units_are_readable(&mut self) -> Result<()> {
        let file = self.target.object(None)?.clone();
        let object = self.open(&file)?;
        match object.is_go() {
            true => goroutines::goes_on(&object),
            false => Ok(()),
        }
    }

    /// Whether no unit of the runtime would be two requests.
    pub(super) fn one_request_a_unit(&mut self, requests: &[RequestSpec]) -> Result<()> {
        let units = requests
            .iter()
            .filter_map(|one| Some((one.name.as_str(), one.unit()?)));
        let units: Vec<(&str, &str)> = units.collect();
        if units.len() < 2 {
            return Ok(());
        }
        let file = self.target.object(None)?.clone();
        let object = self.open(&file)?;
        if object.is_go() {
            return goroutines::told_apart(&object, &units);
        }
        runtime::told_apart(&object, object.shapes(), &units)
    }

    /// Where units come to an edge.
    pub(super) fn edge(&mut self, file: ObjectFile, edge: Edge) -> Result<Found> {
        if let Edge::Goroutine(change) = edge {
            return self.goroutines(file, change);
        }
        let object = self.open(&file)?;
        let code = runtime::edge(&object, object.shapes(), edge)?;
        if edge == Edge::Queue {
            let older = runtime::older(&object, object.shapes());
            older.into_iter().for_each(|why| self.warn(why));
        }
        if edge == Edge::Waker {
            let unknown = runtime::without_reasons(&object, object.shapes(), &code);
            unknown.into_iter().for_each(|why| self.warn(why));
        }
        let mut instructions = Vec::new();
        for (site, unit) in code.sites(&object) {
            let offset = object.file_offset(site.address);
            instructions.extend(offset.map(|offset| ProbeSite {
                distance: site.distance,
                condition: site.condition,
                unit,
                ..ProbeSite::at(offset)
            }));
        }
        Ok(Found {
            file,
            symbol: edge.words().to_owned(),
            at: At::Entry,
            is_function: true,
            usdt: Vec::new(),
            // Only the edge of waiting may be nowhere.
            is_fixed: instructions.is_empty(),
            is_movable: false,
            bodies: code.ranges(),
            instructions,
        })
    }

    /// The calls by which the runtime of Go changes the state of goroutines in one way.
    fn goroutines(&mut self, file: ObjectFile, change: Change) -> Result<Found> {
        let object = self.open(&file)?;
        let calls = goroutines::edge(&object, change)?;
        if change == Change::Park {
            for sentence in goroutines::park(&object).1 {
                self.warn(sentence);
            }
        }
        let site = |call: &u64| object.file_offset(*call).map(ProbeSite::at);
        Ok(Found {
            symbol: Edge::Goroutine(change).words().to_owned(),
            bodies: calls.iter().map(|call| *call..call + 1).collect(),
            at: At::Entry,
            is_function: false,
            usdt: Vec::new(),
            is_fixed: true,
            is_movable: false,
            instructions: calls.iter().filter_map(site).collect(),
            file,
        })
    }
}
