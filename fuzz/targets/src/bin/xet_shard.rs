//! libFuzzer over `mdl_fuzz::xet_shard`.

#![no_main]

mdl_fuzz_targets::target!(xet_shard);
