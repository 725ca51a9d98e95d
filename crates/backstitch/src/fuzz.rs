//! Mutated input for each parser of the engine: an error or a value, at once, never a panic; and what is written of a value
//! reads as that value.

use backstitch_store::{Oid, Row};
use backstitch_testkit::fuzz::run;
use bstr::{BStr, BString, ByteSlice};

use crate::{
    coverage::Document,
    merge::{self, Settle},
    meta, names,
    operation::{Journal, OpRecord},
    paths, plan,
    record::{self, Record},
    settings::{Settings, Sources},
};

const JSON: &[&[u8]] =
    &[b"null", b"{}", b"[]", b"-1", b"1e999", b"\"\"", b"\"\\u0000\"", b"18446744073709551616", b"[[[[[[[["];

const ID: &str = "01m8qsds495r4tfh";
const BLOB: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";

#[test]
fn fuzz_meta() {
    let seeds = [
        "a 644 - -\n. 755 1 2\n",
        "b%20c 4755 0 0 user.x=%00 user.k%3d=v\n",
        "d 1777 - - security.capability=%01\n",
    ];
    let words: [&[u8]; 7] = [b"%2f", b"%00", b"%bs%meta", b" - -", b"user.=", b"7777", b"\n"];
    run("meta", &seeds, &words, |input| {
        let lines = meta::decode(input)?;
        assert_eq!(meta::decode(&meta::encode(&lines)), Some(lines.clone()), "there and back");
        Some(lines.len())
    });
}

fn row(message: &[u8]) -> Row {
    let oid = Oid::from_hex(BLOB.as_bytes()).expect("an id");
    Row {
        name: format!("{}{ID}", record::CHECKPOINTS),
        commit: oid,
        tree: oid,
        message: BString::from(message),
    }
}

#[test]
fn fuzz_record() {
    let json = format!(
        "{{\"v\":1,\"id\":\"{ID}\",\"seq\":1,\"kind\":\"manual\",\"created_ms\":1796094747785,\"state\":\"complete\",\
         \"unchanged\":false,\"summary\":{{\"added\":3,\"modified\":0,\"deleted\":0,\"renamed\":0}},\"files\":3,\"skipped_total\":0,\
         \"skipped\":[],\"scope\":\"workspace\",\"retention\":\"forensic\",\"covers\":[\"a%2fb\"],\"outside\":[\"/x\"],\
         \"incarnation\":{{\"dev\":1,\"ino\":2,\"birth_ns\":3}},\"written\":0}}"
    );
    Record::parse(&row(json.as_bytes())).expect("a good one");
    let seeds = [format!("head\n\n{json}\n"), format!("Signed-off-by: x\n\n{{}}\n\n{json}\n"), json];
    run("record", &seeds, JSON, |input| match Record::parse(&row(input)) {
        Ok(record) => {
            let again = Record::parse(&row(&record.message())).expect("what was written");
            assert_eq!(again.message(), record.message(), "there and back");
            let _ = (record.named(), record.gated(), record.clock_ns(), record.is_restorable());
            Ok(record.outside_paths().count())
        }
        Err(e) => Err(e.message.len()),
    });
}

#[test]
fn fuzz_items_of_an_operation() {
    let seeds = [
        format!(
            "{{\"path\":\"a\",\"action\":\"overwrite\",\"from\":{{\"t\":\"f\",\"oid\":\"{BLOB}\",\"mode\":420}},\
             \"to\":{{\"t\":\"f\",\"oid\":\"{BLOB}\",\"mode\":420}}}}\n"
        ),
        "{\"path\":\"/etc/x\",\"outside\":true,\"action\":\"delete\",\"from\":null,\"to\":null}\n".to_owned(),
    ];
    let words: [&[u8]; 8] =
        [b"../", b"/", b".git", b"%2e%2e", b"%00", b"\"outside\":true", b"\"mkdir\"", b"null"];
    run("items", &seeds, &words, |input| match plan::decode_items(input) {
        Ok(items) => {
            for item in &items {
                let inside = item.path.strip_prefix(b"/").unwrap_or(&item.path);
                assert!(paths::is_safe(BStr::new(inside)), "{:?}", item.path);
            }
            let written = plan::encode_items(&items);
            let again = plan::decode_items(&written).expect("what was written");
            assert_eq!(plan::encode_items(&again), written, "there and back");
            Ok(items.len())
        }
        Err(e) => Err(e.code.as_str()),
    });
}

