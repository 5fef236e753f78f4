//! libFuzzer over `mdl_fuzz::receive`.

#![no_main]

mdl_fuzz_targets::target!(receive);
