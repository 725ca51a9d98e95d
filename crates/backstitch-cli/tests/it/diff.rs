//! `diff`, option by option.

use serde_json::{Value, json};

use crate::support::World;

fn letters(v: &Value) -> Vec<(String, String)> {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    v["changes"].as_array().unwrap().iter().map(|c| (text(&c["status"]), text(&c["path"]))).collect()
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
}

#[test]
fn sides() {
    let (w, first) = World::changed();
    let now = pairs(&[("M", "a.txt"), ("A", "new.txt"), ("M", "run.sh"), ("R", "sub/c.txt")]);
    let v = w.json(&["diff"]);
    assert_eq!(letters(&v), now);
    assert_eq!((&v["from"], &v["to"]), (&first.as_str().into(), &"live".into()));
    assert_eq!(v["changes"][3]["old_path"], "sub/b.txt");
    assert_eq!(v["changes"][2]["mode_change"], json!({"from": "0755", "to": "0700"}));
    assert_eq!((&v["changes"][0]["added"], &v["changes"][0]["removed"]), (&1.into(), &1.into()));
    assert!(v.get("patch").is_none());
    let second = w.save(&[]);
    assert_eq!(letters(&w.json(&["diff"])), []);
    assert_eq!(letters(&w.json(&["diff", &first])), now);
    assert_eq!(letters(&w.json(&["diff", &first, &second])), now);
    let back = w.json(&["diff", &second, &first]);
    assert_eq!(back["changes"].as_array().unwrap().len(), 4);
    assert_eq!(letters(&w.json(&["diff", &first, "--", "sub", "new.txt"])).len(), 2);
    assert_eq!(w.fails(4, &["diff", "--turn", "1"])["code"], "no-such-session");
}

#[test]
fn forms() {
    let (w, _) = World::changed();
    w.write("bin", b"\0changed");
    w.shows(&["diff", "--name-status"], "M\ta.txt\nM\tbin\nA\tnew.txt\nM\trun.sh\nR\tsub/b.txt\tsub/c.txt");
    let stat = w.text(&["diff", "--stat"]);
    assert!(stat.contains(" a.txt                 |   2 +-\n"), "{stat}");
    assert!(stat.contains(" bin                   | Bin\n"), "{stat}");
    assert!(stat.ends_with("5 files: +1 ~3 >1; 2 lines added, 1 removed\n"), "{stat}");
    let patch = w.text(&["diff", "--patch"]);
    assert!(patch.contains("-two\n+TWO\n") && patch.contains("rename from sub/b.txt\n"), "{patch}");
    assert_eq!(w.json(&["diff", "--patch"])["patch"], patch.as_str());
}

#[test]
fn colours_only_where_wanted() {
    let (w, _) = World::changed();
    for form in [&["diff"][..], &["diff", "--patch"], &["diff", "--stat"], &["list"], &["show", "@"]] {
        let with = |more: &[&str]| w.text(&[form, more].concat());
        let plain = with(&[]);
        assert!(!plain.contains('\x1b'), "{form:?}");
        assert_eq!(with(&["--color", "never"]), plain);
        let coloured = with(&["--color", "always"]);
        assert!(coloured.contains('\x1b'), "{form:?}");
        let mut stripped = String::new();
        for part in coloured.split('\x1b') {
            let end =
                if stripped.is_empty() && !coloured.starts_with('\x1b') { None } else { part.find('m') };
            stripped.push_str(end.map_or(part, |i| &part[i + 1..]));
        }
        assert_eq!(stripped.replace(' ', ""), plain.replace(' ', ""), "{form:?}");
    }
}

#[test]
fn what_one_side_does_not_cover_is_named_and_is_no_change() {
    let (w, _) = World::recorded();
    w.save(&["--", "a.txt"]);
    w.write("a.txt", "x\n");
    w.write("bin", "x\n");
    let v = w.json(&["diff"]);
    assert!(letters(&v).contains(&("M".to_owned(), "a.txt".to_owned())), "{v}");
}
