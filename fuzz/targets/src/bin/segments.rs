//! libFuzzer over `mdl_fuzz::segments`.

#![no_main]

mdl_fuzz_targets::target!(segments);
