//! BLAKE3 in derive-key mode over device memory.

#[cfg(test)]
mod tests;

use crate::{Arg, Buffer, Kernel, Result, Session, View, copy::gather};
use ::blake3::{
    Hasher,
    hazmat::{HasherExt, Mode, hash_derive_key_context, merge_subtrees_root},
};

const CHUNKS: Kernel = Kernel::new("blake3", "blake3_chunks");
const PARENTS: Kernel = Kernel::new("blake3", "blake3_parents");
/// Bytes of a chunk, of a node, and warps of a block of threads that hashes chunks.
const CHUNK: usize = 1024;
const NODE: usize = 32;
const WARPS: usize = 4;
/// Nodes that a block of threads makes into one.
const GROUP: usize = 256;

/// `Hasher::new_derive_key(context)` updated with the head, then with the content, of many at once: (head, content).
pub(crate) fn hash_all(session: &Session, context: &str, jobs: &[(Vec<u8>, View<'_>)]) -> Result<Vec<[u8; 32]>> {
    let key = hash_derive_key_context(context);
    let mut out = vec![[0; 32]; jobs.len()];
    let total = |i: &usize| jobs[*i].0.len() + jobs[*i].1.len();
    let short = |i: &usize| total(i) <= CHUNK || jobs[*i].1.len() == 0;
    let (on_host, on_device): (Vec<usize>, Vec<usize>) = (0..jobs.len()).partition(short);

    let pieces: Vec<View<'_>> = on_host.iter().map(|&i| jobs[i].1).collect();
    for (&i, content) in on_host.iter().zip(gather(session, &pieces)?) {
        let mut hasher = Hasher::new_from_context_key(&key);
        out[i] = *hasher.update(&jobs[i].0).update(&content).finalize().as_bytes();
    }
    if on_device.is_empty() {
        return Ok(out);
    }
    let chunks: Vec<usize> = on_device.iter().map(|i| total(i).div_ceil(CHUNK)).collect();
    let heads: Vec<(&[u8], View<'_>)> = on_device.iter().map(|&i| (jobs[i].0.as_slice(), jobs[i].1)).collect();
    let words = session.upload(&key)?;
    let nodes = leaves(session, &heads, &chunks, &words)?;
    let tops = tops(session, nodes, chunks, &words)?;
    for (i, top) in on_device.into_iter().zip(tops.as_chunks::<{ 2 * NODE }>().0) {
        let (left, right) = halves(top);
        out[i] = *merge_subtrees_root(&left, &right, Mode::DeriveKeyMaterial(&key)).as_bytes();
    }
    Ok(out)
}

fn halves(top: &[u8; 2 * NODE]) -> ([u8; NODE], [u8; NODE]) {
    (std::array::from_fn(|i| top[i]), std::array::from_fn(|i| top[NODE + i]))
}

/// The nodes of all chunks, one job after the other.
fn leaves<'s>(
    session: &'s Session,
    jobs: &[(&[u8], View<'_>)],
    chunks: &[usize],
    key: &Buffer<'_>,
) -> Result<Buffer<'s>> {
    let heads: Vec<u8> = jobs.iter().flat_map(|(head, _)| head.iter().copied()).collect();
    let heads = session.upload(&heads)?;
    let nodes = session.buffer(NODE * chunks.iter().sum::<usize>())?;
    let (mut head_at, mut node_at) = (heads.address(), nodes.address());
    let (mut words, mut tasks) = (Vec::<[u64; 5]>::new(), Vec::new());
    for (i, ((head, content), chunks)) in jobs.iter().zip(chunks).enumerate() {
        words.push([content.address(), content.len() as u64, head_at, head.len() as u64, node_at]);
        tasks.extend((0..chunks.div_ceil(32)).map(|group| i as u64 | (group as u64) << 32));
        head_at += head.len() as u64;
        node_at += (NODE * chunks) as u64;
    }
    let (list, queue) = (session.upload_u64(words.as_flattened())?, session.upload_u64(&tasks)?);
    let args = [list.arg(), queue.arg(), Arg::U32(tasks.len() as u32), key.arg()];
    session.launch(CHUNKS, (tasks.len().div_ceil(WARPS) as u32, 1), 32 * WARPS as u32, &args)?;
    Ok(nodes)
}

/// The two nodes below the root of every job (at least two chunks each), whose nodes lie one after the other.
fn tops<'s>(session: &'s Session, mut nodes: Buffer<'s>, mut counts: Vec<usize>, key: &Buffer<'_>) -> Result<Vec<u8>> {
    while counts.iter().any(|&n| n > 2) {
        let after: Vec<usize> = counts.iter().map(|&n| if n <= GROUP { 2 } else { n.div_ceil(GROUP) }).collect();
        let next = session.buffer(NODE * after.iter().sum::<usize>())?;
        let (mut from, mut to) = (nodes.address(), next.address());
        let mut groups: Vec<[u64; 4]> = Vec::new();
        for (&n, &after) in counts.iter().zip(&after) {
            let target = if n <= GROUP { 2 } else { 1 };
            groups.extend((0..n).step_by(GROUP).enumerate().map(|(g, at)| {
                let (from, to) = (from + (NODE * at) as u64, to + (NODE * g) as u64);
                [from, to, GROUP.min(n - at) as u64, target]
            }));
            from += (NODE * n) as u64;
            to += (NODE * after) as u64;
        }
        let list = session.upload_u64(groups.as_flattened())?;
        session.launch(PARENTS, (groups.len() as u32, 1), 128, &[list.arg(), key.arg()])?;
        (nodes, counts) = (next, after);
    }
    session.download(nodes.view())
}
