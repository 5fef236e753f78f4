//! Routes of files, tensors and slices: bytes, headers, range requests.

use crate::{
    api_read::site::{FILE, files, site},
    support::weights,
};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use std::collections::BTreeMap;

#[tokio::test]
async fn files_come_whole_and_in_part() {
    let site = site();
    for (n, id) in site.commits.iter().enumerate() {
        for (path, (bytes, _)) in files(n as u64) {
            let path = format!("/files/{}/{}", id.to_hex(), path.replace('é', "%C3%A9"));
            let reply = site.get(&path).await;
            assert_eq!((reply.status, reply.bytes() == bytes), (StatusCode::OK, true), "{path}");
        }
    }
    let whole = files(2).remove(FILE).expect("the file").0;
    let path = format!("/files/main/{FILE}");
    let head = site.ask(Method::HEAD, &path, &[], None).await;
    assert_eq!((head.header("content-length"), head.bytes().len()), (whole.len().to_string().as_str(), 0));
    let part = site.ask(Method::GET, &path, &[("range", "bytes=1000-1999")], None).await;
    assert_eq!((part.status.as_u16(), part.bytes()), (206, &whole[1000..2000]));
    let same = site.ask(Method::GET, &path, &[("if-none-match", head.header("etag"))], None).await;
    assert_eq!(same.status, 304);
    let outside = site.ask(Method::GET, &path, &[("range", "bytes=999999999-")], None).await;
    outside.refused(416, "range");
    let missing = site.get("/files/main/nowhere").await;
    missing.refused(404, "not_found");
    assert_eq!(missing.header("x-error-code"), "EntryNotFound");
    site.get("/files/nowhere/README.md").await.refused(404, "not_found");
    site.get("/files/main/..%2F..%2Fconfig").await.refused(404, "not_found");
}

#[tokio::test]
async fn slices_mean_what_numpy_means() {
    let site = site();
    let w = weights(1, 40 * 30, 2);
    let at = |row: usize, column: usize| &w[(row * 30 + column) * 4..][..4];
    let all = |n: usize| (0..n).collect::<Vec<_>>();
    let cases: [(&str, Vec<usize>, Vec<usize>, &str); 9] = [
        ("0:10,:", all(10), all(30), "10,30"),
        ("-1", vec![39], all(30), "30"),
        ("::7,3", vec![0, 7, 14, 21, 28, 35], vec![3], "6"),
        ("...,-2:", all(40), vec![28, 29], "40,2"),
        ("5:2", Vec::new(), all(30), "0,30"),
        ("38:100,1:-26:2", vec![38, 39], vec![1, 3], "2,2"),
        ("3,4", vec![3], vec![4], ""),
        ("-3:-1", vec![37, 38], all(30), "2,30"),
        (":", all(40), all(30), "40,30"),
    ];
    for (slice, rows, columns, shape) in cases {
        let expected: Vec<u8> =
            rows.iter().flat_map(|&r| columns.iter().flat_map(move |&c| at(r, c).to_vec())).collect();
        let reply = site.get(&format!("/tensor/main/{FILE}?name=w&slice={slice}")).await;
        assert_eq!((reply.status, reply.bytes() == expected), (StatusCode::OK, true), "{slice}");
        assert_eq!((reply.header("x-mdl-shape"), reply.header("x-mdl-dtype")), (shape, "f32"), "{slice}");
        assert_eq!(reply.header("content-length"), expected.len().to_string(), "{slice}");
        let npy = site.get(&format!("/tensor/main/{FILE}?name=w&format=npy&slice={slice}")).await;
        let (shape, data) = read_npy(npy.bytes());
        let dims: Vec<&str> = shape.split(',').map(str::trim).filter(|d| !d.is_empty()).collect();
        assert_eq!((dims.join(","), data == expected), (reply.header("x-mdl-shape").to_owned(), true), "{slice}");
    }
    for bad in ["40,0", "0,0,0", "::-1", "a", "::0", "...,..."] {
        site.get(&format!("/tensor/main/{FILE}?name=w&slice={bad}")).await.refused(400, "usage");
    }
}

/// Shape as it is written, and data, of an array of 32-bit floats.
fn read_npy(bytes: &[u8]) -> (String, &[u8]) {
    assert_eq!(&bytes[..8], b"\x93NUMPY\x01\0");
    let len = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let text = std::str::from_utf8(&bytes[10..10 + len]).expect("text");
    assert!(text.contains("'descr': '<f4'") && text.contains("'fortran_order': False") && text.ends_with('\n'));
    let shape = text.split("'shape': (").nth(1).and_then(|t| t.split(')').next()).expect("a shape");
    (shape.to_owned(), &bytes[10 + len..])
}

