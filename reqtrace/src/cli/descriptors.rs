//! Descriptors: the limit of this process in, as many as tracing needs, where they are allowed, out.

use log::debug;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that are asked for.
const DESCRIPTORS: u64 = 65_536;

/// Mapped files, links and maps take more descriptors than the usual 1,024.
pub(super) fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let most = limit
        .maximum
        .map_or(DESCRIPTORS, |most| most.min(DESCRIPTORS));
    if limit.current.is_none_or(|current| current >= most) {
        return;
    }
    let raised = Rlimit {
        current: Some(most),
        ..limit
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        debug!(
            "the limit of descriptors stays {:?}: {error}",
            limit.current
        );
    }
}
