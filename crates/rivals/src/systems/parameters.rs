//! Parses systems by name and parameters: `uniform`, `uniform:bits=4`, `bins:bins=16,protect=0.005`.

use crate::systems::{
    Coder, System,
    adaptive::Adaptive,
    bins::Bins,
    blockwise::{Blockwise, Type},
    delta_dnn::DeltaDnn,
    kmeans::KMeans,
    lattice::{Lattice, Scale},
    lc::Lc,
    neuzip::NeuZip,
    plain::{Lossless, Zstd},
    uniform::Uniform,
};
use mdl_codec::quant::{
    Config, Metric,
    neuzip::{BLOCKS, KEPT},
    paper::Variant,
};
use std::{collections::BTreeMap, fmt::Display, str::FromStr};

/// The systems there are.
pub const NAMES: [&str; 14] = [
    "lossless",
    "zstd",
    "adaptive",
    "uniform",
    "kmeans",
    "lc",
    "delta-dnn",
    "int8",
    "nf4",
    "fp4",
    "neuzip-lossy",
    "paper",
    "bins",
    "lattice",
];

/// The system that a text asks for: its name, then `:` and settings `key=value` between commas.
///
/// # Errors
/// A sentence for the user: an unknown system or setting, a value out of range.
pub fn system(text: &str) -> Result<System, String> {
    let (name, rest) = text.split_once(':').unwrap_or((text, ""));
    let mut parameters = Parameters::parse(rest)?;
    let coder = coder(name, &mut parameters)?;
    if let Some(key) = parameters.0.keys().next() {
        return Err(format!("{name} has no setting {key}"));
    }
    Ok(System { name: text.to_owned(), coder })
}

fn coder(name: &str, k: &mut Parameters) -> Result<Box<dyn Coder>, String> {
    Ok(match name {
        "lossless" => Box::new(Lossless),
        "zstd" => Box::new(Zstd { level: k.within("level", 3, 1, 22)? }),
        "adaptive" => Box::new(Adaptive {
            bits: k.within("bits", 4, 1, 8)?,
            steps: k.within("steps", 100, 1, 1000)?,
            range: k.within("range", 0.5, 0.0, 0.99)?,
        }),
        "uniform" => uniform(k)?,
        "kmeans" => Box::new(KMeans {
            bins: k.within("bins", 16, 2, 256)?,
            embedding: k.within("embedding", 32, 2, 256)?,
            outlier: k.within("outlier", -4.0, -1e3, 1e3)?,
            rounds: k.within("rounds", 1000, 1, 1000)?,
        }),
        "lc" => Box::new(Lc { bits: k.within("bits", 3, 1, 8)? }),
        "delta-dnn" => {
            Box::new(DeltaDnn { bound: k.within("bound", 1e-3, 1e-12, 1e12)?, level: k.within("level", 19, 1, 22)? })
        }
        "int8" | "nf4" | "fp4" => {
            let kind = match name {
                "int8" => Type::Int8,
                "nf4" => Type::Nf4,
                _ => Type::Fp4,
            };
            let block = if kind == Type::Int8 { 0 } else { 64 };
            Box::new(Blockwise {
                kind,
                block: k.within("block", block, 0, 1 << 20)?,
                double: k.within("double", 0u8, 0, 1)? == 1,
            })
        }
        "neuzip-lossy" => Box::new(NeuZip { keep: k.among("keep", 3, &KEPT)?, block: k.among("block", 512, &BLOCKS)? }),
        "paper" => Box::new(Bins {
            coder: Some(k.among("coder", Named(Variant::Pe), &Variant::ALL.map(Named))?.0),
            ..bins(k)?
        }),
        "bins" => Box::new(bins(k)?),
        "lattice" => Box::new(Lattice {
            step: k.within("step", 0.5, 1e-6, 1e6)?,
            scale: if k.among("scale", "tensor".to_owned(), &["tensor".to_owned(), "model".to_owned()])? == "model" {
                Scale::Model
            } else {
                Scale::Tensor
            },
            sensitivity: k.within("sensitivity", 1u8, 0, 1)? == 1,
        }),
        _ => return Err(format!("there is no system {name}; there are {}", NAMES.join(", "))),
    })
}

fn uniform(k: &mut Parameters) -> Result<Box<dyn Coder>, String> {
    const POWERS: [u16; 8] = [2, 4, 8, 16, 32, 64, 128, 256];
    let bits: u32 = k.within("bits", 0, 0, 8)?;
    let both = if bits > 0 { [1 << bits; 2] } else { [16, 256] };
    let (min, max) = (k.among("min", both[0], &POWERS)?, k.among("max", both[1], &POWERS)?);
    if min > max {
        return Err("uniform needs min to be at most max".to_owned());
    }
    let coders = ["huffman".to_owned(), "packed".to_owned()];
    Ok(Box::new(Uniform { min, max, packed: k.among("coder", coders[0].clone(), &coders)? == "packed" }))
}

