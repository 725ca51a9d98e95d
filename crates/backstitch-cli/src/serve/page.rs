//! The reference page of the server, made from the table of methods.

use std::fmt::Write;

use backstitch::error::Code;
use clap::CommandFactory;
use serde_json::{Value, json};

use super::{
    LONGEST,
    message::{MOST_CALLS, MOST_VALUES, code},
    method::{self, Method, Step},
    schema,
};
use crate::problem;

/// Requests and results, as the tests have seen them.
const EXAMPLES: &str = include_str!("examples.json");

const HEAD: &str = "\
# JSON-RPC

<!-- Made by `backstitch reference rpc > docs/reference/rpc.md`; a test fails when it is out of date. -->

`backstitch serve` speaks JSON-RPC 2.0 on standard input and output: one message is one line of JSON in UTF-8, without a line feed in
it. Batches are understood. `docs/reference/rpc.json`, the answer to `rpc.discover`, and this page are made from the table of commands: a
method is a command, its parameters are the command's long options (with `_` for `-`; `-` is understood, too) and its arguments, its
result is the document that the command prints with `--json`. Where the command would end with another exit code than 0 and still has a
document, the result holds it as `exit` (3: something was left out; the document says what).

- **Order.** `initialize` comes first. Calls that write run one after another for each workspace, in the order in which they came. Calls
  that only read run beside them and wait for nobody; send one after the answer that it must see.
- **Where.** `workspace` and `session` hold for one call; `workspace/open` and `session/open` make them the default of later ones. Without
  any: the folder that the server was started in, and `BACKSTITCH_SESSION`.
- **Paths** are relative to the workspace's root, or absolute. A path that is not UTF-8 is `{\"path_base64\": \"...\"}`. Files and folders
  outside (`export`, `prompt_file`, `relink`) are absolute.
- **`null`** is as good as leaving a parameter out.
- **Again.** A host may repeat any call that names what it is about: the same turn key, the same tool call, the same session give the same
  rows. No call needs the one before it: an end without a beginning is no error.
- **Turns.** `turn/begin` answers as soon as the row has an id, and the capture goes on; `turn/wait` gives the row, or the error that kept it
  from being. A capture that takes longer than `prompt_time` goes on beside all that: a `tool/before` with paths is answered at once, one without
  waits up to `gate_timeout`, everything else that writes waits for the capture's end.
- **Plans.** `restore`, `rewind` and `revert` change the work tree only by the digest of a plan: call `.../plan`, show it, then `.../apply`
  with its `plan`. The other parameters need not be said again on the same connection. If the disk changed meanwhile, nothing is done
  (`plan-changed`).
- **Cancelling.** The notification `$/cancelRequest {\"id\": ID}` ends a call with the code `interrupted`; nothing is left half done. The id of a
  `turn/begin` stays good until its capture has ended.
- **The end.** `shutdown`, or the end of the input: what was begun is finished first. A signal ends what runs, and puts back what was begun.

Notifications of the server, for which nothing needs to be done and which may be left out while the host does not read:

| method | parameters |
|---|---|
| `$/progress` | `id` of the call, `what` is done, `done` of `total` (`null` where unknown) |
| `checkpoint/changed` | `workspace`, `change` (`created`, `updated`, `deleted`), `id`, `checkpoint`; or `change`: `many` with their `count` |
| `operation/changed` | `workspace`, `change`, `id`, `operation` |
";

fn params(m: &Method, global: bool) -> String {
    let mut rows = String::new();
    for p in m.params.iter().filter(|p| p.global == global) {
        let mut help = p.help.clone();
        if !help.ends_with('.') {
            help.push('.');
        }
        if !p.words.is_empty() {
            let words: Vec<String> = p.words.iter().map(|w| format!("`{w}`")).collect();
            let _ = write!(help, " One of {}.", words.join(", "));
        }
        if let Some(d) = &p.default {
            let _ = write!(help, " Default: `{d}`.");
        }
        let _ = writeln!(rows, "| `{}` | {} | {} |", p.name, schema::words(p), help.replace('|', "\\|"));
    }
    match rows.is_empty() {
        true => "\nNo parameters of its own.\n".to_owned(),
        false => format!("\n| parameter | form | meaning |\n|---|---|---|\n{rows}"),
    }
}

