use reqtrace_tests::truth::compare::Number;
#[test]
fn x() {
    let (outcome, c) = reqtrace_tests::truth::trace(100).unwrap();
    let k = c.kind("preempted").unwrap();
    for n in [Number::Preemptions, Number::OnCpu, Number::RunDelay] {
        eprintln!("{n:?} {:?}", k.distances(n).iter().map(|d| d.outside).collect::<Vec<_>>());
    }
    eprintln!("{:?}", outcome.summary().unwrap().losses);
    eprintln!("{}", outcome.said());
    eprintln!("{}", outcome.summary_text().unwrap());
}
