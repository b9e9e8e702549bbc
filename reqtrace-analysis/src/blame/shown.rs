//! What was added up in; the report's part out, with names.

use std::cmp::Reverse;

use reqtrace_base::plain::Plain;

use super::gather::Gatherer;
use super::table::{Holding, OfType, Whose};
use super::{Cause, Reason};
use crate::report::blame::{Blame, BlameRow, CulpritKind, CulpritName, Holder, TypeBlame};

/// The class of blocks without a known one.
const UNATTRIBUTED: &str = "unattributed";

/// Names by index.
pub(crate) struct Names<'a> {
    /// Of request types.
    pub(crate) types: &'a [String],
    /// Of wait classes.
    pub(crate) classes: &'a [String],
}

impl Names<'_> {
    fn class(&self, class: Option<u16>) -> &str {
        let name = class.and_then(|class| self.classes.get(usize::from(class)));
        name.map_or(UNATTRIBUTED, String::as_str)
    }

    fn request(&self, index: u32) -> String {
        let name = self.types.get(index as usize);
        name.cloned().unwrap_or_else(|| format!("type {index}"))
    }
}

impl Gatherer {
    /// What is known now.
    pub(crate) fn report(&self, names: &Names<'_>) -> Blame {
        let types = self.table.types.iter().zip(names.types);
        let mut rows: Vec<BlameRow> = self
            .table
            .rows
            .iter()
            .map(|(key, sum)| BlameRow {
                victim_request: names.request(key.victim),
                victim_label: Plain::of(self.texts.text(key.label)),
                wait_class: match key.whose {
                    Whose::Others => String::new(),
                    _ => names.class(key.class).to_owned(),
                },
                culprit: self.culprit(key.whose, names),
                cause: key.cause,
                depth: key.depth,
                ns: sum.ns,
                requests: sum.requests,
            })
            .collect();
        rows.sort_by(|one, other| order(one).cmp(&order(other)));
        Blame {
            types: types
                .map(|(of_type, name)| self.of_type(of_type, name, names))
                .collect(),
            rows,
            merged_rows: self.table.merged,
        }
    }

    fn of_type(&self, of_type: &OfType, name: &str, names: &Names<'_>) -> TypeBlame {
        let holdings = of_type.holdings.iter();
        let mut holders: Vec<Holder> = holdings
            .map(|((cause, whose), holding)| Holder {
                cause: *cause,
                culprit: self.culprit(*whose, names),
                ns: holding.sum.ns,
                requests: holding.sum.requests,
                wait_class: names.class(most(holding)).to_owned(),
            })
            .collect();
        holders.sort_by(|one, other| {
            let key = |holder: &Holder| (Reverse(holder.ns), holder.cause);
            let by_time = key(one).cmp(&key(other));
            by_time.then_with(|| one.culprit.cmp(&other.culprit))
        });
        let reasons = Reason::ALL.map(|reason| (reason, of_type.unknown[reason as usize]));
        let mut unknown: Vec<_> = reasons.into_iter().filter(|(_, ns)| *ns > 0).collect();
        unknown.sort_by_key(|(_, ns)| Reverse(*ns));
        TypeBlame {
            request: name.to_owned(),
            requests: of_type.requests,
            causes: of_type.causes,
            holders,
            unknown,
        }
    }

    fn culprit(&self, whose: Whose, names: &Names<'_>) -> CulpritName {
        let kind = match whose {
            Whose::OwnInterrupt => CulpritKind::Interrupt,
            Whose::Itself => CulpritKind::Itself,
            Whose::Request(..) => CulpritKind::Request,
            Whose::Thread(_) => CulpritKind::Thread,
            Whose::Unknown => CulpritKind::Unknown,
            Whose::Others => CulpritKind::Others,
        };
        let mut culprit = CulpritName {
            kind,
            ..CulpritName::default()
        };
        match whose {
            Whose::Request(index, label) => {
                culprit.request = names.request(index);
                culprit.label = Plain::of(self.texts.text(label));
            }
            Whose::Thread(comm) => culprit.comm = Plain::of(self.texts.text(comm)),
            _ => {}
        }
        culprit
    }
}

/// The wait class that most of the time was spent in.
fn most(holding: &Holding) -> Option<u16> {
    let classes = holding.classes.iter();
    let most = classes.max_by_key(|(class, ns)| (**ns, Reverse(**class)));
    most.and_then(|(class, _)| *class)
}

/// The most time first, then whatever makes the order the same each time.
fn order(row: &BlameRow) -> (Reverse<u64>, &str, &str, &str, &CulpritName, Cause, u8) {
    (
        Reverse(row.ns),
        &row.victim_request,
        row.victim_label.as_str(),
        &row.wait_class,
        &row.culprit,
        row.cause,
        row.depth,
    )
}
