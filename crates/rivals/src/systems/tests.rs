//! One suite for every baseline system: what is emitted comes back as the system says, whatever the tensors; and what
//! each paper promises.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

use crate::systems::*;
use mdl_codec::{
    Dtype,
    quant::{Values, uniform},
};

/// Settings that reach every branch.
const SPECS: [&str; 22] = [
    "lossless",
    "zstd",
    "adaptive:bits=3,steps=10",
    "adaptive:bits=8,range=0.1",
    "uniform",
    "uniform:bits=2",
    "uniform:bits=5,coder=packed",
    "kmeans:bins=8,embedding=8",
    "kmeans:bins=256",
    "lc",
    "lc:bits=8",
    "delta-dnn:bound=0.01,level=3",
    "int8",
    "nf4",
    "nf4:double=1",
    "fp4",
    "neuzip-lossy:keep=0",
    "neuzip-lossy:keep=3,block=32",
    "paper:bins=8,prune=0.3,protect=0.01",
    "paper:coder=he",
    "bins:bins=12",
    "lattice",
];

struct Owned {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
    gradient: Option<Vec<u8>>,
}

impl Owned {
    fn new(name: &str, shape: &[usize], values: &[f32]) -> Owned {
        let bytes = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        Owned { name: name.to_owned(), dtype: Dtype::F32, shape: shape.to_vec(), bytes, gradient: None }
    }
}

fn views(owned: &[Owned]) -> Vec<Tensor<'_>> {
    let mut out = Vec::new();
    for o in owned {
        out.push(Tensor {
            name: &o.name,
            dtype: o.dtype,
            shape: &o.shape,
            bytes: &o.bytes,
            gradient: o.gradient.as_deref(),
        });
    }
    out
}

fn bell(seed: u64, n: usize) -> Vec<f32> {
    let one = |i: u64| (0..12).map(|j| uniform(seed, i * 12 + j)).sum::<f64>() - 6.0;
    (0..n as u64).map(|i| (0.05 * one(i)) as f32).collect()
}

