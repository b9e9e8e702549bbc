//! What noise of a shared machine may hide: tried again. What is wrong is not forgiven: the closure panics.

/// Tries so many times to get an answer, and gives the first.
///
/// # Panics
///
/// When each time there was none; the message has what was seen instead.
pub fn once_in<T>(tries: usize, what: &str, mut answer: impl FnMut() -> Result<T, String>) -> T {
    let mut seen = Vec::new();
    for _ in 0..tries {
        match answer() {
            Ok(answer) => return answer,
            Err(instead) => {
                eprintln!("no {what}: {instead}");
                seen.push(instead);
            }
        }
    }
    panic!("{tries} times no {what}: {}", seen.join("\n\n"));
}
