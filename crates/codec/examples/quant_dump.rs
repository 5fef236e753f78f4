//! Prints what the quantiser makes of a file of little-endian f32, as JSON, for the reference in `tests/quant/`.
//!
//! `quant_dump FILE BINS PRUNE PROTECT magnitude|sensitivity SEED [GRADIENT_FILE]`: sketch cells of all numbers and of
//! those left for the bins, exact and k-means++ centres, quantiles of |x|, codebook (exact), levels, protected numbers
//! and the bits of the reconstruction. `quant_dump FILE time` prints milliseconds instead (best of several).

use mdl_codec::{
    Dtype,
    quant::{
        Codebook, Config, Metric, Points, Role, SIGMA, Sketch, Survey, Values, cluster, kmeans, quantise, reconstruct,
        rest,
    },
};
use std::{error::Error, fmt::Debug};

mod tensors;

/// A JSON list; `{:?}` writes the shortest digits that read back as the same float.
fn list<T: Debug>(values: impl IntoIterator<Item = T>) -> String {
    format!("{:?}", values.into_iter().collect::<Vec<_>>())
}

fn cells(sketch: &Sketch) -> String {
    let pairs: Vec<String> = sketch.cells().iter().map(|(v, n)| format!("[{v:?},{n}]")).collect();
    format!("[{}]", pairs.join(","))
}

fn dump(args: &[String], bytes: &[u8]) -> Result<(), Box<dyn Error>> {
    let config = Config {
        bins: args[1].parse()?,
        embedding_bins: 32,
        prune: args[2].parse()?,
        protect: args[3].parse()?,
        metric: if args[4] == "sensitivity" { Metric::Sensitivity } else { Metric::Magnitude },
    };
    let seed = args[5].parse()?;
    let gradient_bytes = args.get(6).map(std::fs::read).transpose()?;
    let weights = Values::new(Dtype::F32, bytes)?;
    let gradient = gradient_bytes.as_deref().map(|g| Values::new(Dtype::F32, g)).transpose()?;

    let mut survey = Survey::default();
    survey.add(Role::Linear, weights, gradient)?;
    let cuts = survey.thresholds(&config)?.cuts(Role::Linear);
    let left = rest(weights, gradient, &cuts)?;
    let points = Points::from_sketch(&left, SIGMA)?;
    let exact = cluster(&points, usize::from(config.bins));
    let reference = kmeans(&points, usize::from(config.bins), seed);
    let codebook = Codebook::new(&exact)?;
    let quantised = quantise(weights, gradient, &cuts, &codebook)?.ok_or("the numbers are not finite")?;
    let restored = reconstruct(Dtype::F32, &quantised, &codebook)?;

    let all = Sketch::from_values(weights);
    let quantiles = [0.0, 0.1, 0.25, 0.5, 0.9, 0.999, 1.0].map(|q| all.quantile_abs(q).unwrap_or(0.0));
    println!("{{\"cells\":{},\"rest\":{},", cells(&all), cells(&left));
    println!("\"quantiles\":{},\"exact\":{},\"kmeans\":{},", list(quantiles), list(&exact), list(&reference));
    println!("\"loss\":{:?},\"codebook\":{},", points.loss(&exact), list(codebook.values()));
    println!("\"levels\":{},\"protected\":{},", list(&quantised.levels), list(&quantised.protected));
    let bits = restored.chunks_exact(4).map(|e| u32::from_le_bytes([e[0], e[1], e[2], e[3]]));
    println!("\"restored\":{}}}", list(bits));
    Ok(())
}

fn best_ms(work: impl FnMut()) -> f64 {
    1e3 * tensors::best(9, work)
}

fn time(bytes: &[u8]) -> Result<(), Box<dyn Error>> {
    let weights = Values::new(Dtype::F32, bytes)?;
    let one = rayon::ThreadPoolBuilder::new().num_threads(1).build()?;
    let sketch = Sketch::from_values(weights);
    let points = Points::from_sketch(&sketch, SIGMA)?;
    let ms = one.install(|| best_ms(|| drop(Sketch::from_values(weights))));
    let mut copy = vec![0u8; bytes.len()];
    let memcpy = best_ms(|| copy.copy_from_slice(std::hint::black_box(bytes)));
    let rate = |ms: f64| bytes.len() as f64 / ms / 1e6;
    println!("{} numbers, {} cells; one thread", weights.len(), points.len());
    println!("sketch {ms:.2} ms, {:.2} GB/s; memcpy {:.2} GB/s", rate(ms), rate(memcpy));
    for k in [8, 32, 256] {
        let exact = best_ms(|| drop(std::hint::black_box(cluster(&points, k))));
        let seeded = best_ms(|| drop(std::hint::black_box(kmeans(&points, k, 1))));
        println!("{k} bins: exact {exact:.2} ms, k-means++ {seeded:.2} ms");
    }
    let mut survey = Survey::default();
    survey.add(Role::Linear, weights, None)?;
    let cuts = survey.thresholds(&Config::default())?.cuts(Role::Linear);
    let codebook = Codebook::exact(&rest(weights, None, &cuts)?, 32)?;
    let levels = one.install(|| quantise(weights, None, &cuts, &codebook))?.ok_or("not finite")?;
    let there = one.install(|| best_ms(|| drop(quantise(weights, None, &cuts, &codebook))));
    let back = one.install(|| best_ms(|| drop(reconstruct(Dtype::F32, &levels, &codebook))));
    println!("levels {there:.2} ms, {:.2} GB/s; reconstruction {back:.2} ms, {:.2} GB/s", rate(there), rate(back));
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let bytes = std::fs::read(args.first().ok_or("which file?")?)?;
    match args.len() {
        2 if args[1] == "time" => time(&bytes),
        6 | 7 => dump(&args, &bytes),
        _ => Err("FILE BINS PRUNE PROTECT METRIC SEED [GRADIENT_FILE], or FILE time".into()),
    }
}
