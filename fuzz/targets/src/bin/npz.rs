//! libFuzzer over `mdl_fuzz::npz`.

#![no_main]

mdl_fuzz_targets::target!(npz);
