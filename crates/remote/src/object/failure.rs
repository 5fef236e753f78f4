//! Turns an object store's failures into errors that the user understands.

use mdl_repo::{Missing, RepoError};
use object_store::Error;
use std::io;

/// What to try where the store denies access.
const ACCESS: &str = "check the credentials in the environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY for s3://, \
                      GOOGLE_APPLICATION_CREDENTIALS for gs://, AZURE_STORAGE_ACCOUNT_NAME and \
                      AZURE_STORAGE_ACCOUNT_KEY for az://) and what they may do: read, write, list and delete below \
                      the prefix";

/// An error and all that caused it, each said once.
fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}

/// What a store's XML answer says between two tags.
fn tagged<'a>(text: &'a str, tag: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{tag}>"))?;
    Some(rest.split_once(&format!("</{tag}>"))?.0)
}

/// Whether the bucket itself is missing: S3, Azure and Google say so in their own words.
fn no_bucket(text: &str) -> bool {
    ["NoSuchBucket", "ContainerNotFound", "bucket does not exist"].iter().any(|words| text.contains(words))
}

/// Whether the object is absent, and not its whole bucket.
pub(super) fn absent(error: &Error) -> bool {
    matches!(error, Error::NotFound { .. }) && !no_bucket(&chain(error))
}

/// The store's failure, told with what was being done and where.
pub(super) fn failed(doing: &str, at: &str, error: &Error) -> RepoError {
    let text = chain(error);
    if no_bucket(&text) {
        return RepoError::not_found(Missing::Bucket, at);
    }
    if matches!(error, Error::PermissionDenied { .. } | Error::Unauthenticated { .. }) {
        // Only the code: the whole answer repeats what was signed.
        let why = tagged(&text, "Code").unwrap_or("access denied");
        return RepoError::user(format!("cannot {doing} {at}: {why}"), ACCESS);
    }
    // The address at which cloud machines find credentials of their own, asked where the environment holds none.
    if text.contains("169.254.169.254") {
        return RepoError::user(format!("cannot {doing} {at}: no credentials were found"), ACCESS);
    }
    let text = match (tagged(&text, "Code"), tagged(&text, "Message")) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        _ => text,
    };
    RepoError::io(format!("cannot {doing} {at}"))(io::Error::other(text))
}

/// A reply that ended too early.
pub(super) fn cut_short(at: &str) -> RepoError {
    let source = io::Error::new(io::ErrorKind::UnexpectedEof, "the reply was cut short");
    RepoError::io(format!("cannot read {at}"))(source)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mdl_repo::ErrorKind;

    fn not_found(body: &str) -> Error {
        Error::NotFound { path: "p".to_owned(), source: body.to_owned().into() }
    }

    #[test]
    fn a_missing_bucket_is_no_missing_key() {
        assert!(absent(&not_found("<Code>NoSuchKey</Code>")));
        let error = not_found("<Error><Code>NoSuchBucket</Code></Error>");
        assert!(!absent(&error));
        let told = failed("read", "s3://b/k", &error);
        assert_eq!(told.kind(), ErrorKind::NotFound);
        assert_eq!(told.to_string(), "bucket not found: s3://b/k");
    }

    #[test]
    fn a_refusal_names_its_code_and_keeps_the_rest_to_itself() {
        let source = "<Error><Code>SignatureDoesNotMatch</Code><StringToSign>secret</StringToSign></Error>";
        let error = Error::PermissionDenied { path: "p".to_owned(), source: source.to_owned().into() };
        let told = failed("write", "s3://b/k", &error);
        assert_eq!(told.kind(), ErrorKind::User);
        assert_eq!(told.to_string(), "cannot write s3://b/k: SignatureDoesNotMatch");
    }
}
