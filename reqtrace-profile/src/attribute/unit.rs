//! Attributes that say what the unit of a runtime is that a request is: keys of `type = "unit"` in, an [`AttributeSpec`]
//! that is read where the unit is spawned, out.

use std::ops::Range;

use reqtrace_base::error::Result;
use toml::Spanned;

use super::{AttributeAt, AttributeSpec, Checker, USUAL_TEXT};
use crate::label::LabelKind;
use crate::program::{self, OnlyIf};
use crate::schema::attribute as schema;
use crate::value::ValueSpec;

/// Where what a unit is can be read.
#[derive(Clone, Debug)]
pub(crate) enum OfUnit {
    /// In this, where it is spawned: the request is the unit.
    Spawned(ValueSpec),
    /// Nowhere, since the request begins within a unit.
    Begun,
    /// The request has no unit.
    None,
}

impl Checker<'_> {
    pub(super) fn of_unit(
        &self,
        name: String,
        given: schema::Attribute,
        span: Range<usize>,
    ) -> Result<AttributeSpec> {
        let of_kind = given.text.kind.as_ref().map_or(span, Spanned::span);
        let value = match &self.unit {
            OfUnit::Spawned(value) => value.clone(),
            OfUnit::Begun => {
                return Err(self
                    .source
                    .error(
                        of_kind,
                        "a request with key = \"unit\" begins within its task or goroutine, and what that is can only be read where \
                         it is spawned",
                    )
                    .next(
                        "leave the attribute out, or make the task or goroutine the request: unit = \"*\" instead of `key`, \
                         `begin` and `end`",
                    ));
            }
            OfUnit::None => {
                return Err(self
                    .source
                    .error(
                        of_kind,
                        "type = \"unit\" is the type of a task, or the function of a goroutine, and this request is neither",
                    )
                    .next(
                        "add [runtime] with kind = \"tokio\" or \"go\", and unit = \"*\" to the request instead of `begin` and \
                         `end`; the name of what lies at an address is type = \"symbol\"",
                    ));
            }
        };
        if let Some((key, span)) = needless(&given) {
            return Err(self
                .source
                .error(
                    span,
                    format!(
                        "an attribute with type = \"unit\" has no `{key}`: it is read where the unit is spawned"
                    ),
                )
                .next("leave it out"));
        }
        Ok(AttributeSpec {
            only_if: program::only_if(self.source, given.only_if, given.unless)?,
            ..of_unit(name, value)
        })
    }
}

/// An attribute that says what the unit is that this value names where it is spawned.
pub(crate) fn of_unit(name: String, value: ValueSpec) -> AttributeSpec {
    AttributeSpec {
        name,
        read: AttributeAt::Begin,
        when: Vec::new(),
        value,
        kind: LabelKind::Unit,
        most: USUAL_TEXT,
        until: None,
        names: Vec::new(),
        keep_last: false,
        only_if: OnlyIf::default(),
    }
}

/// The first key that says where a value is, or how it becomes text.
fn needless(given: &schema::Attribute) -> Option<(&'static str, Range<usize>)> {
    fn span<T>(given: &Option<Spanned<T>>) -> Option<Range<usize>> {
        given.as_ref().map(Spanned::span)
    }
    let value = &given.value;
    let of_value = [
        ("on", span(&given.on)),
        ("when", span(&given.when)),
        ("arg", span(&value.arg)),
        ("register", span(&value.register)),
        ("global", span(&value.global)),
        ("deref", span(&value.deref)),
        ("size", span(&value.size)),
        ("length", span(&given.text.length)),
        ("max-length", span(&given.max_length)),
        ("until", span(&given.until)),
        ("names", span(&given.names)),
        ("keep", span(&given.keep)),
    ];
    let of_marker = given.marker.as_ref().map(|marker| {
        [
            ("function", span(&marker.function)),
            ("usdt", span(&marker.usdt)),
            ("offset", span(&marker.offset)),
            ("address", span(&marker.address)),
            ("at", span(&marker.at)),
            ("object", span(&marker.object)),
            ("called-by", span(&marker.called_by)),
            ("all", span(&marker.all)),
        ]
    });
    let all = of_marker.into_iter().flatten().chain(of_value);
    all.filter_map(|(key, span)| Some((key, span?))).next()
}
