//! Options that choose blocks: words in, a filter of the stacks out.

use reqtrace_common::filter::{ANY_STATE, StackFilter};

use reqtrace_base::error::{Error, Result};

/// The words, as given. Names and meaning are offcputime's.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct FilterArgs {
    /// Stacks only of blocks of at least this many microseconds; the ledger counts all
    #[arg(
        short = 'm',
        long = "min-block-time",
        value_name = "US",
        help_heading = "Stacks"
    )]
    min_us: Option<u64>,

    /// Stacks only of blocks of at most this many microseconds; the ledger counts all
    #[arg(
        short = 'M',
        long = "max-block-time",
        value_name = "US",
        help_heading = "Stacks"
    )]
    max_us: Option<u64>,

    /// Stacks only of threads that left the CPU in one of these states, a mask: 1 interruptible, 2
    /// uninterruptible, 3 both, 0 preempted; the ledger counts all
    #[arg(long, value_name = "N", value_parser = mask, help_heading = "Stacks")]
    state: Option<u32>,
}

impl FilterArgs {
    /// The filter.
    ///
    /// # Errors
    ///
    /// Usage errors: bounds that leave nothing, or a filter of blocks beside `slower_than`, whose
    /// stacks come from requests.
    pub(super) fn filter(&self, slower_than: bool) -> Result<StackFilter> {
        let filter = StackFilter {
            min_ns: self.min_us.map_or(0, nanoseconds),
            // To the end of the last microsecond.
            max_ns: self
                .max_us
                .map_or(u64::MAX, |us| nanoseconds(us.saturating_add(1)) - 1),
            state: self.state.map_or(ANY_STATE, u64::from),
        };
        if let (Some(min), Some(max)) = (self.min_us, self.max_us)
            && min > max
        {
            return Err(Error::usage(format!(
                "no block is at least {min} µs (-m) and at most {max} µs (-M) long"
            ))
            .next("give -m less than -M"));
        }
        if filter != StackFilter::ALL && slower_than {
            return Err(Error::usage(
                "-m, -M and --state choose blocks, and the stacks of --slower-than come from \
                 requests, which hold sums of blocks",
            )
            .next("give one of the two"));
        }
        Ok(filter)
    }
}

fn nanoseconds(us: u64) -> u64 {
    us.saturating_mul(1_000)
}

fn mask(word: &str) -> Result<u32, String> {
    let digits = word.strip_prefix("0x");
    digits
        .map_or_else(|| word.parse(), |hex| u32::from_str_radix(hex, 16))
        .map_err(|_| {
            "give a mask of task states: 1 interruptible, 2 uninterruptible, 3 both, 0 preempted"
                .to_owned()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_a_filter() {
        let args = FilterArgs {
            min_us: Some(100),
            max_us: Some(200),
            state: Some(mask("0x2").unwrap()),
        };
        let filter = args.filter(false).unwrap();
        assert_eq!((filter.min_ns, filter.max_ns), (100_000, 200_999));
        assert_eq!(filter.state, 2);
        assert!(args.filter(true).is_err());
        assert!(FilterArgs::default().filter(true).is_ok());
    }

    #[test]
    fn bounds_that_leave_nothing_are_refused() {
        let args = FilterArgs {
            min_us: Some(200),
            max_us: Some(100),
            state: None,
        };
        let error = args.filter(false).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("200"));
        assert!(mask("-1").is_err() && mask("S").is_err());
    }
}
