use super::*;
use reqtrace_base::error::Kind;

const ALL: [Feature; TABLE.len()] = {
    let mut all = [Feature::TaskTracepoints; TABLE.len()];
    let mut index = 0;
    while index < TABLE.len() {
        all[index] = TABLE[index].feature;
        index += 1;
    }
    all
};

fn of_this_kernel(hidden: Hidden) -> Features {
    let data = std::fs::read("/sys/kernel/btf/vmlinux").unwrap();
    let wanted = wanted_types();
    let types = Types::parse(&data, |name| {
        wanted.iter().any(|wanted| wanted.as_bytes() == name)
    });
    let types = types.unwrap();
    let mut layout = Layout::of(&types);
    Features::of(&types, &mut layout, Some((99, 0)), hidden)
}

fn wanted(before: bool, blame: bool, at_sockets: bool) -> Wanted {
    Wanted {
        before,
        blame,
        at_sockets,
        interrupts: false,
    }
}

#[test]
fn the_table_has_each_feature_in_its_place() {
    for (index, row) in TABLE.iter().enumerate() {
        assert_eq!(row.feature as usize, index);
        assert!(row.name.len() <= 20, "{}", row.name);
    }
    let mut listed: Vec<_> = Features::FOUND.into_iter().chain(Features::TRIED).collect();
    listed.sort_unstable();
    assert_eq!(listed, ALL);
}

#[test]
fn this_kernel_lacks_nothing() {
    let features = of_this_kernel(Hidden::default());
    assert_eq!(features.lacking, BTreeMap::new());
    features.check().unwrap();
    assert_eq!(features.lost_to(wanted(true, true, true)).unwrap().len(), 0);
    assert_eq!(features.socket_tracepoints().count(), 6);
}

#[test]
fn each_feature_can_be_hidden_and_its_lack_is_reported() {
    for row in &TABLE {
        let word = row.name.replace(' ', "-");
        let mut features = of_this_kernel(Hidden::of(&word).unwrap());
        for feature in Features::TRIED {
            features.tried(feature, true);
        }
        let lack = features.lack(row.feature).unwrap();
        assert!(lack.contains(row.then), "{lack}");
        assert_eq!(features.check().is_err(), row.lack == Lack::Refuses);
        let degraded = features.findings(&ALL).into_iter();
        let degraded = degraded.filter(|finding| finding.next.is_some());
        assert_eq!(
            degraded.count(),
            match row.feature {
                // Sockets are found through files.
                Feature::FileMembers => 2,
                _ => usize::from(row.lack != Lack::TakesMore),
            },
            "{word}"
        );
    }
}

#[test]
fn what_lacks_is_left_out_and_refused_only_where_nothing_is_left() {
    let without = |words: &str| of_this_kernel(Hidden::of(words).unwrap());
    let faults = without("page-faults");
    assert_eq!(faults.lost_to(wanted(true, false, true)).unwrap().len(), 0);
    assert_eq!(faults.lost_to(wanted(false, true, false)).unwrap().len(), 1);
    let disks = without("block-devices");
    assert_eq!(disks.lost_to(wanted(true, false, true)).unwrap().len(), 0);
    assert_eq!(disks.lost_to(wanted(false, true, false)).unwrap().len(), 1);
    let unix = without("Unix-sockets");
    assert_eq!(unix.lost_to(wanted(true, false, false)).unwrap().len(), 1);
    assert_eq!(unix.lost_to(wanted(false, true, false)).unwrap().len(), 0);
    assert_eq!(unix.socket_tracepoints().count(), 3);
    let tcp = without("tcp-sockets,unix-sockets");
    let error = tcp.lost_to(wanted(true, false, false)).unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported);
    assert!(
        error
            .to_string()
            .starts_with("--before: this kernel has no")
    );
    assert_eq!(tcp.lost_to(wanted(false, true, true)).unwrap().len(), 1);
    assert_eq!(tcp.socket_tracepoints().count(), 0);
    let clocks = Wanted {
        interrupts: true,
        ..Wanted::default()
    };
    let steal = without("steal");
    assert_eq!(steal.lost_to(wanted(true, true, true)).unwrap().len(), 0);
    assert_eq!(steal.lost_to(clocks).unwrap().len(), 1);
    let interrupts = without("interrupts");
    assert_eq!(interrupts.lost_to(Wanted::default()).unwrap().len(), 0);
    let error = interrupts.lost_to(clocks).unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported);
    let words = "--interrupts: this kernel has no tracepoints of interrupts and softirqs";
    assert!(error.to_string().starts_with(words), "{error}");
}

#[test]
fn a_word_that_is_no_feature_is_an_error() {
    let error = Hidden::of("page-faults,air").unwrap_err();
    assert_eq!(error.kind(), Kind::Usage);
    assert!(error.to_string().contains("`air`"));
    assert!(error.advice().unwrap().contains("switch-states"));
    assert_eq!(Hidden::of("").unwrap(), Hidden::default());
}

#[test]
fn an_older_kernel_lacks_what_is_known_by_version() {
    assert_eq!(by_version(Some((6, 14)), (6, 14)), None);
    assert!(by_version(Some((5, 14)), (6, 14)).is_some());
    assert!(by_version(None, (6, 14)).is_some());
    assert!(!hits_wait(Some((6, 18))));
}
