use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use tempfile::TempDir;

use super::*;

/// A root with a program in `opt/program`, stripped, and its debug file beside the root.
struct Built {
    folder: TempDir,
}

fn run(program: &str, folder: &Path, args: &[&str]) {
    let output = Command::new(program)
        .current_dir(folder)
        .args(args)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{program} {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

impl Built {
    /// `hidden` is a function that only the symbol table names.
    fn new(hidden: &str, flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        let source = format!(
            "static __attribute__((noinline)) int {hidden}(int a) {{ __asm__(\"\"); return a; }}\n\
             int main(int c, char **v) {{ (void)v; return {hidden}(c); }}"
        );
        fs::write(at.join("source.c"), source).unwrap();
        fs::create_dir_all(at.join("root/opt")).unwrap();
        run(
            "gcc",
            at,
            &[&["-O1", "-g", "source.c", "-o", "full"], flags].concat(),
        );
        run("objcopy", at, &["--only-keep-debug", "full", "debug"]);
        run("objcopy", at, &["--strip-all", "full", "root/opt/program"]);
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Puts the debug file somewhere below the root.
    fn put(&self, debug: &Path, name: &str) {
        let to = self.path("root").join(name);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(debug, to).unwrap();
    }

    fn link(&self) {
        let args = ["--add-gnu-debuglink=debug", "root/opt/program"];
        run("objcopy", self.folder.path(), &args);
    }

    fn by_build_id(&self) -> String {
        let id = Links::read(&File::open(self.path("full")).unwrap())
            .build_id
            .unwrap();
        let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("usr/lib/debug/.build-id/{}/{}.debug", &hex[..2], &hex[2..])
    }

    fn search(&self) -> Search {
        let object = File::open(self.path("root/opt/program")).unwrap();
        let roots = [Root::at(&self.path("root")).unwrap()];
        find(&object, &Links::read(&object), &roots, "/opt/program")
    }

    fn names(&self) -> Vec<String> {
        names(&self.search().found.expect("a debug file").file)
    }
}

fn names(file: &File) -> Vec<String> {
    let found = functions(file).unwrap();
    let name = |symbol: &DefinedSymbol| {
        let rest = &found.strings[symbol.name..];
        let length = rest.iter().position(|&byte| byte == 0).unwrap();
        String::from_utf8(rest[..length].to_vec()).unwrap()
    };
    found.symbols.iter().map(name).collect()
}

const NO_ID: &[&str] = &["-Wl,--build-id=none"];
const ID: &[&str] = &["-Wl,--build-id=sha1"];

#[test]
fn a_debug_file_is_found_by_build_id() {
    let built = Built::new("hidden", ID);
    assert!(built.search().found.is_none());
    built.put(&built.path("debug"), &built.by_build_id());
    assert!(built.names().contains(&"hidden".to_owned()));
}

#[test]
fn a_debug_file_is_found_by_its_link_in_three_places() {
    for place in ["opt/debug", "opt/.debug/debug", "usr/lib/debug/opt/debug"] {
        let built = Built::new("hidden", NO_ID);
        built.link();
        assert!(built.search().found.is_none());
        built.put(&built.path("debug"), place);
        assert!(built.names().contains(&"hidden".to_owned()), "{place}");
    }
}

#[test]
fn a_debug_file_of_another_build_is_refused() {
    let other = Built::new("another", ID);
    let built = Built::new("hidden", ID);
    built.put(&other.path("debug"), &built.by_build_id());
    let search = built.search();
    assert!(search.found.is_none());
    assert!(search.refused[0].contains("build id differs"), "{search:?}");

    let other = Built::new("another", NO_ID);
    let built = Built::new("hidden", NO_ID);
    built.link();
    built.put(&other.path("debug"), "opt/debug");
    let search = built.search();
    assert!(search.found.is_none());
    assert!(search.refused[0].contains("CRC"), "{search:?}");
    // The right one is found all the same, where it is looked for later.
    built.put(&built.path("debug"), "usr/lib/debug/opt/debug");
    assert!(built.names().contains(&"hidden".to_owned()));
}

/// Links of a container are followed inside it, and nothing but a regular file is opened.
#[test]
fn a_root_is_not_left() {
    let built = Built::new("hidden", ID);
    let place = built.path("root").join(built.by_build_id());
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    // Outside the root this link leads to the right file.
    symlink(built.path("debug"), &place).unwrap();
    assert!(built.search().found.is_none());
    // Inside it, this one does.
    fs::remove_file(&place).unwrap();
    built.put(&built.path("debug"), "debug-file");
    symlink("/debug-file", &place).unwrap();
    assert!(built.names().contains(&"hidden".to_owned()));
    fs::remove_file(&place).unwrap();
    run("mkfifo", built.folder.path(), &[place.to_str().unwrap()]);
    assert!(built.search().found.is_none());
}

#[test]
fn packed_symbols_are_unpacked() {
    let built = Built::new("hidden", NO_ID);
    let at = built.folder.path();
    run(
        "objcopy",
        at,
        &[
            "-S",
            "--remove-section=.comment",
            "--keep-symbol=hidden",
            "full",
            "mini",
        ],
    );
    run("xz", at, &["-k", "mini"]);
    let section = [
        "--add-section",
        ".gnu_debugdata=mini.xz",
        "root/opt/program",
    ];
    run("objcopy", at, &section);
    assert_eq!(built.names(), ["hidden"]);
    let search_with = |contents: &str| {
        let section = format!(".gnu_debugdata={contents}");
        let words = ["--update-section", &section, "root/opt/program"];
        run("objcopy", at, &words);
        built.search()
    };
    // What is not xz is refused.
    let search = search_with("mini");
    assert!(search.found.is_none());
    assert!(search.refused[0].contains(".gnu_debugdata"), "{search:?}");
    // What has no symbols is memory for nothing.
    run("objcopy", at, &["--strip-all", "full", "bare"]);
    run("xz", at, &["-k", "bare"]);
    let search = search_with("bare.xz");
    assert!(search.found.is_none() && !search.no_room);
    assert!(search.refused[0].contains("no symbol table"), "{search:?}");
}

#[test]
fn cut_off_files_have_less() {
    let built = Built::new("hidden", ID);
    let bytes = fs::read(built.path("debug")).unwrap();
    let cut = built.path("cut");
    for length in (0..bytes.len()).step_by(97) {
        fs::write(&cut, &bytes[..length]).unwrap();
        let file = File::open(&cut).unwrap();
        let _ = Links::read(&file);
        let _ = functions(&file);
    }
}
