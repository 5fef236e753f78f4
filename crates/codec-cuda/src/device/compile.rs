//! Kernel compilation with NVRTC, and the on-disk cache of machine code. One of the modules with unsafe code.
//!
//! NVRTC makes machine code (cubin) for one architecture, so that no driver is too old for its PTX. What was made is
//! kept below the user's cache directory by the hash of text, options and architecture; with it there, NVRTC is not
//! needed at all.

use crate::{DeviceError, Result, kernels::source};
use cudarc::nvrtc::{result, sys};
use std::{
    env,
    ffi::CString,
    fs, io,
    path::{Path, PathBuf},
    sync::OnceLock,
};

/// What all kernels are compiled with: no contraction, so that each operation rounds as the processor's does.
const OPTIONS: [&str; 3] = ["--std=c++17", "--fmad=false", "--diag-suppress=177"];
/// Where machine code is kept, instead of the user's cache directory.
const CACHE: &str = "MDL_KERNEL_CACHE";
/// NVRTC's file or directory, instead of where it is usually found.
const NVRTC: &str = "MDL_NVRTC";
/// Bytes of the hash in front of what is kept.
const HASH: usize = 32;

/// Machine code, and what the assembler said of it.
#[derive(Clone, Debug)]
pub(crate) struct Compiled {
    pub cubin: Vec<u8>,
    #[cfg_attr(not(test), allow(dead_code, reason = "tests look for spills in it"))]
    pub log: String,
}

/// The machine code of a file for an architecture (90 for sm_90): kept from before, or compiled now and kept.
pub(crate) fn cubin(file: &str, arch: u32) -> Result<Vec<u8>> {
    let kept = kept_at(file, arch)?;
    if let Some(found) = kept.as_deref().and_then(read) {
        return Ok(found);
    }
    let made = compile(file, arch)?.cubin;
    if let Some(path) = kept {
        // Without a cache the next process compiles again: slower, no failure.
        let _ = write(&path, &made);
    }
    Ok(made)
}

/// Where the machine code of a file is kept, if anywhere.
pub(crate) fn kept_at(file: &str, arch: u32) -> Result<Option<PathBuf>> {
    let text = text_of(file)?;
    Ok(cache_dir().map(|dir| dir.join(name_of(file, &text, arch))))
}

/// Compiles a file and keeps nothing.
pub(crate) fn compile(file: &str, arch: u32) -> Result<Compiled> {
    let failed = |why: String| DeviceError::Kernel { name: file.to_owned(), why };
    version()?;
    let text = CString::new(text_of(file)?).map_err(|_| failed("a zero byte in the text".to_owned()))?;
    let name = CString::new(format!("{file}.cu")).map_err(|_| failed("a zero byte in the name".to_owned()))?;
    let program = result::create_program(&text, Some(&name)).map_err(|e| failed(e.to_string()))?;
    let mut options: Vec<String> = OPTIONS.map(str::to_owned).into();
    options.extend([format!("--gpu-architecture=sm_{arch}"), "--ptxas-options=-v".to_owned()]);
    // SAFETY: the program is alive until `destroy_program`, text and name outlive it.
    let done = unsafe {
        let compiled = result::compile_program(program, &options);
        let log = result::get_program_log(program).unwrap_or_default();
        let log: Vec<u8> = log.into_iter().map(|c| c as u8).take_while(|&c| c != 0).collect();
        let log = String::from_utf8_lossy(&log).into_owned();
        let made = match compiled {
            Ok(()) => machine_code(program).map(|cubin| Compiled { cubin, log }),
            Err(_) => Err(log),
        };
        let _ = result::destroy_program(program);
        made
    };
    done.map_err(failed)
}

/// # Safety
/// A program that was compiled.
unsafe fn machine_code(program: sys::nvrtcProgram) -> std::result::Result<Vec<u8>, String> {
    let mut size = 0;
    // SAFETY: the caller's; the buffer is as long as NVRTC asks for.
    unsafe {
        sys::nvrtcGetCUBINSize(program, &mut size).result().map_err(|e| e.to_string())?;
        let mut cubin = vec![0u8; size];
        sys::nvrtcGetCUBIN(program, cubin.as_mut_ptr().cast()).result().map_err(|e| e.to_string())?;
        Ok(cubin)
    }
}

/// NVRTC's version.
///
/// # Errors
/// [`DeviceError::Absent`] where it is not found.
pub(crate) fn version() -> Result<(i32, i32)> {
    static FOUND: OnceLock<bool> = OnceLock::new();
    let found = *FOUND.get_or_init(|| {
        preload();
        // SAFETY: opens libraries by their usual names.
        unsafe { sys::is_culib_present() }
    });
    if !found {
        return Err(DeviceError::Absent(format!(
            "NVRTC, which compiles kernels, was not found: install nvidia-cuda-nvrtc-cu12 or name its library in {NVRTC}"
        )));
    }
    let (mut major, mut minor) = (0, 0);
    // SAFETY: two places for two numbers.
    unsafe { sys::nvrtcVersion(&mut major, &mut minor) }.result().map_err(|e| DeviceError::Failed(e.to_string()))?;
    Ok((major, minor))
}

