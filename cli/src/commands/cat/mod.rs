//! `mdl cat`: one tensor, as numbers that sum it up or as bytes.

mod stats;

use super::shared::need_path;
use crate::{
    commands::prelude::*,
    render::{json_number, shape, short_number},
};
use mdl_objects::{Manifest, Mode};
use mdl_repo::{Axis, Elements, Slice, npy_header, shape_of};
use serde_json::Number;
use stats::Stats;
use std::{
    fs,
    io::{self, IsTerminal},
};

/// Show one tensor: statistics, or its values as bytes
///
/// min, max, mean and std are over finite elements; NaN and infinite ones are counted. A slice decodes only the 8 MiB
/// segments that hold it. A tensor that is a view (transposed, part of a larger storage) comes as the view; the storage
/// is NAME#storage. Types numpy lacks (bf16, f8) become raw items ('V2', 'V1') in .npy files: view them with ml_dtypes.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  mdl cat main:model.safetensors encoder.layer.0.output.dense.weight
  mdl cat main~5:model.safetensors lm_head.weight --slice 0:10,: --npy -o rows.npy
  mdl cat HEAD:last.pt optimizer.state.0.exp_avg --raw | xxd | head")]
pub struct Args {
    /// The file, as REV:PATH.
    #[arg(value_name = "REV:PATH")]
    file: String,
    /// The tensor's name, as `mdl ls REV PATH` lists it.
    tensor: String,
    /// Write the elements: little-endian, row by row (C order), no header.
    #[arg(long, conflicts_with = "npy")]
    raw: bool,
    /// Write a numpy .npy file.
    #[arg(long)]
    npy: bool,
    /// Only a part: for every axis START:STOP, START:STOP:STEP or an index, negative ones counted from the end, and
    /// `...` once; axes left out are whole. Steps are 1 or more.
    #[arg(long, value_name = "SLICE", allow_hyphen_values = true)]
    slice: Option<Slice>,
    /// Write to FILE instead of standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub fn run(context: &mut Context, args: &Args) -> Result<()> {
    let binary = args.raw || args.npy;
    if args.output.is_some() && !binary {
        return Err(CliError::usage("-o wants --raw or --npy", "statistics go to standard output"));
    }
    if binary && args.output.is_none() && context.global.json {
        return Err(CliError::usage("--json and bytes do not go to one output", "give -o FILE"));
    }
    if binary && args.output.is_none() && io::stdout().is_terminal() {
        return Err(CliError::usage("bytes are not for a terminal", "give -o FILE, or pipe the output"));
    }
    let (rev, path) = need_path(&args.file)?;
    let repo = context.repo()?;
    let commit = mdl_repo::resolve(&repo, rev)?;
    let manifest = manifest(&repo, &commit, path)?;
    let elements = Elements::find(&manifest, &args.tensor, path)?;
    let axes = match &args.slice {
        Some(slice) => slice.apply(&elements.shape)?,
        None => elements.all(),
    };
    let out_shape = shape_of(&axes);
    if !binary {
        return summary(context, &repo, &elements, &axes, &out_shape, args);
    }
    let head = if args.npy { npy_header(elements.dtype, &out_shape) } else { Vec::new() };
    match &args.output {
        None => {
            context.out.write_all(&head)?;
            print(context, &repo, &elements, &axes)
        }
        Some(file) => {
            let bytes = save(&repo, &elements, &axes, &head, file)?;
            let document = json!({"output": file.display().to_string(), "bytes": bytes, "shape": out_shape});
            context.emit(&document, b"")
        }
    }
}

fn manifest(repo: &Repo, commit: &Id, path: &str) -> Result<Manifest> {
    let files = mdl_repo::files(repo, commit)?;
    let entry = files.get(path.trim_matches('/')).ok_or_else(|| not_found(Missing::File, path))?;
    if entry.mode != Mode::Manifest {
        let hint = format!("`mdl checkout REV --only '{path}' --to DIR` brings the file back");
        return Err(refused(format!("{path} is a plain file: it has no tensors"), hint));
    }
    Ok(repo.odb().manifest(&entry.id)?)
}

