//! Quantities as people write them: words with a unit in; times, bytes and shares out, or what to write instead.

use std::time::Duration;

/// A length of time with its unit: ns, us (or µs), ms, s.
///
/// # Errors
///
/// What to write instead.
pub fn short_time(word: &str) -> Result<Duration, String> {
    const UNITS: &[(&str, f64)] = &[
        ("ns", 1e-9),
        ("us", 1e-6),
        ("µs", 1e-6),
        ("ms", 1e-3),
        ("s", 1.0),
    ];
    let digits = word
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(word.len());
    let (number, unit) = word.split_at(digits);
    UNITS
        .iter()
        .find(|(name, _)| *name == unit)
        .and_then(|(_, seconds)| {
            Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()
        })
        .ok_or_else(|| "give a number and its unit, such as 10ms, 250us or 1s".to_owned())
}

/// A time above 0, also in whole minutes, hours and days; `None` when it is none.
#[must_use]
pub fn long_time(word: &str) -> Option<Duration> {
    let split = word.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = word.split_at(split);
    let seconds = match unit {
        "m" | "min" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return short_time(word).ok().filter(|time| !time.is_zero()),
    };
    let seconds = number.parse::<u64>().ok()?.checked_mul(seconds)?;
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

/// A number of bytes with its unit: KB, MB or GB, each 1,024 times the one before.
///
/// # Errors
///
/// What to write instead.
pub fn bytes(word: &str) -> Result<u64, String> {
    let split = word
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(word.len());
    let (number, unit) = word.split_at(split);
    let shift = match unit {
        "KB" | "K" => Some(10),
        "MB" | "M" => Some(20),
        "GB" | "G" => Some(30),
        _ => None,
    };
    shift
        .and_then(|shift| number.parse::<u64>().ok()?.checked_mul(1 << shift))
        .ok_or_else(|| "give a number and its unit, such as 200MB or 1GB".to_owned())
}

/// A share from above 0 to 100, with or without a percent sign.
///
/// # Errors
///
/// What to write instead.
pub fn percent(word: &str) -> Result<f64, String> {
    word.trim_end_matches('%')
        .parse()
        .ok()
        .filter(|percent| *percent > 0.0 && *percent <= 100.0)
        .ok_or_else(|| "give a share in percent, above 0 and up to 100, such as 30".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_units() {
        assert_eq!(short_time("1.5ms"), Ok(Duration::from_micros(1500)));
        assert_eq!(short_time("250µs"), Ok(Duration::from_micros(250)));
        assert!(short_time("10").is_err() && short_time("-1s").is_err());
        assert_eq!(long_time("2h"), Some(Duration::from_secs(7_200)));
        assert_eq!(long_time("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(
            [long_time("0s"), long_time("0m"), long_time("1.5h")],
            [None; 3]
        );
        assert_eq!(bytes("3MB"), Ok(3 << 20));
        assert!(bytes("3").is_err() && bytes("99999999999999GB").is_err());
        assert_eq!(percent("5%"), Ok(5.0));
        assert!(percent("0").is_err() && percent("101%").is_err() && percent("NaN").is_err());
    }
}
