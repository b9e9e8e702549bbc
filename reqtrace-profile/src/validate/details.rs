//! Details: a request type as it is written in; what a cheap profile has of it out.

use toml::Spanned;

use super::Checker;
use crate::schema::list::OneOrMany;
use crate::schema::marker::Marker;
use crate::schema::{Markers, Request};
use reqtrace_base::error::Result;

type Given = Option<Spanned<Markers>>;

impl Checker<'_> {
    /// The request type with its details, if they are wanted; else without them. Where a marker that takes requests up is
    /// left out, it is not known for what they were parked.
    pub(super) fn with_details(&self, request: Request) -> Result<Request> {
        let cheap = without(request.clone());
        let lost = request.park.as_ref().filter(|_| {
            let stays = |of: &Request| of.park.is_some() || of.idle.is_some();
            stays(&request) && !stays(&cheap)
        });
        if let Some(lost) = lost {
            let what = "without details nothing parks a request, so what the thread waits for would be its time";
            return Err(self
                .source
                .error(lost.span(), what)
                .next("leave `detail` out of one of them, or add `idle`"));
        }
        Ok(if self.is_cheap { cheap } else { request })
    }
}

fn without(mut request: Request) -> Request {
    let lists = [&mut request.resume, &mut request.park, &mut request.ready];
    let [resumes_stay, _, readies_stay] = lists.map(keep);
    if !(resumes_stay && readies_stay) {
        let lists = [
            &mut request.resume,
            &mut request.park,
            &mut request.idle,
            &mut request.ready,
        ];
        lists.into_iter().for_each(forget_names);
    }
    request
        .attribute
        .retain(|attribute| !attribute.get_ref().detail);
    request
}

/// Leaves details out. Whether there were none.
fn keep(list: &mut Given) -> bool {
    let Some(given) = list.take() else {
        return true;
    };
    let span = given.span();
    let mut all = OneOrMany::all(given);
    let written = all.len();
    let is_detail = |marker: &Marker| {
        marker
            .detail
            .as_ref()
            .is_some_and(|detail| *detail.get_ref())
    };
    all.retain(|marker| !is_detail(marker.get_ref()));
    let is_whole = all.len() == written;
    // An empty list that was written is refused later.
    if is_whole || !all.is_empty() {
        *list = Some(Spanned::new(span, OneOrMany::Many(all)));
    }
    is_whole
}

fn forget_names(list: &mut Given) {
    let Some(given) = list.take() else {
        return;
    };
    let span = given.span();
    let nameless = |marker: Spanned<Marker>| {
        let span = marker.span();
        let marker = Marker {
            place: None,
            ..marker.into_inner()
        };
        Spanned::new(span, marker)
    };
    let all = OneOrMany::all(given).into_iter().map(nameless).collect();
    *list = Some(Spanned::new(span, OneOrMany::Many(all)));
}
