//! Request types in the text of `check`: a specification and what was resolved in, words out.

use super::words;
use reqtrace_base::error::Result;
use reqtrace_profile::{
    At, AttributeAt, AttributeSpec, Change, Edge, KeySpec, MarkerSpec, PlaceSpec, RequestSpec,
    ReturnProbe, Role, ValueSpec,
};
use reqtrace_resolve::{
    Choice, ObjectFile, ResolvedMarker, ResolvedRequest, Target, Unread, returns, symbols,
};

/// Sites printed for one marker before the rest is only counted.
const MAX_SITES: usize = 12;

/// A request type with all its markers.
///
/// # Errors
///
/// When an object cannot be read.
pub(super) fn describe(
    spec: &RequestSpec,
    (request, choice): (&ResolvedRequest, Option<&Choice>),
    target: &Target<'_>,
) -> Result<String> {
    let probe = request.return_probe;
    let mut text = format!("\nrequest {}\n", request.name);
    if let Some(choice) = choice {
        text.push_str(&words::choice(choice));
    }
    if spec.is_keyed {
        text.push_str("  any thread may go on with a request: it is known by its key\n");
    }
    let mut of_attributes = Vec::new();
    let mut specs = spec.more_markers();
    for (role, resolved) in request.markers() {
        let its_spec = match role {
            Role::Begin => Some(&spec.begin),
            Role::End => spec.end.as_ref(),
            Role::Attribute => {
                of_attributes.push(resolved);
                continue;
            }
            // Those of what the program does not have are not there.
            role => specs.find(|one| one.role == role),
        };
        text.push_str(&marker(role.name(), its_spec, resolved, probe, target)?);
        if let Some(its_spec) = its_spec {
            text.push_str(&purpose(spec, its_spec));
        }
    }
    if !spec.is_keyed {
        text.push_str(if request.same_frame {
            "  an end belongs to its begin by the stack pointer\n"
        } else {
            "  begin and end are not of one call: distinguished by thread only\n"
        });
    }
    match (&request.unlabelled, spec.labels.is_empty()) {
        (Some(why), _) => text.push_str(&format!("  no label: {why}\n")),
        (None, false) => text.push_str("  a label is read at begin, with --labels\n"),
        (None, true) => {}
    }
    text.push_str(&attributes(spec, request, &of_attributes, target)?);
    Ok(text)
}

/// What a marker does with which request, and when.
fn purpose(request: &RequestSpec, spec: &MarkerSpec) -> String {
    let mut lines = Vec::new();
    if request.is_keyed {
        lines.push(match &spec.key {
            KeySpec::Current => "request: the one that the thread runs".to_owned(),
            KeySpec::Unit => "key: the task that the thread runs".to_owned(),
            KeySpec::Key(key) => format!("key: {}", key_of(key)),
        });
    }
    if let Some(to) = &spec.to {
        lines.push(format!("key from here on: {}", key_of(to)));
    }
    let name = spec.waits_in.and_then(|index| request.places.get(index));
    match (spec.role, name) {
        (Role::Park | Role::Idle, Some(name)) => lines.push(format!("parked from here on: {name}")),
        (Role::Park, None) if spec.place == PlaceSpec::Edge(Edge::Goroutine(Change::Park)) => {
            lines.push("parked from here on, by the reason that the runtime has".to_owned());
        }
        (Role::Note, Some(name)) => lines.push(format!(
            "which job a task has waited for, and until when no thread had taken it: {name}"
        )),
        (Role::Note, None) => {
            lines.push("where it waits, by what calls this: a name and a stack".to_owned());
        }
        (Role::Park | Role::Idle, None) => lines.push("parked from here on".to_owned()),
        (Role::Begin, Some(name)) => lines.push(format!("queued at once: {name}")),
        (Role::Begin, None) if spec.is_queued => lines.push("queued at once".to_owned()),
        (Role::Ready, Some(name)) => lines.push(format!("queued from here on: {name}")),
        (Role::Ready, None) => lines.push("queued from here on".to_owned()),
        (Role::Recover, _) => lines.push(
            "it ends here if its function is not on the stack that the goroutine goes on with"
                .to_owned(),
        ),
        (Role::Child, _) => lines.push("what it makes here is counted".to_owned()),
        (_, Some(name)) => lines.push(format!("it was parked until here: {name}")),
        (_, None) => {}
    }
    if spec.is_child {
        lines.push("only by a request of the type before, or by a child of one".to_owned());
    }
    if spec.is_touch {
        lines.push("keys of no request are expected here".to_owned());
    }
    if !spec.when.is_empty() {
        lines.push(format!("only if {}", words::conditions(&spec.when)));
    }
    lines
        .iter()
        .map(|line| format!("        {line}\n"))
        .collect()
}

