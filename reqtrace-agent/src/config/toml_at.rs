//! Tables of TOML that know their lines: a text in; values of known keys, or what is wrong with one and where, out.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::ops::{Range, RangeInclusive};

use reqtrace_base::error::{Error, Result};
use reqtrace_base::text::nearest;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A text and what messages call it.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) name: &'a str,
    pub(crate) text: &'a str,
}

/// A table, whose keys are taken one by one: each is known then.
pub(crate) struct Table<'a> {
    source: Source<'a>,
    /// How messages call it: `[agent]`.
    name: &'a str,
    span: Range<usize>,
    keys: &'a DeTable<'a>,
    known: BTreeSet<&'static str>,
}

/// A value, its key and where it is.
#[derive(Clone)]
pub(crate) struct Value<'a> {
    source: Source<'a>,
    pub(crate) key: &'static str,
    span: Range<usize>,
    value: &'a DeValue<'a>,
}

impl Source<'_> {
    pub(crate) fn line(&self, at: usize) -> usize {
        let before = self.text.as_bytes().iter().take(at);
        before.filter(|byte| **byte == b'\n').count() + 1
    }

    /// A usage error at a place of the text.
    pub(crate) fn error(&self, span: &Range<usize>, what: impl Display) -> Error {
        Error::usage(format!("{}:{}: {what}", self.name, self.line(span.start)))
    }
}

impl<'a> Table<'a> {
    pub(crate) fn new(
        source: Source<'a>,
        name: &'a str,
        keys: &'a DeTable<'a>,
        span: Range<usize>,
    ) -> Self {
        Self {
            source,
            name,
            span,
            keys,
            known: BTreeSet::new(),
        }
    }

    /// The line that it begins in.
    pub(crate) fn line(&self) -> usize {
        self.source.line(self.span.start)
    }

    /// A usage error about it.
    pub(crate) fn error(&self, what: impl Display) -> Error {
        self.source.error(&self.span, what)
    }

