//! `cargo xtask soak-agent` in its small form: three minutes of four services under load that are restarted, and an agent that is
//! killed. What must hold of counts, rows, memory and a full disk it checks by itself.
//!
//! Needs root, a kernel with BPF, MariaDB, sysbench, PostgreSQL, nginx and PHP-FPM.

use reqtrace_bench::soak_agent::{Args, run};

fn args() -> Args {
    Args {
        minutes: 3,
        max_cost: 50,
        rate: 100,
        restart_every: 30,
        kill_every: 80,
        kill_after: 0,
        one_in: 10,
        memory: 1024,
        turn: vec![60, 30],
        seed: 1,
    }
}

#[test]
#[ignore = "three minutes: cargo xtask test --all"]
fn an_agent_counts_each_request_over_restarts_and_its_own_death() {
    let measured = run(&args()).unwrap();
    let page = measured.page();
    println!("{page}");
    for service in ["mariadb", "postgresql", "nginx", "php-fpm"] {
        assert!(page.contains(&format!("\n| {service} | ")), "{page}");
    }
    measured.check().unwrap();
}
