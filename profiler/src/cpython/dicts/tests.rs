//! Dicts as they are and as a hostile target makes them.

use super::*;
use crate::cpython::Layout;
use crate::cpython::fake::Fake;

fn entries(fake: &mut Fake, layout: &Layout) -> Result<usize, ObjectError> {
    let dict = fake.at("modules");
    let memory = &*fake;
    let entries = Objects { memory, layout }.dict_entries(dict)?;
    Ok(entries.len())
}

#[test]
fn a_value_is_found_by_its_key_and_by_no_other() {
    let (mut fake, layout, _) = Fake::python_3_12();
    let (dict, sys) = (fake.at("modules"), fake.at("sys"));
    let memory = &fake;
    let objects = Objects {
        memory,
        layout: &layout,
    };
    assert_eq!(objects.dict_get(dict, "sys"), Ok(Some(sys)));
    for name in ["", "sy", "syss", "os"] {
        assert_eq!(objects.dict_get(dict, name), Ok(None), "{name}");
    }
}

#[test]
fn sizes_that_lie_are_refused_without_being_believed() {
    let (fake, layout, _) = Fake::python_3_12();
    let log2 = layout.keys.log2_index_bytes.expect("3.11 or later");
    let check = |count: u64, log2_bytes: u8| {
        let mut lying = fake.clone();
        lying.word("modules, keys", layout.keys.nentries, count);
        lying.put("modules, keys", log2, &[log2_bytes]);
        assert!(
            entries(&mut lying, &layout).is_err(),
            "{count} {log2_bytes}"
        );
    };
    check(u64::MAX, 3);
    check(1 << 63, 3);
    check(MAX_BELIEVED_ENTRIES, 3);
    check(2, 40);
    check(2, 41);
    check(2, 255);
    assert_eq!(entries(&mut fake.clone(), &layout), Ok(2));
}

#[test]
fn where_a_key_was_found_last_is_only_a_guess() {
    let (mut fake, layout, _) = Fake::python_3_12();
    let (dict, sys) = (fake.at("modules"), fake.at("sys"));
    let memory = &fake;
    let objects = Objects {
        memory,
        layout: &layout,
    };
    let entries = objects.dict_entries(dict).expect("a dict");
    let mut known = KnownKeys::default();
    for guess in entries.iter().map(|(key, _)| *key).chain([RemoteAddr(8)]) {
        known.0.insert("sys", guess);
        known.0.insert("os", guess);
        let mut pick = |name| objects.pick_known(&entries, name, &mut known);
        assert_eq!(pick("sys"), Some(sys), "{guess}");
        assert_eq!(pick("sys"), Some(sys), "{guess}");
        assert_eq!(pick("os"), None, "{guess}");
    }
}
