//! S3: a file in; one object of its place and name out, the same however often it is sent.

use std::fs::File;
use std::time::Duration;

use reqtrace_base::error::{Error, Result};
use rusty_s3::{Credentials, S3Action as _};
use ureq::Agent;

use super::config::S3;
use super::folder::{Found, What};
use super::secret::Secret;
use crate::http::{Failure, Outcome, outcome};

/// A signature holds for so long: clocks may differ, and a large file takes a while.
const SIGNED: Duration = Duration::from_secs(900);

/// Sends a file: its path below the folder is its place below the prefix.
pub(super) fn send(to: &S3, client: &Agent, file: &File, found: &Found) -> Outcome {
    let credentials = match credentials(&to.key) {
        Ok(credentials) => credentials,
        Err(error) => return Outcome::Failed(Failure::Denied, error.to_string()),
    };
    let prefix = match found.what {
        What::Rows => &to.prefix,
        What::Rollups => &to.rollups_prefix,
    };
    let object = format!("{prefix}{}", found.place);
    let url = to
        .bucket
        .put_object(Some(&credentials), &object)
        .sign(SIGNED);
    outcome(
        client
            .put(url.as_str())
            .content_type("application/vnd.apache.parquet")
            .send(file),
    )
}

fn credentials(key: &Secret) -> Result<Credentials> {
    match key.lines()?.as_slice() {
        [id, secret] => Ok(Credentials::new(id, secret)),
        [id, secret, token] => Ok(Credentials::new_with_token(id, secret, token)),
        lines => Err(Error::usage(format!("the key of [s3] has {} lines", lines.len()))
            .next("write the key's id into the first line, its secret into the second, a session's token into the third")),
    }
}

/// Checks what can be checked before the first file.
///
/// # Errors
///
/// Usage errors: a key that cannot be read.
pub(super) fn check(to: &S3) -> Result<()> {
    credentials(&to.key).map(|_| ())
}
