//! Prints what the crate makes of tensors in files, for the reference in numpy (`tests/quant/merge_reference.py`):
//! `merge_dump THREADS STRATEGY DTYPE NAME OUT BASE VERSION...` writes the elements before rounding (f64) to `OUT.f64`
//! and the rounded ones to `OUT.bytes`. STRATEGY is JSON, and `-` stands for no base. With `update` as STRATEGY and a
//! scale as NAME it applies the update from the first version to the second to BASE.

use mdl_codec::Dtype;
use mdl_merge::{Strategy, Tensors, apply_update, merge, merge_f64};
use std::{error::Error, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [threads, strategy, dtype, name, out, base, versions @ ..] = args.as_slice() else {
        return Err("THREADS STRATEGY DTYPE NAME OUT BASE VERSION...".into());
    };
    let dtype = Dtype::ALL.into_iter().find(|d| d.name() == dtype).ok_or("no such dtype")?;
    let base = (base != "-").then(|| fs::read(base)).transpose()?;
    let versions = versions.iter().map(fs::read).collect::<Result<Vec<_>, _>>()?;
    let versions: Vec<&[u8]> = versions.iter().map(Vec::as_slice).collect();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.parse()?).build()?;
    if strategy == "update" {
        let [from, to] = versions[..] else { return Err("two versions".into()) };
        let scale = name.parse()?;
        let current = base.ok_or("no base")?;
        fs::write(format!("{out}.bytes"), pool.install(|| apply_update(dtype, &current, from, to, scale))?)?;
        return Ok(());
    }
    let strategy: Strategy = serde_json::from_str(strategy)?;
    let tensors = Tensors { name, dtype, base: base.as_deref(), versions: &versions };
    let exact = pool.install(|| merge_f64(&strategy, &tensors))?;
    fs::write(format!("{out}.f64"), exact.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>())?;
    fs::write(format!("{out}.bytes"), pool.install(|| merge(&strategy, &tensors))?)?;
    Ok(())
}