/// The values of a key.
fn key_of(values: &[ValueSpec]) -> String {
    let values: Vec<String> = values.iter().map(words::value).collect();
    values.join(", and ")
}

/// All attributes, by name, with the ways in which each is read.
fn attributes(
    spec: &RequestSpec,
    request: &ResolvedRequest,
    markers: &[&ResolvedMarker],
    target: &Target<'_>,
) -> Result<String> {
    // Those that were found, in the order of the profile.
    let mut markers = markers.iter();
    let mut ways: Vec<(&AttributeSpec, Option<&ResolvedMarker>, Option<&Unread>)> = Vec::new();
    for (index, way) in spec.attributes.iter().enumerate() {
        let unread = request.unread.iter().find(|unread| unread.way == index);
        let marker = match (&way.read, unread) {
            (AttributeAt::Marker(_), None) => markers.next().copied(),
            _ => None,
        };
        ways.push((way, marker, unread));
    }
    let mut text = String::new();
    for name in spec.attribute_names() {
        let of_name = || ways.iter().filter(|(way, ..)| way.name == name);
        if let Some((first, ..)) = of_name().next() {
            text.push_str(&format!(
                "  attribute {name} ({})\n",
                words::attribute(first)
            ));
        }
        for (way, resolved, unread) in of_name() {
            let place = match (&way.read, resolved) {
                (AttributeAt::Begin, _) => "begin".to_owned(),
                (AttributeAt::End, _) => "end".to_owned(),
                (AttributeAt::Marker(_), Some(resolved)) => {
                    let end = if resolved.at == At::Return {
                        "return"
                    } else {
                        "entry"
                    };
                    match resolved.is_function {
                        true => format!("{} ({end})", resolved.symbol),
                        false => resolved.symbol.clone(),
                    }
                }
                (AttributeAt::Marker(marker), None) => words::place(&marker.place),
            };
            text.push_str(&format!("        at {place}: {}\n", words::way(way)));
            if let (AttributeAt::Marker(spec), Some(resolved)) = (&way.read, resolved) {
                text.push_str(&sites(Some(spec), resolved));
                text.push_str(&places("attribute", resolved, ReturnProbe::Sites, target)?);
            }
            if let Some(unread) = unread {
                text.push_str(&format!("        not read there: {}\n", unread.why));
            }
        }
    }
    Ok(text)
}

fn marker(
    name: &str,
    spec: Option<&MarkerSpec>,
    marker: &ResolvedMarker,
    probe: ReturnProbe,
    target: &Target<'_>,
) -> Result<String> {
    let is_usdt = spec.is_some_and(|spec| matches!(spec.place, PlaceSpec::Usdt { .. }));
    let how = match (marker.at, probe) {
        _ if is_usdt => "USDT",
        (At::Entry, _) if !marker.is_function => "instruction",
        (At::Entry, _) => "entry",
        (At::Return, ReturnProbe::Sites) => "return",
        (At::Return, ReturnProbe::Uretprobe) => "return by uretprobe",
    };
    let mut text = format!("  {name:<5} {} ({how})\n", marker.symbol);
    text.push_str(&sites(spec, marker));
    if !is_usdt {
        text.push_str(&places(name, marker, probe, target)?);
    }
    let skipped = match spec {
        Some(spec) => skipped(spec, marker, target)?,
        None => Vec::new(),
    };
    if !skipped.is_empty() {
        text.push_str(&format!(
            "        tried first and not found: {}\n",
            skipped.join(", ")
        ));
    }
    Ok(text)
}