/// Where NVRTC may be besides where the system has libraries.
pub(crate) fn libraries() -> Vec<PathBuf> {
    const NAME: &str = "libnvrtc.so.12";
    let given = env::var_os(NVRTC).map(PathBuf::from);
    let mut list: Vec<PathBuf> = given.into_iter().flat_map(|p| [p.join(NAME), p]).collect();
    if let Some(venv) = env::var_os("VIRTUAL_ENV") {
        let versions = fs::read_dir(Path::new(&venv).join("lib")).into_iter().flatten().flatten();
        list.extend(versions.map(|v| v.path().join("site-packages/nvidia/cuda_nvrtc/lib").join(NAME)));
    }
    let toolkit = env::var_os("CUDA_PATH").map_or_else(|| PathBuf::from("/usr/local/cuda"), PathBuf::from);
    list.push(toolkit.join("lib64").join(NAME));
    list
}

/// Opens NVRTC where Python's packages and toolkits have it; a later load by name then gets this one.
fn preload() {
    for path in libraries().into_iter().filter(|p| p.is_file()) {
        // SAFETY: a library of the system's or the user's naming; NVRTC's initialisers do nothing to us.
        if let Ok(library) = unsafe { libloading::Library::new(&path) } {
            // Never unloaded: functions of it are kept in statics.
            std::mem::forget(library);
            return;
        }
    }
}

fn text_of(file: &str) -> Result<String> {
    source(file).ok_or_else(|| DeviceError::Kernel { name: file.to_owned(), why: "there is no such file".to_owned() })
}

/// Name of what is kept.
fn name_of(file: &str, text: &str, arch: u32) -> String {
    let mut hash = blake3::Hasher::new();
    OPTIONS.iter().chain([&text]).for_each(|part| {
        hash.update(part.as_bytes()).update(&[0]);
    });
    format!("{file}-sm_{arch}-{}.cubin", &hash.finalize().to_hex()[..24])
}

/// Where machine code is kept, if anywhere.
pub(crate) fn cache_dir() -> Option<PathBuf> {
    let some = |name| env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    some(CACHE).or_else(|| {
        let base = some("XDG_CACHE_HOME").or_else(|| some("HOME").map(|h| h.join(".cache")))?;
        Some(base.join("mdl").join("kernels"))
    })
}

/// What was kept, if all of it is there.
fn read(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = fs::read(path).ok()?;
    let cubin = bytes.split_off(bytes.len().min(HASH));
    (blake3::hash(&cubin).as_bytes()[..] == bytes[..]).then_some(cubin)
}

fn write(path: &Path, cubin: &[u8]) -> io::Result<()> {
    let dir = path.parent().ok_or(io::ErrorKind::NotFound)?;
    make_dir(dir)?;
    let temporary = path.with_extension(format!("tmp-{}", std::process::id()));
    fs::write(&temporary, [blake3::hash(cubin).as_bytes(), cubin].concat())?;
    fs::rename(&temporary, path)
}

/// Code is loaded from there, so only the user may have access.
fn make_dir(dir: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::files;

    /// Compiles every kernel for every generation that is supported. Needs NVRTC, but no GPU.
    #[test]
    fn every_kernel_compiles_without_spills_or_stack() {
        if let Err(why) = version() {
            assert!(env::var_os("MDL_REQUIRE_NVRTC").is_none(), "{why}");
            eprintln!("SKIPPED: {why}");
            return;
        }
        for file in files() {
            for arch in [80, 90, 100] {
                let made = compile(file, arch).unwrap_or_else(|e| panic!("sm_{arch}: {e}"));
                assert!(made.cubin.starts_with(b"\x7fELF"), "{file}");
                let said: Vec<&str> = made.log.lines().filter(|l| l.contains("spill")).collect();
                assert!(!said.is_empty(), "{file}: {}", made.log);
                for line in said {
                    assert!(
                        line.contains(" 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"),
                        "{file} sm_{arch}: {}",
                        made.log
                    );
                }
                assert!(made.log.contains(" registers"), "{file}: {}", made.log);
                fits_a_block(&made.log);
            }
        }
    }

    /// Threads to a block at most, but for this kernel: 1,024.
    const THREADS: u32 = 512;
    const WIDE: &str = "sketch_pack";

    /// A block has 65,536 registers, dealt out to warps by eights a thread, and 48 KiB of shared memory: a launch that
    /// needs more fails, and not before it is tried.
    fn fits_a_block(log: &str) {
        let before = |line: &str, unit: &str| -> Option<u32> {
            let (head, _) = line.split_once(unit)?;
            head.rsplit(' ').next()?.parse().ok()
        };
        let mut kernel = "";
        for line in log.lines() {
            if let Some((_, rest)) = line.split_once("entry function '") {
                kernel = rest.split('\'').next().unwrap_or_default();
            }
            if let Some(registers) = before(line, " registers") {
                let threads = if kernel == WIDE { 1024 } else { THREADS };
                assert!(registers.next_multiple_of(8) * threads <= 1 << 16, "{kernel}: {line}");
                assert!(before(line, " bytes smem").unwrap_or(0) <= 48 << 10, "{kernel}: {line}");
            }
        }
    }

    #[test]
    fn what_is_kept_is_whole_or_nothing() {
        let dir = env::temp_dir().join(format!("mdl-kernels-{}", std::process::id()));
        let path = dir.join("sub").join("x.cubin");
        write(&path, b"machine code").unwrap();
        assert_eq!(read(&path).as_deref(), Some(&b"machine code"[..]));
        let whole = fs::read(&path).unwrap();
        for cut in 0..whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            assert_eq!(read(&path), None, "{cut}");
        }
        let mut flipped = whole;
        flipped[40] ^= 1;
        fs::write(&path, flipped).unwrap();
        assert_eq!(read(&path), None);
        fs::remove_dir_all(dir).unwrap();
    }
}
