//! Writes zip archives, with every liberty the format allows and some it does not.

/// One entry.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    pub name: String,
    pub data: Vec<u8>,
    /// Compression method; the data are written as they are.
    pub method: u16,
    /// Extra bytes in the local header, to align the payload.
    pub padding: usize,
    /// Sizes behind the payload, as PyTorch writes them.
    pub streamed: bool,
    /// Sizes and offset in the zip64 extra field.
    pub wide: bool,
}

/// A stored entry.
pub fn entry(name: &str, data: &[u8]) -> Entry {
    Entry { name: name.into(), data: data.into(), ..Entry::default() }
}

/// How the archive as a whole is written.
#[derive(Clone, Debug, Default)]
pub struct Style {
    pub comment: Vec<u8>,
    /// Written before the archive, which does not know of it.
    pub prefix: Vec<u8>,
    /// Written behind the end record.
    pub trailer: Vec<u8>,
    /// With a zip64 end record.
    pub wide: bool,
    /// The directory in reverse order.
    pub reversed: bool,
}

fn u16s(out: &mut Vec<u8>, values: &[u16]) {
    values.iter().for_each(|v| out.extend(v.to_le_bytes()));
}

fn u32s(out: &mut Vec<u8>, values: &[u32]) {
    values.iter().for_each(|v| out.extend(v.to_le_bytes()));
}

fn u64s(out: &mut Vec<u8>, values: &[u64]) {
    values.iter().for_each(|v| out.extend(v.to_le_bytes()));
}

/// The archive's bytes.
pub fn archive(entries: &[Entry], style: &Style) -> Vec<u8> {
    let mut out = style.prefix.clone();
    let base = out.len();
    let mut records: Vec<Vec<u8>> = Vec::new();
    for e in entries {
        let at = (out.len() - base) as u32;
        local(&mut out, e);
        records.push(central(e, at));
    }
    if style.reversed {
        records.reverse();
    }
    let at = out.len() - base;
    out.extend(records.concat());
    let len = out.len() - base - at;
    end(&mut out, base, entries.len(), at, len, style);
    out
}

/// A plain archive of these entries.
pub fn simple(entries: &[Entry]) -> Vec<u8> {
    archive(entries, &Style::default())
}

fn flags(e: &Entry) -> u16 {
    if e.streamed { 8 } else { 0 }
}

fn local(out: &mut Vec<u8>, e: &Entry) {
    let len = e.data.len() as u32;
    out.extend(b"PK\x03\x04");
    u16s(out, &[20, flags(e), e.method, 0, 0]);
    match (e.streamed, e.wide) {
        (true, _) => u32s(out, &[0, 0, 0]),
        (false, true) => u32s(out, &[0, u32::MAX, u32::MAX]),
        (false, false) => u32s(out, &[0, len, len]),
    }
    let mut extra = Vec::new();
    if e.wide {
        u16s(&mut extra, &[1, 16]);
        u64s(&mut extra, &[len.into(), len.into()]);
    }
    if e.padding > 0 {
        extra.extend(b"FB");
        u16s(&mut extra, &[e.padding as u16]);
        extra.extend(vec![b'Z'; e.padding]);
    }
    u16s(out, &[e.name.len() as u16, extra.len() as u16]);
    out.extend(e.name.as_bytes());
    out.extend(extra);
    out.extend(&e.data);
    if e.streamed {
        out.extend(b"PK\x07\x08");
        u32s(out, &[0, len, len]);
    }
}

fn central(e: &Entry, at: u32) -> Vec<u8> {
    let len = e.data.len() as u32;
    let mut out = b"PK\x01\x02".to_vec();
    let mut extra = Vec::new();
    if e.wide {
        u16s(&mut extra, &[0x5455, 2, 0, 1, 24]);
        u64s(&mut extra, &[len.into(), len.into(), at.into()]);
    }
    u16s(&mut out, &[20, 20, flags(e), e.method, 0, 0]);
    let (size, offset) = if e.wide { (u32::MAX, u32::MAX) } else { (len, at) };
    u32s(&mut out, &[0, size, size]);
    u16s(&mut out, &[e.name.len() as u16, extra.len() as u16, 0, 0, 0]);
    u32s(&mut out, &[0, offset]);
    out.extend(e.name.as_bytes());
    out.extend(extra);
    out
}

fn end(out: &mut Vec<u8>, base: usize, count: usize, at: usize, len: usize, style: &Style) {
    if style.wide {
        let record = (out.len() - base) as u64;
        out.extend(b"PK\x06\x06");
        u64s(out, &[44]);
        u16s(out, &[45, 45]);
        u32s(out, &[0, 0]);
        u64s(out, &[count as u64, count as u64, len as u64, at as u64]);
        out.extend(b"PK\x06\x07");
        u32s(out, &[0]);
        u64s(out, &[record]);
        u32s(out, &[1]);
    }
    out.extend(b"PK\x05\x06");
    let (count, len, at) =
        if style.wide { (u16::MAX, u32::MAX, u32::MAX) } else { (count as u16, len as u32, at as u32) };
    u16s(out, &[0, 0, count, count]);
    u32s(out, &[len, at]);
    u16s(out, &[style.comment.len() as u16]);
    out.extend(&style.comment);
    out.extend(&style.trailer);
}
