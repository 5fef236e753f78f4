//! libFuzzer over `mdl_fuzz::torch`.

#![no_main]

mdl_fuzz_targets::target!(torch);
