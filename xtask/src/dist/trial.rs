//! A trial of the Debian package: it is installed in a bare Debian 12, which has no compiler and no
//! library but Debian's smallest set, and a program of that Debian is traced there.
//!
//! In: the package. Out: an error unless all requests of the program were counted.

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, Result, ensure};
use reqtrace_tests::summary::Summary;

use crate::{process, workspace::target_dir};

/// Sleeps of the traced program, each one a request.
const SLEEPS: u64 = 20;

/// What runs in a mount namespace of its own: everything that it mounts goes with it. The PID
/// namespace must be the machine's, for the kernel programs count in it.
const SCRIPT: &str = r#"
set -eu
bare=$1 deb=$2 out=$3 work=$4
mount -t tmpfs none "$work"
mkdir "$work/upper" "$work/work" "$work/root"
mount -t overlay overlay -o "lowerdir=$bare,upperdir=$work/upper,workdir=$work/work" "$work/root"
root=$work/root
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --bind "$out" "$root/mnt"
cp "$deb" "$root/reqtrace.deb"
run() { chroot "$root" "$@"; }
run dpkg --install /reqtrace.deb
run reqtrace --version
run getent passwd reqtrace
run getent group reqtrace
run reqtrace doctor
for file in man/man1/reqtrace.1.gz bash-completion/completions/reqtrace doc/reqtrace/NOTICES.gz; do
    test -s "$root/usr/share/$file"
done
for file in systemd/system/reqtrace-ship.service sysusers.d/reqtrace.conf; do
    test -s "$root/usr/lib/$file"
done
cat > "$root/profile.toml" <<'PROFILE'
[profile]
name = "perl"
executables = ["perl*"]
[[request]]
name = "sleep"
begin = { function = "Perl_pp_sselect" }
PROFILE
run reqtrace --profile /profile.toml --out /mnt -- \
    perl -e 'select(undef, undef, undef, 0.005) for 1..20'
run dpkg --remove reqtrace
test ! -e "$root/usr/bin/reqtrace"
"#;

/// Makes the bare Debian if it is not there, and tries the package in it.
pub(crate) fn run(deb: &Path) -> Result<()> {
    let folder = target_dir().join("packages");
    let bare = folder.join("debian-12");
    if !bare.exists() {
        bootstrap(&bare, &[])?;
    }
    let out = super::empty(&folder.join("trial"))?;
    let work = tempfile::tempdir()?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--", "sh", "-c", SCRIPT, "trial"]);
    command.arg(&bare).arg(deb).arg(&out).arg(work.path());
    process::run(&mut command).context("the package fails in a bare Debian 12")?;
    let summary = Summary::read(&fs::read_to_string(out.join("summary.json"))?)?;
    let count = summary.request("sleep")?.count;
    ensure!(count == SLEEPS, "{count} requests were counted of {SLEEPS}");
    ensure!(summary.lost() == 0, "lost: {:?}", summary.losses);
    println!("the package works in a bare Debian 12: {count} of {SLEEPS} requests counted");
    super::booted::run(deb)
}

/// Debian's smallest set of packages and these, from where apt gets its own.
pub(super) fn bootstrap(bare: &Path, more: &[&str]) -> Result<()> {
    eprintln!("making a bare Debian 12 in {} (once)", bare.display());
    let lists = [
        "/etc/apt/sources.list.d/debian.sources",
        "/etc/apt/sources.list",
    ];
    let list = lists.iter().map(Path::new).find(|file| file.exists());
    let list = list.context("apt has no list of sources")?;
    // Only a whole one gets the name.
    let begun = bare.with_extension("begun");
    super::empty(&begun)?;
    let mut command = Command::new("mmdebstrap");
    command.args(["--quiet", "--variant=minbase", "--mode=root"]);
    if !more.is_empty() {
        command.arg(format!("--include={}", more.join(",")));
    }
    command.arg("bookworm");
    command.arg(&begun).arg(list);
    process::run(&mut command)?;
    fs::rename(&begun, bare)?;
    Ok(())
}
