//! Colours: what a request's time was in; the colour that stands for it in every picture out.

use std::borrow::Cow;

use super::blame::Cause;
use super::{Report, StackKind, StackLine};

/// A colour of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Colour {
    /// Red, 0 to 255.
    pub red: u8,
    /// Green, 0 to 255.
    pub green: u8,
    /// Blue, 0 to 255.
    pub blue: u8,
}

impl Colour {
    const fn new(red: u8, green: u8, blue: u8) -> Self {
        Self { red, green, blue }
    }

    /// As in HTML: `#e66146`.
    #[must_use]
    pub fn hex(self) -> String {
        format!("#{:02x}{:02x}{:02x}", self.red, self.green, self.blue)
    }

    /// The same hue, a little lighter or darker: neighbours of one kind can be distinguished, and a name has always
    /// the same shade.
    #[must_use]
    pub fn shade(self, name: &str) -> Self {
        // FNV-1a: the same on every machine.
        let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        });
        // 90 % to 110 %.
        let percent = 90 + (hash >> 16) % 21;
        let part = |value: u8| (u32::from(value) * percent / 100).min(255) as u8;
        Self::new(part(self.red), part(self.green), part(self.blue))
    }
}

/// What a part of a request's latency was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Time {
    /// On a CPU.
    OnCpu,
    /// Runnable after a wakeup.
    RunQueue,
    /// Switched out while runnable.
    Preempted,
    /// Blocked in a wait class: an index into [`Report::classes`].
    Blocked(usize),
    /// Blocked, and the stack was lost.
    Unattributed,
    /// Parked: an index into [`super::Places::parked`].
    Parked(usize),
    /// Queued: an index into [`super::Places::queued`].
    Queued(usize),
}

impl Time {
    /// What the time of a stack is.
    #[must_use]
    pub fn of(line: &StackLine) -> Self {
        match (line.kind, line.class) {
            (StackKind::OnCpu, _) => Self::OnCpu,
            (StackKind::RunQueue, _) => Self::RunQueue,
            (StackKind::Preempted, _) => Self::Preempted,
            (StackKind::Blocked, Some(class)) => Self::Blocked(class),
            (StackKind::Blocked, None) => Self::Unattributed,
            (StackKind::Parked, place) => Self::Parked(place.unwrap_or(usize::MAX)),
            (StackKind::Queued, place) => Self::Queued(place.unwrap_or(usize::MAX)),
        }
    }

    /// Its name, as in the report.
    #[must_use]
    pub fn name(self, report: &Report) -> Cow<'_, str> {
        Cow::Borrowed(match self {
            Self::OnCpu => "on CPU",
            Self::RunQueue => "run queue",
            Self::Preempted => "preempted",
            Self::Blocked(class) => report.classes.get(class).map_or("?", String::as_str),
            Self::Unattributed => "unattributed",
            Self::Parked(place) => return Cow::Owned(report.places.parked_words(place)),
            Self::Queued(place) => return Cow::Owned(report.places.queued_words(place)),
        })
    }

    /// Its colour.
    #[must_use]
    pub fn colour(self, report: &Report) -> Colour {
        match self {
            Self::OnCpu => ON_CPU,
            Self::RunQueue => RUN_QUEUE,
            Self::Preempted => PREEMPTED,
            Self::Unattributed => UNATTRIBUTED,
            Self::Blocked(class) if class < report.named_waits => NAMED[class % NAMED.len()],
            Self::Blocked(_) => {
                let name = self.name(report);
                let known = CLASSES.iter().find(|(class, _)| *class == name);
                known.map_or(UNATTRIBUTED, |(_, colour)| *colour)
            }
            Self::Parked(place) => of_place(PARKED, place, report.places.parked.len()),
            Self::Queued(place) => of_place(QUEUED, place, report.places.queued.len()),
        }
    }
}

/// The colour of a place; the last one has no name.
fn of_place<const N: usize>(
    (named, nameless): ([Colour; N], Colour),
    place: usize,
    places: usize,
) -> Colour {
    match place + 1 < places {
        true => named[place % named.len()],
        false => nameless,
    }
}

/// The colour of a root cause: that of what the culprit did.
#[must_use]
pub fn of_cause(cause: Cause) -> Colour {
    let class = |name: &str| {
        let known = CLASSES.iter().find(|(class, _)| *class == name);
        known.map_or(UNATTRIBUTED, |(_, colour)| *colour)
    };
    match cause {
        Cause::OnCpu => ON_CPU,
        Cause::RunQueue => RUN_QUEUE,
        Cause::Preempted => PREEMPTED,
        Cause::Disk => class("disk"),
        Cause::Timer => class("sleep"),
        Cause::Network => class("network"),
        Cause::OtherInterrupt => class("other"),
        Cause::BetweenRequests => class("poll"),
        Cause::Unknown => UNATTRIBUTED,
    }
}

