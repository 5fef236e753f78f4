//! libFuzzer over `mdl_fuzz::manifest`.

#![no_main]

mdl_fuzz_targets::target!(manifest);
