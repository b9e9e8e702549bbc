//! A crate's files in; the items of each, and where the paths of others lead to, out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree, Visibility};

use super::Taken;

/// A path of modules, or of modules and an item.
type Steps = Vec<String>;

/// The files of a crate.
pub(super) struct Source {
    modules: BTreeMap<Steps, Module>,
}

/// A module: a file, or part of one.
#[derive(Default)]
struct Module {
    file: String,
    items: BTreeSet<String>,
    /// What a name of it stands for.
    names: BTreeMap<String, Steps>,
    /// Modules all of whose items are names of it.
    all_of: Vec<Steps>,
    /// Paths that are used in it; those that are only passed on are not.
    paths: BTreeSet<Steps>,
}

/// Re-exports of re-exports are followed so far.
const DEPTH: u32 = 8;

impl Source {
    /// Reads all files of a folder `src`.
    pub(super) fn read(src: &Path) -> Result<Self> {
        let mut modules = BTreeMap::new();
        for path in files(src)? {
            let file = path.strip_prefix(src)?;
            let name = file.to_string_lossy().into_owned();
            let mut steps: Steps = file
                .with_extension("")
                .iter()
                .map(|step| step.to_string_lossy().into_owned())
                .collect();
            if matches!(
                steps.last().map(String::as_str),
                Some("mod" | "lib" | "main")
            ) {
                steps.pop();
            }
            if steps.iter().any(|step| step == "tests") {
                continue;
            }
            let text = fs::read_to_string(&path)?;
            let parsed = syn::parse_file(&text).with_context(|| name.clone())?;
            add(&mut modules, &steps, &name, &parsed.items);
        }
        Ok(Self { modules })
    }

    /// Which items a file takes of which other one. What a module takes of those that it is in is not among them.
    pub(super) fn taken(&self) -> Taken {
        let mut taken = Taken::new();
        for (at, module) in &self.modules {
            for path in &module.paths {
                let Some((file, item)) = self.find(at, path, DEPTH) else {
                    continue;
                };
                let is_above = self.files_above(at).any(|above| above == file);
                if file != module.file && !is_above {
                    let of = (module.file.clone(), file);
                    taken.entry(of).or_default().insert(item);
                }
            }
        }
        taken
    }

    /// Files of the modules that a module is in, but for the root.
    fn files_above(&self, at: &[String]) -> impl Iterator<Item = &str> {
        let above = (1..at.len()).filter_map(|length| self.modules.get(&at[..length]));
        above.map(|module| module.file.as_str())
    }

    /// Where a path that stands in a module leads to; `None` if that is another crate, or a module.
    fn find(&self, at: &[String], path: &[String], depth: u32) -> Option<(String, String)> {
        let depth = depth.checked_sub(1)?;
        let (mut place, mut rest) = self.begin(at, path)?;
        while let Some((next, after)) = rest.split_first() {
            let below = [&place[..], std::slice::from_ref(next)].concat();
            if self.modules.contains_key(&below) {
                (place, rest) = (below, after);
                continue;
            }
            let module = self.modules.get(&place)?;
            if module.items.contains(next) {
                return Some((module.file.clone(), next.clone()));
            }
            if let Some(name) = module.names.get(next) {
                let whole = [&name[..], after].concat();
                return self.find(&place, &whole, depth);
            }
            let mut all_of = module.all_of.iter();
            return all_of.find_map(|all| {
                let whole = [&all[..], rest].concat();
                self.find(&place, &whole, depth)
            });
        }
        None
    }

    /// The module at which a path begins, and what is left of it.
    fn begin<'a>(&self, at: &[String], path: &'a [String]) -> Option<(Steps, &'a [String])> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => Some((Vec::new(), rest)),
            "self" => Some((at.to_vec(), rest)),
            "super" => {
                let (_, above) = at.split_last()?;
                let supers = rest.iter().take_while(|step| *step == "super").count();
                let above = above.get(..above.len().checked_sub(supers)?)?;
                Some((above.to_vec(), &rest[supers..]))
            }
            _ => Some((at.to_vec(), path)),
        }
    }
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            all.extend(files(&path)?);
        } else if path.extension().is_some_and(|end| end == "rs") {
            all.push(path);
        }
    }
    Ok(all)
}

fn add(modules: &mut BTreeMap<Steps, Module>, at: &Steps, file: &str, items: &[Item]) {
    let mut module = Module {
        file: file.to_owned(),
        ..Module::default()
    };
    for item in items {
        if is_test(attributes(item)) {
            continue;
        }
        match item {
            Item::Use(item) => {
                let is_passed_on = !matches!(item.vis, Visibility::Inherited);
                flatten(&mut module, Vec::new(), &item.tree, is_passed_on);
                continue;
            }
            Item::Mod(inner) => {
                if let Some((_, items)) = &inner.content {
                    let mut below = at.clone();
                    below.push(inner.ident.to_string());
                    add(modules, &below, file, items);
                }
                continue;
            }
            _ => {}
        }
        module.items.extend(name(item));
        Paths(&mut module).visit_item(item);
    }
    modules.insert(at.clone(), module);
}

fn flatten(module: &mut Module, mut before: Steps, tree: &UseTree, is_passed_on: bool) {
    let (name, last) = match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            return flatten(module, before, &path.tree, is_passed_on);
        }
        UseTree::Group(group) => {
            let trees = group.items.iter();
            return trees.for_each(|tree| flatten(module, before.clone(), tree, is_passed_on));
        }
        UseTree::Glob(_) => return module.all_of.push(before),
        UseTree::Name(name) => (name.ident.to_string(), name.ident.to_string()),
        UseTree::Rename(rename) => (rename.rename.to_string(), rename.ident.to_string()),
    };
    if last == "self" {
        let name = before.last().cloned().unwrap_or_default();
        module.names.insert(name, before);
        return;
    }
    before.push(last);
    if !is_passed_on {
        module.paths.insert(before.clone());
    }
    module.names.insert(name, before);
}

/// Collects the paths of an item.
struct Paths<'a>(&'a mut Module);

impl<'ast> Visit<'ast> for Paths<'_> {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        let steps = path.segments.iter();
        let steps = steps.map(|step| step.ident.to_string()).collect();
        self.0.paths.insert(steps);
        visit::visit_path(self, path);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        // One inside of a function.
        flatten(self.0, Vec::new(), &item.tree, false);
    }
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let is_cfg = attribute.path().is_ident("cfg");
        is_cfg
            && attribute
                .parse_args::<syn::Path>()
                .is_ok_and(|what| what.is_ident("test"))
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn name(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}
