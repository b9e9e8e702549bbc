//! Names, lists of strings and globs of a profile: what `schema` read in, checked strings out.

use std::collections::HashMap;
use std::ops::Range;

use globset::Glob;
use toml::Spanned;

use super::{Checker, column};
use crate::schema;
use reqtrace_base::error::Result;
use reqtrace_base::plain::is_plain;
use reqtrace_base::text::check_glob;

impl Checker<'_> {
    pub(super) fn name(&self, name: &Spanned<String>, what: &str) -> Result<String> {
        let text = name.get_ref();
        self.not_empty(text, name.span(), what)?;
        if text.trim() != text || text.contains(';') || !is_plain(text) {
            return Err(self.source.error(
                name.span(),
                format!("{what} {text:?} has spaces around it, a semicolon or a control character"),
            ));
        }
        Ok(text.clone())
    }

    pub(super) fn not_empty(&self, text: &str, span: Range<usize>, what: &str) -> Result<()> {
        if text.trim().is_empty() {
            return Err(self.source.error(span, format!("{what} is empty")));
        }
        Ok(())
    }

    pub(super) fn strings(
        &self,
        strings: Option<Spanned<schema::Strings>>,
        key: &str,
    ) -> Result<Vec<String>> {
        let Some(strings) = strings else {
            return Ok(Vec::new());
        };
        let span = strings.span();
        match strings.into_inner() {
            schema::Strings::One(one) => {
                self.not_empty(&one, span, key)?;
                Ok(vec![one])
            }
            schema::Strings::Many(many) if many.is_empty() => Err(self
                .source
                .error(span, format!("{key} is an empty list"))
                .next(format!("leave {key} out, or name at least one"))),
            schema::Strings::Many(many) => many
                .into_iter()
                .map(|item| {
                    self.not_empty(item.get_ref(), item.span(), key)?;
                    Ok(item.into_inner())
                })
                .collect(),
        }
    }

    pub(super) fn globs(&self, strings: &Spanned<schema::Strings>) -> Result<()> {
        match strings.get_ref() {
            schema::Strings::One(one) => self.glob(one, strings.span()),
            schema::Strings::Many(many) => many
                .iter()
                .try_for_each(|item| self.glob(item.get_ref(), item.span())),
        }
    }

    pub(super) fn glob(&self, pattern: &str, span: Range<usize>) -> Result<()> {
        let built = check_glob(pattern)
            .and_then(|()| Glob::new(pattern).map_err(|error| error.kind().to_string()));
        match built {
            Ok(_) => Ok(()),
            Err(why) => {
                let shown: String = pattern.chars().take(60).collect();
                Err(self
                    .source
                    .error(span, format!("`{shown}` is not a valid glob: {why}")))
            }
        }
    }

    pub(super) fn unique(
        &self,
        seen: &mut HashMap<String, String>,
        name: &str,
        span: Range<usize>,
        what: &str,
    ) -> Result<()> {
        match seen.insert(column(name), name.to_owned()) {
            None => Ok(()),
            Some(first) if first == name => Err(self
                .source
                .error(span, format!("there are two {what}s named `{name}`"))),
            Some(first) => Err(self.source.error(
                span,
                format!("the {what}s `{first}` and `{name}` would share one column"),
            )),
        }
    }
}
