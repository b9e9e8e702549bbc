//! `group-by` and `groups` of a rule: their values in; what requests are counted by, if that may be shown, out.

use reqtrace_analysis::report::Grouping;
use reqtrace_base::error::Result;
use reqtrace_profile::{AttributeSpec, Profile};

use super::GroupBy;
use super::toml_at::{Table, Value};

/// Groups of a service that are distinguished without a setting.
const USUAL: u32 = 50;
/// More would be more series than a service is worth.
const MOST: u32 = 500;
const BY: &str = "\"fingerprint\"";

/// The two keys, as they are in the file.
pub(super) struct Keys<'a> {
    by: Option<Value<'a>>,
    most: Option<Value<'a>>,
}

impl<'a> Keys<'a> {
    pub(super) fn take(table: &mut Table<'a>) -> Self {
        Self {
            by: table.take("group-by"),
            most: table.take("groups"),
        }
    }

    pub(super) fn has_by(&self) -> bool {
        self.by.is_some()
    }

    /// What they ask of a rule with this profile. `texts`: its texts may be shown.
    pub(super) fn read(self, profile: &Profile, texts: bool) -> Result<Option<GroupBy>> {
        let Self { by, most } = self;
        let Some(value) = by else {
            return match most {
                Some(most) => Err(most.refuse(
                    "nothing says what a group is",
                    format!("add group-by = {BY}, or leave it out"),
                )),
                None => Ok(None),
            };
        };
        let by: Grouping = value.parsed(BY, str::parse)?;
        if is_text(&by, &value, profile)? && !texts {
            return Err(value.refuse(
                "this is text of the program, and the metrics would show it",
                "add texts = true if everybody who reads the metrics may see it, or give the name of an attribute that is a \
                 number",
            ));
        }
        let most = most.map(|most| most.number(1..=MOST, &USUAL.to_string()));
        let most = most.transpose()?.unwrap_or(USUAL);
        Ok(Some(GroupBy { by, most }))
    }
}

/// Whether groups are named by texts that a user may have written.
fn is_text(by: &Grouping, value: &Value<'_>, profile: &Profile) -> Result<bool> {
    let Some(name) = by.attribute() else {
        return Ok(true);
    };
    let all = || {
        profile
            .requests
            .iter()
            .flat_map(|request| &request.attributes)
    };
    let mut of_name = all().filter(|spec| spec.name == name).peekable();
    if of_name.peek().is_none() {
        let mut names: Vec<&str> = all().map(|spec| spec.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let known = match names.as_slice() {
            [] => "it has none".to_owned(),
            names => format!("it has {}", names.join(", ")),
        };
        return Err(value.refuse(
            format_args!("no request type of the profile has an attribute of that name; {known}"),
            format!("write group-by = {BY}"),
        ));
    }
    Ok(of_name.any(AttributeSpec::is_text))
}
