//! Mends zip archives: entries that are found by their headers are written anew, with the right lengths, CRCs and
//! directory.

const LOCAL: &[u8] = b"PK\x03\x04";
const CENTRAL: &[u8] = b"PK\x01\x02";
const BEHIND: &[u8] = b"PK\x07\x08";

/// An entry as it is written.
struct Entry {
    name: Vec<u8>,
    data: Vec<u8>,
    method: u16,
    extra: Vec<u8>,
    streamed: bool,
}

fn u16_at(bytes: &[u8], at: usize) -> Option<usize> {
    Some(usize::from(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?)))
}

/// Where any of these begins.
fn next(bytes: &[u8], magics: &[&[u8]]) -> Option<usize> {
    bytes.windows(4).position(|w| magics.contains(&w))
}

fn entries(data: &[u8]) -> Vec<Entry> {
    let mut out = Vec::new();
    let mut rest = data;
    while let Some(at) = next(rest, &[LOCAL]) {
        let header = &rest[at..];
        let (Some(names), Some(extras)) = (u16_at(header, 26), u16_at(header, 28)) else {
            break;
        };
        let (flags, method) = (u16_at(header, 6).unwrap_or(0), u16_at(header, 8).unwrap_or(0));
        let Some(body) = header.get(30..) else { break };
        let (name, body) = body.split_at(names.min(body.len()).min(512));
        let (extra, body) = body.split_at(extras.min(body.len()).min(512));
        let end = next(body, &[LOCAL, CENTRAL, BEHIND]).unwrap_or(body.len());
        out.push(Entry {
            name: name.to_vec(),
            data: body[..end].to_vec(),
            method: method as u16,
            extra: extra.to_vec(),
            streamed: flags & 8 != 0,
        });
        rest = &body[end..];
    }
    out
}

/// Entries and directory anew; without a single entry nothing happens.
pub fn rebuild(data: &mut Vec<u8>) {
    let entries = entries(data);
    if data.starts_with(b"PK") && !entries.is_empty() {
        // Whether the end is a zip64 one is as good as random, and the same for the same bytes.
        let wide = blake3::hash(data).as_bytes()[0] < 40;
        *data = archive(&entries, wide);
    }
}

/// An archive as PyTorch writes it around this pickle, with three storages.
pub fn torch(pickle: &[u8]) -> Vec<u8> {
    let entry = |name: &str, data: &[u8]| Entry {
        name: name.into(),
        data: data.into(),
        method: 0,
        extra: Vec::new(),
        streamed: true,
    };
    let storages = [("archive/data/0", 48), ("archive/data/1", 8), ("archive/data/2", 4096)];
    let mut all = vec![entry("archive/data.pkl", pickle), entry("archive/byteorder", b"little")];
    all.extend(storages.map(|(name, len)| entry(name, &vec![5; len])));
    all.push(entry("archive/version", b"3\n"));
    archive(&all, false)
}

fn u16s(out: &mut Vec<u8>, values: &[u16]) {
    values.iter().for_each(|v| out.extend(v.to_le_bytes()));
}

fn u32s(out: &mut Vec<u8>, values: &[u32]) {
    values.iter().for_each(|v| out.extend(v.to_le_bytes()));
}

fn archive(entries: &[Entry], wide: bool) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for e in entries {
        let at = out.len() as u32;
        let (len, crc) = (e.data.len() as u32, crc32fast::hash(&e.data));
        let flags = if e.streamed { 8 } else { 0 };
        let (names, extras) = (e.name.len() as u16, e.extra.len() as u16);
        out.extend(LOCAL);
        u16s(&mut out, &[20, flags, e.method, 0, 0]);
        u32s(&mut out, &if e.streamed { [0; 3] } else { [crc, len, len] });
        u16s(&mut out, &[names, extras]);
        [&e.name, &e.extra, &e.data].into_iter().for_each(|part| out.extend(part));
        if e.streamed {
            out.extend(BEHIND);
            u32s(&mut out, &[crc, len, len]);
        }
        directory.extend(CENTRAL);
        u16s(&mut directory, &[20, 20, flags, e.method, 0, 0]);
        u32s(&mut directory, &[crc, len, len]);
        u16s(&mut directory, &[names, 0, 0, 0, 0]);
        u32s(&mut directory, &[0, at]);
        directory.extend(&e.name);
    }
    let (at, len, count) = (out.len() as u64, directory.len() as u64, entries.len() as u64);
    out.extend(directory);
    if wide {
        let end = out.len() as u64;
        out.extend(b"PK\x06\x06");
        out.extend(44u64.to_le_bytes());
        u16s(&mut out, &[45, 45]);
        u32s(&mut out, &[0, 0]);
        [count, count, len, at].iter().for_each(|v| out.extend(v.to_le_bytes()));
        out.extend(b"PK\x06\x07\0\0\0\0");
        out.extend(end.to_le_bytes());
        u32s(&mut out, &[1]);
    }
    out.extend(b"PK\x05\x06");
    let all = |n: u64| if wide { u32::MAX } else { n as u32 };
    u16s(&mut out, &[0, 0, all(count) as u16, all(count) as u16]);
    u32s(&mut out, &[all(len), all(at)]);
    u16s(&mut out, &[0]);
    out
}
