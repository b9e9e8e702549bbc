//! The guest's file system: busybox, the programs with their libraries, the profiles, the script.
//!
//! In: release builds. Out: an uncompressed archive for qemu's `-initrd`.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use reqtrace_tests::{chains, fixtures, goroutines, tasks, truth};

use super::cpio::Archive;
use crate::{
    process,
    workspace::{Binaries, find_command, root, shop_profile},
};

/// What the kernel starts.
const INIT: &str = include_str!("guest.sh");
/// What that one reads, with `reqtrace.trials` on the kernel's command line.
const TRIALS: &str = include_str!("trials.sh");

/// The profile of the program that runs generated code.
const GENERATED_PROFILE: &str = "[profile]\nname = \"generated\"\n\n\
    [[request]]\nname = \"request\"\nbegin = { function = \"request\" }\n";

/// Builds the archive into `file`.
pub(crate) fn build(binaries: &Binaries, file: &Path) -> Result<()> {
    let busybox =
        find_command("busybox").context("busybox is missing; run `cargo xtask setup --for vm`")?;
    // Busybox has one of that name that knows no users, and its shell takes that.
    let setpriv = find_command("setpriv").context("setpriv of util-linux is missing")?;
    let generated = generated(file.with_file_name("generated"))?;
    let folder = file.parent().unwrap_or(file);
    let known = chains::SERVICES.map(|service| fixtures::compile(service.name, folder));
    let [chains, locks, pair] = known;
    let programs = [
        ("bin/busybox", busybox.as_path()),
        ("bin/reqtrace", &binaries.reqtrace),
        ("bin/shop", &binaries.shop),
        ("bin/truth", &binaries.truth),
        ("bin/tasks", &binaries.tasks),
        ("bin/goroutines", &binaries.goroutines),
        ("bin/run-as", &setpriv),
        ("bin/generated", &generated),
        ("bin/chains", &chains?),
        ("bin/locks", &locks?),
        ("bin/pair", &pair?),
    ];

    let mut archive = Archive::default();
    let mut folders = BTreeSet::new();
    add_folders(&mut archive, &mut folders, Path::new("bin/any"));
    let mut libraries = BTreeSet::new();
    for (name, program) in programs {
        archive.program(name, &read(program)?);
        libraries.extend(needed_libraries(program)?);
    }
    for library in libraries {
        // The loader looks for the name it was given, whatever that is a link to.
        let name = library.strip_prefix("/").unwrap_or(&library);
        add_folders(&mut archive, &mut folders, name);
        archive.program(&name.to_string_lossy(), &read(&library)?);
    }
    archive.program("init", INIT.as_bytes());
    archive.file("trials.sh", TRIALS.as_bytes());
    archive.link("bin/sh", "busybox");
    archive.file("shop.toml", &read(&shop_profile())?);
    archive.file("truth.toml", &read(&truth::profile())?);
    archive.file("moving.toml", &read(&truth::moving::profile())?);
    archive.file("tasks.toml", &read(&tasks::profile("tasks.toml"))?);
    for name in ["goroutines.toml", "units.toml", "kinds.toml", "pairs.toml"] {
        archive.file(name, &read(&goroutines::profile(name))?);
    }
    archive.file("generated.toml", GENERATED_PROFILE.as_bytes());
    for service in chains::SERVICES {
        let profile = format!("{}.toml", service.name);
        archive.file(&profile, service.profile()?.as_bytes());
    }
    fs::write(file, archive.finish()).with_context(|| file.display().to_string())
}

/// Compiles the program of the end-to-end tests that runs generated code and has a perf map.
fn generated(program: PathBuf) -> Result<PathBuf> {
    let fixtures = root().join("tests/fixtures");
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-fomit-frame-pointer", "-static", "-I"]);
    compiler
        .arg(fixtures.join("stacks"))
        .arg("-o")
        .arg(&program);
    process::run(compiler.arg(fixtures.join("names/generated.c")))?;
    Ok(program)
}

fn read(file: &Path) -> Result<Vec<u8>> {
    fs::read(file).with_context(|| file.display().to_string())
}

/// Adds the folders above a file, outermost first, each once.
fn add_folders(archive: &mut Archive, known: &mut BTreeSet<PathBuf>, file: &Path) {
    let parents: Vec<&Path> = file.ancestors().skip(1).collect();
    for parent in parents
        .into_iter()
        .rev()
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        if known.insert(parent.to_owned()) {
            archive.folder(&parent.to_string_lossy());
        }
    }
}

/// The shared libraries and the loader of a program; none if it is static or a script.
fn needed_libraries(program: &Path) -> Result<Vec<PathBuf>> {
    // ldd fails for what is not dynamic, which is fine here.
    let Some(text) = process::output(Command::new("ldd").arg(program)) else {
        return Ok(Vec::new());
    };
    parse_libraries(&text).with_context(|| program.display().to_string())
}

fn parse_libraries(text: &str) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.ends_with("not found") {
            bail!("a library is missing: {line}");
        }
        let place = line.split_once(" => ").map_or(line, |(_, place)| place);
        if let Some(path) = place.split(' ').next().filter(|path| path.starts_with('/')) {
            files.push(PathBuf::from(path));
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_loader_are_found() {
        let text = "\tlinux-vdso.so.1 (0x00007ffc)\n\
                    \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let files = parse_libraries(text).unwrap();
        let expected = [
            "/lib/x86_64-linux-gnu/libc.so.6",
            "/lib64/ld-linux-x86-64.so.2",
        ];
        assert_eq!(files, expected.map(PathBuf::from));
        assert!(parse_libraries("\tstatically linked\n").unwrap().is_empty());
        assert!(parse_libraries("\tlibx.so.1 => not found\n").is_err());
    }

    #[test]
    fn folders_come_before_what_is_in_them() {
        let (mut archive, mut known) = (Archive::default(), BTreeSet::new());
        add_folders(&mut archive, &mut known, Path::new("a/b/c"));
        add_folders(&mut archive, &mut known, Path::new("a/d"));
        assert_eq!(
            known.into_iter().collect::<Vec<_>>(),
            ["a", "a/b"].map(PathBuf::from)
        );
        let text = String::from_utf8(archive.finish()).unwrap();
        assert!(text.find("a\0") < text.find("a/b\0"));
    }
}
