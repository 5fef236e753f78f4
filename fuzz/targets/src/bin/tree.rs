//! libFuzzer over `mdl_fuzz::tree`.

#![no_main]

mdl_fuzz_targets::target!(tree);
