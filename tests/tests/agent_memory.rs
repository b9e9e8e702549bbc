//! `memory` of an agent: what is more than it allows goes, least needed first, and is counted; requests are all counted.
//!
//! Needs root, a kernel with BPF and g++.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use reqtrace_tests::process::{Child, until};
use reqtrace_tests::reqtrace::Trace;
use reqtrace_tests::scraped::{Agent, Scrape, configuration};
use reqtrace_tests::shop::Shop;
use reqtrace_tests::{fixtures, workspace};

use crate::agent::{COUNT, LIMIT, TRACED, rule_of_shop};

/// Two sessions are more than `memory` allows: the one that began last ends, and the figures say so. The other one goes on, and
/// what the agent holds is below the bound again.
#[test]
fn a_session_that_is_more_than_memory_allows_gives_way() {
    let folder = workspace::scratch().unwrap();
    let [first, late] = ["shop", "late"].map(|name| {
        let program = folder.path().join(name);
        workspace::copy_program(&workspace::shop().unwrap(), &program).unwrap();
        program
    });
    let held = |seen: &Scrape| {
        let of = |kind: &str| seen[&format!("reqtrace_agent_memory_bytes{{kind=\"{kind}\"}}")];
        of("own") + of("tables")
    };
    let shop = Shop::open_from(&first).unwrap();
    let mut agent = Agent::start(folder.path(), &rule_of_shop(&first)).unwrap();
    agent.wait_for(TRACED, 1.0).unwrap();
    // It is looked at each 5 s.
    thread::sleep(Duration::from_secs(6));
    let alone = held(&agent.scrape().unwrap());
    // A session takes more than 40 MB, with a share of so much.
    let memory = (alone / f64::from(1 << 20)) as u64 + 25;
    let rule_of_late = rule_of_shop(&late).replace("\"shop\"", "\"late\"");
    let rules = rule_of_shop(&first) + &rule_of_late;
    let bound = format!("[agent]\nmemory = \"{memory}MB\"");
    let text = configuration(&rules).replacen("[agent]", &bound, 1);
    assert!(text.contains(&bound), "{text}");
    agent.reload(&text).unwrap();
    let second = Shop::open_from(&late).unwrap();
    agent
        .wait_for("reqtrace_traced{service=\"late\"}", 1.0)
        .unwrap();
    agent
        .wait_for("reqtrace_ladder{service=\"late\"}", 10.0)
        .unwrap();
    let words = format!("and memory allows {memory} MB; it is tried again in 1 h");
    let printed = agent.printed();
    assert!(
        printed.contains("late: not traced: the agent held ") && printed.contains(&words),
        "{printed}"
    );
    let orders = shop.load(4, 100).unwrap();
    let seen = agent.wait_for(COUNT, orders as f64).unwrap();
    assert_eq!(seen["reqtrace_targets{state=\"refused\"}"], 1.0);
    assert_eq!(
        seen["reqtrace_agent_memory_limit_bytes"],
        (memory << 20) as f64
    );
    let limit = seen["reqtrace_agent_memory_limit_bytes"];
    until(LIMIT, "what the last session held to be given back", || {
        let held = held(&agent.scrape()?);
        Ok((held <= limit).then_some(held))
    })
    .unwrap();
    // What is allowed more is tried at once.
    let more = text.replace(&bound, "[agent]\nmemory = \"600MB\"");
    agent.reload(&more).unwrap();
    agent
        .wait_for("reqtrace_ladder{service=\"late\"}", 0.0)
        .unwrap();
    agent
        .wait_for("reqtrace_traced{service=\"late\"}", 1.0)
        .unwrap();
    drop((shop, second));
    assert_eq!(agent.end().unwrap().0, Some(0));
}

