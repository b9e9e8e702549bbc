use reqtrace_common::marker::{marker_flag, op};

use super::super::PlanTables;
use super::*;
use reqtrace_profile::{Origin, Profile};
use reqtrace_resolve::resolve_file;

#[path = "../../../../reqtrace-resolve/src/fixtures.rs"]
#[allow(
    dead_code,
    reason = "not all that the tests of reqtrace-resolve compile"
)]
mod fixtures;

use fixtures::Fixture;

const SERVER: &str = r#"
    struct request { char *sql; int command; };
    __attribute__((noinline)) int serve(struct request *r, int n) { asm(""); return n + r->command; }
    __attribute__((noinline)) int work(struct request *r) { asm(""); return r->command; }
    __attribute__((noinline)) struct request *pop(void *queue) { asm(""); return queue; }
    __attribute__((noinline)) int push(void *queue, struct request *r) { asm(""); return r != queue; }
    int main(int c, char **v) {
        struct request r = { v[0], c };
        return serve(&r, c) + work(pop(&r)) + push(&r, &r);
    }
"#;

/// Probes of a request as program, offset in the file and index, and the tables.
struct Planned {
    probes: Vec<(&'static str, u64, u16)>,
    tables: PlanTables,
}

impl Planned {
    /// The chain of a probe.
    fn chain(&self, index: u16) -> Vec<reqtrace_common::marker::MarkerPlan> {
        let mut chain = Vec::new();
        let mut index = u32::from(index);
        while index != 0 {
            let plan = self.tables.marker_plans()[index as usize].0;
            chain.push(plan);
            index = plan.next;
        }
        chain
    }

    fn programs(&self) -> Vec<&'static str> {
        self.probes.iter().map(|(program, ..)| *program).collect()
    }

    /// The attributes that a plan reads.
    fn read(&self, plan: &reqtrace_common::marker::MarkerPlan) -> Vec<u32> {
        let mut read = Vec::new();
        let mut index = plan.attributes;
        while index != 0 {
            let plan = self.tables.attribute_plans()[index as usize];
            read.push(plan.index);
            index = plan.next;
        }
        read
    }
}

fn plan(request: &str, with_texts: bool) -> Result<Planned> {
    let fixture = Fixture::c(SERVER, &["-O2", "-rdynamic"]);
    let text = format!("[profile]\nname = \"p\"\n[[request]]\nname = \"r\"\n{request}\n");
    let profile = Profile::parse(&text, "p.toml", Origin::BuiltIn)?;
    let resolved = resolve_file(&profile, fixture.path())?;
    let mut tables = PlanTables::new(with_texts);
    let probes = plan_probes(&[resolved], &mut tables)?;
    let probes = probes
        .iter()
        .map(|probe| {
            let index = Cookie::decode(probe.cookie).label;
            (probe.program, probe.file_offset, index)
        })
        .collect();
    Ok(Planned { probes, tables })
}

const SQL: &str = "\n[[request.attribute]]\nname = \"sql\"\narg = 0\nderef = [0]";
const COMMAND: &str =
    "\n[[request.attribute]]\nname = \"command\"\ntype = \"integer\"\narg = 0\nderef = [8]";

#[test]
fn what_has_no_conditions_and_reads_nothing_needs_no_plan() {
    let plain = "begin = { function = \"serve\" }\nlabel = { arg = 0, deref = [0] }";
    for (request, with_texts) in [
        (plain.to_owned(), false),
        (plain.to_owned(), true),
        // Texts are for --labels.
        (format!("{plain}{SQL}"), false),
    ] {
        let planned = plan(&request, with_texts).unwrap();
        assert_eq!(planned.programs().last(), Some(&"request_begin"));
        assert_eq!(planned.programs()[0], "request_end");
        assert_eq!(planned.tables.marker_plans().len(), 1);
        let label = planned.probes.last().unwrap().2;
        assert_eq!(label, u16::from(with_texts));
        assert_eq!(
            planned.tables.label_plans().len(),
            1 + usize::from(with_texts)
        );
    }
}

#[test]
fn a_begin_reads_attributes_and_its_label() {
    let request = format!(
        "begin = {{ function = \"serve\" }}\nlabel = {{ arg = 0, deref = [0] }}{SQL}{COMMAND}"
    );
    let planned = plan(&request, false).unwrap();
    let begin = planned.probes.last().unwrap();
    assert_eq!(begin.0, "marked_begin");
    let [only] = planned.chain(begin.2)[..] else {
        panic!("{:?}", planned.chain(begin.2));
    };
    assert_eq!((only.op, only.flags), (op::BEGIN, marker_flag::CURRENT));
    // The number without --labels, the text with it.
    assert_eq!((planned.read(&only), only.label), (vec![1], 0));
    let planned = plan(&request, true).unwrap();
    let only = planned.chain(planned.probes.last().unwrap().2)[0];
    assert_eq!((planned.read(&only), only.label), (vec![0, 1], 1));
    // The end has nothing to read.
    assert_eq!(planned.probes[0].0, "request_end");
}