fn floats(k: &Kept) -> Vec<f32> {
    k.bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

/// A checkpoint of everything that a checkpoint may hold.
fn hostile(seed: u64) -> Vec<Owned> {
    let n = 64 * 80;
    let shape = [64, 80];
    let plain = bell(seed, n);
    let with = |at: usize, x: f32| {
        let mut v = plain.clone();
        v[at] = x;
        v
    };
    let halves = |dtype, f: &dyn Fn(f32) -> u16| Owned {
        dtype,
        bytes: plain.iter().flat_map(|&x| f(x).to_le_bytes()).collect(),
        ..Owned::new(dtype.name(), &shape, &[])
    };
    let mut all = vec![
        Owned::new("a.weight", &shape, &plain),
        Owned::new("wte.weight", &shape, &plain),
        Owned::new("conv.weight", &[16, 32, 3, 4], &bell(seed + 1, 6144)),
        Owned::new("nan.weight", &shape, &with(77, f32::NAN)),
        Owned::new("inf.weight", &shape, &with(0, f32::NEG_INFINITY)),
        Owned::new("zeros.weight", &shape, &vec![0.0; n]),
        Owned::new("constant.weight", &shape, &vec![-0.7; n]),
        Owned::new("three.weight", &shape, &(0..n).map(|i| (i % 3) as f32).collect::<Vec<_>>()),
        Owned::new("outlier.weight", &shape, &with(5, 3e38)),
        Owned::new("both.weight", &shape, &{
            let mut v = with(5, f32::MAX);
            v[6] = f32::MIN;
            v
        }),
        Owned::new("tiny.weight", &shape, &plain.iter().map(|x| x * 1e-38).collect::<Vec<_>>()),
        Owned::new("one", &[1], &[3.5]),
        Owned::new("none", &[0, 7], &[]),
        Owned::new("a.bias", &[80], &bell(3, 80)),
        halves(Dtype::BF16, &|x| (x.to_bits() >> 16) as u16),
        halves(Dtype::F16, &|x| mdl_codec::quant::numbers::to_f16(x)),
    ];
    all.push(Owned {
        dtype: Dtype::F64,
        bytes: plain.iter().flat_map(|&x| f64::from(x).to_le_bytes()).collect(),
        ..Owned::new("f64.weight", &shape, &[])
    });
    all.push(Owned {
        dtype: Dtype::I64,
        bytes: (0..n as i64).flat_map(|i| i.to_le_bytes()).collect(),
        ..Owned::new("ids", &shape, &[])
    });
    all
}

fn limit(tensors: &[Tensor<'_>]) -> usize {
    tensors.iter().map(|t| t.bytes.len()).sum()
}

#[test]
fn every_system_survives_every_tensor_alone_and_against_a_parent() {
    let (first, second) = (hostile(1), hostile(2));
    let (a, mut b) = (views(&first), views(&second));
    // A tensor that changed its shape, and one that is new.
    let turned = Owned::new("conv.weight", &[32, 16, 3, 4], &bell(9, 6144));
    b[2] = views(std::slice::from_ref(&turned))[0];
    let fresh = Owned::new("new.weight", &[64, 80], &bell(10, 5120));
    b.push(views(std::slice::from_ref(&fresh))[0]);
    for spec in SPECS {
        let s = system(spec).unwrap();
        let one = s.encode(&a, None).unwrap();
        let parent = s.decode(&one, None, limit(&a)).unwrap();
        let two = s.encode(&b, Some(&parent)).unwrap();
        let child = s.decode(&two, Some(&parent), limit(&b)).unwrap();
        assert_eq!(child.tensors.len(), b.len(), "{spec}");
        for (state, tensors) in [(&parent, &a), (&child, &b)] {
            for t in tensors.iter() {
                let kept = &state.tensors[t.name];
                assert_eq!((kept.dtype, kept.shape.as_slice()), (t.dtype, t.shape), "{spec} {}", t.name);
                if !t.quantisable() || t.name.starts_with("nan") || t.name.starts_with("inf") {
                    assert_eq!(kept.bytes, t.bytes, "{spec} {}", t.name);
                } else if t.dtype == Dtype::F32 {
                    assert!(floats(kept).iter().all(|x| x.is_finite()), "{spec} {}", t.name);
                }
            }
        }
        assert!(s.encode(&b, Some(&parent)).unwrap() == two, "{spec}: the same again");
        assert!(s.decode(&two, Some(&parent), limit(&b) - 1).is_err(), "{spec}");
    }
}

#[test]
fn constants_zeros_and_few_values_come_back_where_bins_suffice() {
    let all = hostile(1);
    let tensors = views(&all);
    for spec in ["adaptive:bits=4", "uniform:bits=4", "kmeans", "bins:protect=0", "nf4", "int8"] {
        let s = system(spec).unwrap();
        let state = s.decode(&s.encode(&tensors, None).unwrap(), None, limit(&tensors)).unwrap();
        let near = |name: &str| {
            let t = tensors.iter().find(|t| t.name == name).unwrap();
            let want = t.bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b));
            want.zip(floats(&state.tensors[name])).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max)
        };
        assert_eq!(near("zeros.weight"), 0.0, "{spec}");
        assert!(near("constant.weight") < 0.005, "{spec}: {}", near("constant.weight"));
        if ["kmeans", "bins:protect=0"].contains(&spec) {
            assert!(near("three.weight") < 1e-6, "{spec}: {}", near("three.weight"));
        }
    }
}

