//! Dictionaries of the mutator: words that parsers compare with, and that random bytes would hardly hit.

/// Those of a target.
pub fn for_target(target: &str) -> &'static [&'static [u8]] {
    match target {
        "foreign" => FOREIGN,
        "gguf" => GGUF,
        "npz" => NPY,
        "pickle" | "torch" => PICKLE,
        "records" => RECORDS,
        "safetensors" => SAFETENSORS,
        "text" => TEXT,
        "http_commit" | "http_hub" | "http_sync" => HTTP,
        _ => &[],
    }
}

/// Of other systems: pointers, YAML, JSON, addresses.
const FOREIGN: &[&[u8]] = &[
    b"version https://git-lfs.github.com/spec/v1\n",
    b"oid sha256:5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03\n",
    b"\nsize 18446744073709551616\n",
    b"\r\n",
    b"wdir: ../..\n",
    b"  path: ../a\n",
    b"  md5: d8e8fca2dc0f896fd7cb4cb0031ba249.dir\n",
    b"- path: /etc/passwd\n",
    b"stages:\n  a:\n    outs:\n",
    b"x: &a [*a, *a]\n",
    b"<<: *a\n",
    b"!!binary ",
    b"? [a, b]\n: {c: d}\n",
    b"outs: [{path: a, isexec: yes}]\n",
    b"\"relpath\": \"../b\"",
    b"\"ref\": \"s3://b/x\", ",
    b"\"digest\": \"sZRqySSS0jR8YjW00mERhA==\"",
    b"\"size\": -1",
    b"\\ud800",
    b"<http://h/?cursor=a>; rel=\"next\", ",
    b"[cache]\n dir = ../x\n",
    b"[[[[[[[[[[[[[[[[",
    b"{{{{{{{{",
];

/// Of GGUF: keys and types.
const GGUF: &[&[u8]] = &[
    b"\x11\0\0\0\0\0\0\0general.alignment\x04\0\0\0\x20\0\0\0",
    b"\x09\0\0\0\x08\0\0\0\x02\0\0\0\0\0\0\0",
    b"\x01\0\0\0\0\0\0\0t\x01\0\0\0\x20\0\0\0\0\0\0\0\x08\0\0\0\0\0\0\0\0\0\0\0",
    b"\x09\0\0\0\x09\0\0\0\x01\0\0\0\0\0\0\0\x09\0\0\0",
];

/// Of array files: header dicts.
const NPY: &[&[u8]] = &[
    b"'descr': '<f4', ",
    b"'fortran_order': True, ",
    b"'shape': (3, 4,), ",
    b"[('a', '<i4'), ('b', '|S5')]",
    b"'>c16'",
    b"18446744073709551616",
    b"\x93NUMPY\x02\0",
    b"((((((((",
    b"\\x41",
];

/// Of pickles: opcodes with their arguments, as PyTorch writes them.
const PICKLE: &[&[u8]] = &[
    b"ctorch._utils\n_rebuild_tensor_v2\n",
    b"ctorch._utils\n_rebuild_parameter\n",
    b"ccollections\nOrderedDict\n",
    b"ctorch\nFloatStorage\n",
    b"ctorch\nBFloat16Storage\n",
    b"ctorch.storage\nUntypedStorage\n",
    b"X\x07\0\0\0storage",
    b"X\x01\0\0\x000",
    b"X\x03\0\0\0cpu",
    b"\x8c\x01w",
    b"\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.",
    b"tQ",
    b")R",
    b"}(",
    b"](",
    b"q\0h\0",
    b"r\xff\xff\xff\x7f",
    b"\x95\0\0\0\0\0\0\0\x01",
    b"J\xff\xff\xff\xff",
    b"K\x04K\x01\x86",
    b"\x89\x88N",
    b"222222",
    b"a0eus",
    b"\x94\x93\x8f\x90\x91\x92",
];

/// Of safetensors: members of the header.
const SAFETENSORS: &[&[u8]] = &[
    b"\"t\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},",
    b"\"__metadata__\":{\"format\":\"pt\"},",
    b"\"dtype\":\"F4\"",
    b"18446744073709551615",
    b"18446744073709551616",
    b"[0,0]",
    b"1e3",
    b"\\ud800",
];

/// Of the records of a repository.
const RECORDS: &[&[u8]] = &[
    b"ref: refs/heads/main\n",
    b"mdl pruned 1\n",
    b"mdl condemned 2\n1 0\n",
    b"mdl shard 1\n",
    b"mdl session 1\n",
    b"mdl staged 1\n",
    b"[remote.origin]\nurl = \"x\"\npartial = true\n",
    b"[delta]\nmax_depth = 300\n",
    b"\n{\"old\":null,\"new\":null,\"name\":\"\",\"email\":\"\",\"time_ms\":0,\"utc_offset_min\":0,\"message\":\"\"}",
    b"9223372036854775807",
    b"-9223372036854775808",
    b"\xff",
];

/// Of revisions, names, places and patterns.
const TEXT: &[&[u8]] = &[
    b"refs/heads/",
    b"refs/tags/",
    b"HEAD",
    b"main",
    b"@{0}",
    b"@{",
    b"~1",
    b"^",
    b"@step=1",
    b"@best(loss)",
    b"..",
    b"/",
    b"s3://",
    b"gs://",
    b"https://h/o/n",
    b"file:///",
    b"%2e%2e",
    b"[a-",
    b"{a,b}",
    b"**",
    b"...",
    b"1:2:3",
    b".lock",
    b"\xe2\x80\x8b",
    b"git~1",
    b"[lattice]\n",
    b"rule = []\n",
    b"999999999999999999999",
];

/// Of bodies of requests.
const HTTP: &[&[u8]] = &[
    b"{\"key\":\"header\",\"value\":{\"summary\":\"s\"}}\n",
    b"{\"key\":\"file\",\"value\":{\"path\":\"a\",\"content\":\"eA==\",\"encoding\":\"base64\"}}\n",
    b"{\"key\":\"deletedFolder\",\"value\":{\"path\":\"a\"}}\n",
    b"{\"key\":\"lfsFile\",\"value\":{\"path\":\"a\",\"algo\":\"sha256\",\"oid\":\"\",\"size\":1}}\n",
    b"\r\n--x-boundary-x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a/b\"\r\n\r\n",
    b"\r\n--x-boundary-x\r\nContent-Disposition: form-data; name=\"meta\"\r\n\r\n{\"message\":\"m\"}",
    b"30 path=a/b\n",
    b"12 size=9\n",
    b"\"..\"",
    b"\"\\u0000\"",
    b"18446744073709551615",
    b"null",
    b"\"expected\":null,",
    b"\"base\":\"parent\",",
    b"\"remove\":[\"note.txt\"],",
];
