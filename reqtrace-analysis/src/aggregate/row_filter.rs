//! Which rows of a file a comparison is about: the same options as for a recording in, a decision for each row out.

use globset::GlobMatcher;

use super::filter::{FilterOptions, glob};
use crate::error::{Error, Result};

/// Decides for each row.
#[derive(Clone, Debug)]
pub struct RowFilter {
    types: Vec<String>,
    label: Option<GlobMatcher>,
    /// Attributes by their numbers.
    attributes: Vec<(usize, GlobMatcher)>,
    from_ns: i64,
    to_ns: i64,
    ranges: Vec<(u64, u64)>,
}

impl RowFilter {
    /// `attributes` are the names of those that rows have. Processes and threads are not looked at.
    ///
    /// # Errors
    ///
    /// Usage errors: a malformed glob, an attribute that rows do not have, labels where there are none.
    pub fn new(options: &FilterOptions, attributes: &[String], has_labels: bool) -> Result<Self> {
        if options.label.is_some() && !has_labels {
            return Err(
                Error::usage("label=: the rows have no labels, so none can be compared")
                    .next("trace with --labels"),
            );
        }
        let of_label = |pattern| glob("label", pattern, "label='SELECT *'");
        let asked = options.attributes.iter().map(|(name, pattern)| {
            let number = attributes.iter().position(|known| known == name);
            let number = number.ok_or_else(|| {
                let known = match attributes {
                    [] => "they have none".to_owned(),
                    names => format!("they have {}", names.join(", ")),
                };
                Error::usage(format!("{name}=: the rows have no attribute of that name"))
                    .next(known)
            })?;
            Ok((number, glob(name, pattern, "path='/user/*'")?))
        });
        let since = |ns: u64| i64::try_from(ns).unwrap_or(i64::MAX);
        Ok(Self {
            types: options.requests.clone(),
            label: options.label.as_deref().map(of_label).transpose()?,
            attributes: asked.collect::<Result<_>>()?,
            from_ns: options.from_ns.map_or(i64::MIN, since),
            to_ns: options.to_ns.map_or(i64::MAX, since),
            ranges: options.ranges.clone(),
        })
    }

    /// Numbers of the attributes that it looks at.
    pub fn attributes(&self) -> impl Iterator<Item = usize> {
        self.attributes.iter().map(|(number, _)| *number)
    }

    /// Whether it looks at labels.
    #[must_use]
    pub fn wants_labels(&self) -> bool {
        self.label.is_some()
    }

    /// Whether rows of this request type are kept.
    #[must_use]
    pub fn is_type(&self, request: &str) -> bool {
        self.types.is_empty() || self.types.iter().any(|wanted| wanted == request)
    }

    /// Whether a row is kept: its type, its begin since the start of the trace in ns, label and attributes.
    #[must_use]
    pub fn keeps(
        &self,
        request: &str,
        since_start_ns: i64,
        label: &str,
        attributes: &[&str],
    ) -> bool {
        let text = |number: usize| attributes.get(number).copied().unwrap_or_default();
        self.is_type(request)
            && (self.from_ns..self.to_ns).contains(&since_start_ns)
            && self.is_in_range(since_start_ns)
            && self.label.as_ref().is_none_or(|glob| glob.is_match(label))
            && self
                .attributes
                .iter()
                .all(|(number, glob)| glob.is_match(text(*number)))
    }

    fn is_in_range(&self, at_ns: i64) -> bool {
        let in_range = |at_ns: u64| {
            self.ranges
                .iter()
                .any(|(from, to)| (*from..*to).contains(&at_ns))
        };
        self.ranges.is_empty() || u64::try_from(at_ns).is_ok_and(in_range)
    }
}