/// Writes the elements that are wanted to standard output, whose reader may stop at any byte.
fn print(context: &mut Context, repo: &Repo, elements: &Elements, axes: &[Axis]) -> Result<()> {
    let mut stopped = None;
    let done = elements.stream(repo.odb(), axes, &mut |bytes| {
        context.out.write_all(bytes).map_err(|e| {
            stopped = Some(e);
            RepoError::user("the output failed", "")
        })
    });
    match stopped {
        Some(e) => Err(e.into()),
        None => Ok(done?),
    }
}

/// Writes a file whole or not at all; what is no regular file (a pipe, /dev/null) is written in place.
fn save(repo: &Repo, elements: &Elements, axes: &[Axis], head: &[u8], file: &Path) -> mdl_repo::Result<u64> {
    let failed = |e| RepoError::io(format!("cannot write {}", file.display()))(e);
    let special = fs::metadata(file).is_ok_and(|m| !m.is_file());
    let part = if special { file.to_owned() } else { PathBuf::from(format!("{}.part", file.display())) };
    let write = || {
        let mut out = io::BufWriter::with_capacity(1 << 20, fs::File::create(&part).map_err(failed)?);
        out.write_all(head).map_err(failed)?;
        elements.stream(repo.odb(), axes, &mut |bytes| out.write_all(bytes).map_err(failed))?;
        out.flush().map_err(failed)
    };
    let done = write();
    if special {
        return done.map(|()| 0);
    }
    if let Err(e) = done {
        let _ = fs::remove_file(&part);
        return Err(e);
    }
    let bytes = fs::metadata(&part).map_err(failed)?.len();
    fs::rename(&part, file).map_err(failed)?;
    Ok(bytes)
}

fn summary(
    context: &mut Context,
    repo: &Repo,
    elements: &Elements,
    axes: &[Axis],
    out_shape: &[u64],
    args: &Args,
) -> Result<()> {
    let mut stats = Stats::default();
    let mut bytes = 0;
    elements.stream(repo.odb(), axes, &mut |chunk| {
        bytes += chunk.len() as u64;
        stats.add(elements.dtype, chunk);
        Ok(())
    })?;
    let whole = stats.whole(elements.dtype);
    let floats = || stats.min.zip(stats.max).map(|(a, b)| (json_number(a), json_number(b)));
    let integer = |n: i128| Value::from(Number::from_i128(n));
    let json_ends = whole.map(|(a, b)| (integer(a), integer(b))).or_else(floats);
    if context.global.json {
        return context.json(&json!({
            "tensor": args.tensor,
            "dtype": elements.dtype.name(),
            "shape": out_shape,
            "logical_bytes": bytes,
            "count": stats.count,
            "min": json_ends.as_ref().map(|e| &e.0),
            "max": json_ends.as_ref().map(|e| &e.1),
            "mean": stats.mean().map(json_number),
            "std": stats.std().map(json_number),
            "zeros": stats.zeros,
            "nan": stats.nan,
            "inf": stats.inf,
        }));
    }
    let number = |v: Option<f64>| v.map_or_else(|| "-".to_owned(), short_number);
    let (min, max) = match whole {
        Some((a, b)) => (a.to_string(), b.to_string()),
        None => (number(stats.min), number(stats.max)),
    };
    let paint = context.paint;
    let (name, shape) = (paint.bold(&visible(&args.tensor)), shape(out_shape));
    writeln!(context.out, "{name}  {} {shape}  {}", elements.dtype, size(bytes))?;
    let rows = [
        ("count", stats.count.to_string()),
        ("min", min),
        ("max", max),
        ("mean", number(stats.mean())),
        ("std", number(stats.std())),
        ("zeros", stats.zeros.to_string()),
        ("NaN", stats.nan.to_string()),
        ("infinite", stats.inf.to_string()),
    ];
    for (name, value) in rows {
        writeln!(context.out, "  {name:<10}{value}")?;
    }
    Ok(())
}
