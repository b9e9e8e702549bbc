//! HTTP: a request in; whether the other end has accepted it, refuses it for ever, or may be asked again, and when, out.

mod ending;
#[cfg(feature = "ship")]
mod tls;

use std::io::Read as _;
use std::time::Duration;

use reqtrace_base::plain::Plain;
use ureq::http::Response;
use ureq::{Agent, Body};

pub(crate) use ending::Ending;
#[cfg(feature = "ship")]
pub(crate) use tls::client;

/// Characters of an answer that are kept.
const MAX_ANSWER: u64 = 600;

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Accepted,
    /// It would be refused each time; the answer.
    Refused(String),
    /// It may be accepted later.
    Failed(Failure, String),
}

/// Why a request was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No connection, or it broke off.
    Unreachable,
    /// It took too long.
    Timeout,
    /// It has too much to do: 408, 425, 429, 503.
    Busy,
    /// It failed: 5xx, or an answer that is none.
    Server,
    /// This sender may not, or what it sends to is not there: 401, 403, 404, 407, a secret that cannot be read.
    Denied,
    /// For ever.
    Refused,
    /// The file cannot be read, or not be taken away.
    File,
}

impl Failure {
    pub(crate) const ALL: [Self; 7] = [
        Self::Unreachable,
        Self::Timeout,
        Self::Busy,
        Self::Server,
        Self::Denied,
        Self::Refused,
        Self::File,
    ];

    /// The label `cause`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Timeout => "timeout",
            Self::Busy => "busy",
            Self::Server => "server",
            Self::Denied => "denied",
            Self::Refused => "refused",
            Self::File => "file",
        }
    }
}

/// Who sends requests to a program on this machine, without TLS: every wait has an end, and no answer leads elsewhere.
pub(crate) fn local(timeout: Duration, connect: Duration) -> Agent {
    let config = Agent::config_builder()
        .timeout_global(Some(timeout))
        .timeout_connect(Some(connect))
        .http_status_as_error(false)
        .max_redirects(0)
        .max_idle_connections(1)
        // What the environment says is about people, not about an agent.
        .proxy(None)
        .user_agent(concat!("reqtrace/", env!("CARGO_PKG_VERSION")));
    config.build().into()
}

/// When something that failed is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retry {
    /// After the first failure.
    pub(crate) first: Duration,
    /// At most.
    pub(crate) longest: Duration,
}

impl Retry {
    /// How long to wait after so many failures, drawn from the upper half: machines that failed together come apart. `draw` is
    /// of 0 to 1.
    pub(crate) fn after(self, failures: u32, draw: f64) -> Duration {
        let doubled = self
            .first
            .saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1)));
        doubled.min(self.longest).mul_f64(0.5 + draw / 2.0)
    }
}

/// What an answer means.
pub(crate) fn outcome(answer: Result<Response<Body>, ureq::Error>) -> Outcome {
    let response = match answer {
        Ok(response) => response,
        Err(ureq::Error::Timeout(of)) => {
            return Outcome::Failed(Failure::Timeout, format!("timeout: {of}"));
        }
        Err(error) => return Outcome::Failed(Failure::Unreachable, error.to_string()),
    };
    let status = response.status();
    let mut body = Vec::new();
    // What has come of it is enough.
    let whole = response
        .into_body()
        .into_reader()
        .take(MAX_ANSWER)
        .read_to_end(&mut body);
    if status.is_success() {
        return match whole {
            Ok(_) => Outcome::Accepted,
            Err(error) => Outcome::Failed(
                Failure::Unreachable,
                format!("the answer broke off: {error}"),
            ),
        };
    }
    let body = Plain::of_bytes(body.trim_ascii());
    let answer = format!("{status}: {}", body.as_str());
    match status.as_u16() {
        408 | 425 | 429 | 503 => Outcome::Failed(Failure::Busy, answer),
        401 | 403 | 404 | 407 => Outcome::Failed(Failure::Denied, answer),
        400..=499 => Outcome::Refused(answer),
        _ => Outcome::Failed(Failure::Server, answer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_are_drawn_from_the_upper_half() {
        let retry = Retry {
            first: Duration::from_secs(1),
            longest: Duration::from_secs(120),
        };
        let seconds = |failures, draw| retry.after(failures, draw).as_secs_f64();
        assert_eq!(
            [1, 2, 3, 7].map(|failures| seconds(failures, 1.0)),
            [1.0, 2.0, 4.0, 64.0]
        );
        assert_eq!(
            [8, 9, 1_000_000].map(|failures| seconds(failures, 1.0)),
            [120.0; 3]
        );
        assert_eq!((seconds(1, 0.0), seconds(9, 0.5)), (0.5, 90.0));
    }
}
