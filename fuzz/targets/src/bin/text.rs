//! libFuzzer over `mdl_fuzz::text`.

#![no_main]

mdl_fuzz_targets::target!(text);
