use std::process::{Child, Command, Stdio};

use super::*;
use crate::fixtures::Fixture;
use crate::resolve_file;
use reqtrace_profile::Origin;

/// It sets its variables, says so by closing its output, and waits until its input ends.
const POOL: &str = r#"
    #include <unistd.h>
    struct pool { long size; short kind; };
    long handling = 7;
    struct pool own, *pool;
    __attribute__((noinline)) int work(int n) { asm(""); return n; }
    __attribute__((noinline)) long kind(struct pool *p) { asm(""); return p->kind; }
    int main(int c, char **v) {
        (void)v;
        handling = c;
        own.kind = -3;
        pool = &own;
        close(1);
        char byte;
        return read(0, &byte, 1) ? work(c) : kind(pool);
    }
"#;

fn fixture() -> Fixture {
    Fixture::c(POOL, &["-O2", "-rdynamic"])
}

/// A profile with one alternative, which has these conditions.
fn profile(conditions: &str) -> Profile {
    let text = format!(
        "[profile]\nname = \"p\"\n[[request]]\nname = \"r\"\nbegin = {{ function = \"work\" }}\n\
         [[request.instead]]\n{conditions}\nkey = {{ arg = 0 }}\nend = {{ function = \"kind\" }}\n"
    );
    Profile::parse(&text, "p.toml", Origin::BuiltIn).unwrap()
}

