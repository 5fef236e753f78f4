//! libFuzzer over `mdl_fuzz::http_hub`.

#![no_main]

mdl_fuzz_targets::target!(http_hub);
