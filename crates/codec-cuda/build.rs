//! Compiles the kernels as C++ where they are to run on the processor (feature `shim`). Without it there is nothing to
//! do: kernels travel as text and are compiled where the GPU is.

fn main() {
    println!("cargo::rerun-if-changed=kernels");
    println!("cargo::rerun-if-changed=shim");
    #[cfg(feature = "shim")]
    shim();
}

#[cfg(feature = "shim")]
fn shim() {
    use std::{env, fs, path::Path};
    let out = env::var("OUT_DIR").expect("cargo says where");
    let mut list: Vec<_> = fs::read_dir("kernels")
        .expect("the kernels")
        .map(|e| e.expect("an entry").file_name().into_string().expect("a plain name"))
        .filter_map(|name| name.strip_suffix(".cu").map(str::to_owned))
        .collect();
    list.sort();
    let lines = list.iter().map(|name| format!("namespace file_{name} {{\n#include \"{name}.cu\"\n}}\n"));
    // What they share comes first, outside every namespace.
    let mut shared: Vec<_> = fs::read_dir("kernels")
        .expect("the kernels")
        .map(|e| e.expect("an entry").file_name().into_string().expect("a plain name"))
        .filter(|name| name.ends_with(".cuh"))
        .collect();
    shared.sort();
    let shared = shared.iter().map(|name| format!("#include \"{name}\"\n"));
    let text: String = shared.chain(lines).collect();
    fs::write(Path::new(&out).join("files.inc"), text).expect("the list");
    let plain = || {
        let mut build = cc::Build::new();
        build
            .cpp(true)
            .std("c++17")
            .include(&out)
            .include("kernels")
            .include("shim")
            .opt_level(2)
            .flag("-ffp-contract=off")
            .flag("-fno-strict-aliasing")
            .flag_if_supported("-Wno-unused-function")
            .flag_if_supported("-Wno-unknown-pragmas");
        build
    };
    // What the shim alone does not show: `undefined` stops at addresses that are not aligned, which a GPU does not
    // forgive; `thread` tells of barriers that are missing within a block. The latter wants
    // TSAN_OPTIONS=suppressions=<shim/races.txt> and --test-threads=1, and is slow.
    println!("cargo::rerun-if-env-changed=MDL_SHIM_SANITIZE");
    let (mut shim, mut kernels) = (plain(), plain());
    let library = match env::var("MDL_SHIM_SANITIZE").as_deref() {
        Ok("undefined") => Some("ubsan"),
        Ok("thread") => Some("tsan"),
        Ok(other) => return println!("cargo::error=MDL_SHIM_SANITIZE is undefined or thread, not {other}"),
        Err(_) => None,
    };
    match library {
        Some("tsan") => {
            kernels.define("MDL_SHIM_THREAD", None).flag("-fsanitize=thread").flag("-g1");
            shim.define("MDL_SHIM_THREAD", None);
        }
        Some(_) => {
            kernels.flag("-fsanitize=undefined").flag("-fno-sanitize-recover=all").flag("-g1");
        }
        None => {}
    }
    shim.file("shim/shim.cpp").compile("mdl_shim");
    kernels.file("shim/kernels.cpp").compile("mdl_shim_kernels");
    if let Some(library) = library {
        println!("cargo::rustc-link-lib=dylib={library}");
    }
}
