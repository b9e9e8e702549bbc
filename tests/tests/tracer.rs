//! The library: `reqtrace::analysed::Analysed` on the example shop. What its events and its model say is what the
//! shop says.
//!
//! Needs root and a kernel with BPF.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::thread;
use std::time::Duration;

use reqtrace::analysed::Analysed;
use reqtrace_analysis::aggregate::Aggregator;
use reqtrace_capture::events::Notice;
use reqtrace_capture::tracer::EndedBy;
use reqtrace_capture::tracer::Tracer;
use reqtrace_profile::{Origin, Profile, builtin};
use reqtrace_recording::Event;
use reqtrace_tests::shop::{self, Shop};

const CONNECTIONS: u32 = 4;
const REQUESTS: u64 = 400;

fn profile() -> Profile {
    builtin::from_file(&shop::profile()).unwrap()
}

#[test]
fn events_tell_each_request_as_it_ends() {
    let shop = Shop::open().unwrap();
    let trace = Analysed::new(Tracer::new(profile()).pid(shop.pid()))
        .start()
        .unwrap();
    let stopper = trace.stopper();
    let mut ids = BTreeSet::new();
    let (mut slow, mut named) = (0, 0);
    let finished = thread::scope(|scope| {
        scope.spawn(|| {
            let served = shop.load(CONNECTIONS, REQUESTS);
            stopper.stop();
            assert_eq!(served.unwrap(), REQUESTS);
        });
        trace
            .run(|event: &Event<'_>, model: &Aggregator| {
                let Event::Request(request) = event else {
                    return ControlFlow::Continue(());
                };
                assert!(ids.insert(request.id));
                assert_eq!(model.request_name(request), "order");
                let ledger = model.ledger(request);
                assert_eq!(
                    ledger.blocked_ns() + ledger.unattributed_ns,
                    request.blocked_ns + request.unattributed_ns
                );
                // Each order waits for its payment.
                slow += u64::from(request.latency_ns() > 1_000_000);
                let blocks = model.longest_blocks(request);
                named += u64::from(blocks.iter().any(|block| {
                    block.class == "payment" && block.user.iter().any(|frame| frame.contains("pay"))
                }));
                ControlFlow::Continue(())
            })
            .unwrap()
    });
    assert_eq!(finished.ended_by, EndedBy::Stop);
    assert_eq!(ids.len() as u64, REQUESTS);
    assert_eq!(finished.report.requests[0].count, REQUESTS);
    // Some kernels hide the switches of their supervisor, and with them those of who comes next.
    let losses = finished.report.losses.iter();
    let lost: Vec<_> = losses
        .filter(|loss| loss.name != "switch_in_unseen")
        .collect();
    assert!(lost.is_empty(), "{lost:?}");
    assert!(
        slow > 0 && named > 0,
        "{slow} slow, {named} with a named wait"
    );
}

#[test]
fn the_model_is_asked_while_it_runs_and_break_ends_it() {
    let shop = Shop::open().unwrap();
    let trace = Analysed::new(Tracer::new(profile()).pid(shop.pid()))
        .start()
        .unwrap();
    let mut seen = 0;
    let finished = thread::scope(|scope| {
        scope.spawn(|| shop.load(CONNECTIONS, REQUESTS).unwrap());
        trace
            .run(|event: &Event<'_>, model: &Aggregator| {
                if matches!(event, Event::Request(_)) {
                    seen += 1;
                    assert_eq!(model.requests().0, seen);
                }
                match seen {
                    100 => ControlFlow::Break(()),
                    _ => ControlFlow::Continue(()),
                }
            })
            .unwrap()
    });
    assert_eq!(finished.ended_by, EndedBy::Stop);
    // Those that had ended by then are in the report too.
    assert!((100..=REQUESTS).contains(&finished.report.requests[0].count));
    assert!((100..=REQUESTS).contains(&seen));
}

#[test]
fn time_ends_it_and_refusals_are_errors() {
    let shop = Shop::open().unwrap();
    let tracer = Tracer::new(profile())
        .pid(shop.pid())
        .duration(Duration::from_millis(300));
    let trace = Analysed::new(tracer).start().unwrap();
    let finished = trace.run(|_, _| ControlFlow::Continue(())).unwrap();
    assert_eq!(finished.ended_by, EndedBy::Duration);
    assert_eq!(finished.report.requests[0].count, 0);
    let missing = Tracer::new(profile()).pid(u32::MAX).start().unwrap_err();
    assert_eq!(missing.exit_code(), 2);
    let path = std::fs::read_to_string(shop::profile()).unwrap();
    let text = path.replace("handle_request", "handle_nothing");
    let absent = Profile::parse(&text, "shop.toml", Origin::File("shop.toml".into())).unwrap();
    let refused = Tracer::new(absent)
        .pid(shop.pid())
        .on_notice(|notice: Notice<'_>| panic!("{notice:?}"))
        .start()
        .unwrap_err();
    assert_eq!(refused.exit_code(), 2, "{refused}");
    assert!(refused.to_string().contains("handle_nothing"), "{refused}");
}
