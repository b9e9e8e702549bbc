//! Where requests are recorded: the header and mapped files in, machine, service and build id of each type out.

use std::fmt::Write as _;

use reqtrace_base::plain::Plain;
use reqtrace_recording::{Header, Object};

use crate::profile::Profiles;
use crate::report::Origin;

/// What is known of the request types.
#[derive(Debug)]
pub(super) struct Origins {
    host: String,
    types: Vec<OfType>,
}

#[derive(Debug)]
struct OfType {
    service: String,
    /// The file that its begin is in, as the header has it.
    begins_in: Option<String>,
    build_id: Option<String>,
}

impl Origins {
    pub(super) fn new(profiles: &Profiles, header: &Header) -> Self {
        let services = profiles.all().iter().flat_map(|profile| {
            let each = profile.requests.iter();
            each.map(|_| profile.name.clone())
        });
        let of_type = |(name, service): (String, String)| {
            let mut markers = header.markers.iter();
            let begin = markers.find(|one| one.request == name && one.marker == "begin");
            OfType {
                service,
                begins_in: begin.map(|marker| marker.object.clone()),
                build_id: None,
            }
        };
        let names = profiles.request_names().into_iter();
        Self {
            host: Plain::of(&header.host).into(),
            types: names.zip(services).map(of_type).collect(),
        }
    }

    /// Takes a mapped file. One that replaces another has its place.
    pub(super) fn object(&mut self, object: &Object) {
        if object.build_id.is_empty() {
            return;
        }
        let of_types = self.types.iter_mut();
        for of in of_types.filter(|of| of.begins_in.as_ref() == Some(&object.path)) {
            of.build_id = Some(hex(&object.build_id));
        }
    }

    /// Of a request type, by its number.
    pub(super) fn of(&self, request_type: usize) -> Origin<'_> {
        let of = self.types.get(request_type);
        Origin {
            host: &self.host,
            service: of.map_or("", |of| &of.service),
            build_id: of.and_then(|of| of.build_id.as_deref()),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to memory does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
