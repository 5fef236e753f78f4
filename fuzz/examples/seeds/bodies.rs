//! Seeds of request bodies and of text.

use crate::{chosen, seed, support::safetensors};
use mdl_fuzz::BOUNDARY;
use std::io::Write;

/// Writes them.
pub fn write() {
    commits();
    hub();
    sync();
    text();
    xet();
}

fn header(name: &str, size: usize, kind: u8) -> Vec<u8> {
    let mut block = vec![0; 512];
    block[..name.len()].copy_from_slice(name.as_bytes());
    block[100..108].copy_from_slice(b"0000644\0");
    block[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
    block[156] = kind;
    block[257..265].copy_from_slice(b"ustar\x0000");
    block
}

fn member(name: &str, kind: u8, data: &[u8]) -> Vec<u8> {
    let mut out = [&header(name, data.len(), kind), data].concat();
    out.resize(out.len().next_multiple_of(512), 0);
    out
}

fn commits() {
    let st = safetensors::file(&safetensors::header(&[safetensors::item("a", "F32", &[2], 0, 8)]), 8);
    let plain =
        [member("./dir/", b'5', b""), member("./a.safetensors", b'0', &st), member("n.txt", b'0', b"x")].concat();
    let long = [member("././@LongLink", b'L', b"some/long/name\0"), member("short", b'0', b"y")].concat();
    let pax = [member("pax", b'x', b"15 path=p/a/x\n9 size=2\n"), member("short", b'0', b"yz")].concat();
    for (name, mut tar) in [("plain", plain), ("long", long), ("pax", pax)] {
        mdl_fuzz::mend::tar::tar(&mut tar);
        chosen("http_commit", &format!("tar-{name}"), u8::from(name == "pax"), &tar);
    }
    let part = |name: &str, body: &[u8]| {
        let head = format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\r\n\r\n");
        [head.as_bytes(), body, b"\r\n"].concat()
    };
    let form = [
        part("meta\"", br#"{"message":"m","metrics":{"loss":0.5}}"#),
        part("file\"; filename=\"a/b.safetensors\"", &st),
    ];
    chosen("http_commit", "form", 2, &[&form.concat(), format!("--{BOUNDARY}--\r\n").as_bytes()].concat());
    let json = [
        (3, "json", r#"{"message":"m","base":"parent","remove":["note.txt"],"meta":{"a":"b"}}"#),
        (4, "ref", r#"{"to":"main","expected":null}"#),
        (5, "upload", r#"{"size":10}"#),
        (6, "repo", r#"{"name":"ada/new"}"#),
        (7, "hook", r#"{"url":"https://example.org/x","events":["push"],"secret":"s"}"#),
    ];
    json.iter().for_each(|(route, name, text)| chosen("http_commit", name, *route, text.as_bytes()));
}

fn hub() {
    let oid = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    let lines = format!(
        "{}\n{}\n{}\n{}\n",
        r#"{"key":"header","value":{"summary":"s","description":"d"}}"#,
        r#"{"key":"file","value":{"path":"a/b.txt","content":"eHl6","encoding":"base64"}}"#,
        r#"{"key":"deletedFile","value":{"path":"note.txt"}}"#,
        format_args!(r#"{{"key":"lfsFile","value":{{"path":"c","algo":"sha256","oid":"{oid}","size":4}}}}"#),
    );
    let batch = format!(
        r#"{{"operation":"upload","transfers":["basic"],"objects":[{{"oid":"{oid}","size":4}}],"hash_algo":"sha256"}}"#
    );
    let verify = format!(r#"{{"oid":"{oid}","size":4}}"#);
    let all: [(u8, &str, &str); 9] = [
        (0, "commit", &lines),
        (1, "preupload", r#"{"files":[{"path":"a.bin","sample":"eHl6","size":3}]}"#),
        (2, "paths", r#"{"paths":["note.txt","a"],"expand":true}"#),
        (3, "paths-form", "paths=note.txt&paths=a&expand=true"),
        (4, "yaml", r#"{"repoType":"model","content":"---\nlicense: mit\n---\nx"}"#),
        (5, "batch", &batch),
        (6, "verify", &verify),
        (7, "tag", r#"{"tag":"v2","message":"m"}"#),
        (8, "login", "token=mdl_x&next=%2Fada%2Fgpt"),
    ];
    all.iter().for_each(|(route, name, text)| chosen("http_hub", name, *route, text.as_bytes()));
}

fn sync() {
    let one = mdl_fuzz::small_tip();
    let offer = format!(r#"{{"tips":["{one}"],"objects":[],"haves":[],"partial":false,"depth":1,"only":["*.txt"]}}"#);
    let refs =
        format!(r#"{{"moves":[{{"name":"refs/heads/b","expected":null,"new":"{one}","force":false}}],"message":"m"}}"#);
    let json = [
        (0, "offer", offer),
        (1, "whole", format!(r#"{{"tensors":["{one}"]}}"#)),
        (2, "read", format!(r#"{{"pieces":[{{"pack":"{one}","offset":8,"len":4}}]}}"#)),
        (5, "pruned", format!(r#"{{"pruned":[{{"commit":"{one}","time_ms":1,"rules":"r"}}]}}"#)),
        (6, "refs", refs),
    ];
    json.iter().for_each(|(route, name, text)| chosen("http_sync", name, *route, text.as_bytes()));
    chosen("http_sync", "lacking", 3, &[7; 64]);
    chosen("http_sync", "known", 4, &[9; 32]);
}

fn text() {
    let all = [
        (0, "ref", "refs/heads/a/b"),
        (1, "step", "main@step=1~1^"),
        (1, "best", "main@best(loss)"),
        (1, "log", "HEAD@{0}"),
        (2, "bucket", "s3://bucket/a/b"),
        (2, "server", "https://h.example:8080/ada/gpt"),
        (2, "file", "file:///a/b"),
        (3, "only", "*.safetensors:model.*\n[!a-c]/{x,y}/**"),
        (4, "slice", "1:2,...,::2"),
        (5, "policy", "gate = \"progress 0.25\"\nmax_rel_l2 = 0.1\n\n[[rules]]\nmatch = \"*:model.*\"\n"),
        (6, "name", "ada/gpt"),
        (7, "id", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"),
    ];
    all.iter().for_each(|(kind, name, text)| chosen("text", name, *kind, text.as_bytes()));
    let moved = br#""moved":{"name":"a","expected":null,"found":"b"}}"#;
    let problem = br#"{"status":409,"kind":"conflict","detail":"tag not found: v1","hint":"h","#;
    seed("text", "refused", &[&[8, 153, 1], &problem[..], moved].concat());
    let refs = br#"{"protocol":1,"head":"main","refs":[{"name":"refs/heads/main","id":"00"}]}"#;
    seed("text", "refs", &[&[8, 200, 0], &refs[..]].concat());
}

/// The shard of the server's tests, which a client sent, and xorbs whose chunks are stored in each way.
fn xet() {
    let digits: Vec<u8> =
        include_str!("../../../server/src/hub/xet/shard.hex").bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    let shard: Vec<u8> = digits.chunks(2).map(byte).collect();
    seed("xet_shard", "of-a-client", &shard);
    seed("xet_shard", "no-files", &[&shard[..48], &[0xff; 32], &[0; 16]].concat());
    let lz4 = |bytes: &[u8]| {
        let mut frame = lz4_flex::frame::FrameEncoder::new(Vec::new());
        frame.write_all(bytes).unwrap();
        frame.finish().unwrap()
    };
    let (run, plain) = (lz4(&[b'a'; 40]), lz4(b"aebfcgdh"));
    let chunk =
        |scheme: u8, len: u8, stored: &[u8]| [&[0, stored.len() as u8, 0, 0, scheme, len, 0, 0], stored].concat();
    let all = [chunk(0, 2, b"hi"), chunk(1, 40, &run), chunk(1, 8, &plain), chunk(2, 8, &plain)].concat();
    seed("xet_xorb", "plain", &chunk(0, 2, b"hi"));
    seed("xet_xorb", "each-scheme", &all);
    seed("xet_xorb", "footer", &[&all[..], b"XETBLOB\x01"].concat());
    seed("xet_xorb", "empty-chunk", &[chunk(0, 0, b""), chunk(0, 2, b"hi")].concat());
    chosen("http_hub", "xet-shard", 9, &shard);
    chosen("http_hub", "xet-xorb", 10, &all);
}
