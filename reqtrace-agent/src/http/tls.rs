//! TLS: certificates in; who sends requests to another machine out.

use std::path::Path;
use std::time::Duration;

use reqtrace_base::error::{Error, Result};
use ureq::Agent;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

/// Finding the other end and its first words are not a matter of the file's size.
const LONGEST_CONNECT: Duration = Duration::from_secs(15);

/// Who sends requests: every wait has an end, and no answer leads elsewhere.
///
/// # Errors
///
/// Usage errors: the certificates cannot be read.
pub(crate) fn client(timeout: Duration, ca: Option<&Path>) -> Result<Agent> {
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