#[test]
fn conditions_and_attributes_elsewhere_have_probes_of_their_own() {
    let request = format!(
        "begin = {{ function = \"serve\", when = {{ arg = 1, equals = 2 }} }}\n\
         end = {{ function = \"serve\", at = \"return\", when = {{ arg = \"result\", not-equals = 0 }} }}\n\
         {COMMAND}\nfunction = \"work\""
    );
    let planned = plan(&request, false).unwrap();
    let programs = planned.programs();
    assert_eq!(programs[0], "marked_end");
    assert_eq!(programs[programs.len() - 2..], ["marker", "marked_begin"]);
    let marker = planned.probes[programs.len() - 2];
    let chain = planned.chain(marker.2);
    assert_eq!((chain.len(), chain[0].op), (1, op::NONE));
    assert_eq!(planned.read(&chain[0]), [0]);
    let end = planned.chain(planned.probes[0].2);
    assert_eq!((end[0].op, end[0].when[0].negate), (op::END, 1));
}

#[test]
fn an_attribute_at_the_begins_place_is_read_by_the_begin() {
    let request = |begin: &str, attribute: &str| {
        format!(
            "begin = {{ function = \"serve\"{begin} }}{COMMAND}\nfunction = \"serve\"\n{attribute}"
        )
    };
    let planned = plan(&request("", ""), false).unwrap();
    assert!(!planned.programs().contains(&"marker"));
    let begin = planned.chain(planned.probes.last().unwrap().2);
    assert_eq!(planned.read(&begin[0]), [0]);
    // Where there may be no begin, and where a call inside may have a later value, it is read as well.
    for request in [
        request(", when = { arg = 1, equals = 2 }", ""),
        request("", "keep = \"last\""),
    ] {
        let planned = plan(&request, false).unwrap();
        let count = planned.probes.len();
        let [marker, begin] = planned.probes[count - 2..] else {
            panic!("{count} probes");
        };
        assert_eq!((marker.0, begin.0), ("marker", "marked_begin"));
        assert_eq!(marker.1, begin.1);
        assert_eq!(planned.read(&planned.chain(begin.2)[0]), [0]);
    }
}

#[test]
fn requests_with_a_key_have_one_probe_a_place() {
    let request = format!(
        "key = {{ arg = 0 }}\n\
         begin = {{ function = \"serve\", key = {{ arg = 0 }} }}\n\
         resume = [ {{ function = \"serve\", as = \"queue\" }}, {{ function = \"pop\", at = \"return\", key = {{ arg = \"result\" }} }} ]\n\
         park = {{ function = \"work\", at = \"return\", when = {{ arg = \"result\", equals = 2 }} }}\n\
         ready = {{ function = \"push\", key = {{ arg = 1 }} }}\n\
         end = {{ function = \"work\", at = \"return\" }}{COMMAND}\nfunction = \"push\"\narg = 1"
    )
    .replace("arg = 0\nderef = [8]\nfunction = \"push\"\n", "deref = [8]\nfunction = \"push\"\n");
    let planned = plan(&request, false).unwrap();
    assert!(
        planned
            .programs()
            .iter()
            .all(|program| *program == "marker")
    );
    let ops: Vec<Vec<u32>> = planned
        .probes
        .iter()
        .map(|(_, _, index)| planned.chain(*index).iter().map(|plan| plan.op).collect())
        .collect();
    // The place of the end first, that of the begin last.
    assert_eq!(ops[0], [op::PARK, op::END]);
    let last = ops.last().unwrap();
    assert_eq!(last[..], [op::BEGIN]);
    let begin = planned.chain(planned.probes.last().unwrap().2)[0];
    assert_eq!(begin.flags, marker_flag::OR_RESUME);
    assert_eq!(begin.place, 1);
    assert!(ops.contains(&vec![op::RESUME]) && ops.contains(&vec![op::READY]));
    let ready = planned
        .probes
        .iter()
        .map(|probe| planned.chain(probe.2)[0])
        .find(|plan| plan.op == op::READY);
    assert_eq!(planned.read(&ready.unwrap()), [0]);
    // The end is that of the request that the thread runs: its key is gone at a return.
    let end = planned.chain(planned.probes[0].2)[1];
    assert_eq!(end.flags, marker_flag::CURRENT);
}

#[test]
fn what_cannot_be_told_apart_is_reported_with_the_request() {
    let error = plan(
        "key = { arg = 0 }\nbegin = { function = \"serve\" }\n\
         park = { function = \"work\" }\nend = { function = \"work\" }",
        false,
    )
    .map(|_| ())
    .unwrap_err()
    .to_string();
    assert!(
        error.starts_with("request `r`: `end` and `park` are at one place"),
        "{error}"
    );
}
