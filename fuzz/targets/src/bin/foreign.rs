//! libFuzzer over `mdl_fuzz::foreign`.

#![no_main]

mdl_fuzz_targets::target!(foreign);
