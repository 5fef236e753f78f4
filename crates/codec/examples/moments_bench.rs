//! Measures what optimizer moments take as the engine stores them: `moments_bench CHILD [PARENT]`, f32 safetensors
//! whose names hold `exp_avg` and `exp_avg_sq` (tests/bench/trainer.py --optimizer). One JSON line for each way: times
//! smaller than f32, by moment.

use mdl_codec::{
    CpuEngine, Dtype, Engine,
    quant::{
        Values,
        lattice::{Hint, Lattice, Params},
        moments::{Bits, Moment, STEP, moment_of, quantise, quantise_pair},
    },
};
use std::{collections::BTreeMap, sync::Arc};

mod tensors;

type Tensors = BTreeMap<String, (Vec<usize>, Vec<u8>)>;

fn load(path: &str) -> Tensors {
    tensors::read(path).into_iter().map(|(name, t)| (name, (t.shape, t.raw))).collect()
}

fn coarse(bits: Option<Bits>, kind: Moment, shape: &[usize], raw: &[u8]) -> Vec<u8> {
    let values = Values::new(Dtype::F32, raw).expect("f32");
    bits.and_then(|b| quantise(kind, b, values, shape).expect("a shape that fits")).unwrap_or_else(|| raw.to_vec())
}

fn stored(raw: &[u8], base: Option<&[u8]>, hint: Option<&Hint>) -> usize {
    let engine = CpuEngine::new();
    let encoded = engine.encode(Dtype::F32, raw, base.into(), hint);
    encoded.expect("encodes").bytes.len()
}

fn main() {
    let files: Vec<Tensors> = std::env::args().skip(1).map(|f| load(&f)).collect();
    let Some(child) = files.first() else {
        return eprintln!("usage: moments_bench CHILD [PARENT]");
    };
    for (way, bits) in [("lossless", None), ("8 bits", Some(Bits::Eight)), ("4 bits", Some(Bits::Four))] {
        for parent in [None, files.get(1)] {
            let mut sums = BTreeMap::<&str, (usize, usize)>::new();
            for (name, (shape, raw)) in child {
                let Some(kind) = moment_of(name) else { continue };
                let base = parent.and_then(|p| p.get(name)).map(|(s, raw)| coarse(bits, kind, s, raw));
                let n = stored(&coarse(bits, kind, shape, raw), base.as_deref(), None);
                let sum = sums.entry(if kind == Moment::Second { "v" } else { "m" }).or_default();
                *sum = (sum.0 + raw.len(), sum.1 + n);
            }
            print(way, parent.is_some(), &sums);
        }
    }
    let mut sums = BTreeMap::<&str, (usize, usize)>::new();
    for (name, (shape, m)) in child.iter().filter(|(n, _)| moment_of(n) == Some(Moment::First)) {
        let Some((_, v)) = child.get(&name.replace("exp_avg", "exp_avg_sq")) else {
            continue;
        };
        let values = |raw| Values::new(Dtype::F32, raw).expect("f32");
        let pair = quantise_pair(values(m), values(v), shape, STEP, &CpuEngine::new()).expect("shapes that fit");
        let coded = |p: &Params, raw: &[u8]| {
            let lattice = Lattice::new(p, Dtype::F32, shape).expect("a lattice");
            stored(raw, None, Some(&Hint::new(Arc::new(lattice), 0)))
        };
        let (a, b) = pair.map_or_else(
            || (stored(m, None, None), stored(v, None, None)),
            |p| (coded(&p.first_lattice, &p.first), coded(&p.second_lattice, &p.second)),
        );
        for (key, raw, n) in [("m", m, a), ("v", v, b)] {
            let sum = sums.entry(key).or_default();
            *sum = (sum.0 + raw.len(), sum.1 + n);
        }
    }
    print("m in steps of 0.5 sqrt(v), v row x column", false, &sums);
}

fn print(way: &str, parent: bool, sums: &BTreeMap<&str, (usize, usize)>) {
    let ratios: Vec<String> =
        sums.iter().map(|(k, (raw, n))| format!("\"{k}\":{:.2}", *raw as f64 / *n as f64)).collect();
    println!("{{\"way\":\"{way}\",\"parent\":{parent},{}}}", ratios.join(","));
}
