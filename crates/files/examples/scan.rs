//! Prints the layout of each file named on the command line, one extent or view a line; with `--json`, one JSON object
//! a file.

use mdl_files::{FileSource, Layout, scan};
use serde_json::json;
use std::{error::Error, path::Path};

fn main() -> Result<(), Box<dyn Error>> {
    let (flags, files): (Vec<String>, Vec<String>) = std::env::args().skip(1).partition(|a| a.starts_with("--"));
    for file in &files {
        let path = Path::new(file);
        match scan(&FileSource::open(path)?, path) {
            Ok(layout) if flags.iter().any(|f| f == "--json") => println!("{}", as_json(file, &layout)),
            Ok(layout) => as_text(file, &layout),
            Err(e) => println!("{file}: {e}"),
        }
    }
    Ok(())
}

fn as_text(file: &str, layout: &Layout) {
    let bytes: u64 = layout.extents.iter().filter_map(|e| e.byte_len()).sum();
    let (extents, views) = (layout.extents.len(), layout.views.len());
    println!("{file}: {:?}, {extents} extents ({bytes} bytes), {views} views", layout.format);
    for (i, e) in layout.extents.iter().enumerate() {
        println!("{i:6} {:>12} {:>6} {:?} {}", e.offset, e.dtype.name(), e.shape, e.name);
    }
    for v in &layout.views {
        let (dtype, shape, strides) = (v.dtype.name(), &v.shape, &v.strides);
        println!("  view {:>6}+{} {dtype} {shape:?} by {strides:?} {}", v.extent, v.offset, v.name);
    }
}

fn as_json(file: &str, layout: &Layout) -> serde_json::Value {
    let extents = layout.extents.iter();
    let extents =
        extents.map(|e| json!({"offset": e.offset, "dtype": e.dtype.name(), "shape": e.shape, "name": e.name}));
    let views = layout.views.iter().map(|v| {
        json!({"name": v.name, "extent": v.extent, "offset": v.offset, "dtype": v.dtype.name(), "shape": v.shape,
               "strides": v.strides})
    });
    json!({"file": file, "format": format!("{:?}", layout.format), "extents": extents.collect::<Vec<_>>(),
           "views": views.collect::<Vec<_>>()})
}