fn bins(k: &mut Parameters) -> Result<Bins, String> {
    let bins: u16 = k.within("bins", 16, 1, 256)?;
    let metrics = ["sensitivity".to_owned(), "magnitude".to_owned()];
    let metric = k.among("metric", metrics[0].clone(), &metrics)?;
    let config = Config {
        bins,
        // Table 9: embeddings take 16 or 32, and never fewer than the rest.
        embedding_bins: k.within("embedding", bins.max(16), 1, 256)?,
        prune: k.within("prune", 0.0, 0.0, 1.0)?,
        protect: k.within("protect", 0.005, 0.0, 1.0)?,
        metric: if metric == "magnitude" { Metric::Magnitude } else { Metric::Sensitivity },
    };
    Ok(Bins { config, coder: None, sigma: k.within("weight", mdl_codec::quant::SIGMA, 0.0, 1.0)? })
}

/// Settings of one system, coarse to fine, for a search: the text `system` reads, with the settings that `text` already
/// gives. Systems without such a setting have a ladder of one.
pub fn ladder(text: &str) -> Result<Vec<String>, String> {
    system(text)?;
    let (name, rest) = text.split_once(':').unwrap_or((text, ""));
    let geometric = |key: &str, from: i32, to: i32, parts: f64| -> Vec<String> {
        (to..=from).rev().map(|i| format!("{key}={:.6e}", (f64::from(i) / parts).exp2())).collect()
    };
    let list = |key: &str, values: &[u16]| -> Vec<String> { values.iter().map(|v| format!("{key}={v}")).collect() };
    const BINS: [u16; 19] = [2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 48, 64, 128, 256];
    let levels = match name {
        "adaptive" | "lc" | "uniform" => list("bits", &[1, 2, 3, 4, 5, 6, 7, 8]),
        "kmeans" | "paper" | "bins" => BINS.iter().map(|b| format!("bins={b},embedding={b}")).collect(),
        "delta-dnn" => geometric("bound", 8, -96, 4.0),
        "neuzip-lossy" => list("keep", &[0, 1, 3]),
        "lattice" => geometric("step", 40, -160, 16.0),
        _ => return Ok(vec![text.to_owned()]),
    };
    // What the caller has set stays set.
    let fixed: Vec<&str> = rest.split(',').filter_map(|p| p.split_once('=')).map(|p| p.0).collect();
    let mut out = Vec::new();
    for level in levels {
        let free: Vec<&str> =
            level.split(',').filter(|p| p.split_once('=').is_some_and(|(key, _)| !fixed.contains(&key))).collect();
        let parts: Vec<&str> = [rest].into_iter().filter(|r| !r.is_empty()).chain(free).collect();
        out.push(if parts.is_empty() { name.to_owned() } else { format!("{name}:{}", parts.join(",")) });
    }
    out.dedup();
    Ok(out)
}

/// Settings that were given and not yet asked for.
struct Parameters(BTreeMap<String, String>);

impl Parameters {
    fn parse(text: &str) -> Result<Parameters, String> {
        let mut map = BTreeMap::new();
        for part in text.split(',').filter(|p| !p.is_empty()) {
            let (key, value) = part.split_once('=').ok_or_else(|| format!("{part} is no setting; one is KEY=VALUE"))?;
            if map.insert(key.to_owned(), value.to_owned()).is_some() {
                return Err(format!("{key} is set twice"));
            }
        }
        Ok(Parameters(map))
    }

    /// The value of a setting, or its default.
    fn take<T: FromStr>(&mut self, key: &str, default: T) -> Result<T, String> {
        match self.0.remove(key) {
            None => Ok(default),
            Some(v) => v.parse().map_err(|_| format!("{key}={v} is not understood")),
        }
    }

    fn within<T: FromStr + PartialOrd + Display>(
        &mut self,
        key: &str,
        default: T,
        low: T,
        high: T,
    ) -> Result<T, String> {
        let v = self.take(key, default)?;
        if v >= low && v <= high { Ok(v) } else { Err(format!("{key} goes from {low} to {high}")) }
    }

    fn among<T: FromStr + PartialEq + Display>(&mut self, key: &str, default: T, list: &[T]) -> Result<T, String> {
        let v = self.take(key, default)?;
        if list.contains(&v) {
            return Ok(v);
        }
        let all: Vec<String> = list.iter().map(T::to_string).collect();
        Err(format!("{key} is one of {}", all.join(", ")))
    }
}

/// A variant of the paper's coder, by its name.
#[derive(Clone, Copy, PartialEq)]
struct Named(Variant);

impl Display for Named {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.name())
    }
}

impl FromStr for Named {
    type Err = ();

    fn from_str(s: &str) -> Result<Self, ()> {
        Variant::ALL.into_iter().find(|v| v.name() == s).map(Named).ok_or(())
    }
}