#[test]
fn fuzz_record_of_an_operation_and_journal() {
    let op = format!(
        "{{\"v\":1,\"id\":\"{ID}\",\"seq\":1,\"kind\":\"restore\",\"state\":\"running\",\"target\":\"x\",\"inverts\":null,\
         \"session\":null,\"safety\":null,\"plan\":\"p\",\"created_ms\":1,\"changed\":1}}"
    );
    run("operation", &[format!("head\n\n{op}\n"), op], JSON, |input| {
        record::decode::<OpRecord>(input.as_bstr(), "name").map(|op| op.id.len()).map_err(|e| e.message.len())
    });
    let journal = format!("{{\"op\":\"{ID}\",\"root\":\"/w\",\"loosen\":[[\"a\",448]]}}");
    run("journal", &[journal], JSON, |input| {
        serde_json::from_slice::<Journal>(input)
            .map(|j| (j.op.len(), j.loosen.len()))
            .map_err(|e| e.to_string().len())
    });
}

#[test]
fn fuzz_coverage() {
    let seeds = ["{\"scope\":\"workspace\",\"covers\":null,\"outside\":[],\"skips\":[]}"];
    run("coverage", &seeds, JSON, |input| {
        serde_json::from_slice::<Document>(input).map(|d| d.skips.len()).map_err(|e| e.to_string().len())
    });
}

#[test]
fn fuzz_settings() {
    let dir = tempfile::tempdir().expect("dir");
    let (user, project) = (dir.path().join("user.toml"), dir.path().join("project.toml"));
    let seeds = [
        "budget = \"5GiB\"\nignored = \"small\"\ninclude = [\"*.env\"]\n[limits]\nnew_file = 5\n",
        "gc.auto = false\nthreads = 0\nprompts = \"none\"\n",
    ];
    let words: [&[u8]; 10] =
        [b"99999999999TB", b"-1", b"\"\"", b"[[", b"]]", b"inf", b"\"5GiB\"", b"\n", b"= {", b"\"\"\""];
    run("settings", &seeds, &words, |input| {
        for path in [&user, &project] {
            std::fs::write(path, input).expect("written");
        }
        let sources =
            Sources { user: Some(user.clone()), project: Some(project.clone()), ..Default::default() };
        let settings = Settings::load(&sources);
        // Whatever the files say, each setting has a value of its form.
        let values: Vec<String> =
            settings.all().map(|(_, v, _)| format!("{v:?}").chars().take(8).collect()).collect();
        assert!(values.len() > 10);
        (settings.warnings.len(), settings.untrusted.len(), values)
    });
}

#[test]
fn fuzz_paths_names_and_times() {
    let words: [&[u8]; 6] = [b"%", b"%2f", b"\xff", b"%bs%", b"..", b"/"];
    run("paths", &[&b"a%20b/c"[..], b"\xc3\xa4", b"%%"], &words, |input| {
        let text = paths::escape(input);
        assert_eq!(paths::unescape(text.as_bytes()), Some(BString::from(input)), "there and back");
        assert_eq!(paths::from_base64(&paths::base64(input)), Some(input.to_vec()), "there and back");
        let _ = input.to_str().ok().and_then(paths::from_base64);
        (paths::unescape(input).is_some(), paths::is_safe(input.as_bstr()))
    });
    let words: [&[u8]; 6] = [b"9999999999999999", b"h", b"2026-02-30", b":", b"T25:61", b"+99:99"];
    run("times", &["10m", "14:05", "2026-01-02T03:04:05Z", "1d2h"], &words, |input| {
        input
            .to_str()
            .ok()
            .map(|text| [0, i64::MAX, i64::MIN].map(|now| names::parse_time(text, now).is_some()))
    });
}

#[test]
fn fuzz_merge() {
    let seeds = ["a\nb\nc\n\0a\nB\nc\n\0a\nb\nC\n", "\0x\n\0y", "1\r\n2\r\n\x001\n2\n\x002\r\n"];
    run("merge", &seeds, &[b"\n", b"\0", b"\r\n", b"a\nb\n"], |input| {
        let mut parts = input.splitn_str(3, b"\0");
        let mut part = || parts.next().unwrap_or_default();
        let (base, present, wanted) = (part(), part(), part());
        let one_side = merge::text(base, present, base, Settle::Present);
        assert_eq!(one_side.text.as_bstr(), present.as_bstr(), "nothing was wanted");
        let other = merge::text(base, base, wanted, Settle::Present);
        assert_eq!(other.text.as_bstr(), wanted.as_bstr(), "nothing was changed");
        let both = merge::text(base, present, wanted, Settle::Present);
        if both.clashes.is_empty() && present == wanted {
            assert_eq!(both.text.as_bstr(), present.as_bstr(), "both agree");
        }
        both.clashes.len()
    });
}