fn choice(conditions: &str, targets: &[Target<'_>]) -> Choice {
    let (settled, mut choices) = settle(&profile(conditions), targets).unwrap();
    let choice = choices.remove(0);
    assert_eq!(settled.requests[0].is_keyed, choice.taken.is_some());
    choice
}

/// A process that has set its variables.
struct Running(Child);

impl Running {
    fn start(fixture: &Fixture, arguments: &[&str]) -> Self {
        let mut command = Command::new(fixture.path());
        command.args(arguments);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = child.stdout.take().unwrap();
        std::io::Read::read_to_end(&mut output, &mut Vec::new()).unwrap();
        Self(child)
    }

    fn process(&self) -> Process {
        Process::open(self.0.id()).unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

#[test]
fn functions_and_their_code_are_looked_at_in_the_file() {
    let fixture = fixture();
    let target = [Target::file(fixture.path())];
    let of = |conditions: &str| choice(conditions, &target);
    assert_eq!(of("only-if = { function = \"kind\" }").taken, Some(0));
    let absent = of("only-if = { function = \"park\" }");
    assert_eq!((absent.taken, absent.is_unknown), (None, false));
    assert!(absent.why.ends_with("has no function `park`"), "{absent:?}");
    // movswq 0x8(%rdi),%rax
    let code =
        |bytes: &str| format!("{{ function = \"kind\", code = [\"48 0f bf 47 08\", {bytes:?}] }}");
    let here = of(&format!("only-if = {}", code("bf 47")));
    assert_eq!(here.taken, Some(0), "{here:?}");
    let other = of(&format!("only-if = {}", code("48 0f bf 47 10")));
    assert_eq!(other.taken, None);
    assert!(
        other.why.contains("`kind`") && other.why.contains("has no 48 0f bf 47 10"),
        "{other:?}"
    );
    let unless = of(&format!("unless = {}", code("48 0f bf 47 10")));
    assert_eq!(unless.taken, Some(0));
    assert_eq!(of(&format!("unless = {}", code("bf 47"))).taken, None);
    assert_eq!(
        of("only-if = { object = \"libx.so\", function = \"kind\" }").taken,
        None
    );
}

#[test]
fn variables_are_read_in_the_process() {
    let fixture = fixture();
    let (one, three) = (
        Running::start(&fixture, &[]),
        Running::start(&fixture, &["a", "b"]),
    );
    let (one, three) = (one.process(), three.process());
    let of = |conditions: &str| choice(conditions, &[Target::Process(&one)]);
    let handling = "only-if = { global = \"handling\", deref = [0], size = 8, equals = 3 }";
    let first = of(handling);
    assert_eq!((first.taken, first.is_unknown), (None, false));
    assert_eq!(first.why, "the variable `handling` is 1, and not 3");
    // One process of all is enough.
    let both = choice(handling, &[Target::Process(&one), Target::Process(&three)]);
    assert_eq!(both.taken, Some(0));
    assert_eq!(both.why, "the variable `handling` is 3");
    let kind = |wanted: &str| {
        of(&format!(
            "only-if = {{ global = \"pool\", deref = [0, 8], size = 2, {wanted} }}"
        ))
        .taken
    };
    assert_eq!(
        (kind("equals = -3"), kind("not-equals = -3")),
        (Some(0), None)
    );
    assert_eq!((kind("from = -5"), kind("to = -5")), (Some(0), None));
    // Behind a number is no memory.
    let nowhere = of("only-if = { global = \"handling\", deref = [0, 0], equals = 1 }");
    assert!(
        nowhere.is_unknown && nowhere.taken == Some(0),
        "{nowhere:?}"
    );
    assert!(nowhere.why.contains("cannot be read"), "{nowhere:?}");
    let absent = of("only-if = { global = \"handlin\", deref = [0], equals = 1 }");
    assert!(
        absent.why.ends_with("has no variable `handlin`"),
        "{absent:?}"
    );
}

#[test]
fn a_variable_that_is_not_the_only_one_of_its_name_is_not_guessed() {
    let fixture = Fixture::c_of_two_depths(POOL, &["-O2"]);
    let only_if = "only-if = { global = \"depth\", deref = [0], equals = 1 }";
    let error = settle(&profile(only_if), &[Target::file(fixture.path())]).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    let text = error.to_string();
    assert!(text.contains("`depth` is ambiguous"), "{text}");
}

#[test]
fn what_does_not_run_yet_is_taken_for_the_dear_one() {
    let fixture = fixture();
    let handling = "only-if = { global = \"handling\", deref = [0], equals = 7 }";
    let file = choice(handling, &[Target::file(fixture.path())]);
    assert_eq!((file.taken, file.is_unknown), (Some(0), true));
    assert!(file.why.contains("does not run"), "{file:?}");
    let running = Running::start(&fixture, &[]);
    let mut process = running.process();
    process.has_begun = false;
    let early = choice(handling, &[Target::Process(&process)]);
    assert!(
        early.is_unknown && early.why.contains("has not begun"),
        "{early:?}"
    );
    assert!(choice(handling, &[]).is_unknown);
    // What the file shows is known all the same.
    let known = format!(
        "{}, {{ function = \"park\" }}]",
        handling.replace("= {", "= [{")
    );
    assert_eq!(choice(&known, &[Target::Process(&process)]).taken, None);
}

#[test]
fn an_attribute_of_another_build_is_not_read() {
    let fixture = fixture();
    let text = "[profile]\nname = \"p\"\n[[request]]\nname = \"r\"\nbegin = { function = \"work\" }\n\
        [[request.attribute]]\nname = \"kind\"\narg = 0\ntype = \"integer\"\n\
        only-if = { function = \"kind\", code = \"48 0f bf 47 10\" }\n\
        [[request.attribute]]\nname = \"number\"\narg = 0\ntype = \"integer\"\n";
    let profile = Profile::parse(text, "p.toml", Origin::BuiltIn).unwrap();
    let resolved = resolve_file(&profile, fixture.path()).unwrap();
    let request = &resolved.requests[0];
    assert_eq!(request.begin.sites[0].attributes.len(), 1);
    let [unread] = request.unread.as_slice() else {
        panic!("{:?}", request.unread);
    };
    assert_eq!((unread.attribute.as_str(), unread.is_read), ("kind", false));
    assert!(unread.why.contains("another build"), "{}", unread.why);
}

/// The built-in profile in a server whose `dispatch_command` has this signature, as the two kinds of servers
/// and nothing else declare it.
fn mysql(signature: &str, more: &str) -> crate::ResolvedRequest {
    let source = format!(
        "enum enum_server_command {{ QUERY = 3 }}; struct THD; union COM_DATA;\n{more}\n\
         __attribute__((noinline)) int {signature} {{ asm(\"\"); return 0; }}\n\
         int main() {{ return 0; }}"
    );
    let fixture = Fixture::cpp(&source, &["-rdynamic"]);
    let built_in = reqtrace_profile::builtin::built_in("mysql").unwrap();
    let target = Target::file(fixture.path());
    let (profile, choices) =
        settle(&built_in.parse().unwrap(), std::slice::from_ref(&target)).unwrap();
    // No pool: the file shows it.
    assert_eq!((choices[0].taken, choices[0].is_unknown), (None, false));
    resolve_file(&profile, fixture.path())
        .unwrap()
        .requests
        .remove(0)
}

/// The registers from which attributes are read at begin, by the index of the attribute.
fn at_begin(request: &crate::ResolvedRequest) -> Vec<(u32, u8)> {
    let plans = request.begin.sites[0].attributes.iter();
    plans.map(|plan| (plan.index, plan.value.base)).collect()
}

#[test]
fn each_server_is_read_by_its_own_signature() {
    use reqtrace_common::registers::Register::{Rdi, Rdx, Rsi};
    let unread = |request: &crate::ResolvedRequest| -> Vec<String> {
        let unread = request.unread.iter().filter(|unread| !unread.is_read);
        unread.map(|unread| unread.attribute.clone()).collect()
    };
    let log = "__attribute__((noinline)) void general_log_write(THD *, enum_server_command, const char *, unsigned long) { asm(\"\"); }";
    let mariadb = mysql(
        "dispatch_command(enum_server_command, THD*, char*, unsigned, bool)",
        log,
    );
    assert_eq!(at_begin(&mariadb), [(0, Rdi.index()), (1, Rdx.index())]);
    // The layout of its structs is not known: the text of prepared statements is that of the log.
    assert_eq!(unread(&mariadb), ["user", "database"]);
    assert_eq!(mariadb.more.len(), 1);
    assert!(mariadb.more[0].1.symbol.starts_with("general_log_write("));

    let log = "struct Query_logger { void general_log_write(THD *, enum_server_command, const char *, unsigned long); };\n\
               __attribute__((noinline)) void Query_logger::general_log_write(THD *, enum_server_command, const char *, unsigned long) { asm(\"\"); }";
    let mysql8 = mysql(
        "dispatch_command(THD*, const COM_DATA*, enum_server_command)",
        log,
    );
    assert_eq!(at_begin(&mysql8), [(0, Rdx.index()), (1, Rsi.index())]);
    assert_eq!(unread(&mysql8), ["user", "database"]);
    assert_eq!(mysql8.more.len(), 1);
    assert!(mysql8.more[0].1.symbol.starts_with("Query_logger::"));

    let other = mysql("dispatch_command(int)", "");
    assert!(at_begin(&other).is_empty() && other.more.is_empty());
    let all = unread(&other);
    assert!(
        all.contains(&"command".to_owned()) && all.contains(&"sql".to_owned()),
        "{all:?}"
    );
}
