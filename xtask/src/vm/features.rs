//! The table kernel × feature: what the doctor said on each kernel that passed, and what was checked there,
//! in; `docs/measured/kernels.md` out.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context as _, Result};

use super::Passed;
use crate::workspace;

/// What the doctor looks at and kernels differ in.
const SUBJECTS: [&str; 4] = ["uprobes", "probes", "kernel symbols", "perf_event_paranoid"];

/// Writes the page.
pub(super) fn write(passed: &[Passed]) -> Result<()> {
    let page = workspace::root().join("docs/measured/kernels.md");
    fs::write(&page, text(passed)?).with_context(|| page.display().to_string())?;
    println!("vm: {} is written", page.display());
    Ok(())
}

fn text(passed: &[Passed]) -> Result<String> {
    let mut text = String::from(
        "# Kernels\n\nWritten by `cargo xtask vm-test --write`: Debian's kernels under emulation, each with the \
         example shop under load and the service that measures its own waits. Times under emulation say \
         nothing about a real machine.\n\n|",
    );
    for boot in passed {
        write!(text, " | {}", boot.kernel)?;
    }
    text.push_str(" |\n| ---");
    text.push_str(&" | ---".repeat(passed.len()));
    text.push_str(" |\n");
    for subject in SUBJECTS {
        write!(text, "| {subject}")?;
        for boot in passed {
            let said = said(&boot.doctor, subject).with_context(|| {
                format!("on {} the doctor said nothing of {subject}", boot.kernel)
            })?;
            // What a hit takes is of no use here.
            let said = said.split("; a hit costs").next().unwrap_or(said);
            write!(text, " | {said}")?;
        }
        text.push_str(" |\n");
    }
    text.push_str("| traced");
    for boot in passed {
        write!(text, " | {}", boot.verdict)?;
    }
    text.push_str(" |\n");
    Ok(text)
}

/// What the doctor said of a subject, with a word before it when that is not well.
fn said<'a>(doctor: &'a str, subject: &str) -> Option<&'a str> {
    doctor.lines().find_map(|line| {
        let (_state, rest) = line.split_at_checked(10)?;
        let said = rest.strip_prefix(subject)?;
        Some(said.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCTOR: &str = "\
ok        uprobes              perf event type 8
ok        probes               set by perf events, hit; a hit costs 5 ns
ok        perf_event_paranoid  2
degraded  kernel symbols       hidden
";

    #[test]
    fn each_kernel_has_a_column() {
        let boot = |kernel: &str| Passed {
            kernel: kernel.to_owned(),
            doctor: DOCTOR.to_owned(),
            verdict: "all".to_owned(),
        };
        let text = text(&[boot("6.1"), boot("6.12")]).unwrap();
        assert!(text.contains("| | 6.1 | 6.12 |"), "{text}");
        assert!(text.contains("| probes | set by perf events, hit | set by perf events, hit |"));
        assert!(text.contains("| traced | all | all |"));
    }

    #[test]
    fn a_doctor_that_does_not_say_is_an_error() {
        let boot = Passed {
            kernel: "6.1".to_owned(),
            doctor: String::new(),
            verdict: String::new(),
        };
        assert!(text(&[boot]).is_err());
    }
}