#[test]
fn broken_bytes_are_errors_or_other_numbers() {
    let small = [Owned::new("a.weight", &[64, 64], &bell(1, 4096)), Owned::new("b", &[3], &[1.0, 2.0, 3.0])];
    let tensors = views(&small);
    for spec in SPECS {
        let s = system(spec).unwrap();
        let parent = s.decode(&s.encode(&tensors, None).unwrap(), None, limit(&tensors)).unwrap();
        for before in [None, Some(&parent)] {
            let good = s.encode(&tensors, before).unwrap();
            for cut in (0..good.len()).step_by(1 + good.len() / 60) {
                assert!(s.decode(&good[..cut], before, limit(&tensors)).is_err(), "{spec} cut at {cut}");
            }
            for i in 0..good.len().min(200) {
                let mut bad = good.clone();
                // The head, then all over.
                let at = if i < 120 { i } else { i * 7919 % good.len() };
                bad[at] ^= 1 << (i % 8);
                let _ = s.decode(&bad, before, limit(&tensors));
            }
        }
        if !["lossless", "zstd"].contains(&spec) {
            let against = s.encode(&tensors, Some(&parent)).unwrap();
            assert!(s.decode(&against, None, limit(&tensors)).is_err(), "{spec}");
        }
    }
}

/// Largest error of the one weight of a system.
fn error(spec: &str, values: &[f32], shape: &[usize]) -> (f32, usize) {
    let owned = [Owned::new("a.weight", shape, values)];
    let tensors = views(&owned);
    let s = system(spec).unwrap();
    let bytes = s.encode(&tensors, None).unwrap();
    let state = s.decode(&bytes, None, limit(&tensors)).unwrap();
    let back = floats(&state.tensors["a.weight"]);
    let worst = values.iter().zip(&back).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max);
    (worst, bytes.len())
}

#[test]
fn bounds_that_the_papers_give() {
    let values = bell(4, 8192);
    let span = values.iter().copied().fold(0.0, f32::max) - values.iter().copied().fold(0.0, f32::min);
    for bits in [2, 4, 8] {
        let half = span / ((1 << bits) - 1) as f32 / 2.0;
        assert!(error(&format!("uniform:bits={bits}"), &values, &[64, 128]).0 <= half * 1.001);
    }
    for bound in [0.1f32, 1e-3, 1e-6] {
        let worst = error(&format!("delta-dnn:bound={bound},level=1"), &values, &[64, 128]).0;
        assert!(f64::from(worst) <= f64::from(bound).ln_1p() * 1.000_001, "{bound}: {worst}");
    }
    let top = values.iter().fold(0f32, |m, x| m.max(x.abs()));
    assert!(error("int8", &values, &[64, 128]).0 <= top / 254.0 * 1.001);
    assert!(error("nf4", &values, &[64, 128]).0 <= top * 0.152);
}

#[test]
fn delta_dnn_keeps_its_bound_against_any_parent_and_dtype() {
    let s = system("delta-dnn:bound=0.001,level=1").unwrap();
    let (first, second) = (hostile(1), hostile(2));
    let (a, b) = (views(&first), views(&second));
    let parent = s.decode(&s.encode(&a, None).unwrap(), None, limit(&a)).unwrap();
    let child = s.decode(&s.encode(&b, Some(&parent)).unwrap(), Some(&parent), limit(&b)).unwrap();
    for t in b.iter().filter(|t| t.quantisable()) {
        let (mut x, mut y) = (Vec::new(), Vec::new());
        Values::new(t.dtype, t.bytes).unwrap().widen(&mut x);
        Values::new(t.dtype, &child.tensors[t.name].bytes).unwrap().widen(&mut y);
        for (x, y) in x.iter().zip(&y).filter(|(x, _)| x.is_finite()) {
            let off = (f64::from(*x) - f64::from(*y)).abs();
            assert!(off <= 0.001f64.ln_1p(), "{}: {x} {y}", t.name);
        }
    }
}

