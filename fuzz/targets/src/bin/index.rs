//! libFuzzer over `mdl_fuzz::index`.

#![no_main]

mdl_fuzz_targets::target!(index);