/// Frames that are on the way to time of several kinds.
pub const SHARED: Colour = Colour::new(226, 223, 214);

const ON_CPU: Colour = Colour::new(230, 100, 72);
/// Runnable after a wakeup: what came after a block, and no place of its own.
pub const RUN_QUEUE: Colour = Colour::new(240, 196, 64);
const PREEMPTED: Colour = Colour::new(206, 158, 84);
const UNATTRIBUTED: Colour = Colour::new(150, 150, 150);

/// Colours of the places where requests are parked, in turn, and of those without a name.
const PARKED: ([Colour; 16], Colour) = (
    [
        Colour::new(134, 150, 184),
        Colour::new(166, 146, 190),
        Colour::new(126, 168, 172),
        Colour::new(178, 158, 142),
        Colour::new(150, 178, 150),
        Colour::new(190, 152, 168),
        Colour::new(104, 124, 158),
        Colour::new(138, 112, 166),
        Colour::new(96, 140, 138),
        Colour::new(152, 126, 112),
        Colour::new(116, 146, 108),
        Colour::new(164, 118, 138),
        Colour::new(170, 188, 216),
        Colour::new(200, 182, 218),
        Colour::new(166, 202, 202),
        Colour::new(186, 206, 178),
    ],
    Colour::new(158, 164, 182),
);

/// The same of those where they are queued.
const QUEUED: ([Colour; 6], Colour) = (
    [
        Colour::new(222, 206, 120),
        Colour::new(208, 186, 90),
        Colour::new(232, 218, 152),
        Colour::new(196, 196, 96),
        Colour::new(226, 192, 136),
        Colour::new(186, 176, 112),
    ],
    Colour::new(216, 198, 108),
);

/// Colours of the built-in classes.
const CLASSES: [(&str, Colour); 10] = [
    ("disk", Colour::new(96, 148, 216)),
    ("network", Colour::new(76, 180, 170)),
    ("lock", Colour::new(172, 124, 206)),
    ("sleep", Colour::new(172, 178, 190)),
    ("poll", Colour::new(140, 194, 112)),
    ("pipe", Colour::new(124, 190, 214)),
    ("page-fault", Colour::new(228, 144, 178)),
    ("process", Colour::new(180, 146, 118)),
    ("tracing", Colour::new(198, 200, 120)),
    ("other", Colour::new(192, 192, 192)),
];

/// Colours of a profile's named waits, in turn.
const NAMED: [Colour; 12] = [
    Colour::new(124, 138, 230),
    Colour::new(72, 172, 124),
    Colour::new(210, 104, 170),
    Colour::new(92, 190, 232),
    Colour::new(158, 168, 60),
    Colour::new(140, 92, 182),
    Colour::new(56, 136, 156),
    Colour::new(196, 134, 150),
    Colour::new(120, 200, 160),
    Colour::new(90, 110, 160),
    Colour::new(214, 164, 216),
    Colour::new(150, 130, 84),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::classify::Classifier;
    use crate::profile::Profiles;
    use crate::report::Places;

    #[test]
    fn each_built_in_class_has_a_colour_of_its_own() {
        let text =
            "[profile]\nname = \"p\"\n\n[[request]]\nname = \"r\"\nbegin = { function = \"f\" }\n";
        let profiles = Profiles::parse([text], "p").unwrap();
        let classes = Classifier::new(&profiles).unwrap().names().to_vec();
        let places = |name: &str| vec![name.to_owned(), String::new()];
        let report = Report {
            classes: classes.clone(),
            places: Places {
                parked: places("client"),
                queued: places("pool"),
            },
            ..Report::default()
        };
        let blocked = (0..classes.len()).map(Time::Blocked);
        let all = [
            Time::Parked(0),
            Time::Parked(1),
            Time::Queued(0),
            Time::Queued(1),
            Time::OnCpu,
            Time::RunQueue,
            Time::Preempted,
            Time::Unattributed,
        ];
        let times: Vec<Time> = blocked.chain(all).collect();
        let colours: BTreeSet<Colour> = times.iter().map(|time| time.colour(&report)).collect();
        assert_eq!(colours.len(), times.len());
        let names: BTreeSet<_> = times.iter().map(|time| time.name(&report)).collect();
        assert_eq!(names.len(), times.len());
    }

    #[test]
    fn a_shade_is_near_its_colour_and_always_the_same() {
        for name in ["", "main", "JOIN::exec()"] {
            let shade = ON_CPU.shade(name);
            assert_eq!(shade, ON_CPU.shade(name));
            assert!(shade.red.abs_diff(ON_CPU.red) <= 25);
        }
        assert_ne!(ON_CPU.shade("main"), ON_CPU.shade("JOIN::exec()"));
        assert_eq!(ON_CPU.hex(), "#e66448");
    }
}
