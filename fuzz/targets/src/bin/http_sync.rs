//! libFuzzer over `mdl_fuzz::http_sync`.

#![no_main]

mdl_fuzz_targets::target!(http_sync);
