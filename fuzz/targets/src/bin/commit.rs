//! libFuzzer over `mdl_fuzz::commit`.

#![no_main]

mdl_fuzz_targets::target!(commit);
