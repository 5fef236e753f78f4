//! Measures lattice deltas over gaps of 1, 2, 4 and 8 versions, and a chain of all four, beside a snapshot.
//!
//! `lattice_chain FILE.. [--updates U] [--tile N] [--repeat N] [--floor F] [--gaps G,..]` takes 16 or more safetensors
//! files of one layout, all f32, oldest first; one thread. A tensor's lattice is that of its last update (U times its
//! root mean square, shaped by rows and columns), the same for all versions. `--tile` repeats the rows of every tensor,
//! so that sizes look like those of larger models; `--floor` leaves out tensors of fewer numbers. Prints JSON lines:
//! for each gap the share of levels that move, bytes of a snapshot and of a delta with and without a grandparent and
//! the time that decoding takes, in snapshots; for a chain of these gaps (8, 4, 2, 1: the newest of 16 versions) bytes
//! and times, one after the other and as one call. Times are this thread's processor time, the least of all rounds.

use mdl_codec::{
    Bases, CpuEngine, Dtype, Encoded, Engine, Scheme,
    quant::lattice::{Hint, Lattice, Outcome, Params},
};
use std::sync::Arc;

mod tensors;
use tensors::{Tensors, load};

const HOWS: [How; 3] = [How::Contexts, How::Grandparents, How::Moves];

struct Options {
    files: Vec<Tensors>,
    updates: f64,
    tile: usize,
    repeat: usize,
    floor: usize,
    /// Of the chain's deltas, from the snapshot up.
    gaps: Vec<usize>,
}

/// A tensor: its lattice and the reconstructions of all versions, newest last.
struct Versions {
    lattice: Arc<Lattice>,
    recs: Vec<Vec<u8>>,
}

fn main() {
    let mut o = Options { files: Vec::new(), updates: 5.7, tile: 1, repeat: 5, floor: 0, gaps: vec![8, 4, 2, 1] };
    let mut args = std::env::args().skip(1);
    while let Some(a) = args.next() {
        if a == "--gaps" {
            let list = args.next().expect("gaps");
            o.gaps = list.split(',').map(|gap| gap.parse().expect("a gap")).collect();
            continue;
        }
        let mut number = || args.next().and_then(|v| v.parse::<f64>().ok()).expect("a number");
        match a.as_str() {
            "--updates" => o.updates = number(),
            "--tile" => o.tile = number() as usize,
            "--repeat" => o.repeat = number() as usize,
            "--floor" => o.floor = number() as usize,
            _ => o.files.push(load(&a)),
        }
    }
    if o.files.len() < 16 {
        return eprintln!(
            "usage: lattice_chain FILE.. (16 or more) [--updates U] [--tile N] [--repeat N] [--floor F] [--gaps G,..]"
        );
    }
    rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build_global().expect("a fresh pool");
    let all: Vec<Versions> = o.files[0].keys().filter_map(|name| versions(&o, name)).collect();
    let n: usize = all.iter().map(|v| v.recs[0].len() / 4).sum();
    let newest = o.files.len() - 1;
    let top = newest.checked_sub(o.gaps.iter().sum()).expect("as many files as the gaps need");
    let mut members = vec![top];
    o.gaps.iter().for_each(|gap| members.push(members[members.len() - 1] + gap));
    let mut jobs = vec![Job::one(&all, newest, None, None, How::Contexts)];
    for gap in [1, 2, 4, 8] {
        let below = (newest - gap, newest.checked_sub(2 * gap));
        jobs.extend(HOWS.map(|how| Job::one(&all, newest, Some(below.0), below.1, how)));
    }
    for how in HOWS {
        jobs.push(Job::chain(&all, &members, how));
    }
    let mut times = vec![[f64::MAX; 2]; jobs.len()];
    let mut rooms: Vec<[Vec<u8>; 3]> = all.iter().map(|v| [0; 3].map(|_| vec![1; v.recs[0].len()])).collect();
    // All in one round, so that they see the same neighbours.
    for round in 0..o.repeat {
        for (job, times) in jobs.iter().zip(&mut times) {
            for (at_once, time) in times.iter_mut().enumerate().take(if job.may_be_at_once() { 2 } else { 1 }) {
                let before = now();
                job.run(&all, &mut rooms, at_once == 1);
                let took = now() - before;
                *time = took.min(*time);
                let same = all.iter().zip(&rooms).all(|(v, rooms)| rooms[0] == v.recs[newest]);
                assert!(round > 0 || same, "decoded bytes differ");
            }
        }
    }
    let (snapshot, base) = (jobs[0].bytes(), times[0][0]);
    println!("{{\"numbers\":{n},\"tensors\":{},\"snapshot\":{snapshot},\"ms\":{:.3}}}", all.len(), base * 1e3);
    let mut rest = jobs.iter().zip(&times).skip(1);
    for gap in [1, 2, 4, 8] {
        let moved = all.iter().map(|v| differing(&v.recs[newest], &v.recs[newest - gap])).sum::<usize>();
        print!("{{\"gap\":{gap},\"moved\":{:.4}", moved as f64 / n as f64);
        for (how, (job, time)) in HOWS.into_iter().zip(rest.by_ref()) {
            let (bits, share) = (job.bytes() as f64 * 8.0 / n as f64, job.bytes() as f64 / snapshot as f64);
            print!(",\"{how:?}\":{{\"bits\":{bits:.4},\"share\":{share:.4},\"time\":{:.3}}}", time[0] / base);
        }
        println!("}}");
    }
    for (how, (job, time)) in HOWS.into_iter().zip(rest) {
        let bytes = job.bytes();
        print!("{{\"chain\":{:?},\"how\":\"{how:?}\",\"bytes\":{bytes},\"one_by_one\":{:.3}", o.gaps, time[0] / base);
        if job.may_be_at_once() {
            print!(",\"at_once\":{:.3}", time[1] / base);
        }
        println!("}}");
    }
}

