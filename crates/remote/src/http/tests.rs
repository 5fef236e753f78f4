//! The HTTP client against a server that lies, fails or is of another version.

use super::HttpPeer;
use crate::{peer::Peer, sync::Piece};
use mdl_repo::{ErrorKind, Result, pack::PackId};
use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    thread,
};

/// Reads a request: its head in small letters, then its body.
fn request(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    let mut byte = [0];
    while !text.ends_with(b"\r\n\r\n") && stream.read(&mut byte).expect("read") == 1 {
        text.push(byte[0]);
    }
    let text = String::from_utf8(text).expect("text").to_lowercase();
    let len = text.split("content-length: ").nth(1).and_then(|t| t.lines().next());
    let mut body = vec![0; len.map_or(0, |n| n.parse().expect("a number"))];
    stream.read_exact(&mut body).expect("a body");
    text + &String::from_utf8_lossy(&body)
}

/// Answers one connection after the other with these, and returns what was asked.
fn server(answers: Vec<String>) -> (String, thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/ada/gpt", listener.local_addr().expect("an address"));
    let serving = thread::spawn(move || {
        let answer = |text: String| {
            let (mut stream, _) = listener.accept().expect("a connection");
            let asked = request(&mut stream);
            stream.write_all(text.as_bytes()).expect("sent");
            asked
        };
        answers.into_iter().map(answer).collect()
    });
    (url, serving)
}

fn answer(status: &str, len: usize, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: {len}\r\n{headers}Connection: close\r\n\r\n{body}")
}

fn pieces(len: u64) -> [Piece; 2] {
    let pack = PackId::from_bytes([7; 32]);
    [Piece::Bytes(b"here".to_vec()), Piece::Stored { pack, offset: 8, len }]
}

fn read(peer: &HttpPeer, pieces: &[Piece]) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    peer.read(pieces, &mut |bytes| {
        out.extend_from_slice(bytes);
        Ok(())
    })?;
    Ok(out)
}

#[test]
fn a_body_that_is_cut_off_goes_on_and_a_wrong_one_and_a_busy_server_are_asked_again() {
    let (url, serving) = server(vec![
        answer("200 OK", 6, "", "abc"),
        answer("200 OK", 2, "", "xx"),
        answer("200 OK", 7, "", "xxxxxxx"),
        answer("503 Busy", 0, "Retry-After: 0\r\n", ""),
        answer("200 OK", 3, "", "d"),
        answer("200 OK", 2, "", "ef"),
    ]);
    let peer = HttpPeer::new(&url, Some("mdl_secret".to_owned())).expect("a peer");
    assert_eq!(read(&peer, &pieces(6)).expect("read"), b"hereabcdef");
    let asked = serving.join().expect("served");
    // What had come is not asked for again.
    let ranges = [(8, 6), (11, 3), (11, 3), (11, 3), (11, 3), (12, 2)];
    for (asked, (offset, len)) in asked.iter().zip(ranges) {
        let range = format!(r#"{{"len":{len},"offset":{offset},"pack":"#);
        assert!(asked.contains(&range), "{range}: {asked}");
    }
    assert!(asked.iter().all(|a| a.contains("authorization: bearer mdl_secret")));
    assert!(asked.iter().all(|a| a.starts_with("post /api/v1/repos/ada/gpt/sync/read ")));
    assert!(!format!("{peer:?}").contains("secret"));
}

#[test]
fn refusals_are_told_with_what_to_do_and_not_tried_again() {
    let problem = |status: &str, headers: &str, kind: &str, detail: &str| {
        let body = format!(r#"{{"kind": "{kind}", "detail": "{detail}", "hint": "try this"}}"#);
        answer(status, body.len(), headers, &body)
    };
    let newer = r#"{"protocol": 2, "something": "else"}"#;
    let (url, serving) = server(vec![
        problem("401 Unauthorized", "", "unauthorized", "this wants a token"),
        problem("404 Not Found", "X-Error-Code: PackGone\r\n", "not_found", "pack not found: 0707"),
        problem("422 No", "", "user", "it cannot be"),
        problem("404 Not Found", "", "not_found", "there is nothing at \\\"/ada\\\""),
        answer("404 Not Found", 4, "", "what"),
        answer("200 OK", newer.len(), "", newer),
    ]);
    let peer = HttpPeer::new(&url, None).expect("a peer");
    let mut told = Vec::new();
    for _ in 0..5 {
        let error = read(&peer, &pieces(6)).expect_err("refused");
        told.push((error.kind(), error.to_string(), error.hint().unwrap_or_default()));
    }
    let hint = &told[0].2;
    assert!(told[0].1.contains("wants a token"), "{told:?}");
    assert!(hint.contains("MDL_TOKEN") && hint.contains("credentials.json"), "{hint}");
    assert_eq!((hint.matches("mdl token create").count(), hint.contains("try this")), (1, false));
    assert_eq!((told[1].0, told[1].1.as_str()), (ErrorKind::NotFound, "pack not found: 0707"));
    assert_eq!((told[2].1.as_str(), told[2].2.as_str()), ("it cannot be", "try this"));
    assert_eq!((told[3].0, told[3].1.as_str()), (ErrorKind::NotFound, format!("repository not found: {url}").as_str()));
    assert!(told[4].1.contains("not as `mdl serve` does"), "{told:?}");
    let newer = peer.refs().expect_err("another protocol").to_string();
    assert!(newer.contains("version 2 of the protocol"), "{newer}");
    assert_eq!(serving.join().expect("served").len(), 6);
}

#[test]
fn nobody_there_is_said_so() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/ada/gpt", listener.local_addr().expect("an address"));
    drop(listener);
    let peer = HttpPeer::new(&url, None).expect("a peer");
    let error = peer.refs().expect_err("nobody");
    assert!(error.kind() == ErrorKind::Io && error.to_string().contains("cannot reach"), "{error}");
}
