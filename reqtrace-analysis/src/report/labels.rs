//! Requests by label: what `--group-by` adds to the report.

use std::fmt;
use std::str::FromStr;

use super::Ledger;

/// What one group of requests has in common.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Grouping {
    /// The label.
    #[default]
    Label,
    /// The label but for numbers and strings in it.
    Fingerprint,
    /// The value of the attribute of this name.
    Attribute(String),
    /// The value of the attribute of this name, but for numbers and strings in it.
    FingerprintOf(String),
}

impl Grouping {
    /// The attribute that it asks for.
    #[must_use]
    pub fn attribute(&self) -> Option<&str> {
        match self {
            Self::Label | Self::Fingerprint => None,
            Self::Attribute(name) | Self::FingerprintOf(name) => Some(name),
        }
    }

    /// How a request's text becomes that of its group. The value of an attribute is put in the place of the
    /// label before, as it is to be shown.
    pub(crate) fn of_text(&self) -> OfText {
        match self {
            Self::Fingerprint => OfText::Fingerprint,
            Self::Label | Self::Attribute(_) | Self::FingerprintOf(_) => OfText::Whole,
        }
    }
}

/// `label`, `fingerprint`, the name of an attribute, or `fingerprint=` and that.
impl FromStr for Grouping {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match (word, word.strip_prefix("fingerprint=")) {
            ("label", _) => Ok(Self::Label),
            ("fingerprint", _) | (_, Some("label")) => Ok(Self::Fingerprint),
            ("", _) | (_, Some("")) => Err(
                "give label, fingerprint, the name of an attribute, or fingerprint=NAME".to_owned(),
            ),
            (_, Some(name)) => Ok(Self::FingerprintOf(name.to_owned())),
            (name, None) => Ok(Self::Attribute(name.to_owned())),
        }
    }
}

impl fmt::Display for Grouping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Label => f.write_str("label"),
            Self::Fingerprint => f.write_str("fingerprint"),
            Self::Attribute(name) => f.write_str(name),
            Self::FingerprintOf(name) => write!(f, "fingerprint={name}"),
        }
    }
}

/// What of a text requests are grouped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OfText {
    /// All of it.
    Whole,
    /// All but numbers and strings.
    Fingerprint,
}

/// Requests of one request type by label.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelGroups {
    /// What the groups are of.
    pub by: Grouping,
    /// Those with the most latency in all, the most first.
    pub shown: Vec<LabelGroup>,
    /// All others added up; its label is empty.
    pub rest: LabelGroup,
    /// How many labels `rest` is made of, as far as they were kept apart.
    pub rest_labels: u64,
    /// There were more labels than could be kept apart: the later ones are in `rest` too.
    pub table_full: bool,
}

/// Complete requests with one label.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelGroup {
    /// The label; empty for requests without one.
    pub label: String,
    /// Number of requests.
    pub count: u64,
    /// The longest latency, ns.
    pub max_ns: u64,
    /// Their ledgers added up.
    pub ledger: Ledger,
}

impl LabelGroup {
    /// An empty group.
    #[must_use]
    pub fn new(label: &str, classes: usize) -> Self {
        Self {
            label: label.to_owned(),
            ledger: Ledger {
                classes: vec![0; classes],
                ..Ledger::default()
            },
            ..Self::default()
        }
    }

    /// Adds requests: how many, the longest of them, and their ledgers added up.
    pub fn add(&mut self, count: u64, max_ns: u64, ledger: &Ledger) {
        self.count += count;
        self.max_ns = self.max_ns.max(max_ns);
        self.ledger.add(ledger);
    }
}
