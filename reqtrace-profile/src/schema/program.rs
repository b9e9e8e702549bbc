//! The keys of conditions on a program, `only-if` and `unless`, as serde sees them.

use serde::Deserialize;
use toml::Spanned;

use super::Strings;
use super::list::OneOrMany;
use super::value::{Numbers, Scalars};

/// One condition, or a list of them.
pub(crate) type Conditions = OneOrMany<Condition>;

/// A function that a program has, or the value of one of its variables.
#[derive(Clone, Debug, Deserialize)]
#[serde(
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table such as { function = \"name\" }"
)]
pub(crate) struct Condition {
    pub(crate) object: Option<Spanned<String>>,
    pub(crate) function: Option<Spanned<String>>,
    pub(crate) code: Option<Spanned<Strings>>,
    pub(crate) global: Option<Spanned<String>>,
    pub(crate) deref: Option<Spanned<Numbers>>,
    pub(crate) size: Option<Spanned<i64>>,
    pub(crate) equals: Option<Spanned<Scalars>>,
    pub(crate) not_equals: Option<Spanned<Scalars>>,
    pub(crate) from: Option<Spanned<i64>>,
    pub(crate) to: Option<Spanned<i64>>,
}
