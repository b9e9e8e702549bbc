//! Small things about text that several stages need: the nearest of known names, globs over function names, and a name that is
//! made of another one.

/// The name of the request type that follows what requests of another type make.
#[must_use]
pub fn children_of(request: &str) -> String {
    format!("{request} children")
}

/// The names nearest to `wanted`, best first, at most `count`; only those near enough to be what
/// was meant.
pub fn nearest<'a>(
    wanted: &str,
    known: impl IntoIterator<Item = &'a str>,
    count: usize,
) -> Vec<&'a str> {
    let folded = wanted.to_lowercase();
    let mut scored: Vec<(f64, &str)> = known
        .into_iter()
        .map(|name| {
            let name_folded = name.to_lowercase();
            let mut score = strsim::jaro_winkler(&folded, &name_folded);
            // `command` for `dispatch_command`, and the reverse.
            if folded.len() >= 4
                && name_folded.len() >= 4
                && (name_folded.contains(&folded) || folded.contains(&name_folded))
            {
                score = score.max(0.85);
            }
            (score, name)
        })
        .filter(|(score, _)| *score >= 0.8)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    scored.dedup_by(|a, b| a.1 == b.1);
    scored
        .into_iter()
        .take(count)
        .map(|(_, name)| name)
        .collect()
}

/// Braces inside each other that a glob may have, and its characters.
const MAX_NESTED: usize = 8;
const MAX_GLOB: usize = 4096;

/// Why a glob is refused before it is compiled: that takes a stack and a time that grow with it.
///
/// # Errors
///
/// A glob that is too long, or has too many braces inside each other.
pub fn check_glob(pattern: &str) -> Result<(), String> {
    if pattern.len() > MAX_GLOB {
        return Err(format!("it has more than {MAX_GLOB} bytes"));
    }
    let (mut depth, mut deepest) = (0_usize, 0);
    for byte in pattern.bytes() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    if deepest > MAX_NESTED {
        return Err(format!(
            "it has more than {MAX_NESTED} braces inside each other"
        ));
    }
    Ok(())
}

/// Whether a pattern has a wildcard at all.
#[must_use]
pub fn is_glob(pattern: &str) -> bool {
    pattern.contains(['*', '?'])
}

/// Whether a glob over names matches: `*` is any run of characters (`::` included), `?` is one.
///
/// There are no `[…]` and `{…}`: they occur literally in names (`operator[]`, `{{closure}}`).
#[must_use]
pub fn glob_matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    // Where to go on when the characters after the last star turn out not to fit.
    let mut retry: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p, n));
                p += 1;
            }
            Some(&byte) if byte == b'?' || byte == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match retry {
                Some((star, from)) => {
                    retry = Some((star, from + 1));
                    p = star + 1;
                    n = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_names() {
        assert!(glob_matches("MDL_context::*", "MDL_context::acquire_lock"));
        assert!(glob_matches("*lock*wait", "my_lock_long_wait"));
        assert!(glob_matches("operator[?", "operator[]"));
        assert!(glob_matches("*", ""));
        assert!(!glob_matches("?", ""));
        assert!(!glob_matches("log_*", "my_log_write"));
        assert!(glob_matches("a*b*c", "axxbxbxc"));
        assert!(!glob_matches("a*b*c", "axxbxbx"));
    }

    #[test]
    fn globs_that_take_too_long_are_refused() {
        assert_eq!(check_glob("/var/{lib,log}/**/*.{ib?,log}"), Ok(()));
        assert_eq!(check_glob(&"{a}".repeat(100)), Ok(()));
        assert!(check_glob(&"{a,".repeat(200)).is_err());
        assert!(check_glob(&"a".repeat(5000)).is_err());
    }

    #[test]
    fn the_nearest_name_comes_first() {
        let known = ["dispatch_command", "do_command", "dispatch_sql"];
        assert_eq!(nearest("dispatch_comand", known, 1), ["dispatch_command"]);
        assert!(nearest("xyzzy", known, 3).is_empty());
    }
}
