//! libFuzzer over `mdl_fuzz::records`.

#![no_main]

mdl_fuzz_targets::target!(records);
