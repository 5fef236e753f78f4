//! libFuzzer over `mdl_fuzz::gguf`.

#![no_main]

mdl_fuzz_targets::target!(gguf);
