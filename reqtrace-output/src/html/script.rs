//! The script of the page: its modules in, one text out.
//!
//! They are plain ES modules, which tools check one by one. In the page they are one module: lines that import
//! are left out, and so is the word `export`. That is all there is to it, so a module may only import names as
//! they are, one line an import, from modules that come before it, and names at the top of modules are different.

/// The modules, each behind those that it imports.
pub(super) const MODULES: &[(&str, &str)] = &[
    ("format.js", include_str!("page/format.js")),
    ("dom.js", include_str!("page/dom.js")),
    ("model.js", include_str!("page/model.js")),
    ("state.js", include_str!("page/state.js")),
    ("sums.js", include_str!("page/sums.js")),
    ("chance.js", include_str!("page/chance.js")),
    ("bootstrap.js", include_str!("page/bootstrap.js")),
    ("fall.js", include_str!("page/fall.js")),
    ("difftables.js", include_str!("page/difftables.js")),
    ("against.js", include_str!("page/against.js")),
    ("header.js", include_str!("page/header.js")),
    ("heatmap.js", include_str!("page/heatmap.js")),
    ("ledger.js", include_str!("page/ledger.js")),
    ("tables.js", include_str!("page/tables.js")),
    ("stacktree.js", include_str!("page/stacktree.js")),
    ("flame.js", include_str!("page/flame.js")),
    ("timeline.js", include_str!("page/timeline.js")),
    ("main.js", include_str!("page/main.js")),
];

/// Those of the page of a comparison.
pub(super) const MODULES_OF_DIFF: &[(&str, &str)] = &[
    ("format.js", include_str!("page/format.js")),
    ("dom.js", include_str!("page/dom.js")),
    ("diffheat.js", include_str!("page/diffheat.js")),
    ("diffflame.js", include_str!("page/diffflame.js")),
    ("fall.js", include_str!("page/fall.js")),
    ("difftables.js", include_str!("page/difftables.js")),
    ("diff.js", include_str!("page/diff.js")),
];

/// All of a page as one.
pub(super) fn joined(modules: &[(&str, &str)]) -> String {
    let mut script = String::new();
    for line in modules.iter().flat_map(|(_, text)| text.lines()) {
        if line.starts_with("import ") {
            continue;
        }
        script.push_str(line.strip_prefix("export ").unwrap_or(line));
        script.push('\n');
    }
    script
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn modules_can_be_joined() {
        check(MODULES);
        check(MODULES_OF_DIFF);
    }

    fn check(modules: &'static [(&str, &str)]) {
        let mut before = BTreeSet::new();
        let mut names = BTreeSet::new();
        for (module, text) in modules {
            for line in text.lines() {
                if let Some(import) = line.strip_prefix("import ") {
                    let from = import
                        .split_once(" from './")
                        .unwrap_or_else(|| panic!("{line}"));
                    assert!(!from.0.contains(" as "), "{module}: {line}");
                    let from = from.1.trim_end_matches("';");
                    assert!(
                        before.contains(from),
                        "{module} imports {from} before it is there"
                    );
                }
                assert!(!line.starts_with("export default"), "{module}: {line}");
                assert!(!line.contains("</script"), "{module}: {line}");
                let top = line.strip_prefix("export ").unwrap_or(line);
                let top = top.strip_prefix("async ").unwrap_or(top);
                for word in ["function ", "const ", "let ", "class "] {
                    if let Some(name) = top.strip_prefix(word) {
                        let end = name.find(|c: char| !(c.is_alphanumeric() || c == '_'));
                        let name = &name[..end.unwrap_or(name.len())];
                        assert!(
                            names.insert(name.to_owned()),
                            "{module}: {name} is there twice"
                        );
                    }
                }
            }
            before.insert(*module);
        }
        let joined = joined(modules);
        assert!(!joined.contains("\nimport ") && !joined.contains("\nexport "));
    }
}