fn section(m: &Method, examples: &Value, out: &mut String) {
    let mut about = m.about.clone();
    if !about.ends_with('.') {
        about.push('.');
    }
    let _ = write!(out, "\n## {}\n\n", m.name);
    let command = m.command();
    match m.step {
        Step::Plan => {
            let _ = writeln!(out, "The plan of `{command}`: what it would do, as a dry run. {about}");
        }
        Step::Apply => {
            let _ = writeln!(out, "Carry out a plan, if it is still the same. {about}");
        }
        Step::Whole => {
            let _ = writeln!(out, "{about}");
        }
    }
    out.push_str(&params(m, false));
    if let Some(e) = examples.get(&m.name) {
        let request = json!({"jsonrpc": "2.0", "id": 1, "method": m.name, "params": e["params"]});
        let result = serde_json::to_string_pretty(&e["result"]).unwrap_or_default();
        let _ = write!(out, "\n```json\n{request}\n```\n\nResult:\n\n```json\n{result}\n```\n");
    } else {
        let hidden = crate::table::Cli::command()
            .find_subcommand(command.split(' ').next().unwrap_or_default())
            .is_some_and(clap::Command::is_hide_set);
        let _ = match hidden {
            true => write!(out, "\nResult: that of `{command}`.\n"),
            false => {
                let anchor = command.replace(' ', "-");
                write!(out, "\nResult: that of [`{command}`](commands.md#{anchor}).\n")
            }
        };
    }
}

/// The page, in Markdown.
pub fn page() -> String {
    let methods = method::methods();
    let examples: Value = serde_json::from_str(EXAMPLES).unwrap_or_default();
    let mut out = HEAD.to_owned();
    let _ = write!(
        out,
        "\nA message has at most {LONGEST} bytes and {MOST_VALUES} values, a batch at most {MOST_CALLS} calls; what is more is passed over, and \
         told as an error. Where too many calls wait for their turn, one more is refused (`busy`).\n"
    );
    out.push_str("\n## Errors\n\nAn error has JSON-RPC's number in `code`, and the stable code of the product in `data.code`; `data` may hold `path`, \
                  `path_base64`, `hint` and `list`, and holds the command's `exit` code.\n");
    let text = serde_json::to_string_pretty(&examples["error"]).unwrap_or_default();
    let _ = write!(out, "\n```json\n{text}\n```\n\n| `code` | meaning |\n|---|---|\n");
    for (n, meaning) in [
        (code::PARSE, "not JSON, or not UTF-8"),
        (code::REQUEST, "not a request, or too long"),
        (code::METHOD, "there is no such method"),
        (code::PARAMS, "wrong parameters: the codes of exit code 2"),
        (code::INTERNAL, "a fault of backstitch"),
        (code::FAILED, "the call failed; `data.code` says how"),
        (code::NOT_INITIALIZED, "called before `initialize`"),
        (code::CANCELLED, "cancelled, or ended by a signal: `interrupted`"),
    ] {
        let _ = writeln!(out, "| {n} | {meaning} |");
    }
    out.push_str("\n| `data.code` | `data.exit` | what to do |\n|---|---|---|\n");
    for code in Code::ALL {
        let _ = writeln!(
            out,
            "| `{}` | {} | {} |",
            code.as_str(),
            code.exit(),
            problem::general(*code).unwrap_or_default()
        );
    }
    if let Some(any) = methods.get("status") {
        let _ = write!(out, "\n## Parameters of every method\n{}", params(any, true));
    }
    methods.values().for_each(|m| section(m, &examples, &mut out));
    out
}
