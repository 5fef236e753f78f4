//! Client of an ssh-agent: asks it which keys it has, and to sign with one of them.

use mdl_store::{RepoError, Result};
use ssh_key::{PublicKey, Signature};
use std::{
    env,
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    path::PathBuf,
    time::Duration,
};

const REQUEST_IDENTITIES: u8 = 11;
const IDENTITIES_ANSWER: u8 = 12;
const SIGN_REQUEST: u8 = 13;
const SIGN_RESPONSE: u8 = 14;
/// Bytes of an answer at most, as in OpenSSH.
const MAX_ANSWER: u32 = 256 << 10;
/// An agent may ask its user to confirm.
const WAIT_LIMIT: Duration = Duration::from_secs(300);

/// A connection to the agent that `SSH_AUTH_SOCK` names.
#[derive(Debug)]
pub(super) struct Agent(UnixStream);

fn failed(e: io::Error) -> RepoError {
    RepoError::io("cannot speak to the ssh-agent of SSH_AUTH_SOCK")(e)
}

fn invalid() -> RepoError {
    failed(io::Error::new(io::ErrorKind::InvalidData, "an answer that makes no sense"))
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u32).to_be_bytes());
    out.extend(bytes);
}

/// The next string of an answer: length and bytes.
fn string<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, after) = rest.split_first_chunk()?;
    let (bytes, after) = after.split_at_checked(u32::from_be_bytes(*len) as usize)?;
    *rest = after;
    Some(bytes)
}

impl Agent {
    /// Connects; none: there is no agent.
    pub fn connect() -> Option<Agent> {
        let path = env::var_os("SSH_AUTH_SOCK").filter(|p| !p.is_empty()).map(PathBuf::from)?;
        let stream = UnixStream::connect(path).ok()?;
        stream.set_read_timeout(Some(WAIT_LIMIT)).ok()?;
        Some(Agent(stream))
    }

    fn ask(&mut self, request: &[u8]) -> Result<Vec<u8>> {
        let mut framed = Vec::with_capacity(request.len() + 4);
        put(&mut framed, request);
        self.0.write_all(&framed).map_err(failed)?;
        let mut len = [0; 4];
        self.0.read_exact(&mut len).map_err(failed)?;
        let len = u32::from_be_bytes(len);
        if len == 0 || len > MAX_ANSWER {
            return Err(invalid());
        }
        let mut answer = vec![0; len as usize];
        self.0.read_exact(&mut answer).map_err(failed)?;
        Ok(answer)
    }

    /// Whether it has the private half of a key.
    pub fn has(&mut self, key: &PublicKey) -> Result<bool> {
        let wanted = key.to_bytes().map_err(|_| invalid())?;
        let answer = self.ask(&[REQUEST_IDENTITIES])?;
        let (&kind, mut rest) = answer.split_first().ok_or_else(invalid)?;
        if kind != IDENTITIES_ANSWER {
            return Ok(false);
        }
        let (count, after) = rest.split_first_chunk().ok_or_else(invalid)?;
        rest = after;
        for _ in 0..u32::from_be_bytes(*count) {
            let (blob, _comment) = string(&mut rest).zip(string(&mut rest)).ok_or_else(invalid)?;
            if blob == wanted {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Has it sign these bytes.
    pub fn sign(&mut self, key: &PublicKey, bytes: &[u8]) -> Result<Signature> {
        let mut request = vec![SIGN_REQUEST];
        put(&mut request, &key.to_bytes().map_err(|_| invalid())?);
        put(&mut request, bytes);
        request.extend(0u32.to_be_bytes());
        let answer = self.ask(&request)?;
        let (&kind, mut rest) = answer.split_first().ok_or_else(invalid)?;
        if kind != SIGN_RESPONSE {
            return Err(RepoError::user("the ssh-agent did not sign", "confirm it there, or look at `ssh-add -l`"));
        }
        let signature = string(&mut rest).ok_or_else(invalid)?;
        Signature::try_from(signature).map_err(|_| invalid())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_that_are_cut_off_are_none() {
        assert_eq!(string(&mut &b"\0\0\0\x02ab"[..]), Some(&b"ab"[..]));
        for cut in [&b""[..], b"\0\0", b"\0\0\0\x01", b"\xff\xff\xff\xffab"] {
            assert_eq!(string(&mut &*cut), None, "{cut:?}");
        }
    }
}
