//! Conditions of a profile: what `schema` read in, checked [`ConditionSpec`]s out.

use std::ops::Range;

use toml::Spanned;

use reqtrace_common::marker::{
    MAX_CONDITION_TEXT, MAX_CONDITIONS, MAX_MARKER_ALTERNATIVES, MAX_NUMBERS,
};

use super::{ValueSpec, Values};
use crate::schema::list::OneOrMany;
use crate::schema::value::{self as schema, Scalar, Scalars};
use reqtrace_base::error::Result;

/// A condition on a number or a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionSpec {
    /// The number, or the address of the text.
    pub value: ValueSpec,
    /// What it is compared with.
    pub test: Test,
    /// Whether it holds where it would not: `not-equals`. Then a text is one text.
    pub negate: bool,
}

/// What a condition compares a value with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// It is one of these; never empty.
    OneOf(Vec<i64>),
    /// It is within these bounds, both included.
    Range(i64, i64),
    /// It points to one of these texts, which a NUL ends; never empty.
    Text(Vec<String>),
    /// Of its bits these are so.
    Bits {
        /// Which bits.
        mask: u64,
        /// Those of them that are 1.
        are: u64,
    },
    /// It is the function that polls a unit whose type fits this glob.
    Unit(String),
    /// It is a function that a goroutine starts with, whose name fits this glob.
    Starts(String),
    /// The number is the address of the function by which jobs of the program's pool of threads are scheduled, which is never
    /// called.
    Job,
}

impl ConditionSpec {
    /// In how many ways it can hold that are distinguished.
    fn ways(&self) -> usize {
        match &self.test {
            Test::Text(texts) => texts.len(),
            Test::OneOf(_)
            | Test::Range(..)
            | Test::Bits { .. }
            | Test::Unit(_)
            | Test::Starts(_)
            | Test::Job => 1,
        }
    }
}

impl Values<'_> {
    /// The conditions of a marker or an attribute, each of which must hold.
    pub(crate) fn conditions(
        &self,
        when: Option<Spanned<OneOrMany<schema::When>>>,
    ) -> Result<Vec<ConditionSpec>> {
        let Some(when) = when else {
            return Ok(Vec::new());
        };
        let span = when.span();
        let mut all = Vec::new();
        for one in OneOrMany::all(when) {
            all.extend(self.condition(one)?);
        }
        if all.is_empty() {
            return Err(self
                .source
                .error(span, "`when` is an empty list")
                .next("leave when out, or write when = { arg = 0, equals = 3 }"));
        }
        if all.len() > MAX_CONDITIONS {
            return Err(self.source.error(
                span,
                format!(
                    "{} conditions, where {MAX_CONDITIONS} fit (each text of `not-equals` is one)",
                    all.len()
                ),
            ));
        }
        let ways: usize = all.iter().map(ConditionSpec::ways).product();
        if ways > MAX_MARKER_ALTERNATIVES {
            return Err(self.source.error(
                span,
                format!(
                    "these texts can be combined in {ways} ways, and at most \
                     {MAX_MARKER_ALTERNATIVES} are tried"
                ),
            ));
        }
        Ok(all)
    }

    /// A condition; several when none of several texts may be there.
    fn condition(&self, when: Spanned<schema::When>) -> Result<Vec<ConditionSpec>> {
        let span = when.span();
        let when = when.into_inner();
        let range = when.from.as_ref().or(when.to.as_ref());
        let given = [
            when.equals.as_ref().map(Spanned::span),
            when.not_equals.as_ref().map(Spanned::span),
            range.map(Spanned::span),
        ];
        if let Some(second) = given.into_iter().flatten().nth(1) {
            return Err(self.source.error(
                second,
                "a condition has `equals`, `not-equals`, or `from` and `to`: one of these",
            ));
        }
        let value = self.value(&when.value, span.clone())?;
        let (tests, negate) = match (&when.equals, &when.not_equals, range) {
            (Some(equals), ..) => (vec![self.scalars(equals, "equals")?], false),
            (_, Some(others), _) => match self.scalars(others, "not-equals")? {
                Test::Text(texts) => {
                    let each = texts.into_iter().map(|text| Test::Text(vec![text]));
                    (each.collect(), true)
                }
                test => (vec![test], true),
            },
            (_, _, Some(_)) => (vec![self.range(&when)?], false),
            (None, None, None) => {
                return Err(self
                    .source
                    .error(span, "the condition compares its value with nothing")
                    .next("add equals = 3, not-equals = 3, or from = 1 and to = 9"));
            }
        };
        if let (Test::Text(_), Some(size)) = (&tests[0], &when.value.size) {
            return Err(self.source.error(
                size.span(),
                "`size` is that of a number, and the value points to a text",
            ));
        }
        let one = |test| ConditionSpec {
            value: value.clone(),
            test,
            negate,
        };
        Ok(tests.into_iter().map(one).collect())
    }

    fn range(&self, when: &schema::When) -> Result<Test> {
        let bound = |given: &Option<Spanned<i64>>, missing| {
            given.as_ref().map_or(missing, |bound| *bound.get_ref())
        };
        let (from, to) = (bound(&when.from, i64::MIN), bound(&when.to, i64::MAX));
        if let (true, Some(to_given)) = (from > to, &when.to) {
            return Err(self
                .source
                .error(to_given.span(), format!("no number is from {from} to {to}")));
        }
        Ok(Test::Range(from, to))
    }

    fn scalars(&self, given: &Spanned<Scalars>, key: &str) -> Result<Test> {
        let all = &given.get_ref().0;
        let (mut numbers, mut texts) = (Vec::new(), Vec::new());
        for scalar in all {
            match scalar {
                Scalar::Number(number) => numbers.push(*number),
                Scalar::Text(text) => texts.push(self.text(text, given.span())?),
            }
        }
        if all.is_empty() || all.len() > MAX_NUMBERS {
            return Err(self.source.error(
                given.span(),
                format!(
                    "{} values in `{key}`, where 1 to {MAX_NUMBERS} fit",
                    all.len()
                ),
            ));
        }
        match (numbers.is_empty(), texts.is_empty()) {
            (false, false) => Err(self.source.error(
                given.span(),
                format!("`{key}` has numbers and texts, and one value is either"),
            )),
            (false, true) => Ok(Test::OneOf(numbers)),
            (true, _) => Ok(Test::Text(texts)),
        }
    }

    fn text(&self, text: &str, span: Range<usize>) -> Result<String> {
        let shown: String = text.chars().take(40).collect();
        if text.len() > MAX_CONDITION_TEXT {
            return Err(self.source.error(
                span,
                format!(
                    "`{shown}…` has {} bytes, and a text that is compared has at most \
                     {MAX_CONDITION_TEXT}",
                    text.len()
                ),
            ));
        }
        if text.contains('\0') {
            return Err(self.source.error(
                span,
                format!("{shown:?} has a NUL inside, which ends a text"),
            ));
        }
        Ok(text.to_owned())
    }
}
