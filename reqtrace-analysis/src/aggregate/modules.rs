//! Modules: objects and the names of functions in; for each file the functions of the stacks that are in
//! it out.

use std::collections::BTreeSet;

use reqtrace_base::plain::Plain;
use reqtrace_recording::{KERNEL, Object};
use rustc_hash::FxHashMap;

use super::names::Text;
use super::sites::Sites;
use crate::report::Module;

/// The name of the kernel's module, as perf has it.
const KERNEL_NAME: &str = "[kernel.kallsyms]";

/// Files that are listed.
const MAX_MODULES: usize = 1 << 13;

/// Files that functions are in: as many as the trace has mapped code in.
#[derive(Debug)]
pub(super) struct Modules {
    list: Vec<Module>,
    /// Indices of `list` by object: several mapped files may be copies of one.
    of_objects: FxHashMap<u32, usize>,
}

impl Modules {
    pub(super) fn new() -> Self {
        let kernel = Module {
            path: KERNEL_NAME.to_owned(),
            ..Module::default()
        };
        Self {
            list: vec![kernel],
            of_objects: FxHashMap::from_iter([(KERNEL, 0)]),
        }
    }

    /// Takes an object.
    pub(super) fn object(&mut self, object: &Object) {
        let path = Plain::of(&object.path);
        let is_this = |module: &Module| *module.path == *path && module.build_id == object.build_id;
        let index = match self.list.iter().position(is_this) {
            Some(index) => index,
            None if self.list.len() >= MAX_MODULES => return,
            None => {
                self.list.push(Module {
                    path: path.into(),
                    build_id: object.build_id.clone(),
                    functions: Vec::new(),
                });
                self.list.len() - 1
            }
        };
        self.of_objects.insert(object.id, index);
    }

    /// The modules of these functions, those with the most functions first.
    pub(super) fn of(&self, sites: &Sites, functions: &BTreeSet<Text>) -> Vec<Module> {
        let mut modules = self.list.clone();
        for text in functions {
            let objects = sites.object_of(*text);
            let index = objects.and_then(|object| self.of_objects.get(&object));
            if let Some(module) = index.and_then(|index| modules.get_mut(*index)) {
                module.functions.push(sites.text(*text).to_owned());
            }
        }
        modules.retain(|module| !module.functions.is_empty() && !module.path.is_empty());
        for module in &mut modules {
            module.functions.sort_unstable();
        }
        modules.sort_by(|one, two| {
            let fewer = two.functions.len().cmp(&one.functions.len());
            fewer.then_with(|| (&one.path, &one.build_id).cmp(&(&two.path, &two.build_id)))
        });
        modules
    }
}
