//! Numbers as text: nanoseconds and counts in, what a person reads out.

/// Digits in groups of three: `1,234,567`.
#[must_use]
pub fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A duration in nanoseconds with three significant digits and the unit that fits: `0 ns`,
/// `846 ns`, `1.17 ms`, `41.2 ms`, `12.0 s`, `1,234 s`.
#[must_use]
pub fn duration(ns: u64) -> String {
    const UNITS: [(&str, u64); 4] = [
        ("ns", 1),
        ("µs", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
    ];
    // The unit in which the value, rounded to three digits, stays below 1000.
    let fits = |scale: u64| ns < scale * 1_000 - if scale == 1 { 0 } else { scale / 2 };
    let (unit, scale) = *UNITS
        .iter()
        .find(|(_, scale)| fits(*scale))
        .unwrap_or(&("s", 1_000_000_000));
    if scale == 1 {
        return format!("{ns} ns");
    }
    let value = ns as f64 / scale as f64;
    if value < 9.995 {
        format!("{value:.2} {unit}")
    } else if value < 99.95 {
        format!("{value:.1} {unit}")
    } else {
        format!("{} {unit}", number(value.round() as u64))
    }
}

/// A share in percent with one decimal: `38.2 %`; what is there but rounds to nothing is `<0.1 %`.
#[must_use]
pub fn share(part: u64, whole: u64) -> String {
    if whole == 0 || part == 0 {
        return "0.0 %".to_owned();
    }
    let percent = part as f64 * 100.0 / whole as f64;
    if percent < 0.05 {
        "<0.1 %".to_owned()
    } else {
        format!("{percent:.1} %")
    }
}

/// Bytes with three significant digits and the unit that fits: `846 B`, `3.00 MiB`.
#[must_use]
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = "B";
    for larger in UNITS {
        if value < 999.5 {
            break;
        }
        (value, unit) = (value / 1024.0, larger);
    }
    match value {
        _ if unit == "B" => format!("{bytes} B"),
        value if value < 9.995 => format!("{value:.2} {unit}"),
        value if value < 99.95 => format!("{value:.1} {unit}"),
        value => format!("{value:.0} {unit}"),
    }
}

/// At most `width` characters; what is cut off is `…`.
pub fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(width.saturating_sub(1)).collect();
    short.push('…');
    short
}

/// A number per second with three significant digits or more: `12,904`, `3.20`.
#[must_use]
pub fn rate(count: u64, duration_ns: u64) -> String {
    if duration_ns == 0 {
        return "-".to_owned();
    }
    let rate = count as f64 * 1e9 / duration_ns as f64;
    if rate >= 99.95 {
        number(rate.round() as u64)
    } else if rate >= 9.995 {
        format!("{rate:.1}")
    } else if count == 0 {
        "0".to_owned()
    } else {
        format!("{rate:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_keep_three_digits() {
        for (ns, text) in [
            (0, "0 ns"),
            (846, "846 ns"),
            (999, "999 ns"),
            (1_000, "1.00 µs"),
            (9_996, "10.0 µs"),
            (999_499, "999 µs"),
            (999_500, "1.00 ms"),
            (1_170_000, "1.17 ms"),
            (41_200_000, "41.2 ms"),
            (999_999_999, "1.00 s"),
            (30_000_000_000, "30.0 s"),
            (1_234_000_000_000, "1,234 s"),
            (u64::MAX, "18,446,744,074 s"),
        ] {
            assert_eq!(duration(ns), text);
        }
    }

    #[test]
    fn numbers_have_groups() {
        assert_eq!(number(0), "0");
        assert_eq!(number(999), "999");
        assert_eq!(number(387_120), "387,120");
        assert_eq!(rate(387_120, 30_000_000_000), "12,904");
        assert_eq!(rate(1, 2_000_000_000), "0.50");
        assert_eq!(rate(1, 0), "-");
    }

    #[test]
    fn a_small_share_is_not_nothing() {
        assert_eq!(share(0, 10), "0.0 %");
        assert_eq!(share(1, 100_000), "<0.1 %");
        assert_eq!(share(382, 1000), "38.2 %");
        assert_eq!(share(5, 0), "0.0 %");
    }
}
