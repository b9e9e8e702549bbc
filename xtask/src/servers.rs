//! Servers of the end-to-end tests whose packages would install a service: unpacked into a folder of
//! their own, so that no unit is enabled, no cluster or user is made, and nothing ever starts with
//! the machine. Their libraries and clients come the ordinary way.
//!
//! In: apt. Out: `/opt/reqtrace-tests`, as the packages lay out `/`. `tests/src/workspace.rs` looks
//! there for what is not installed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

use crate::{
    packages::{Apt, Package},
    process,
    setup::Need,
    workspace::target_dir,
};

/// Outside of the checkout: PostgreSQL does not run as root, and others may not be able to enter
/// the checkout's folders. A removed `target/` does not take it away either.
const ROOT: &str = reqtrace_tests::workspace::UNPACKED;

/// A server, or a part of one: the packages that hold it, and its program or library.
struct Server {
    packages: &'static [&'static str],
    program: &'static str,
}

const SERVERS: [Server; 10] = [
    Server {
        packages: &["postgresql-15", "postgresql-client-15"],
        program: "usr/lib/postgresql/15/bin/postgres",
    },
    // redis-server is a link to a program of redis-tools.
    Server {
        packages: &["redis-server", "redis-tools"],
        program: "usr/bin/redis-server",
    },
    Server {
        packages: &["nginx"],
        program: "usr/sbin/nginx",
    },
    Server {
        packages: &["haproxy"],
        program: "usr/sbin/haproxy",
    },
    Server {
        packages: &["squid", "squid-common", "squid-langpack"],
        program: "usr/sbin/squid",
    },
    Server {
        packages: &["apache2-bin"],
        program: "usr/sbin/apache2",
    },
    Server {
        packages: &["php8.2-fpm"],
        program: "usr/sbin/php-fpm8.2",
    },
    Server {
        packages: &["php8.2-mysql"],
        program: "usr/lib/php/20220829/mysqli.so",
    },
    // Programs in Go.
    Server {
        packages: &["prometheus"],
        program: "usr/bin/prometheus",
    },
    Server {
        packages: &["etcd-server"],
        program: "usr/bin/etcd",
    },
];

/// Servers of the cookbook.
const FURTHER: [Server; 3] = [
    Server {
        packages: &["slapd"],
        program: "usr/sbin/slapd",
    },
    Server {
        packages: &["varnish"],
        program: "usr/sbin/varnishd",
    },
    Server {
        packages: &["memcached"],
        program: "usr/bin/memcached",
    },
];

/// Those that are needed for what.
fn needed(needs: &[Need]) -> impl Iterator<Item = &'static Server> {
    let of = |need, servers: &'static [Server]| {
        let wanted = needs.contains(&need);
        servers.iter().filter(move |_| wanted)
    };
    of(Need::Test, &SERVERS).chain(of(Need::All, &FURTHER))
}

impl Server {
    fn unpacked(&self) -> PathBuf {
        Path::new(ROOT).join(self.program)
    }

    fn is_present(&self) -> bool {
        Path::new("/").join(self.program).exists() || self.unpacked().exists()
    }

    fn unpack(&self, apt: &Apt) -> Result<()> {
        eprintln!("setup: unpacking {} into {ROOT}", self.packages.join(" "));
        fs::create_dir_all(ROOT).with_context(|| ROOT.to_owned())?;
        let folder = target_dir().join("setup-packages");
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        for package in self.packages {
            apt.download(package, &folder)?;
        }
        for file in fs::read_dir(&folder)? {
            let mut command = Command::new("dpkg-deb");
            process::run(command.arg("--extract").arg(file?.path()).arg(ROOT))?;
        }
        fs::remove_dir_all(&folder)?;
        let program = self.unpacked();
        ensure!(
            program.exists(),
            "{} holds no {}; remove {ROOT} and run this command again",
            self.packages.join(" "),
            program.display()
        );
        Ok(())
    }
}

/// The libraries that the servers to unpack need.
pub(crate) fn libraries(apt: &Apt, needs: &[Need]) -> Vec<Package> {
    let missing = needed(needs).filter(|server| !server.is_present());
    let mut names: Vec<String> = missing
        .flat_map(|server| server.packages)
        // Asking for the candidate brings missing lists in.
        .filter(|package| apt.candidate(package).is_some())
        .flat_map(|package| apt.depends(package))
        .filter(|name| is_library(name))
        .collect();
    names.sort_unstable();
    names.dedup();
    names.iter().map(|name| Package::library(name)).collect()
}

/// Unpacks those servers that are neither installed nor unpacked.
pub(crate) fn unpack(apt: &Apt, needs: &[Need], verbose: bool) -> Result<()> {
    for server in needed(needs) {
        if !server.is_present() {
            server.unpack(apt)?;
        } else if verbose {
            eprintln!("setup: {} already there", server.program);
        }
    }
    Ok(())
}

fn is_library(package: &str) -> bool {
    package.starts_with("lib") || package == "zlib1g"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_libraries_are_installed_with_a_server() {
        for library in ["libicu72", "zlib1g", "libpq5"] {
            assert!(is_library(library));
        }
        for other in ["postgresql-common", "ssl-cert", "nginx-common", "locales"] {
            assert!(!is_library(other), "{other} may start or change something");
        }
    }
}