/// The file of a marker and its probes.
fn sites(spec: Option<&MarkerSpec>, marker: &ResolvedMarker) -> String {
    let is_usdt = spec.is_some_and(|spec| matches!(spec.place, PlaceSpec::Usdt { .. }));
    let mut sites: Vec<String> = marker
        .sites
        .iter()
        .take(MAX_SITES)
        .map(|site| match (site.condition, site.semaphore) {
            (Some(_), _) => format!("0x{:x} (conditional)", site.file_offset),
            (None, Some(_)) => format!("0x{:x} (semaphore)", site.file_offset),
            (None, None) => format!("0x{:x}", site.file_offset),
        })
        .collect();
    if marker.sites.len() > MAX_SITES {
        sites.push("…".to_owned());
    }
    let count = marker.sites.len();
    let plural = if count == 1 { "" } else { "s" };
    let function = if is_usdt || !marker.is_function {
        String::new()
    } else {
        format!("function at offset 0x{:x} · ", marker.entry_offset)
    };
    format!(
        "        {} · {function}{count} probe{plural}: {}\n",
        marker.object_shown,
        sites.join(" ")
    )
}

/// The instructions that stand for an entry or a return, and which ones the kernel must single-step.
fn places(
    name: &str,
    marker: &ResolvedMarker,
    probe: ReturnProbe,
    target: &Target<'_>,
) -> Result<String> {
    let is_return = marker.at == At::Return;
    if is_return && probe == ReturnProbe::Uretprobe {
        return Ok(String::new());
    }
    let object = target.open(&ObjectFile {
        open: marker.object.clone(),
        shown: marker.object_shown.clone(),
    })?;
    let mut text = String::new();
    for site in marker.sites.iter().take(MAX_SITES) {
        let found = object
            .address_of(site.file_offset)
            .and_then(|address| returns::instruction_at(&object, address));
        let Some((instruction, is_emulated)) = found else {
            continue;
        };
        if !is_return && site.distance == 0 && is_emulated {
            continue;
        }
        let place = match (site.distance, is_return) {
            (0, _) => String::new(),
            (bytes, true) => format!(", {bytes} bytes before the return"),
            (bytes, false) => format!(", {bytes} bytes behind the entry"),
        };
        let how = if is_emulated {
            "emulated by the kernel"
        } else {
            "single-stepped by the kernel, which is slower"
        };
        text.push_str(&format!(
            "        {name} at 0x{:x} {instruction}{place} ({how})\n",
            site.file_offset
        ));
    }
    Ok(text)
}

/// Alternatives of a marker before the one that was taken, which this program does not have.
fn skipped(spec: &MarkerSpec, marker: &ResolvedMarker, target: &Target<'_>) -> Result<Vec<String>> {
    let PlaceSpec::Function { patterns, .. } = &spec.place else {
        return Ok(Vec::new());
    };
    if patterns.len() < 2 {
        return Ok(Vec::new());
    }
    let object = target.open(&ObjectFile {
        open: marker.object.clone(),
        shown: marker.object_shown.clone(),
    })?;
    let mut skipped = Vec::new();
    for pattern in patterns {
        let found = if spec.is_all {
            symbols::find_all(&object, pattern)?
        } else {
            symbols::find(&object, pattern)?
        };
        if found.is_some() {
            break;
        }
        skipped.push(pattern.clone());
    }
    Ok(skipped)
}
