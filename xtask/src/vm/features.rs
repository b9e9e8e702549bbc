//! The table kernel × feature: what the doctor printed on each kernel that passed, and what was checked there,
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
        "# Kernels\n\nWritten by `cargo xtask vm-test --all --write`: Debian's kernels under emulation, each with the \
         example shop under load and the services that measure themselves. Times under emulation say \
         nothing about a real machine.\n\n",
    );
    head(&mut text, passed.iter())?;
    for subject in SUBJECTS {
        write!(text, "| {subject}")?;
        for boot in passed {
            let printed = printed(&boot.doctor, subject).with_context(|| {
                format!("on {} the doctor printed nothing of {subject}", boot.kernel)
            })?;
            // What a hit takes is of no use here.
            let printed = printed.split("; a hit costs").next().unwrap_or(printed);
            write!(text, " | {printed}")?;
        }
        text.push_str(" |\n");
    }
    text.push_str("| traced");
    for boot in passed {
        write!(text, " | {}", boot.verdict)?;
    }
    text.push_str(" |\n");
    for (row, checked) in passed
        .first()
        .into_iter()
        .flat_map(|boot| &boot.units)
        .enumerate()
    {
        write!(text, "| {}", checked.title)?;
        for boot in passed {
            let checked = boot.units.get(row).context("runtimes differ")?;
            write!(text, " | {}", checked.verdict)?;
        }
        text.push_str(" |\n");
    }
    let tried = || passed.iter().filter(|boot| !boot.trials.is_empty());
    let Some(first) = tried().next() else {
        return Ok(text);
    };
    text.push_str(
        "\n## Where something is missing, forbidden or elsewhere\n\nThe same service, traced again while that \
         holds. What `reqtrace doctor` says is what came of it, each time. Lockdown is raised while the kernel runs, \
         and the kernel's type information is hidden by a mount; all else is as on any such machine.\n\n",
    );
    head(&mut text, tried())?;
    for (row, trial) in first.trials.iter().enumerate() {
        write!(text, "| {}", trial.title)?;
        for boot in tried() {
            let tried = boot.trials.get(row).context("trials differ")?;
            write!(text, " | {}", tried.came)?;
        }
        text.push_str(" |\n");
    }
    Ok(text)
}

/// The first line of a table, and the one below it.
fn head<'a>(text: &mut String, boots: impl Iterator<Item = &'a Passed>) -> Result<()> {
    text.push('|');
    let mut count = 0;
    for boot in boots {
        write!(text, " | {}", boot.kernel)?;
        count += 1;
    }
    text.push_str(" |\n| ---");
    text.push_str(&" | ---".repeat(count));
    text.push_str(" |\n");
    Ok(())
}

/// What the doctor printed of a subject, with a word before it when that is not well.
fn printed<'a>(doctor: &'a str, subject: &str) -> Option<&'a str> {
    doctor.lines().find_map(|line| {
        let (_state, rest) = line.split_at_checked(10)?;
        let printed = rest.strip_prefix(subject)?;
        Some(printed.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::{trials::Tried, units::Checked};

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
            units: vec![Checked {
                title: "tasks",
                verdict: "two".to_owned(),
            }],
            trials: Vec::new(),
        };
        let with_trials = Passed {
            trials: vec![Tried {
                title: "no air",
                came: "refused".to_owned(),
            }],
            ..boot("6.12")
        };
        let text = text(&[boot("6.1"), boot("6.12"), with_trials]).unwrap();
        assert!(text.contains("| | 6.1 | 6.12 | 6.12 |"), "{text}");
        let probes = "| probes | set by perf events, hit | set by perf events, hit |";
        assert!(text.contains(probes), "{text}");
        let last = "| traced | all | all | all |\n| tasks | two | two | two |\n";
        assert!(text.contains(last), "{text}");
        assert!(
            text.contains("| | 6.12 |\n| --- | --- |\n| no air | refused |\n"),
            "{text}"
        );
    }

    #[test]
    fn a_doctor_that_does_not_say_is_an_error() {
        let boot = Passed {
            kernel: "6.1".to_owned(),
            doctor: String::new(),
            verdict: String::new(),
            units: Vec::new(),
            trials: Vec::new(),
        };
        assert!(text(&[boot]).is_err());
    }
}
