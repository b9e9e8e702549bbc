//! Debian's cloud kernels, downloaded and unpacked, never installed.
//!
//! In: a series such as `6.1`. Out: a kernel image in the target directory, fetched once; delete the
//! folder `target/vm/kernels` to get the newest of the series again.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use crate::{packages::Apt, process};

/// What Debian calls an image in `/boot`.
const IMAGE_PREFIX: &str = "vmlinuz-";
/// What Debian calls a package with an image.
const PACKAGE_PREFIX: &str = "linux-image-";

/// A kernel to boot.
pub(crate) struct Kernel {
    /// Its release, e.g. `6.1.0-56-cloud-amd64`.
    pub(crate) release: String,
    /// Its image.
    pub(crate) image: PathBuf,
}

/// The kernel of a series; downloads it unless it is there.
pub(crate) fn get(series: &str, cache: &Path) -> Result<Kernel> {
    let folder = cache.join(series);
    if let Some(kernel) = find(&folder)? {
        return Ok(kernel);
    }
    let package = resolve(series)?;
    eprintln!("vm: downloading {package}");
    let unpacked = folder.join("unpacked");
    fs::create_dir_all(&unpacked).with_context(|| unpacked.display().to_string())?;
    Apt::default().download(&package, &folder)?;
    let file = files(&folder)?
        .into_iter()
        .find(|file| file.extension().is_some_and(|extension| extension == "deb"))
        .with_context(|| format!("apt-get left no package file in {}", folder.display()))?;
    let mut extract = Command::new("dpkg-deb");
    process::run(extract.arg("-x").arg(&file).arg(&unpacked))?;
    for image in files(&unpacked.join("boot"))? {
        if let Some(name) = image.file_name().filter(|name| is_image(name)) {
            fs::rename(&image, folder.join(name)).with_context(|| image.display().to_string())?;
        }
    }
    // The modules are ten times the image and nothing here loads one.
    fs::remove_dir_all(&unpacked).with_context(|| unpacked.display().to_string())?;
    fs::remove_file(&file).with_context(|| file.display().to_string())?;
    find(&folder)?.with_context(|| format!("{package} holds no kernel image"))
}

fn is_image(name: &std::ffi::OsStr) -> bool {
    name.to_string_lossy().starts_with(IMAGE_PREFIX)
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    entries.map(|entry| Ok(entry?.path())).collect()
}

fn find(folder: &Path) -> Result<Option<Kernel>> {
    if !folder.is_dir() {
        return Ok(None);
    }
    let kernel = files(folder)?.into_iter().find_map(|image| {
        let release = image
            .file_name()?
            .to_str()?
            .strip_prefix(IMAGE_PREFIX)?
            .to_owned();
        Some(Kernel { release, image })
    });
    Ok(kernel)
}

/// The package with the newest kernel of a series, through the packages that always depend on it.
fn resolve(series: &str) -> Result<String> {
    let apt = Apt::default();
    let metas = [
        format!("linux-image-{series}-cloud-amd64"),
        "linux-image-cloud-amd64".to_owned(),
    ];
    let look = || {
        let depends = metas.iter().flat_map(|meta| apt.depends(meta));
        depends.into_iter().find(|name| is_of(name, series))
    };
    if let Some(package) = look() {
        return Ok(package);
    }
    // Lists that were never fetched know nothing; without root they stay so.
    if apt.update().is_ok()
        && let Some(package) = look()
    {
        return Ok(package);
    }
    bail!(
        "apt has no cloud kernel {series} (asked for what {} depend on); Debian 12 has 6.1 in main \
         and 6.12 in its backports and security archives. A bootable image {IMAGE_PREFIX}RELEASE put \
         into target/vm/kernels/{series} serves too",
        metas.join(" and ")
    )
}

/// Whether a package is an image of that series: `6.1` is not `6.12`.
fn is_of(package: &str, series: &str) -> bool {
    let release = package.strip_prefix(PACKAGE_PREFIX);
    release.is_some_and(|release| {
        release
            .strip_prefix(series)
            .is_some_and(|rest| rest.starts_with('.'))
            && release.ends_with("-cloud-amd64")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_is_told_from_a_longer_one() {
        assert!(is_of("linux-image-6.1.0-56-cloud-amd64", "6.1"));
        assert!(is_of("linux-image-6.12.117+deb12-cloud-amd64", "6.12"));
        assert!(!is_of("linux-image-6.12.117+deb12-cloud-amd64", "6.1"));
        assert!(!is_of("linux-image-6.1.0-56-amd64", "6.1"));
        assert!(!is_of("linux-image-6.12-cloud-amd64", "6.12"));
    }
}