/// Tensors of a safetensors file by name.
pub fn read_safetensors(bytes: &[u8]) -> BTreeMap<String, (Value, Vec<u8>)> {
    let len = u64::from_le_bytes(bytes[..8].try_into().expect("eight")) as usize;
    let header: BTreeMap<String, Value> = serde_json::from_slice(&bytes[8..8 + len]).expect("a header");
    let (data, mut end) = (&bytes[8 + len..], 0);
    let tensors = header.into_iter().map(|(name, about)| {
        let offsets = [0, 1].map(|i| about["data_offsets"][i].as_u64().expect("an offset") as usize);
        end = end.max(offsets[1]);
        (name, (about["shape"].clone(), data[offsets[0]..offsets[1]].to_vec()))
    });
    let out = tensors.collect();
    assert_eq!(end, data.len(), "no byte is left over");
    out
}

#[tokio::test]
async fn one_tensor_comes_whole_in_part_or_not_at_all() {
    let site = site();
    let path = format!("/tensor/main/{FILE}?name=big");
    let big = weights(2, 2100 * 1024, 2);
    let whole = site.get(&path).await;
    assert!(whole.bytes() == big);
    let head = site.ask(Method::HEAD, &path, &[], None).await;
    assert_eq!((head.status.as_u16(), head.header("content-length"), head.bytes().len()), (200, "8601600", 0));
    assert_eq!((head.header("etag"), head.header("accept-ranges")), (whole.header("etag"), "bytes"));
    for (range, part) in [
        ("bytes=0-0", 0..1),
        ("bytes=8388600-8388615", 8_388_600..8_388_616),
        ("bytes=8601590-", 8_601_590..8_601_600),
        ("bytes=-5", 8_601_595..8_601_600),
        ("bytes=1-8601598", 1..8_601_599),
    ] {
        let reply = site.ask(Method::GET, &path, &[("range", range)], None).await;
        assert_eq!((reply.status.as_u16(), reply.bytes() == &big[part.clone()]), (206, true), "{range}");
        assert_eq!(reply.header("content-range"), format!("bytes {}-{}/8601600", part.start, part.end - 1));
    }
    let all = site.ask(Method::GET, &path, &[("range", "bytes=0-")], None).await;
    assert_eq!((all.status.as_u16(), all.bytes() == big), (206, true));
    let outside = site.ask(Method::GET, &path, &[("range", "bytes=8601600-")], None).await;
    outside.refused(416, "range");
    assert_eq!(outside.header("content-range"), "bytes */8601600");
    let stale = site.ask(Method::GET, &path, &[("range", "bytes=0-1"), ("if-range", "\"x\"")], None).await;
    assert_eq!((stale.status.as_u16(), stale.bytes().len()), (200, big.len()));
    let seen = site.ask(Method::GET, &path, &[("if-none-match", whole.header("etag"))], None).await;
    assert_eq!((seen.status.as_u16(), seen.bytes().len()), (304, 0));
    let mut etags = vec![whole.header("etag").to_owned()];
    for other in ["&format=npy", "&format=safetensors", "&slice=0:1", "&slice=0:2"] {
        let reply = site.ask(Method::HEAD, &format!("{path}{other}"), &[("range", "bytes=0-1")], None).await;
        assert_eq!((reply.status.as_u16(), reply.header("accept-ranges")), (200, "none"));
        etags.push(reply.header("etag").to_owned());
    }
    etags.sort();
    etags.dedup();
    assert_eq!(etags.len(), 5, "each has its own");
    let part = site.ask(Method::GET, &format!("{path}&slice=0:1"), &[("range", "bytes=0-1")], None).await;
    assert_eq!((part.status.as_u16(), part.bytes()), (200, &big[..4096]));
    let one = site.get(&format!("/tensor/main/{FILE}?name=w&format=safetensors&slice=:2")).await;
    let tensors = read_safetensors(one.bytes());
    assert_eq!(tensors["w"], (json!([2, 30]), weights(1, 1200, 2)[..240].to_vec()));
    let view = site.get("/tensor/main/ckpt.pt?name=model.head.weight&slice=1").await;
    assert_eq!((view.bytes(), view.header("x-mdl-shape")), (&[5u8; 16][..], "4"));
    let array = site.get("/tensor/main/arrays.npz?name=x&slice=:,0").await;
    assert_eq!((array.bytes(), array.header("x-mdl-shape")), (&[7u8; 8][..], "2"));
    for (path, status, kind) in [
        (format!("/tensor/main/{FILE}"), 400, "usage"),
        (format!("/tensor/main/{FILE}?name=x"), 404, "not_found"),
        ("/tensor/main/README.md?name=x".to_owned(), 404, "not_found"),
        ("/tensor/main/nowhere?name=x".to_owned(), 404, "not_found"),
        (format!("/tensor/nowhere/{FILE}?name=w"), 404, "not_found"),
        (format!("/tensor/main/{FILE}?name=w&format=gif"), 400, "usage"),
    ] {
        site.get(&path).await.refused(status, kind);
    }
}
