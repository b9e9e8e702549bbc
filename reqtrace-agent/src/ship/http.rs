//! HTTP: a request with a file in; whether the other end has accepted it, refuses it for ever, or may be asked again, out.

use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use reqtrace_base::error::{Error, Result};
use reqtrace_base::plain::Plain;
use ureq::http::Response;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body};

/// Finding the other end and its first words are not a matter of the file's size.
const LONGEST_CONNECT: Duration = Duration::from_secs(15);
/// Characters of an answer that are kept.
const MAX_ANSWER: u64 = 600;

/// What became of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Accepted,
    /// It would be refused each time; the answer.
    Refused(String),
    /// It may be accepted later.
    Failed(Failure, String),
}

/// Why a file was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// No connection, or it broke off.
    Unreachable,
    /// It took too long.
    Timeout,
    /// It has too much to do: 408, 425, 429, 503.
    Busy,
    /// It failed: 5xx, or an answer that is none.
    Server,
    /// This shipper may not, or what it sends to is not there: 401, 403, 404, 407, a secret that cannot be read.
    Denied,
    /// For ever.
    Refused,
    /// The file cannot be read, or not be taken away.
    File,
}

impl Failure {
    pub(super) const ALL: [Self; 7] = [
        Self::Unreachable,
        Self::Timeout,
        Self::Busy,
        Self::Server,
        Self::Denied,
        Self::Refused,
        Self::File,
    ];

    /// The label `cause`.
    pub(super) const fn name(self) -> &'static str {
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

/// Who sends requests: every wait has an end, and no answer leads elsewhere.
///
/// # Errors
///
/// Usage errors: the certificates cannot be read.
pub(super) fn client(timeout: Duration, ca: Option<&Path>) -> Result<Agent> {
    let roots = match ca {
        Some(path) => RootCerts::new_with_certs(&certificates(path)?),
        None => RootCerts::WebPki,
    };
    let connect = timeout.min(LONGEST_CONNECT);
    let config = Agent::config_builder()
        .timeout_global(Some(timeout))
        .timeout_resolve(Some(connect))
        .timeout_connect(Some(connect))
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .user_agent(concat!("reqtrace/", env!("CARGO_PKG_VERSION")))
        .tls_config(TlsConfig::builder().root_certs(roots).build());
    Ok(config.build().new_agent())
}

fn certificates(path: &Path) -> Result<Vec<Certificate<'static>>> {
    let name = path.display();
    let text = std::fs::read(path).map_err(|error| {
        Error::usage(format!("the certificates {name} cannot be read"))
            .because(error)
            .next("give a PEM file that this user may read, or leave ca out")
    })?;
    let all: Vec<Certificate<'static>> = parse_pem(&text)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    match all.is_empty() {
        true => Err(Error::usage(format!("{name} has no certificate")).next(
            "give a PEM file of the authority that has signed the server's, or leave ca out",
        )),
        false => Ok(all),
    }
}

/// What an answer means.
pub(super) fn outcome(answer: Result<Response<Body>, ureq::Error>) -> Outcome {
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
