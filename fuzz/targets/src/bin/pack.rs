//! libFuzzer over `mdl_fuzz::pack`.

#![no_main]

mdl_fuzz_targets::target!(pack);
