use reqtrace_recording::Attribute;

use super::*;

const PROFILE: &str = r#"
[profile]
name = "web"

[[request]]
name = "http"
begin = { function = "handle" }

[[request.attribute]]
name = "method"
arg = 0
type = "integer"
names = { 2 = "GET", -1 = "none" }

[[request.attribute]]
name = "size"
arg = 1
type = "unsigned"

[[request.attribute]]
name = "path"
arg = 2
max-length = 64

[[request]]
name = "job"
begin = { function = "work" }

[[request.attribute]]
name = "size"
arg = 1
type = "integer"
"#;

fn attributes(grouping: Option<Grouping>, labels: bool) -> Result<Attributes> {
    let profiles = Profiles::parse([PROFILE], "web").unwrap();
    let mut header = Header::default();
    header.options.labels = labels;
    Attributes::new(&profiles, grouping.as_ref(), &header)
}

fn number(index: u32, number: u64) -> Attribute<'static> {
    let value = Value::Number(number);
    Attribute { index, value }
}

fn path(bytes: &[u8], is_cut: bool) -> Attribute<'_> {
    let value = Value::Text { bytes, is_cut };
    Attribute { index: 2, value }
}

#[test]
fn each_value_is_in_its_column_under_its_name() {
    let mut all = attributes(None, true).unwrap();
    assert_eq!(all.names, ["method", "size", "path"]);
    let mut texts = |request_type: u32, attributes: &[Attribute<'_>]| -> Vec<String> {
        let request = Request {
            request_type,
            attributes,
            ..Request::default()
        };
        let mut texts = Vec::new();
        all.texts(&request, &mut texts);
        let texts = texts.into_iter();
        texts.map(|text| text.as_str().to_owned()).collect()
    };
    assert_eq!(texts(0, &[]), ["", "", ""]);
    let some = [number(0, 2), number(1, u64::MAX), path(b"/a\n\x1b", false)];
    assert_eq!(
        texts(0, &some),
        ["GET", "18446744073709551615", "/a\\n\\u{1b}"]
    );
    assert_eq!(texts(0, &[number(0, u64::MAX)]), ["none", "", ""]);
    assert_eq!(texts(0, &[number(0, 7)]), ["7", "", ""]);
    // The same column, signed in the other type.
    assert_eq!(texts(1, &[number(0, u64::MAX)]), ["", "-1", ""]);
    // Half of a character, where the text was cut, and where it was not.
    assert_eq!(texts(0, &[path(b"gr\xc3", true)]), ["", "", "gr…"]);
    assert_eq!(texts(0, &[path(b"gr\xc3", false)]), ["", "", "gr\u{fffd}"]);
    // What the profile does not have is nowhere.
    assert_eq!(texts(1, &[number(5, 1)]), ["", "", ""]);
}

#[test]
fn a_group_is_the_value_or_its_fingerprint() {
    let group = |grouping, attribute: Attribute<'_>| {
        let all = attributes(Some(grouping), true).unwrap();
        let request = Request {
            label: b"label",
            attributes: &[attribute],
            ..Request::default()
        };
        let group = all.group(&request);
        group.map(|group| String::from_utf8(group).unwrap())
    };
    let of = |name: &str| Grouping::Attribute(name.to_owned());
    let fingerprint_of = |name: &str| Grouping::FingerprintOf(name.to_owned());
    assert_eq!(group(Grouping::Label, number(0, 2)), None);
    assert_eq!(group(of("method"), number(0, 2)).as_deref(), Some("GET"));
    assert_eq!(group(of("method"), path(b"/x", false)).as_deref(), Some(""));
    let user = || path(b"/user/123/cart", false);
    assert_eq!(group(of("path"), user()).as_deref(), Some("/user/123/cart"));
    let wanted = Some("/user/?/cart");
    assert_eq!(group(fingerprint_of("path"), user()).as_deref(), wanted);
    // Where a text was cut depends on its values.
    let cut = group(fingerprint_of("path"), path(b"/user/123/ca", true));
    assert_eq!(cut.as_deref(), Some("/user/?…"));
}

#[test]
fn what_cannot_be_grouped_by_is_reported_with_what_can() {
    let by = |name: &str| Some(Grouping::Attribute(name.to_owned()));
    let error = attributes(by("verb"), true).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains("--group-by verb"), "{error}");
    assert!(error.advice().unwrap().contains("method, size, path"));
    let error = attributes(by("path"), false).unwrap_err();
    assert!(error.to_string().contains("no texts"), "{error}");
    // Numbers are in every recording.
    assert!(attributes(by("size"), false).is_ok());
    let profiles = Profiles::parse([PROFILE], "web").unwrap();
    let needs = |by: Option<Grouping>| needs_texts(&profiles, &by.unwrap()).unwrap();
    assert!(needs(by("path")) && !needs(by("size")) && needs(Some(Grouping::Label)));
}

#[test]
fn what_cannot_be_filtered_by_is_an_error_that_names_what_can() {
    let profiles = Profiles::parse([PROFILE], "web").unwrap();
    let asked = |name: &str, labels| {
        let mut header = Header::default();
        header.options.labels = labels;
        let all = attributes(None, labels).unwrap();
        all.asked_for(name, &profiles, &header)
    };
    assert_eq!(asked("path", true).unwrap(), 2);
    assert_eq!(asked("size", false).unwrap(), 1);
    let error = asked("verb", true).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains("--attribute verb"), "{error}");
    assert_eq!(error.advice(), Some("it has method, size, path"));
    let error = asked("path", false).unwrap_err();
    assert!(error.to_string().contains("no texts"), "{error}");
}

/// `path` is a text, and `http` has no label.
#[test]
fn the_text_of_a_type_without_a_label_is_its_label() {
    for by in [None, Some(Grouping::Label), Some(Grouping::Fingerprint)] {
        let all = attributes(by, true).unwrap();
        let group = |request_type: u32, attributes: &[Attribute<'_>]| {
            all.group(&Request {
                request_type,
                attributes,
                ..Request::default()
            })
        };
        let some = [number(0, 2), path(b"/user/7", false)];
        assert_eq!(group(0, &some).as_deref(), Some(&b"/user/7"[..]));
        assert_eq!(group(0, &[number(0, 2)]), None);
        assert_eq!(group(1, &[number(0, 2)]), None);
    }
}
