//! libFuzzer over `mdl_fuzz::http_commit`.

#![no_main]

mdl_fuzz_targets::target!(http_commit);
