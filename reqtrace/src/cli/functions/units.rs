//! A profile without a pattern: a process or a program in; one in which each task or goroutine is a request, out.

use std::collections::BTreeSet;

use reqtrace_base::error::{Error, Result};
use reqtrace_resolve::{Target, runs_tasks, task_types};

use super::tasks::as_glob;
use super::written::{comment, quoted};
use crate::cli::library::Library;

/// Types of tasks that are named.
const MAX_TYPES: usize = 20;

/// The profile. `where_` names the target in a command.
///
/// # Errors
///
/// The program cannot be read, or has neither tasks nor goroutines.
pub(super) fn profile(target: &Target<'_>, where_: &str) -> Result<String> {
    let object = target.look_at(target.executable())?;
    let types = task_types(&object);
    let is_go = object.is_go();
    if !is_go && types.is_empty() && !runs_tasks(&object) {
        return Err(Error::usage(
            "no pattern given, and the program has neither goroutines nor tasks of tokio",
        )
        .next("give part of a function's name, such as `command`, or '*' for everything"));
    }
    let (kind, one, of_what) = if is_go {
        ("go", "goroutine", "function that it starts with")
    } else {
        ("tokio", "task", "type of its future")
    };
    let executable = target.executable().file_name();
    let library = Library::read();
    let mut text = match library.suiting(target).as_slice() {
        [] => String::new(),
        fitting => format!(
            "# Profiles that fit this program as they are: {}.\n",
            fitting.join(", ")
        ),
    };
    text.push_str(&format!(
        "# A start, made by: reqtrace functions {where_} --as-profile\n\
         # Each {one} is a request, and --group-by type shows which there are, by the {of_what}.\n\
         # Then take one: give its name instead of \"*\", and leave out the attribute. If a {one} serves many\n\
         # requests, mark functions that it calls: reqtrace functions {where_} PATTERN --as-profile\n\
         \n[profile]\nname = {name}\nexecutables = [{name}]\n\
         \n[runtime]\nkind = \"{kind}\"\n\
         \n[[request]]\nname = \"{one}\"\nunit = \"*\"\n\
         \n[[request.attribute]]\nname = \"type\"\ntype = \"unit\"\n",
        name = quoted(executable),
    ));
    text.push_str(&of_types(types.into_iter().flatten().collect(), executable));
    Ok(text)
}

/// The types that tasks have, those of the program's own code first.
fn of_types(types: BTreeSet<String>, executable: &str) -> String {
    let own = format!("{}::", executable.replace('-', "_"));
    let (first, rest): (Vec<_>, Vec<_>) = types.iter().partition(|name| name.contains(&own));
    let all = first.into_iter().chain(rest);
    let mut text = String::new();
    if !types.is_empty() {
        text.push_str("\n# Its tasks have these types:\n");
    }
    for name in all.take(MAX_TYPES) {
        let pattern = quoted(&as_glob(name));
        text.push_str(&format!("#   unit = {}\n", comment(&pattern)));
    }
    let more = types.len().saturating_sub(MAX_TYPES);
    if more > 0 {
        text.push_str(&format!("#   and {more} more\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_the_programs_own_code_come_first() {
        let types = [
            "a::b",
            "hyper::Conn<my_app::serve>",
            "my_app::job::{{closure}}",
        ];
        let text = of_types(types.map(str::to_owned).into(), "my-app");
        let at = |name: &str| text.find(name).unwrap();
        assert!(at("my_app::serve") < at("a::b"), "{text}");
        assert!(
            text.contains("unit = \"my_app::job::??closure??\""),
            "{text}"
        );
        assert_eq!(of_types(BTreeSet::new(), "x"), "");
        let many: BTreeSet<String> = (0..25).map(|at| format!("t{at}")).collect();
        assert!(of_types(many, "x").ends_with("#   and 5 more\n"));
    }
}
