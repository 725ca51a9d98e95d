//! Who may ask. Pure, so that every rule has a test.

use backstitch::error::{Code, Error, Result};

/// The header in which the page's own script says the token.
pub const HEADER: &str = "X-Backstitch-Token";

/// The token, and where this is served.
pub struct Guard {
    token: String,
    port: u16,
}

/// What a request says of itself.
pub struct Asked<'a> {
    pub host: Option<&'a str>,
    pub origin: Option<&'a str>,
    pub header: Option<&'a str>,
    pub query: &'a str,
    /// The document itself, whose token is in its address: a person typed it.
    pub is_page: bool,
}

/// Why it is not answered.
#[derive(Debug, PartialEq, Eq)]
pub struct Refused(pub &'static str);

/// So many random bytes, in hexadecimal.
pub fn random(bytes: usize) -> Result<String> {
    let mut all = vec![0; bytes];
    let mut at = 0;
    while at < bytes {
        let n =
            rustix::rand::getrandom(&mut all[at..], rustix::rand::GetRandomFlags::empty()).map_err(|e| {
                Error::new(Code::Failed, format!("the system gives no random bytes: {e}")).hint(
                    "without them no address is a secret; `backstitch rewind` shows the same on a terminal",
                )
            })?;
        at += n;
    }
    Ok(all.iter().map(|b| format!("{b:02x}")).collect())
}

/// Takes the same time wherever they differ.
fn same(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |d, (x, y)| d | (x ^ y)) == 0
}

impl Guard {
    /// With a new token.
    pub fn new(port: u16) -> Result<Guard> {
        Ok(Guard { token: random(32)?, port })
    }

    /// The address of the page, with the token in it.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/?token={}", self.port, self.token)
    }

    /// Another site's page may send requests here, under its own name (`Origin`), or make its name mean this machine (`Host`).
    /// Both are refused, whatever token they bring.
    pub fn admit(&self, asked: &Asked<'_>) -> Result<(), Refused> {
        let port = self.port;
        let is_here = |host: &str| host == format!("127.0.0.1:{port}") || host == format!("localhost:{port}");
        if !asked.host.is_some_and(is_here) {
            return Err(Refused("this is served under its own address only"));
        }
        if asked.origin.is_some_and(|o| !o.strip_prefix("http://").is_some_and(is_here)) {
            return Err(Refused("another page asks"));
        }
        let in_query = asked.query.split('&').find_map(|p| p.strip_prefix("token="));
        let token = if asked.is_page { in_query } else { asked.header };
        match token {
            Some(t) if same(t, &self.token) => Ok(()),
            _ => Err(Refused("the token is missing or wrong")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_own_page_with_its_own_token() {
        let g = Guard { token: "t0ken".to_owned(), port: 8080 };
        let good = || Asked {
            host: Some("127.0.0.1:8080"),
            origin: None,
            header: Some("t0ken"),
            query: "",
            is_page: false,
        };
        assert_eq!(g.admit(&good()), Ok(()));
        assert_eq!(g.admit(&Asked { host: Some("localhost:8080"), ..good() }), Ok(()));
        assert_eq!(g.admit(&Asked { origin: Some("http://127.0.0.1:8080"), ..good() }), Ok(()));
        for host in [
            None,
            Some(""),
            Some("evil.example"),
            Some("evil.example:8080"),
            Some("127.0.0.1"),
            Some("127.0.0.1:80800"),
        ] {
            assert!(g.admit(&Asked { host, ..good() }).is_err(), "{host:?}");
        }
        for origin in [
            "",
            "null",
            "http://evil.example",
            "https://127.0.0.1:8080",
            "http://127.0.0.1:8080.evil.example",
            "http://127.0.0.1:81",
        ] {
            assert!(g.admit(&Asked { origin: Some(origin), ..good() }).is_err(), "{origin}");
        }
        for header in [None, Some(""), Some("t0ke"), Some("t0kenn"), Some("T0ken")] {
            assert!(g.admit(&Asked { header, ..good() }).is_err(), "{header:?}");
        }
    }

    #[test]
    fn a_token_in_the_address_opens_the_page_and_nothing_else() {
        let g = Guard { token: "t0ken".to_owned(), port: 1 };
        let page = |query, is_page| {
            g.admit(&Asked { host: Some("127.0.0.1:1"), origin: None, header: None, query, is_page }).is_ok()
        };
        assert!(page("token=t0ken", true) && page("x=1&token=t0ken", true));
        assert!(
            !page("token=t0ken", false)
                && !page("token=", true)
                && !page("", true)
                && !page("xtoken=t0ken", true)
        );
    }

    #[test]
    fn tokens_are_long_and_never_the_same() {
        let (a, b) = (random(32).expect("random"), random(32).expect("random"));
        assert!(a.len() == 64 && a != b);
    }
}
