//! libFuzzer over `mdl_fuzz::xet_xorb`.

#![no_main]

mdl_fuzz_targets::target!(xet_xorb);
