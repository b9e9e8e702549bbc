//! What an object is, and what it may do, that probes do not go well with: an [`Object`] in,
//! [`Hazards`] out.
//!
//! Names that an object imports show what it may do, not that it does it in the function probed.

use reqtrace_binary::elf::Object;

/// Functions that change stacks, by which fibers are made (ucontext, Boost).
const SWITCHES: [&str; 4] = [
    "swapcontext",
    "setcontext",
    "jump_fcontext",
    "ontop_fcontext",
];

/// Functions that unwind the stack to a handler (C++, Rust).
const THROWS: [&str; 3] = [
    "__cxa_throw",
    "_Unwind_RaiseException",
    "_Unwind_ForcedUnwind",
];

/// What is known to be dangerous in one object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hazards {
    /// It was linked by Go: stacks move, and a goroutine changes threads.
    pub go: bool,
    /// It has tasks of tokio, which change threads.
    pub tokio: bool,
    /// It imports or has this function, which changes stacks.
    pub switches: Option<&'static str>,
    /// It imports this function, which leaves other functions by unwinding.
    pub throws: Option<&'static str>,
}

/// Whether names of an object are those of tokio's tasks.
pub(super) fn has_tasks(object: &Object) -> bool {
    let is_of_task = |raw: &str| raw.contains("tokio") && raw.contains("task");
    let mut symbols = object.symbols().iter();
    symbols.any(|symbol| is_of_task(object.name(symbol)))
}

/// Looks for them.
#[must_use]
pub fn hazards(object: &Object) -> Hazards {
    let imports = |wanted: &[&'static str]| {
        wanted
            .iter()
            .copied()
            .find(|wanted| object.imported().any(|name| name == *wanted))
    };
    let defines = |wanted: &[&'static str]| {
        wanted.iter().copied().find(|wanted| {
            let mut symbols = object.symbols().iter();
            symbols.any(|symbol| object.name(symbol) == *wanted)
        })
    };
    let file_name = object.shown().rsplit('/').next().unwrap_or_default();
    let is_library = file_name.contains(".so");
    Hazards {
        go: object.is_go(),
        tokio: has_tasks(object),
        // A library that offers them to others, as libc does, need not use them.
        switches: imports(&SWITCHES).or_else(|| defines(&SWITCHES).filter(|_| !is_library)),
        throws: imports(&THROWS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::Fixture;

    #[test]
    fn hazards_are_seen_in_what_compilers_make() {
        let plain = Fixture::c("int main(void) { return 0; }", &[]);
        assert_eq!(hazards(&plain.object()), Hazards::default());

        let thrower = Fixture::cpp("int main(int c, char **) { if (c > 1) throw c; }", &[]);
        let found = hazards(&thrower.object());
        assert_eq!(found.throws, Some("__cxa_throw"));
        assert_eq!((found.go, found.switches), (false, None));

        let fibers = Fixture::c(
            "#include <ucontext.h>\n\
             int main(void) { ucontext_t a, b; return swapcontext(&a, &b); }",
            &[],
        );
        assert_eq!(hazards(&fibers.object()).switches, Some("swapcontext"));

        // No Go compiler is needed to see what its linker leaves.
        let go = Fixture::c(
            "__attribute__((section(\".gopclntab\"), used)) static const char table[8];\n\
             int main(void) { return 0; }",
            &[],
        );
        assert!(hazards(&go.stripped().object()).go);
    }
}
