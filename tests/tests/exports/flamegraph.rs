//! Flame graphs are XML that a browser will take, whatever the names in them.

use profiler::aggregate::{Profile, ProfileBuilder};
use profiler::export::{Format, Options, StateFrames};
use profiler::sample::Mode;
use profiler::stack::Frame;

use super::made::{self, Making};
use super::made_off_cpu::{self, MODES};

/// The elements of an XML document that is well formed; panics where it is not.
///
/// It knows what an SVG of ours has: elements, text, comments, CDATA, a declaration and a
/// document type.
fn elements(xml: &str) -> Vec<String> {
    let of_xml = |c: char| matches!(c, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..);
    assert!(xml.chars().all(of_xml), "a character that XML forbids");
    let mut open: Vec<String> = Vec::new();
    let mut all = Vec::new();
    let mut rest = xml;
    while let Some(at) = rest.find('<') {
        text_is_escaped(&rest[..at]);
        rest = &rest[at..];
        let mut skipped = false;
        for (begin, end) in [
            ("<?", "?>"),
            ("<!--", "-->"),
            ("<![CDATA[", "]]>"),
            ("<!", ">"),
        ] {
            if rest.starts_with(begin) {
                rest = &rest[rest.find(end).expect("an end") + end.len()..];
                skipped = true;
                break;
            }
        }
        if skipped {
            continue;
        }
        let end = rest.find('>').expect("the end of a tag");
        let tag = &rest[1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name), "closed in order");
            continue;
        }
        assert!(
            !tag.contains('<') && tag.matches('"').count().is_multiple_of(2),
            "{tag}"
        );
        text_is_escaped(tag);
        let name = tag.split([' ', '/']).next().expect("a name").to_owned();
        if !tag.ends_with('/') {
            open.push(name.clone());
        }
        all.push(name);
    }
    assert_eq!(open, Vec::<String>::new(), "everything is closed");
    assert_eq!(rest.trim(), "");
    all
}

fn text_is_escaped(text: &str) {
    for piece in text.split('&').skip(1) {
        let entity = piece.split(';').next().expect("a piece");
        assert!(
            matches!(entity, "lt" | "gt" | "amp" | "quot" | "apos") || entity.starts_with('#'),
            "&{entity}"
        );
    }
}

fn titles(profile: &Profile, options: &Options) -> Vec<String> {
    let svg = made::text(Format::Flamegraph, profile, options);
    elements(&svg);
    let titles = svg.split("<title>").skip(1);
    let title = |piece: &str| piece.split("</title>").next().expect("a title").to_owned();
    titles.map(title).collect()
}

#[test]
fn the_picture_is_well_formed_and_says_what_it_shows() {
    for threads in [false, true] {
        let options = Options {
            threads,
            ..Options::default()
        };
        let titles = titles(&made::rich(), &options);
        let has = |wanted: &str| titles.iter().any(|title| title.starts_with(wanted));
        assert!(has("all (424,242 µs, 100%)"), "{titles:#?}");
        assert!(
            has("fib (app/fib.py:1) (101,010 µs, 23.81%)"),
            "{titles:#?}"
        );
        assert!(
            has("loads (json/__init__.py:299) (60,606 µs"),
            "{titles:#?}"
        );
        assert!(has("&lt;GC&gt; (20,202 µs"), "{titles:#?}");
        assert!(has("[… 1000 frames cut] (40,404 µs"), "{titles:#?}");
        assert_eq!(
            has("MainThread (tid 4242) (232,323 µs"),
            threads,
            "{titles:#?}"
        );
    }
    let svg = made::text(Format::Flamegraph, &made::rich(), &Options::default());
    assert!(svg.contains("python3 /srv/app/main.py --name a&lt;b&gt;&amp;"));
    assert!(svg.contains("pid 4242 · CPython 3.12.1 · cpu at 99 Hz"));
}

#[test]
fn states_are_boxes_in_every_mode_when_asked_for() {
    for mode in MODES {
        for place in [StateFrames::Root, StateFrames::Leaf] {
            let options = Options {
                state_frames: Some(place),
                ..Options::default()
            };
            let titles = titles(&made_off_cpu::profile(mode, false), &options);
            let has = |wanted: &str| titles.iter().any(|title| title.starts_with(wanted));
            let looks = matches!(mode, Mode::Wall | Mode::OffCpu);
            assert_eq!(has("[blocked: io_socket] (12,000 µs"), looks, "{titles:#?}");
            let runs = mode != Mode::OffCpu;
            assert_eq!(has("[on CPU] ("), runs, "{titles:#?}");
            assert_eq!(has("[holds the GIL] ("), mode == Mode::Gil, "{titles:#?}");
        }
    }
}

#[test]
fn a_frame_is_one_box_though_another_begins_with_its_name() {
    let mut making = Making::new(ProfileBuilder::new(made::meta()));
    let main = making.thread(1, "main", true);
    let frame = |name: &str| Frame::python(name, "", None, None);
    making.add(main, &[frame("f")], 1);
    making.add(main, &[frame("f 2")], 1);
    making.add(main, &[frame("x"), frame("f")], 1);
    making.add(main, &[frame("f\u{21}")], 1);
    let titles = titles(&making.close(), &Options::default());
    let of_f = titles.iter().filter(|title| title.starts_with("f ("));
    assert_eq!(of_f.collect::<Vec<_>>(), ["f (20,202 µs, 50.00%)"]);
}

#[test]
fn boxes_too_narrow_to_be_seen_are_left_out_and_their_time_is_kept() {
    let mut making = Making::new(ProfileBuilder::new(made::meta()));
    let main = making.thread(1, "main", true);
    let frame = |name: &str| Frame::python(name, "", None, None);
    making.add(main, &[frame("wide"), frame("main")], 1_000_000);
    for i in 0..1000 {
        let narrow = frame(&format!("narrow{i}"));
        making.add(main, &[narrow, frame("main")], 1);
    }
    making.add(main, &[frame("another root")], 1);
    let titles = titles(&making.close(), &Options::default());
    assert!(titles.len() < 10, "{titles:#?}");
    assert!(
        titles.contains(&"all (10,111,121,111 µs, 100%)".to_owned()),
        "{titles:#?}"
    );
    assert!(
        titles
            .iter()
            .any(|title| title.starts_with("main (10,111,111,010 µs"))
    );
}

#[test]
fn names_beyond_reason_are_cut() {
    let mut making = Making::new(ProfileBuilder::new(made::meta()));
    let main = making.thread(1, "main", true);
    making.add(
        main,
        &[Frame::python("é".repeat(900), "f.py", None, Some(3))],
        1,
    );
    let titles = titles(&making.close(), &Options::default());
    assert!(titles.iter().all(|title| title.chars().count() < 250));
    assert!(
        titles
            .iter()
            .any(|title| title.contains("…") && title.contains("(f.py)")),
        "{titles:#?}"
    );
}

#[test]
fn a_profile_without_samples_is_a_picture_that_says_so() {
    for profile in [made::empty(), made::bare()] {
        let svg = made::text(Format::Flamegraph, &profile, &Options::default());
        assert!(elements(&svg).contains(&"svg".to_owned()));
        assert!(svg.contains(">no samples<"));
    }
}
