//! libFuzzer over `mdl_fuzz::ingest`.

#![no_main]

mdl_fuzz_targets::target!(ingest);
