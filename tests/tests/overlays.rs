//! Containers of one image: each has an overlay of its own over one lower folder, with a device of its own, and the kernel sets a
//! probe in the file below. Each request is one.
//!
//! Needs root, a kernel with BPF, and overlayfs.

use std::path::{Path, PathBuf};
use std::process::Command;

use reqtrace_tests::process::run;
use reqtrace_tests::reqtrace::Trace;
use reqtrace_tests::shop::{self, Shop};
use reqtrace_tests::workspace::{self, SmallDisk};

/// An overlay over a folder.
struct Overlay(PathBuf);

impl Overlay {
    /// Its upper layer is in a folder in memory.
    fn over(lower: &Path, name: &str, parent: &Path) -> Self {
        let place = parent.join(name);
        let [upper, work] = ["upper", "work"].map(|kind| parent.join(format!("{name}-{kind}")));
        for folder in [&place, &upper, &work] {
            std::fs::create_dir(folder).unwrap();
        }
        let layers = format!(
            "lowerdir={},upperdir={},workdir={}",
            lower.display(),
            upper.display(),
            work.display()
        );
        let mut mount = Command::new("mount");
        run(mount
            .args(["-t", "overlay", "none", "-o", &layers])
            .arg(&place))
        .unwrap();
        Self(place)
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// Two containers run the file of the image, a third one has a copy of its own, as after a change there.
#[test]
fn containers_of_one_image_have_one_file() {
    let folder = workspace::scratch().unwrap();
    let image = folder.path().join("image");
    std::fs::create_dir(&image).unwrap();
    workspace::copy_program(&workspace::shop().unwrap(), &image.join("shop")).unwrap();
    let disk = SmallDisk::mount(&folder.path().join("layers"), "64m").unwrap();
    let containers = ["one", "two", "three"].map(|name| Overlay::over(&image, name, disk.path()));
    let programs = containers
        .each_ref()
        .map(|container| container.0.join("shop"));
    // A new time of its last change copies it up.
    run(Command::new("touch").arg(&programs[2])).unwrap();

    let shops = programs
        .each_ref()
        .map(|program| Shop::open_from(program).unwrap());
    let options = [
        "-p".to_owned(),
        format!("{},{}", shops[1].pid(), shops[2].pid()),
    ];
    let options = options.each_ref().map(String::as_str);
    let trace = Trace::start(&shop::profile(), shops[0].pid(), &options).unwrap();
    let mut orders = 0;
    for (shop, requests) in shops.iter().zip([300, 200, 100]) {
        orders += shop.load(2, requests).unwrap();
    }
    let outcome = trace.finish().unwrap();
    outcome.checked().unwrap();
    let rows = outcome.rows().unwrap();
    assert!(rows.iter().all(|row| row.complete), "{}", outcome.printed());
    assert_eq!(rows.len() as u64, orders, "{}", outcome.printed());
    drop(shops);
    drop(containers);
}