/// A rule whose share of `memory` is less than the debug information of what it traces: classes that go by functions are
/// found by their symbols, each order is counted, and what was left out is, too.
#[test]
fn names_that_find_no_memory_are_left_out_and_counted() {
    const ORDERS: u64 = 200;
    let folder = workspace::scratch().unwrap();
    let program = folder.path().join("shop");
    workspace::copy_program(&workspace::shop().unwrap(), &program).unwrap();
    let shop = Shop::open_from(&program).unwrap();
    let others = |number: u32| {
        rule_of_shop(&folder.path().join(format!("none-{number}")))
            .replace("\"shop\"", &format!("\"none-{number}\""))
    };
    let others: String = (0..9).map(others).collect();
    let rules = format!("{others}{}blame = true\n", rule_of_shop(&program));
    // An eighth of a rule's share is for copies of symbols: 3 MB here, and the shop's own DWARF has more.
    let with_bound = configuration(&rules).replacen("[agent]", "[agent]\nmemory = \"240MB\"", 1);
    let agent = Agent::start_with(folder.path(), &with_bound).unwrap();
    agent.wait_for(TRACED, 1.0).unwrap();
    shop.load(4, ORDERS).unwrap();
    let seen = agent.wait_for(COUNT, ORDERS as f64).unwrap();
    let part =
        "reqtrace_request_part_seconds_total{service=\"shop\",type=\"order\",part=\"payment\"}";
    assert!(seen[part] > 0.02, "{seen:#?}");
    let lost = "reqtrace_lost_total{service=\"shop\",cause=\"symbols_left_out\"}";
    let lost = seen.get(lost).copied().unwrap_or(0.0);
    assert!((1.0..10.0).contains(&lost), "{seen:#?}");
    assert_eq!(seen["reqtrace_ladder{service=\"shop\"}"], 0.0);
    assert_eq!(agent.end().unwrap().0, Some(0));
}

/// 400,000 functions of 780 bytes each; one blocks between two that are far apart.
fn compile_large(folder: &Path) -> PathBuf {
    const FUNCTIONS: u32 = 400_000;
    let mut code = ".section .note.GNU-stack,\"\",@progbits\n.text\n".to_owned();
    for f in 0..FUNCTIONS {
        code.push_str(&format!(
            ".globl f{f}\n.type f{f},@function\nf{f}:\n.cfi_startproc\npush %rbx\n.cfi_def_cfa_offset 16\n\
             .cfi_offset 3,-16\n.skip 776,0x90\npop %rbx\n.cfi_def_cfa_offset 8\nret\n.cfi_endproc\n.size f{f},.-f{f}\n"
        ));
    }
    std::fs::write(folder.join("large.s"), code).unwrap();
    let main = format!(
        "#include <unistd.h>\nvoid f0(void); void f{last}(void);\n\
         __attribute__((noinline)) void serve(void) {{ f0(); usleep(2000); f{last}(); __asm__(\"\"); }}\n\
         int main(void) {{ for (;;) {{ serve(); usleep(500); }} }}\n",
        last = FUNCTIONS - 1
    );
    std::fs::write(folder.join("large.c"), main).unwrap();
    let program = folder.join("large");
    let mut command = Command::new(workspace::program("gcc").unwrap());
    command
        .args(["-O1", "-fomit-frame-pointer", "-o"])
        .arg(&program)
        .args([folder.join("large.c"), folder.join("large.s")]);
    assert!(command.status().unwrap().success());
    program
}

/// Its tables fit, and the agent holds what `memory` allows, and for a moment the file.
#[test]
#[ignore = "compiles 330 MB: cargo xtask test --all"]
fn a_program_of_330_mb_is_traced_with_whole_stacks_within_memory() {
    let folder = workspace::scratch().unwrap();
    let program = compile_large(folder.path());
    assert!(program.metadata().unwrap().len() > 300 << 20);
    let profile = folder.path().join("large.toml");
    fixtures::write_profile(&profile, "serve", "serve", "").unwrap();
    let process = Child::start(Command::new(&program), folder.path(), "large").unwrap();
    let trace = Trace::start(&profile, process.pid(), &["-d", "3", "--blocked-only"]).unwrap();
    let outcome = trace.wait().unwrap();
    let folded = outcome.folded().unwrap();
    let whole = |line: &&str| line.contains(";main;serve;usleep;");
    assert!(folded.lines().all(|line| whole(&line)), "{folded}");

    let rule = format!(
        "[[rule]]\nmatch = {{ exe = \"{}\", min-age = \"0s\" }}\nservice = \"large\"\nprofile = \"{}\"\n",
        program.display(),
        profile.display()
    );
    let agent = Agent::start(folder.path(), &rule).unwrap();
    let count = "reqtrace_request_duration_seconds_count{service=\"large\",type=\"serve\"}";
    let seen = until(LIMIT, "a thousand requests", || {
        let seen = agent.scrape()?;
        Ok((seen.get(count) >= Some(&1_000.0)).then_some(seen))
    });
    let seen = seen.unwrap();
    let held = ["own", "tables"].map(|kind| {
        let name = format!("reqtrace_agent_memory_bytes{{kind=\"{kind}\"}}");
        seen[&name]
    });
    assert!(held.iter().sum::<f64>() < 256e6, "{held:?}");
    let status = std::fs::read_to_string(format!("/proc/{}/status", agent.pid())).unwrap();
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let most: u64 = most
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    assert!(most < 700 << 10, "{most} kB");
    assert_eq!(agent.end().unwrap().0, Some(0));
}