    /// The value of a key, if it is there.
    pub(crate) fn take(&mut self, key: &'static str) -> Option<Value<'a>> {
        self.known.insert(key);
        let value = self.keys.get(key)?;
        Some(Value {
            source: self.source,
            key,
            span: value.span(),
            value: value.get_ref(),
        })
    }

    /// The same of a key that has to be there.
    pub(crate) fn need(&mut self, key: &'static str, such_as: &str) -> Result<Value<'a>> {
        self.take(key).ok_or_else(|| {
            let what = format!("{} has no `{key}`", self.name);
            self.error(what).next(format!("add {key} = {such_as}"))
        })
    }

    /// What was not taken is no key.
    pub(crate) fn end(self) -> Result<()> {
        let keys = self.keys.keys();
        // The first in the file.
        let unknown = keys
            .filter(|key| !self.known.contains(key.get_ref().as_ref()))
            .min_by_key(|key| key.span().start);
        let Some(key) = unknown else {
            return Ok(());
        };
        let (span, key) = (key.span(), key.get_ref());
        let value = self.keys.get(key.as_ref()).map(|value| {
            let text = self.source.text.get(value.span()).unwrap_or_default();
            text.lines().next().unwrap_or_default()
        });
        let what = match value {
            Some(value) if !value.is_empty() && !value.starts_with('[') => {
                format!("`{key}` (= {value}) is no key of {}", self.name)
            }
            _ => format!("`{key}` is no key of {}", self.name),
        };
        let known: Vec<&str> = self.known.iter().copied().collect();
        let all = format!("keys of {}: {}", self.name, known.join(", "));
        let advice = match nearest(key, known.iter().copied(), 1).first() {
            Some(best) => format!("did you mean `{best}`? {all}"),
            None => all,
        };
        Err(self.source.error(&span, what).next(advice))
    }
}

impl<'a> Value<'a> {
    /// What is wrong with it, and what to write instead.
    pub(crate) fn refuse(&self, why: impl Display, instead: impl Into<String>) -> Error {
        let text = self.source.text.get(self.span.clone()).unwrap_or_default();
        let text = text.lines().next().unwrap_or_default();
        let what = format!("{} = {text}: {why}", self.key);
        self.source.error(&self.span, what).next(instead)
    }

    /// A usage error about it that does not show it.
    pub(crate) fn error(&self, why: impl Display) -> Error {
        self.source
            .error(&self.span, format_args!("{}: {why}", self.key))
    }

    fn is_no(&self, wanted: &str, such_as: &str) -> Error {
        self.refuse(
            format_args!(
                "this is no {wanted}, but a value of type {}",
                self.value.type_str()
            ),
            format!("write {} = {such_as}", self.key),
        )
    }

    /// A text with at least one character.
    pub(crate) fn text(&self, such_as: &str) -> Result<&'a str> {
        let text = self.value.as_str();
        let text = text.ok_or_else(|| self.is_no("text", such_as))?;
        if text.trim().is_empty() {
            return Err(self.refuse("it is empty", format!("write {} = {such_as}", self.key)));
        }
        Ok(text)
    }

    /// A text that stands for something else.
    pub(crate) fn parsed<T>(
        &self,
        such_as: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T> {
        parse(self.text(such_as)?)
            .map_err(|why| self.refuse(why, format!("write {} = {such_as}", self.key)))
    }

    pub(crate) fn boolean(&self) -> Result<bool> {
        let value = self.value.as_bool();
        value.ok_or_else(|| self.is_no("boolean", "true"))
    }

    /// A whole number in these bounds.
    pub(crate) fn number(&self, within: RangeInclusive<u32>, such_as: &str) -> Result<u32> {
        let number = self
            .value
            .as_integer()
            .ok_or_else(|| self.is_no("number", such_as))?;
        let number = u32::from_str_radix(number.as_str(), number.radix()).ok();
        number
            .filter(|number| within.contains(number))
            .ok_or_else(|| {
                let why = format!("it is not between {} and {}", within.start(), within.end());
                self.refuse(why, format!("write {} = {such_as}", self.key))
            })
    }

    /// A text, or a list of texts.
    pub(crate) fn texts(&self, such_as: &str) -> Result<Vec<String>> {
        let Some(array) = self.value.as_array() else {
            return Ok(vec![self.text(such_as)?.to_owned()]);
        };
        let texts = array.iter().map(|value| {
            let one = Value {
                span: value.span(),
                value: value.get_ref(),
                ..self.clone()
            };
            one.text(such_as).map(str::to_owned)
        });
        let texts: Vec<String> = texts.collect::<Result<_>>()?;
        if texts.is_empty() {
            return Err(self.refuse(
                "the list is empty",
                format!("write {} = {such_as}", self.key),
            ));
        }
        Ok(texts)
    }

    /// Whether it is a table.
    pub(crate) fn is_table(&self) -> bool {
        self.value.as_table().is_some()
    }

    pub(crate) fn table(&self, name: &'a str, such_as: &str) -> Result<Table<'a>> {
        let table = self.value.as_table();
        let table = table.ok_or_else(|| self.is_no("table", such_as))?;
        Ok(Table::new(self.source, name, table, self.span.clone()))
    }

    /// A list of tables: `[[…]]`.
    pub(crate) fn tables(&self, name: &'a str) -> Result<Vec<Table<'a>>> {
        let cannot = || {
            let what = format!("`{}` is no list of tables", self.key);
            let advice = format!("write {name} above the keys of each");
            self.source.error(&self.span, what).next(advice)
        };
        let array = self.value.as_array().ok_or_else(cannot)?;
        let table = |value: &'a Spanned<DeValue<'a>>| {
            let keys = value.get_ref().as_table().ok_or_else(cannot)?;
            Ok(Table::new(self.source, name, keys, value.span()))
        };
        array.iter().map(table).collect()
    }
}
