//! `blame` and `log`, end to end.

use serde_json::{Value, json};

use crate::{sessions::Agent, support::World};

#[test]
fn each_line_and_who_wrote_it() {
    let (w, first) = World::recorded();
    let s = Agent { w: &w, id: "s" };
    s.begin("k1");
    s.run(&["tool", "before", "--call", "c1", "--tool", "edit", "--agent", "helper", "a.txt"]);
    w.write("a.txt", "one\nagent\ntwo\nthree\n");
    s.run(&["tool", "after", "--call", "c1"]);
    s.end();
    std::fs::rename(w.path("a.txt"), w.path("sub/moved.txt")).unwrap();
    w.write("sub/moved.txt", "one\nagent\ntwo\nthree\nmine\n");
    let v = w.json(&["blame", "sub/moved.txt"]);
    let lines = v["lines"].as_array().unwrap();
    let who: Vec<(&Value, &Value)> = lines.iter().map(|l| (&l["text"], &l["by"]["who"])).collect();
    let want = json!(["one", "agent", "two", "three", "mine"]);
    assert_eq!(json!(who.iter().map(|w| w.0).collect::<Vec<_>>()), want);
    assert_eq!(
        json!(who.iter().map(|w| w.1).collect::<Vec<_>>()),
        json!(["outside", "turn", "outside", "outside", "outside"])
    );
    let by = &lines[1]["by"];
    assert_eq!(
        (&by["session"], &by["turn"], &by["tool"], &by["agent"], &by["call"], &by["evidence"]),
        (&"s".into(), &1.into(), &"edit".into(), &"helper".into(), &"c1".into(), &"named".into())
    );
    assert_eq!((&lines[0]["checkpoint"], &lines[4]["checkpoint"]), (&first.as_str().into(), &Value::Null));
    assert_eq!(
        (&lines[0]["path"], &lines[4]["path"], &lines[4]["line"]),
        (&"a.txt".into(), &"sub/moved.txt".into(), &5.into())
    );
    let text = w.text(&["blame", "sub/moved.txt"]);
    let second = text.lines().nth(1).unwrap();
    assert!(second.contains("turn 1 edit (helper)") && second.ends_with("2  agent"), "{text}");
    assert!(text.lines().nth(4).unwrap().contains("not recorded"), "{text}");
    // As it was.
    let v = w.json(&["blame", "--at", &first, "a.txt"]);
    assert_eq!((&v["checkpoint"], v["lines"].as_array().unwrap().len()), (&first.as_str().into(), 3));
    assert_eq!(w.fails(4, &["blame", "a.txt"])["code"], "no-such-path");
    assert_eq!(w.fails(4, &["blame", "--at", "nothing", "a.txt"])["code"], "no-such-checkpoint");
    assert_eq!(w.fails(2, &["blame", "bin"])["code"], "usage");
    assert_eq!(w.fails(2, &["blame", "sub"])["code"], "usage");
}

#[test]
fn the_log_names_who_and_where_it_was() {
    let (w, _) = World::recorded();
    let s = Agent { w: &w, id: "s" };
    s.begin("k1");
    s.run(&["tool", "before", "--call", "c", "--tool", "bash"]);
    std::fs::rename(w.path("a.txt"), w.path("b.txt")).unwrap();
    s.run(&["tool", "after", "--call", "c"]);
    s.end();
    let v = w.json(&["log", "b.txt"]);
    let e = v["entries"].as_array().unwrap();
    assert_eq!(e.len(), 2, "{v}");
    assert_eq!((&e[0]["change"]["status"], &e[0]["change"]["old_path"]), (&"R".into(), &"a.txt".into()));
    assert_eq!((&e[0]["by"]["tool"], &e[1]["by"]["who"]), (&"bash".into(), &"outside".into()));
    let text = w.text(&["log", "b.txt"]);
    assert!(
        text.contains("turn 1 bash") && text.contains("[was a.txt]") && text.contains("outside"),
        "{text}"
    );
    assert_eq!(w.json(&["log", "b.txt", "--session", "s"])["entries"].as_array().unwrap().len(), 1);
    assert_eq!(w.fails(4, &["log", "nowhere"])["code"], "no-such-path");
}
