//! Named waits of a profile: what `schema` read in, checked [`WaitSpec`]s out.

use std::ops::Range;

use super::{BUILT_IN_WAITS, CSV_COLUMNS, Checker, column};
use crate::{Combine, WaitSpec, schema};
use reqtrace_base::error::Result;

impl Checker<'_> {
    pub(super) fn wait(&self, wait: schema::Wait, whole: Range<usize>) -> Result<WaitSpec> {
        let name = self.name(&wait.name, "a wait's name")?;
        let column = column(&name);
        for (names, what) in [
            (BUILT_IN_WAITS, "a built-in wait class"),
            (CSV_COLUMNS, "a column of requests.csv"),
        ] {
            if names.iter().any(|taken| self::column(taken) == column) {
                return Err(self
                    .source
                    .error(wait.name.span(), format!("`{name}` is already {what}"))
                    .next(format!("choose another name, such as `my {name}`")));
            }
        }
        self.refuse(wait.build_id.as_ref(), "build-id")?;
        self.refuse(wait.offsets.as_ref(), "offsets")?;
        if let Some(files) = &wait.files {
            self.globs(files)?;
        }
        let wait = WaitSpec {
            combine: match wait.combine {
                schema::Combine::Any => Combine::Any,
                schema::Combine::All => Combine::All,
            },
            functions: self.strings(wait.functions, "functions")?,
            files: self.strings(wait.files, "files")?,
            kernel_functions: self.strings(wait.kernel_functions, "kernel-functions")?,
            syscalls: self.strings(wait.syscalls, "syscalls")?,
            name,
        };
        let lists = [
            &wait.functions,
            &wait.files,
            &wait.kernel_functions,
            &wait.syscalls,
        ];
        if lists.iter().all(|list| list.is_empty()) {
            return Err(self
                .source
                .error(
                    whole,
                    format!("the wait `{}` has nothing to match", wait.name),
                )
                .next("add functions, files, kernel-functions or syscalls"));
        }
        Ok(wait)
    }
}
