//! Signed in-toto statements: envelopes of DSSE (Dead Simple Signing Envelope, v1), signed with an Ed25519 key.

use crate::signing::Signer;
use base64::{Engine, engine::general_purpose::STANDARD};
use mdl_store::Result;
use serde_json::{Value, json};

/// Type of what is signed.
const STATEMENT: &str = "application/vnd.in-toto+json";

/// What DSSE has signed: the pre-authentication encoding of type and payload.
fn encoded(payload: &[u8]) -> Vec<u8> {
    let head = format!("DSSEv1 {} {STATEMENT} {} ", STATEMENT.len(), payload.len());
    [head.as_bytes(), payload].concat()
}

/// The envelope of a statement. `sig` is the Ed25519 signature of the encoding (64 bytes), `keyid` the fingerprint of
/// the key as OpenSSH prints it.
///
/// # Errors
/// The key is none of Ed25519, or only `ssh-keygen` can use it; the agent refuses.
pub fn sign_statement(signer: &Signer, statement: &Value) -> Result<Value> {
    let payload = statement.to_string().into_bytes();
    let signature = signer.sign_plainly(&encoded(&payload))?;
    Ok(json!({
        "payloadType": STATEMENT,
        "payload": STANDARD.encode(&payload),
        "signatures": [{"keyid": signer.fingerprint(), "sig": STANDARD.encode(signature)}],
    }))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_encoding_is_that_of_the_specification() {
        let wanted = b"DSSEv1 28 application/vnd.in-toto+json 11 hello world";
        assert_eq!(super::encoded(b"hello world"), wanted);
    }
}
