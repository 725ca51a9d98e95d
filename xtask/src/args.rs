//! Options of the tasks, declared once: the help is made from the same table.

use std::{collections::BTreeMap, str::FromStr};

/// One option.
pub struct Opt {
    /// With its dashes.
    pub name: &'static str,
    /// What its value is called; `None` for a switch.
    pub value: Option<&'static str>,
    /// What it does.
    pub help: &'static str,
}

/// One task.
pub struct Command {
    /// What it is called by.
    pub name: &'static str,
    /// One line.
    pub about: &'static str,
    /// All there is to know.
    pub details: &'static str,
    /// Its options.
    pub options: &'static [Opt],
}

/// What was typed.
#[derive(Debug, Default)]
pub struct Parsed(BTreeMap<&'static str, String>);

impl Command {
    /// Reads the arguments; `None` if the help was asked for, and has been printed.
    pub fn parse(&self, words: impl IntoIterator<Item = String>) -> Result<Option<Parsed>, String> {
        let mut words = words.into_iter();
        let mut out = BTreeMap::new();
        while let Some(word) = words.next() {
            if matches!(word.as_str(), "-h" | "--help") {
                self.help();
                return Ok(None);
            }
            let (name, inline) = match word.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (word, None),
            };
            let option = self
                .options
                .iter()
                .find(|o| o.name == name)
                .ok_or(format!("no option {name}; see --help"))?;
            let value = match (option.value, inline) {
                (None, None) => String::new(),
                (None, Some(_)) => return Err(format!("{name} takes no value")),
                (Some(_), Some(value)) => value,
                (Some(what), None) => words.next().ok_or(format!("{name} needs {what}"))?,
            };
            out.insert(option.name, value);
        }
        Ok(Some(Parsed(out)))
    }

    fn help(&self) {
        println!(
            "{}\n\nUsage: cargo xtask {} [OPTIONS]\n\n{}\n\nOptions:",
            self.about, self.name, self.details
        );
        for option in self.options {
            let left = match option.value {
                Some(value) => format!("{} {value}", option.name),
                None => option.name.to_owned(),
            };
            println!("  {left:<26} {}", option.help.replace('\n', "\n                             "));
        }
        println!("  {:<26} print this", "--help");
    }
}

impl Parsed {
    /// Whether a switch was given.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The value of an option, as text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The value of an option, or what holds without it.
    pub fn value<T: FromStr>(&self, name: &str, default: T) -> Result<T, String> {
        match self.0.get(name) {
            None => Ok(default),
            Some(text) => text.parse().map_err(|_| format!("{name}: cannot read {text:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMAND: Command = Command {
        name: "x",
        about: "",
        details: "",
        options: &[
            Opt { name: "--runs", value: Some("N"), help: "" },
            Opt { name: "--full", value: None, help: "" },
        ],
    };

    fn parse(words: &[&str]) -> Result<Option<Parsed>, String> {
        COMMAND.parse(words.iter().map(|w| (*w).to_owned()))
    }

    #[test]
    fn reads_values_and_switches() {
        let parsed = parse(&["--runs", "7", "--full"]).unwrap().unwrap();
        assert_eq!((parsed.value("--runs", 1), parsed.has("--full")), (Ok(7), true));
        assert_eq!(parse(&["--runs=8"]).unwrap().unwrap().value("--runs", 1), Ok(8));
        assert_eq!(parse(&[]).unwrap().unwrap().value("--runs", 1), Ok(1));
    }

    #[test]
    fn refuses_what_it_does_not_know() {
        for words in [&["--nothing"][..], &["--runs"], &["--full=1"], &["stray"]] {
            assert!(parse(words).is_err(), "{words:?}");
        }
        assert!(parse(&["--runs", "x"]).unwrap().unwrap().value("--runs", 1).is_err());
    }
}
