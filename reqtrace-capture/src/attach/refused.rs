//! Why the kernel did not take what was to be loaded: aya's errors in, errors with their reason and what to do out.

use std::io;

use aya::EbpfError;
use aya::programs::ProgramError;

use reqtrace_base::error::Error;

/// Why the object was refused.
pub(super) fn explain_load(error: &EbpfError) -> Error {
    Error::unsupported("the kernel did not take the maps or the object").because(chain(error))
}

/// Why a program was refused.
pub(super) fn explain_program(name: &str, error: ProgramError) -> Error {
    if let ProgramError::LoadError {
        io_error,
        verifier_log,
    } = &error
    {
        if io_error.raw_os_error() == Some(libc::EPERM) {
            return Error::unsupported(format!("the kernel refused to load `{name}`"))
                .because(io::Error::from_raw_os_error(libc::EPERM))
                .next("run as root; if it is root, look for lockdown: cat /sys/kernel/security/lockdown");
        }
        return Error::unsupported(format!("the verifier refused `{name}`"))
            .because(format!(
                "{io_error}: {}\n{verifier_log}",
                refusal(&verifier_log.to_string())
            ))
            .next("report this with the output of `uname -a`");
    }
    Error::unsupported(format!("the program `{name}` could not be loaded")).because(chain(&error))
}

/// What the verifier's statistics begin with, which it writes after the reason.
const STATISTICS: [&str; 3] = ["processed ", "stack depth ", "verification time "];

/// Why the verifier refused: the last line of its log that is no statistics.
fn refusal(log: &str) -> &str {
    let is_reason =
        |line: &&str| !line.is_empty() && !STATISTICS.iter().any(|begin| line.starts_with(begin));
    let mut reasons = log.lines().rev().map(str::trim).filter(is_reason);
    reasons.next().unwrap_or("it did not say why")
}

/// An error with all its causes in one line: aya's own messages leave them out.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_a_refusal_stands_before_the_statistics() {
        // The end of a log of 6.1.
        let log = "12: (79) r3 = *(u64 *)(r3 +0)\nR3 unbounded memory access\n\
                   verification time 19004 usec\nstack depth 376+8\nprocessed 900 insns\n\n";
        assert_eq!(refusal(log), "R3 unbounded memory access");
        assert_eq!(refusal("processed 900 insns\n"), "it did not say why");
    }
}
