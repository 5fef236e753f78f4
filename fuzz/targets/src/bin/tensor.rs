//! libFuzzer over `mdl_fuzz::tensor`.

#![no_main]

mdl_fuzz_targets::target!(tensor);
