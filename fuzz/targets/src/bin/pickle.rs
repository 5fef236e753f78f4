//! libFuzzer over `mdl_fuzz::pickle`.

#![no_main]

mdl_fuzz_targets::target!(pickle);