#[test]
fn greedy_ranges_beat_plain_ones_on_outliers() {
    let mut values = bell(5, 8192);
    values.iter_mut().step_by(128).for_each(|x| *x = 0.4);
    let square = |spec: &str| {
        let owned = [Owned::new("a.weight", &[64, 128], &values)];
        let tensors = views(&owned);
        let s = system(spec).unwrap();
        let back = s.decode(&s.encode(&tensors, None).unwrap(), None, limit(&tensors)).unwrap();
        let back = floats(&back.tensors["a.weight"]);
        values.iter().zip(&back).map(|(x, y)| f64::from((x - y) * (x - y))).sum::<f64>()
    };
    assert!(square("adaptive:bits=3") < 0.9 * square("adaptive:bits=3,range=0"));
    assert!(square("kmeans:bins=8") < square("uniform:bits=3,coder=packed"));
}

#[test]
fn emitted_bytes_are_what_the_formats_say() {
    let values = bell(6, 1 << 16);
    let size = |spec| error(spec, &values, &[256, 256]).1;
    let slack = |bytes: usize, want: usize| bytes >= want && bytes < want + 120;
    // Levels and two f32 for each of 256 rows.
    assert!(slack(size("adaptive:bits=4"), (1 << 15) + 2048));
    assert!(slack(size("nf4"), (1 << 15) + 4 * 1024));
    assert!(slack(size("nf4:double=1"), (1 << 15) + 1024 + 16));
    assert!(slack(size("uniform:bits=3,coder=packed"), (1 << 16) * 3 / 8 + 11));
    assert!(size("uniform:bits=3") < size("uniform:bits=3,coder=packed"));
    // Every level of a ladder is finer than the one before.
    for name in ["adaptive", "uniform", "kmeans", "lattice:scale=model", "neuzip-lossy"] {
        let levels = ladder(name).unwrap();
        let some: Vec<&String> = levels.iter().step_by(1 + levels.len() / 6).collect();
        let errors: Vec<f32> = some.iter().map(|s| error(s, &values, &[256, 256]).0).collect();
        assert!(errors.windows(2).all(|e| e[1] <= e[0] * 1.1), "{name}: {errors:?}");
    }
}

#[test]
fn lc_reproduces_its_buckets() {
    // Two buckets of the largest exponents (4 to 8 and -2 to -1) and the rest 0: middles of what is in them.
    let mut values = vec![0.25f32; 4096];
    values[..4].copy_from_slice(&[4.0, 7.0, -1.0, -1.5]);
    let owned = [Owned::new("a.weight", &[64, 64], &values)];
    let tensors = views(&owned);
    let s = system("lc:bits=1").unwrap();
    let back = s.decode(&s.encode(&tensors, None).unwrap(), None, limit(&tensors)).unwrap();
    let back = floats(&back.tensors["a.weight"]);
    assert_eq!(back[..5], [5.5, 5.5, 0.0, 0.0, 0.0]);
    let s = system("lc:bits=2").unwrap();
    let back = s.decode(&s.encode(&tensors, None).unwrap(), None, limit(&tensors)).unwrap();
    assert_eq!(floats(&back.tensors["a.weight"])[..5], [5.5, 5.5, -1.25, -1.25, 0.25]);
}

#[test]
fn settings_are_checked() {
    for bad in [
        "nothing",
        "uniform:bits=9",
        "uniform:min=64,max=8",
        "uniform:bits",
        "lattice:step=nan",
        "bins:bins=0",
        "nf4:color=red",
        "lc:bits=2,bits=3",
        "neuzip-lossy:keep=2",
        "paper:coder=x",
    ] {
        assert!(system(bad).is_err(), "{bad}");
    }
    for name in NAMES {
        assert_eq!(system(name).unwrap().name(), name);
        assert!(ladder(name).unwrap().iter().all(|s| system(s).is_ok()), "{name}");
    }
    assert_eq!(ladder("bins:bins=8,embedding=8,prune=0.1").unwrap().len(), 1);
    assert!(system("").unwrap_err().contains("there is no system"));
}
