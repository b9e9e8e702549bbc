//! The TOML of a profile as serde sees it: text in, values with their places out.
//!
//! Nothing is checked here beyond keys and types; `validate` does the rest.

pub(super) mod attribute;
pub(super) mod instead;
pub(super) mod label;
pub(super) mod list;
pub(super) mod marker;
pub(super) mod program;
pub(super) mod runtime;
pub(super) mod value;

use serde::Deserialize;
use serde::de::{self, SeqAccess, Visitor};
use toml::Spanned;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) profile: Header,
    pub(super) runtime: Option<Spanned<runtime::Runtime>>,
    #[serde(default)]
    pub(super) request: Vec<Spanned<Request>>,
    #[serde(default)]
    pub(super) wait: Vec<Spanned<Wait>>,
    #[serde(rename = "as-traced")]
    pub(super) as_traced: Option<instead::AsTraced>,
}

impl File {
    /// Whether it has fewer probes.
    pub(super) fn is_cheap(&self) -> bool {
        let runtime = self.runtime.as_ref();
        self.profile.cheap || runtime.is_some_and(|runtime| runtime.get_ref().cheap)
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Header {
    pub(super) name: Spanned<String>,
    #[serde(default)]
    pub(super) description: String,
    pub(super) executables: Option<Spanned<Strings>>,
    /// Fewer probes: without those of details, and of the runtime's that say why a unit waits and when it is made ready.
    #[serde(default)]
    pub(super) cheap: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Request {
    pub(super) name: Spanned<String>,
    pub(super) unit: Option<Spanned<String>>,
    pub(super) children: Option<Spanned<bool>>,
    pub(super) key: Option<Spanned<marker::Key>>,
    pub(super) begin: Option<Spanned<marker::Marker>>,
    pub(super) resume: Option<Spanned<Markers>>,
    pub(super) park: Option<Spanned<Markers>>,
    pub(super) idle: Option<Spanned<Markers>>,
    pub(super) ready: Option<Spanned<Markers>>,
    pub(super) adopt: Option<Spanned<Markers>>,
    pub(super) sockets: Option<Spanned<bool>>,
    pub(super) end: Option<Spanned<marker::Marker>>,
    pub(super) reentry: Option<Spanned<Reentry>>,
    pub(super) return_probe: Option<Spanned<ReturnProbe>>,
    pub(super) label: Option<Spanned<list::OneOrMany<label::Label>>>,
    #[serde(default)]
    pub(super) attribute: Vec<Spanned<attribute::Attribute>>,
    #[serde(default)]
    pub(super) instead: Vec<Spanned<instead::Instead>>,
}

/// One marker, or a list of them.
pub(super) type Markers = list::OneOrMany<marker::Marker>;

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Reentry {
    #[default]
    Nest,
    Ignore,
    Restart,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ReturnProbe {
    #[default]
    Sites,
    Uretprobe,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Wait {
    pub(super) name: Spanned<String>,
    #[serde(default, rename = "match")]
    pub(super) combine: Combine,
    pub(super) functions: Option<Spanned<Strings>>,
    pub(super) files: Option<Spanned<Strings>>,
    pub(super) kernel_functions: Option<Spanned<Strings>>,
    pub(super) syscalls: Option<Spanned<Strings>>,
    pub(super) build_id: Option<Spanned<toml::Value>>,
    pub(super) offsets: Option<Spanned<toml::Value>>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Combine {
    #[default]
    Any,
    All,
}

/// A string, or a list of strings.
///
/// Written by hand because serde's untagged enum says "did not match any variant" where a user
/// needs "expected a string or a list of strings".
#[derive(Clone, Debug)]
pub(super) enum Strings {
    One(String),
    Many(Vec<Spanned<String>>),
}

impl<'de> Deserialize<'de> for Strings {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMany;

        impl<'de> Visitor<'de> for OneOrMany {
            type Value = Strings;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a string or a list of strings")
            }

            fn visit_str<E: de::Error>(self, value: &str) -> Result<Strings, E> {
                Ok(Strings::One(value.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Strings, A::Error> {
                let mut many = Vec::new();
                while let Some(item) = seq.next_element::<Spanned<String>>()? {
                    many.push(item);
                }
                Ok(Strings::Many(many))
            }
        }

        deserializer.deserialize_any(OneOrMany)
    }
}
