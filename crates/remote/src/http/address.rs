//! Server addresses: from the URL that people write to the one that requests go to.

use mdl_repo::{RepoError, Result};
use reqwest::header::HeaderValue;
use std::env;
use url::{Host, Url};

/// Environment variable that lets tokens go over plain HTTP.
const ALLOW: &str = "MDL_ALLOW_HTTP";

/// The address of a repository.
#[derive(Clone, Debug)]
pub(super) struct Address {
    /// The URL before the names of the routes; it ends in a slash.
    pub base: Url,
    /// The repository's URL as people write it, for messages.
    pub shown: String,
    /// Whether it is this machine.
    pub loopback: bool,
}

fn usage(text: &str, why: &str) -> RepoError {
    let shown: String = text.chars().take(200).collect();
    RepoError::usage(format!("{shown:?}: {why}"), "write http(s)://HOST[:PORT]/OWNER/NAME")
}

impl Address {
    /// Parses `https://host/owner/name`; whatever precedes these two is the server's root. Credentials in it
    /// are refused: they would end up in settings and logs.
    pub fn new(text: &str) -> Result<Address> {
        let mut url = Url::parse(text).map_err(|e| usage("the URL", &e.to_string()))?;
        if !url.username().is_empty() || url.password().is_some() {
            // Not shown: there is a secret in it.
            return Err(usage("the URL", "credentials are not taken from a URL"));
        }
        if !matches!(url.scheme(), "http" | "https") {
            return Err(usage(text, "not http or https"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            // Not shown: there may be a secret in it.
            return Err(usage("the URL", "a repository's URL ends with its name"));
        }
        let path = url.path().trim_matches('/').to_owned();
        let mut parts: Vec<&str> = path.split('/').collect();
        let (name, owner) = (parts.pop().unwrap_or_default(), parts.pop().unwrap_or_default());
        let name = name.strip_suffix(".git").unwrap_or(name);
        if owner.is_empty() || name.is_empty() {
            return Err(usage(text, "it names no repository"));
        }
        let front: String = parts.iter().map(|p| format!("/{p}")).collect();
        url.set_path(&format!("{front}/{owner}/{name}"));
        let shown = url.to_string();
        let loopback = match url.host() {
            Some(Host::Domain(name)) => name == "localhost",
            Some(Host::Ipv4(ip)) => ip.is_loopback(),
            Some(Host::Ipv6(ip)) => ip.is_loopback(),
            None => false,
        };
        url.set_path(&format!("{front}/api/v1/repos/{owner}/{name}/sync/"));
        Ok(Address { base: url, shown, loopback })
    }

    /// The header that a token becomes; refused where plain HTTP would expose it.
    pub fn authorize(&self, token: &str) -> Result<HeaderValue> {
        let allowed = self.loopback || self.base.scheme() == "https" || env::var(ALLOW).is_ok_and(|v| v == "1");
        if !allowed {
            let message = format!("a token is not sent to {}: others on the way could read it", self.shown);
            return Err(RepoError::user(message, format!("use https, or set {ALLOW}=1 in a network that you trust")));
        }
        let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
            .map_err(|_| RepoError::usage("the token has characters that no token has", "copy it anew"))?;
        value.set_sensitive(true);
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_lead_to_routes_and_secrets_stay_out_of_them() {
        for (text, base) in [
            ("http://127.0.0.1:7878/ada/gpt", "http://127.0.0.1:7878/api/v1/repos/ada/gpt/sync/"),
            ("https://x.org/models/ada/gpt.git/", "https://x.org/models/api/v1/repos/ada/gpt/sync/"),
        ] {
            assert_eq!(Address::new(text).expect(text).base.as_str(), base);
        }
        for text in ["ftp://x/a/b", "http://x/a", "http://x", "a/b", "http://x/a/b?c=d"] {
            Address::new(text).expect_err(text);
        }
        let error = Address::new("https://eve:secret@x.org/ada/gpt").expect_err("a secret");
        assert!(!format!("{error:?}").contains("secret"));
        let at = |text| Address::new(text).expect("an address").authorize("t");
        at("http://x.org/ada/gpt").expect_err("in the clear");
        for text in ["http://localhost/ada/gpt", "http://[::1]:9/ada/gpt", "https://x.org/ada/gpt"] {
            let header = at(text).expect(text);
            assert!(header.is_sensitive() && !format!("{header:?}").contains("Bearer"));
        }
    }
}
