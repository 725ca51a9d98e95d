//! The one document: markup, style and script together, nothing from elsewhere.

use backstitch::error::Result;

use super::guard::random;

const PAGE: &str = include_str!("page.html");

/// For answers that are no page.
pub const NOTHING: &str = "default-src 'none'; frame-ancestors 'none'";

/// The policy, and the page that fits it: only this very script and style are run, and only this server is asked.
pub fn document() -> Result<(String, String)> {
    let nonce = random(16)?;
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'"
    );
    Ok((policy, PAGE.replace("{{nonce}}", &nonce)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_only_ever_put_in_as_text() {
        for word in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "Function(",
            " on",
            "http://",
            "https://",
            "style=",
        ] {
            let found = PAGE.lines().find(|l| match word {
                // Handlers in the markup, not words of a sentence.
                " on" => l
                    .split(" on")
                    .skip(1)
                    .any(|rest| rest.trim_start_matches(|c: char| c.is_ascii_lowercase()).starts_with("=\"")),
                word => l.contains(word),
            });
            assert_eq!(found, None, "{word}");
        }
    }

    #[test]
    fn every_page_has_a_nonce_of_its_own() {
        let (a, b) = (document().expect("page"), document().expect("page"));
        assert!(a.0 != b.0 && !a.1.contains("{{"));
    }
}
