//! Object store clients, set up from the environment of each store's own tools.

use crate::{place::Kind, runtime::choose_tls};
use mdl_codec::locks::Mutex;
use mdl_repo::{RepoError, Result};
use object_store::{
    ClientConfigKey, ObjectStore, RetryConfig,
    aws::{AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut},
    azure::{AzureConfigKey, MicrosoftAzureBuilder},
    gcp::{GoogleCloudStorageBuilder, GoogleConfigKey},
    memory::InMemory,
};
use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
    time::Duration,
};
use url::Url;

/// One that retries gives a request a minute of attempts; the longest answer is a part of 8 MiB.
fn retry(retries: bool) -> RetryConfig {
    RetryConfig {
        max_retries: if retries { 6 } else { 0 },
        retry_timeout: Duration::from_secs(60),
        ..RetryConfig::default()
    }
}

/// What every client is told, as names and values.
fn options(retries: bool) -> [(ClientConfigKey, &'static str); 3] {
    [
        (ClientConfigKey::ConnectTimeout, "10s"),
        // The one without retries sends a few bytes only.
        (ClientConfigKey::Timeout, if retries { "300s" } else { "30s" }),
        (ClientConfigKey::UserAgent, concat!("mdl/", env!("CARGO_PKG_VERSION"))),
    ]
}

/// What the environment gives as URLs, by whose client reads them.
fn urls(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::S3 => &[
            "AWS_ENDPOINT_URL_S3",
            "AWS_ENDPOINT_URL",
            "AWS_ENDPOINT",
            "AWS_ENDPOINT_URL_STS",
            "AWS_METADATA_ENDPOINT",
            "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        ],
        Kind::Google => &["GOOGLE_BASE_URL"],
        Kind::Azure => &[
            "AZURE_STORAGE_ENDPOINT",
            "AZURE_ENDPOINT",
            "AZURE_STORAGE_AUTHORITY_HOST",
            "AZURE_AUTHORITY_HOST",
            "AZURE_MSI_ENDPOINT",
            "AZURE_IDENTITY_ENDPOINT",
            "AZURE_FABRIC_TOKEN_SERVICE_URL",
            "IDENTITY_ENDPOINT",
        ],
        Kind::Memory => &[],
    }
}

/// Refuses URLs in the environment that a client would end in a panic over, long after it was made. `of` reads a
/// variable.
pub(crate) fn check(kind: Kind, of: impl Fn(&str) -> Option<String>) -> Result<()> {
    let wrong = |name: &&&str| of(name).is_some_and(|value| !is_url(&value));
    match urls(kind).iter().find(wrong) {
        None => Ok(()),
        // Never repeats the value: there may be a password in it.
        Some(name) => Err(RepoError::usage(
            format!("{name} is no URL: it must begin with http:// or https://"),
            format!("write it as {name}=https://HOST[:PORT]"),
        )),
    }
}

fn is_url(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let named = lower.starts_with("http://") || lower.starts_with("https://");
    // Their parser takes fewer characters than ours.
    named && text.bytes().all(|b| b.is_ascii_graphic()) && text.parse::<http::Uri>().is_ok() && Url::parse(text).is_ok()
}

/// A client of a bucket, by what the environment says of it; one without retries sends each request once.
pub(crate) fn client(kind: Kind, name: &str, retries: bool) -> object_store::Result<Arc<dyn ObjectStore>> {
    choose_tls();
    match kind {
        Kind::S3 => s3(name, retries),
        Kind::Google => {
            let builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(name).with_retry(retry(retries));
            let set = |b: GoogleCloudStorageBuilder, (key, value)| b.with_config(GoogleConfigKey::Client(key), value);
            Ok(Arc::new(options(retries).into_iter().fold(builder, set).build()?))
        }
        Kind::Azure => {
            let builder = MicrosoftAzureBuilder::from_env().with_container_name(name).with_retry(retry(retries));
            let set = |b: MicrosoftAzureBuilder, (key, value)| b.with_config(AzureConfigKey::Client(key), value);
            Ok(Arc::new(options(retries).into_iter().fold(builder, set).build()?))
        }
        Kind::Memory => Ok(in_memory(name)),
    }
}

fn s3(name: &str, retries: bool) -> object_store::Result<Arc<dyn ObjectStore>> {
    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(name)
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        .with_retry(retry(retries));
    for (key, value) in options(retries) {
        builder = builder.with_config(AmazonS3ConfigKey::Client(key), value);
    }
    let region = ["AWS_REGION", "AWS_DEFAULT_REGION"].iter().any(|v| std::env::var_os(v).is_some());
    if !region {
        builder = builder.with_region("us-east-1");
    }
    let endpoints = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"];
    if let Some(endpoint) = endpoints.iter().find_map(|v| std::env::var(v).ok()) {
        // An endpoint without TLS was asked for by writing it so.
        if endpoint.starts_with("http://") {
            builder = builder.with_allow_http(true);
        }
        builder = builder.with_endpoint(endpoint);
    }
    Ok(Arc::new(builder.build()?))
}

/// The bucket of that name in this process.
fn in_memory(name: &str) -> Arc<dyn ObjectStore> {
    static BUCKETS: LazyLock<Mutex<HashMap<String, Arc<InMemory>>>> = LazyLock::new(Mutex::default);
    BUCKETS.lock().entry(name.to_owned()).or_default().clone()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mdl_repo::ErrorKind;

    #[test]
    fn an_endpoint_without_its_scheme_is_wrong_usage_and_is_not_repeated() {
        for kind in [Kind::S3, Kind::Google, Kind::Azure] {
            for name in urls(kind) {
                let with = |value: &str| check(kind, |n| (n == *name).then(|| value.to_owned()));
                for good in ["http://127.0.0.1:8333", "https://h", "HTTPS://h:1/p"] {
                    with(good).expect(good);
                }
                for bad in
                    ["127.0.0.1:8333", "hunter2@h", "s3://h", "https://", "http:/h", "http://a b", "http://h:x", ""]
                {
                    let e = with(bad).expect_err(bad);
                    assert!(e.kind() == ErrorKind::Usage && e.to_string().contains(name), "{e}");
                    assert!(!format!("{e:?}").contains("hunter2"));
                }
            }
        }
        check(Kind::S3, |_| None).expect("nothing is set");
    }
}
