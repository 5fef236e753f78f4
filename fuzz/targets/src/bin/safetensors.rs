//! libFuzzer over `mdl_fuzz::safetensors`.

#![no_main]

mdl_fuzz_targets::target!(safetensors);
