//! Writes what a package holds besides the program: `manual DIR` makes the manual pages in `DIR/man` and
//! completions for bash, zsh and fish in `DIR/completions`, from the definition of the command line.
//! `cargo xtask dist` runs it.

use std::fs;
use std::io;
use std::path::PathBuf;

use clap::CommandFactory as _;
use clap_complete::Shell;
use reqtrace::cli::args::Args;

fn main() -> io::Result<()> {
    let Some(folder) = std::env::args_os().nth(1).map(PathBuf::from) else {
        return Err(io::Error::other("usage: manual DIR"));
    };
    let [man, completions] = ["man", "completions"].map(|name| folder.join(name));
    for folder in [&man, &completions] {
        fs::create_dir_all(folder)?;
    }
    clap_mangen::generate_to(Args::command(), &man)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut Args::command(), "reqtrace", &completions)?;
    }
    Ok(())
}
