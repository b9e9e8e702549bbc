//! Markers of a profile: what `schema` read in, the place of each out.

use toml::Spanned;

use super::Checker;
use crate::schema::marker as schema;
use crate::{At, PlaceSpec};
use reqtrace_base::error::Result;

/// What a marker can be.
const PLACES: &str = "write { function = \"name\" }, { usdt = \"provider:name\" }, \
                      { offset = 0x1234 } or { address = 0x1234 }";

/// Where a marker is.
pub(super) struct Place {
    pub(super) place: PlaceSpec,
    pub(super) object: Option<String>,
    pub(super) called_by: Option<String>,
    pub(super) is_all: bool,
}

impl Checker<'_> {
    /// Where a marker is, whatever is done there; the rest is left to [`super::steps`].
    pub(super) fn place(&self, marker: Spanned<schema::Marker>) -> Result<Place> {
        let span = marker.span();
        let marker = marker.into_inner();
        self.refuse(marker.build_id.as_ref(), "build-id")?;
        let kinds = [
            ("function", marker.function.as_ref().map(Spanned::span)),
            ("offset", marker.offset.as_ref().map(Spanned::span)),
            ("address", marker.address.as_ref().map(Spanned::span)),
            ("usdt", marker.usdt.as_ref().map(Spanned::span)),
        ];
        let mut given = kinds
            .into_iter()
            .filter_map(|(key, span)| Some((key, span?)));
        if let (Some((first, _)), Some((second, span))) = (given.next(), given.next()) {
            return Err(self.source.error(
                span,
                format!("a marker is either a `{first}` or `{second}`, not both"),
            ));
        }
        if let (Some(at), None) = (&marker.at, &marker.function) {
            return Err(self.source.error(
                at.span(),
                "`at` belongs to `function`; an `offset`, an `address` or a `usdt` probe is one \
                 instruction",
            ));
        }
        if let (Some(all), None) = (&marker.all, &marker.function) {
            return Err(self.source.error(
                all.span(),
                "`all` belongs to `function`: it marks every function of that name",
            ));
        }
        let place = if let Some(function) = marker.function {
            PlaceSpec::Function {
                patterns: self.strings(Some(function), "function")?,
                at: match marker.at.map(Spanned::into_inner) {
                    Some(schema::At::Return) => At::Return,
                    Some(schema::At::Entry) | None => At::Entry,
                },
            }
        } else if let Some(offset) = &marker.offset {
            PlaceSpec::Offset(self.not_negative(offset, "offset")?)
        } else if let Some(address) = &marker.address {
            PlaceSpec::Address(self.not_negative(address, "address")?)
        } else if let Some(usdt) = marker.usdt {
            self.usdt(&usdt)?
        } else {
            return Err(self
                .source
                .error(span, "the marker names no place")
                .next(PLACES));
        };
        let object = match marker.object {
            Some(object) => {
                self.not_empty(object.get_ref(), object.span(), "object")?;
                self.glob(object.get_ref(), object.span())?;
                Some(object.into_inner())
            }
            None => None,
        };
        let called_by = match marker.called_by {
            Some(caller) => {
                self.not_empty(caller.get_ref(), caller.span(), "called-by")?;
                let PlaceSpec::Function { at: At::Return, .. } = place else {
                    return Err(self
                        .source
                        .error(
                            caller.span(),
                            "`called-by` belongs to the return of a function",
                        )
                        .next("add at = \"return\", or leave called-by out"));
                };
                Some(caller.into_inner())
            }
            None => None,
        };
        Ok(Place {
            place,
            object,
            called_by,
            is_all: marker.all.is_some_and(Spanned::into_inner),
        })
    }

    fn not_negative(&self, number: &Spanned<i64>, key: &str) -> Result<u64> {
        u64::try_from(*number.get_ref()).map_err(|_| {
            let what = format!("{key} {} is negative", number.get_ref());
            self.source.error(number.span(), what)
        })
    }

    pub(super) fn usdt(&self, usdt: &Spanned<String>) -> Result<PlaceSpec> {
        match usdt.get_ref().split_once(':') {
            Some((provider, name))
                if !provider.is_empty() && !name.is_empty() && !name.contains(':') =>
            {
                Ok(PlaceSpec::Usdt {
                    provider: provider.to_owned(),
                    name: name.to_owned(),
                })
            }
            _ => Err(self
                .source
                .error(
                    usdt.span(),
                    format!("`{}` is not a USDT probe", usdt.get_ref()),
                )
                .next("write usdt = \"provider:name\", such as \"postgresql:query__start\"")),
        }
    }

    /// Keys of the format that this version does not know how to honour. Taking them silently
    /// would trace something else than was asked for.
    pub(super) fn refuse(&self, value: Option<&Spanned<toml::Value>>, key: &str) -> Result<()> {
        match value {
            Some(value) => Err(self
                .source
                .error(
                    value.span(),
                    format!("`{key}` is not supported yet by this version of reqtrace"),
                )
                .next("remove it; a marker can be a `function`, an `offset`, an `address` or a `usdt` probe")),
            None => Ok(()),
        }
    }
}
