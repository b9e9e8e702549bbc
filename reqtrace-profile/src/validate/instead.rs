//! `[as-traced]` of a profile that comes from a recording: what was chosen in, the request types so out.

use super::Checker;
use crate::RequestSpec;
use crate::schema::instead::AsTraced;
use crate::settle::take;
use reqtrace_base::error::Result;

impl Checker<'_> {
    /// Takes what a trace has chosen.
    pub(super) fn as_traced(&self, decided: AsTraced, requests: &mut [RequestSpec]) -> Result<()> {
        for (name, number) in decided.instead {
            let request = requests.iter_mut();
            let mut request = request.filter(|one| one.name == *name.get_ref());
            let Some(request) = request.next() else {
                let what = format!("there is no request `{}`", name.get_ref());
                return Err(self.source.error(name.span(), what));
            };
            let most = request.instead.len();
            let index = usize::try_from(*number.get_ref()).ok();
            let Some(index) = index.filter(|index| *index <= most) else {
                let what = format!(
                    "request `{}` has {most} [[request.instead]], so none has the number {}",
                    request.name,
                    number.get_ref()
                );
                return Err(self.source.error(number.span(), what));
            };
            take(request, index.checked_sub(1));
        }
        Ok(())
    }
}
