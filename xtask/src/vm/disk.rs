//! The guest's disk, for what waits for one.
//!
//! In: nothing. Out: a sparse file with an empty ext4.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use crate::{process, workspace::find_command};

/// Room for the example's files and the journal.
const SIZE: u64 = 64 << 20;

/// Makes it again.
pub(crate) fn make(path: &Path) -> Result<PathBuf> {
    let mke2fs =
        find_command("mke2fs").context("mke2fs is missing; run `cargo xtask setup --for vm`")?;
    let file = File::create(path).with_context(|| path.display().to_string())?;
    file.set_len(SIZE)?;
    process::run(
        Command::new(mke2fs)
            .args(["-q", "-F", "-t", "ext4"])
            .arg(path),
    )?;
    Ok(path.to_owned())
}