/// This thread's processor time in seconds.
fn now() -> f64 {
    // The count is brought up to date when the thread is scheduled.
    std::thread::yield_now();
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    told.split(' ').next().and_then(|n| n.parse::<f64>().ok()).expect("nanoseconds") / 1e9
}

/// Something to be decoded: segments of all tensors, on top of each other.
struct Job {
    /// By member, tensor, segment.
    coded: Vec<Vec<Vec<Encoded>>>,
    /// The versions that the first member stands on.
    below: [Option<usize>; 2],
    how: How,
}

impl Job {
    fn one(all: &[Versions], child: usize, base: Option<usize>, grand: Option<usize>, how: How) -> Job {
        let coded = vec![all.iter().map(|v| encoded(v, child, base, grand, how)).collect()];
        Job { coded, below: [base, grand], how }
    }

    fn chain(all: &[Versions], members: &[usize], how: How) -> Job {
        let member = |(i, &k): (usize, &usize)| {
            let below = |by: usize| i.checked_sub(by).map(|j| members[j]);
            all.iter().map(|v| encoded(v, k, below(1), below(2), how)).collect()
        };
        Job { coded: members.iter().enumerate().map(member).collect(), below: [None; 2], how }
    }

    fn bytes(&self) -> usize {
        self.coded.iter().flatten().flatten().map(|c| c.bytes.len()).sum()
    }

    fn may_be_at_once(&self) -> bool {
        self.coded.len() > 1 && self.how != How::Grandparents
    }

    /// Decodes into the first room of each tensor.
    fn run(&self, all: &[Versions], rooms: &mut [[Vec<u8>; 3]], at_once: bool) {
        let engine = CpuEngine::new();
        for (t, (v, rooms)) in all.iter().zip(rooms).enumerate() {
            let len = v.recs[0].len();
            // Rooms are turned once a member: tensors of several segments go member by member.
            if at_once {
                for (i, out) in rooms[0].chunks_mut(8 << 20).enumerate() {
                    let chain: Vec<&[u8]> = self.coded.iter().map(|member| &member[t][i].bytes[..]).collect();
                    engine.decode_chain(Dtype::F32, &chain, Bases::NONE, out).expect("decodes");
                }
                continue;
            }
            for member in &self.coded {
                rooms.rotate_right(1);
                for (i, at) in (0..len).step_by(8 << 20).enumerate() {
                    let r = at..len.min(at + (8 << 20));
                    let [out, below @ ..] = &mut *rooms;
                    let own = |k: usize| match self.below[k] {
                        Some(version) => &v.recs[version][r.clone()],
                        None => &below[k][r.clone()],
                    };
                    let bases = Bases { base: Some(own(0)), grandparent: Some(own(1)) };
                    engine.decode(Dtype::F32, &member[t][i].bytes, bases, &mut out[r.clone()]).expect("decodes");
                }
            }
        }
    }
}

fn differing(a: &[u8], b: &[u8]) -> usize {
    a.as_chunks::<4>().0.iter().zip(b.as_chunks::<4>().0).filter(|(a, b)| a != b).count()
}

fn versions(o: &Options, name: &str) -> Option<Versions> {
    let (shape, last) = &o.files[o.files.len() - 1][name];
    let before = &o.files[o.files.len() - 2][name].1;
    if shape.len() < 2 || last.len() < o.floor.max(1024) {
        return None;
    }
    let mut shape = shape.clone();
    shape[0] *= o.tile;
    let squares: Vec<f32> = last.iter().zip(before).map(|(a, b)| (a - b) * (a - b)).collect();
    let rms = (squares.iter().map(|&v| f64::from(v)).sum::<f64>() / squares.len() as f64).sqrt();
    let step = (16.0 * (o.updates * rms.max(1e-12)).log2()).round() as i16;
    let params = Params::from_sensitivity(step, Some(1), &shape, &squares.repeat(o.tile));
    let lattice = Arc::new(Lattice::new(&params, Dtype::F32, &shape).expect("a lattice"));
    let quantised = |t: &Tensors| {
        let raw: Vec<u8> = t[name].1.repeat(o.tile).iter().flat_map(|v| v.to_le_bytes()).collect();
        let mut rec = vec![0; raw.len()];
        assert_eq!(lattice.quantise(0, &raw, &mut rec), Ok(Outcome::Quantised));
        rec
    };
    Some(Versions { recs: o.files.iter().map(quantised).collect(), lattice: lattice.clone() })
}

/// How a delta is stored.
#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    Contexts,
    Grandparents,
    Moves,
}

/// Encodes what is wanted of a version, cut in segments as the store does.
fn encoded(v: &Versions, child: usize, base: Option<usize>, grand: Option<usize>, how: How) -> Vec<Encoded> {
    let engine = CpuEngine::new();
    let cut = |at: usize| at..v.recs[child].len().min(at + (8 << 20));
    let one = |at: usize| {
        let of = |k: usize| &v.recs[k][cut(at)];
        let bases = Bases { base: base.map(of), grandparent: grand.map(of) };
        let hint = Hint::new(v.lattice.clone(), at / 4);
        let scheme = match (base, grand) {
            (Some(_), _) if how == How::Moves => Scheme::LatticeMoves,
            (Some(_), Some(_)) if how == How::Grandparents => Scheme::LatticeDelta2,
            (Some(_), _) => Scheme::LatticeDelta,
            _ => Scheme::Lattice,
        };
        engine.encode_as(scheme, Dtype::F32, of(child), bases, Some(&hint)).expect("encodes")
    };
    (0..v.recs[child].len()).step_by(8 << 20).map(one).collect()
}
